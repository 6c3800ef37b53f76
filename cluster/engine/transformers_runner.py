"""The general model runner, and the reference for faster ones: transformers' modelling code on paged attention.

Any decoder-only model whose state is keys and values runs here, on CPU or CUDA. A batch is one packed row of length T
with explicit positions; transformers' own cache and masks are not used.
"""

import inspect
from collections.abc import Sequence as Seq
from typing import Self

import torch
from torch import nn
from transformers import PreTrainedModel

from cluster.engine.attention import PagedAttention, register
from cluster.engine.feature_hooks import FeatureHooks
from cluster.engine.features import RoundFeatures
from cluster.engine.kv_cache import PagedKVCache
from cluster.engine.model_input import ModelInput
from cluster.engine.model_loader import load_reference_model
from cluster.engine.model_source import ModelSource
from cluster.engine.paged_support import (
    SELF_TEST_BLOCK_SIZE,
    SELF_TEST_NUM_BLOCKS,
    AttentionLayers,
    call_model,
    check_config,
    find_layers,
    position_limit,
    self_test,
)
from cluster.errors import ConfigError


class TransformersRunner:
    """Runs a loaded transformers model; see `ModelRunner` for the contract.

    Args:
        model: any decoder-only model on its device, in its dtype; taken over by the runner.
        num_kv_blocks: blocks of the KV cache.
        block_size: tokens per block.
        max_model_len: longest prompt plus output in tokens; 0 takes the model's own limit.

    Raises:
        LoadError: the model cannot run on paged attention.
        ConfigError: max_model_len is beyond the model's limit.
    """

    def __init__(self, model: PreTrainedModel, *, num_kv_blocks: int, block_size: int, max_model_len: int = 0) -> None:
        register()
        check_config(model)
        self._max_model_len = _resolve_max_model_len(model, max_model_len, num_kv_blocks * block_size)
        self._model = model.eval()
        self._computes_kept_rows = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._layers = find_layers(model)
        self._hooks = FeatureHooks(model, self._layers.index)
        self.num_layers = len(self._layers.index)
        self.hidden_size = int(model.config.get_text_config().hidden_size)
        test_cache = self._new_cache(SELF_TEST_NUM_BLOCKS, SELF_TEST_BLOCK_SIZE)
        self_test(model, lambda batch: self._run(batch, test_cache), self._layers.vocab_size)
        self._cache = self._new_cache(num_kv_blocks, block_size)

    @classmethod
    def load(
        cls,
        source: ModelSource,
        *,
        dtype: torch.dtype,
        num_kv_blocks: int,
        block_size: int,
        max_model_len: int = 0,
        device: torch.device | str = "cpu",
    ) -> Self:
        """Load a checkpoint onto a device and wrap it.

        Args:
            source: where the checkpoint lies.
            dtype: of weights, activations and KV cache.
            num_kv_blocks: blocks of the KV cache.
            block_size: tokens per block.
            max_model_len: longest prompt plus output in tokens; 0 takes the model's own limit.
            device: where the model runs.

        Raises:
            LoadError: the checkpoint is refused, or the model cannot run on paged attention.
            ConfigError: max_model_len is beyond the model's limit.
        """
        model: PreTrainedModel = load_reference_model(source, dtype)
        nn.Module.to(model, device)  # transformers' own wrapper is typed wrongly
        return cls(model, num_kv_blocks=num_kv_blocks, block_size=block_size, max_model_len=max_model_len)

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self._layers.vocab_size

    @property
    def num_kv_blocks(self) -> int:
        """Blocks of the KV cache."""
        return self._cache.num_blocks

    @property
    def block_size(self) -> int:
        """Tokens per KV block."""
        return self._cache.block_size

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output in tokens."""
        return self._max_model_len

    @property
    def dtype(self) -> str:
        """Name of the weights' dtype."""
        return str(self._model.dtype).removeprefix("torch.")

    @property
    def numerics(self) -> str:
        """Always "fast": a row's bits may depend on the batch around it."""
        return "fast"

    @property
    def kv_cache_bytes(self) -> int:
        """Memory of the KV cache."""
        return self._cache.num_bytes

    @torch.inference_mode()
    def forward(self, batch: ModelInput) -> torch.Tensor:
        """Write the KV of all rows; returns the logits of `batch.logit_rows`, [N, V] in the model's dtype."""
        return self._run(batch, self._cache)

    def capture(self, layers: tuple[int, ...]) -> None:
        """Keep what enters these layers, strictly rising, from the next pass on; `num_layers` is what leaves the last.

        Raises:
            LoadError: the model has no list of decoder layers.
        """
        self._hooks.capture(layers)

    @property
    def features(self) -> RoundFeatures:
        """The hidden states of the last pass."""
        return self._hooks.features

    def copy_kv_blocks(self, sources: Seq[int], destinations: Seq[int]) -> None:
        """Copy whole KV blocks of all layers; no block may be in both lists."""
        self._cache.copy_blocks(sources, destinations)

    def move_kv(self, sources: Seq[int], destinations: Seq[int]) -> None:
        """Copy the KV of single slots in all layers; see `TreeRunner`."""
        self._cache.move(sources, destinations)

    def close(self) -> None:
        """Release weights and KV cache."""
        del self._model, self._cache, self._hooks
        self._layers = AttentionLayers(index={}, kv_layers=(), vocab_size=self._layers.vocab_size)

    def _new_cache(self, num_blocks: int, block_size: int) -> PagedKVCache:
        return PagedKVCache(
            num_blocks=num_blocks, block_size=block_size, layers=self._layers.kv_layers, device=self._model.device
        )

    def _run(self, batch: ModelInput, cache: PagedKVCache) -> torch.Tensor:
        device = self._model.device
        paged = PagedAttention(cache=cache, layers=self._layers.index, batch=batch, device=device)
        logit_rows_N = torch.as_tensor(batch.logit_rows, dtype=torch.int64, device=device)
        token_ids_T, positions_T = torch.as_tensor(batch.token_ids), torch.as_tensor(batch.positions)
        if self._computes_kept_rows:
            return call_model(self._model, token_ids_T, positions_T, paged=paged, logits_to_keep=logit_rows_N)
        return call_model(self._model, token_ids_T, positions_T, paged=paged)[logit_rows_N]


def _resolve_max_model_len(model: PreTrainedModel, wanted: int, capacity: int) -> int:
    """The model's limit, or less if asked for; a model without one is limited by the KV cache."""
    limit = position_limit(model.config) or capacity
    if wanted > limit:
        raise ConfigError(
            field="max_model_len", value=wanted, allowed=f"at most {limit}, the limit of {type(model).__name__}"
        )
    return wanted or limit
