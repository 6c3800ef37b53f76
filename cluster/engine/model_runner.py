"""What the engine needs from anything that can run the target's forward pass."""

from collections.abc import Sequence as Seq
from typing import Protocol, runtime_checkable

import torch

from cluster.engine.features import RoundFeatures
from cluster.engine.model_input import ModelInput


class ModelRunner(Protocol):
    """One target model with its KV cache. Not thread safe: one thread calls it."""

    @property
    def vocab_size(self) -> int:
        """Width of the logits; the tokenizer may know fewer ids."""
        ...

    @property
    def num_kv_blocks(self) -> int:
        """Blocks of the KV cache."""
        ...

    @property
    def block_size(self) -> int:
        """Tokens per KV block."""
        ...

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output in tokens."""
        ...

    @property
    def dtype(self) -> str:
        """Name of the weights' dtype, e.g. "bfloat16"."""
        ...

    @property
    def numerics(self) -> str:
        """Either "invariant", when a row's logits have the same bits in any batch, or "fast"."""
        ...

    def forward(self, batch: ModelInput) -> torch.Tensor:
        """Write the KV of all rows and compute the logits of `batch.logit_rows`.

        Args:
            batch: the packed rows, T of them.

        Returns:
            float32 or bfloat16 [N, V] on the model's device. It may be overwritten by the next call.
        """
        ...

    def close(self) -> None:
        """Release weights and KV cache; the runner cannot be used afterwards."""
        ...


class ForkingRunner(ModelRunner, Protocol):
    """A runner whose sequences can be forked; a draft model needs one."""

    def copy_kv_blocks(self, sources: Seq[int], destinations: Seq[int]) -> None:
        """Copy whole KV blocks of all layers; no block may be in both lists."""
        ...


@runtime_checkable
class TreeRunner(ModelRunner, Protocol):
    """A runner that takes draft trees, `ModelInput.row_parents`."""

    def move_kv(self, sources: Seq[int], destinations: Seq[int]) -> None:
        """Copy the KV of single slots in all layers, pair by pair in this order.

        Args:
            sources: slots.
            destinations: as many; none is among the sources of a later pair.
        """
        ...


@runtime_checkable
class FeatureRunner(ModelRunner, Protocol):
    """A runner that can keep hidden states for drafters that live on them.

    Attributes:
        hidden_size: H, width of a hidden state.
        num_layers: decoder layers.
    """

    hidden_size: int
    num_layers: int

    def capture(self, layers: tuple[int, ...]) -> None:
        """Keep hidden states of every row from the next pass on. The logits keep their bits.

        Args:
            layers: i is what enters layer i; `num_layers` is what leaves the last one, before the final norm. Strictly
                rising. Empty keeps nothing, at no cost.

        Raises:
            LoadError: this model's layers cannot be told apart.
        """
        ...

    @property
    def features(self) -> RoundFeatures:
        """The hidden states of the last pass; valid until the next one."""
        ...
