"""Puts a loaded draft model on the machine: the CPU kernels, or transformers' code on a GPU and for other families."""

import logging

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from cluster.config import DraftConfig
from cluster.engine.drafters.draft_ahead import DraftModel
from cluster.engine.drafters.draft_source import DraftWeights, load_draft_model
from cluster.engine.model_runner import ForkingRunner
from cluster.engine.native.runner import NativeRunner
from cluster.engine.native.weights import build_native_model, unsupported_reason
from cluster.engine.startup import EngineParts
from cluster.engine.transformers_runner import TransformersRunner
from cluster.errors import ConfigError

BLOCK_SIZE = 32
"""Tokens per KV block: the smallest that the CPU kernels take, as a fork copies half a block on average."""

_logger = logging.getLogger(__name__)


def build_draft_model(
    loaded: DraftWeights, config: DraftConfig, *, eos_token_ids: frozenset[int], device: str | None = None
) -> DraftModel:
    """A draft model that is ready to follow sequences.

    Args:
        loaded: from `load_draft_model`.
        config: KV capacity, length limit and threads are read.
        eos_token_ids: of the target.
        device: where it runs; None takes a GPU if there is one.

    Raises:
        ConfigError: `max_model_len` is beyond the model's limit.
        LoadError: the model cannot run on paged attention.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    limit = loaded.config.max_position_embeddings
    if config.max_model_len > limit:
        raise ConfigError(field="draft.max_model_len", value=config.max_model_len, allowed=f"at most {limit}")
    reason = unsupported_reason(loaded.config) if device == "cpu" else "it runs on a GPU"
    if reason is not None:
        _logger.info("the draft model runs in transformers' own code: %s", reason)
    num_blocks, max_model_len = config.kv_cache_tokens // BLOCK_SIZE, config.max_model_len or limit
    runner: ForkingRunner
    if reason is None:
        runner = _native_runner(loaded, num_blocks, max_model_len, config.num_threads)
    else:
        runner = _general_runner(loaded, num_blocks, max_model_len, device)
    return DraftModel(
        runner,
        target_ids=loaded.target_ids,
        vocab_size=loaded.config.vocab_size,
        eos_token_ids=eos_token_ids,
    )


def build_draft_beside(name: str, config: DraftConfig, parts: EngineParts) -> DraftModel:
    """The draft model of that name, for a target in the same process.

    Args:
        name: "bundled" or a folder.
        config: as for `build_draft_model`.
        parts: the target.

    Raises:
        ConfigError: `max_model_len` is beyond the model's limit.
        LoadError: the draft model is refused or incomplete, or does not fit the target.
    """
    loaded = load_draft_model(name, parts.source, target_tokenizer=parts.tokenizer)
    return build_draft_model(loaded, config, eos_token_ids=parts.eos_token_ids)


def _native_runner(loaded: DraftWeights, num_blocks: int, max_model_len: int, num_threads: int) -> NativeRunner:
    model = build_native_model(
        loaded.config,
        loaded.weights,
        num_kv_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_model_len=max_model_len,
        kv_dtype=_dtype(loaded),
    )
    return NativeRunner(model, num_kv_blocks=num_blocks, max_model_len=max_model_len, num_threads=num_threads)


def _general_runner(loaded: DraftWeights, num_blocks: int, max_model_len: int, device: str) -> TransformersRunner:
    config, dtype = loaded.config, _dtype(loaded)
    config.tie_word_embeddings = False  # The head may have fewer rows than the embedding.
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    num_rows, hidden = loaded.weights["lm_head.weight"].shape
    if num_rows != config.vocab_size:
        model.set_output_embeddings(nn.Linear(hidden, num_rows, bias=False, dtype=dtype))
    model.load_state_dict(loaded.weights)
    nn.Module.to(model, device)  # transformers' own wrapper is typed wrongly
    return TransformersRunner(model, num_kv_blocks=num_blocks, block_size=BLOCK_SIZE, max_model_len=max_model_len)


def _dtype(loaded: DraftWeights) -> torch.dtype:
    return loaded.weights["lm_head.weight"].dtype
