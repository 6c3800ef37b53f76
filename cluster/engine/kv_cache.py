"""Paged KV cache in torch: one pair of tensors per attention layer, addressed by slot.

A slot is block_id * block_size + offset; which sequence owns a block is the block pool's business alone.
Shapes: T rows, S slots read, H heads of the layer's keys and values, D their width (values may be narrower).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayer:
    """What one attention layer stores per token.

    Attributes:
        num_kv_heads: heads of keys and values.
        key_dim: width of a key head.
        value_dim: width of a value head; differs from key_dim in latent attention.
        dtype: of both.
    """

    num_kv_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """Memory of one token's key and value in this layer."""
        return self.num_kv_heads * (self.key_dim + self.value_dim) * self.dtype.itemsize


class PagedKVCache:
    """Keys and values of all layers.

    Args:
        num_blocks: blocks, >= 1.
        block_size: tokens per block, >= 1.
        layers: what each layer stores.
        device: where the tensors live.
    """

    def __init__(
        self, *, num_blocks: int, block_size: int, layers: Sequence[KVLayer], device: torch.device | str = "cpu"
    ) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.num_bytes = num_blocks * block_size * sum(layer.bytes_per_token for layer in layers)
        num_slots = num_blocks * block_size
        # Zeros and not empty memory: a stray NaN would survive the mask (0 * NaN) of whoever reads it.
        self._keys = [
            torch.zeros(num_slots, layer.num_kv_heads, layer.key_dim, dtype=layer.dtype, device=device)
            for layer in layers
        ]
        self._values = [
            torch.zeros(num_slots, layer.num_kv_heads, layer.value_dim, dtype=layer.dtype, device=device)
            for layer in layers
        ]

    def write(self, layer: int, key_THD: torch.Tensor, value_THD: torch.Tensor, slots_T: torch.Tensor) -> None:
        """Store one layer's keys and values of T rows.

        Args:
            layer: index of the layer.
            key_THD: keys, rotated already where the model rotates them.
            value_THD: values.
            slots_T: int64, all different; earlier contents of these slots are lost.
        """
        self._keys[layer].index_copy_(0, slots_T, key_THD)
        self._values[layer].index_copy_(0, slots_T, value_THD)

    def gather(self, layer: int, slots_S: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Copy keys [S, H, Dk] and values [S, H, Dv] of any slots (int64 [S], repeats allowed) out of one layer."""
        return self._keys[layer].index_select(0, slots_S), self._values[layer].index_select(0, slots_S)

    def move(self, sources: Sequence[int], destinations: Sequence[int]) -> None:
        """Copy single slots of all layers; all sources are read before anything is written."""
        device = self._keys[0].device
        from_S, to_S = (torch.tensor(list(slots), device=device) for slots in (sources, destinations))
        for cache in (*self._keys, *self._values):
            cache.index_copy_(0, to_S, cache.index_select(0, from_S))

    def copy_blocks(self, sources: Sequence[int], destinations: Sequence[int]) -> None:
        """Copy blocks of all layers; no block may be in both lists."""
        for cache in (*self._keys, *self._values):
            blocks = cache.view(self.num_blocks, -1)
            blocks[list(destinations)] = blocks[list(sources)]
