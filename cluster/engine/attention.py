"""Paged attention over packed ragged batches, called by transformers' own modelling code.

transformers lets a model's attention be replaced by a registered function and hands unknown keyword arguments of
`model(...)` down to it. One of them, `paged`, carries the batch: no state lives outside the call.

Shapes: T rows of the batch, S sequences of a tile, R rows and L cached positions per sequence of a tile (padded),
H query heads, K key/value heads, G = H / K, D width of a head.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface

from cluster.engine.attention_tiles import MAX_SHARED_ROWS, TreeMask, output_order, plan_tiles
from cluster.engine.kv_cache import PagedKVCache
from cluster.engine.model_input import ModelInput
from cluster.errors import LoadError

ATTENTION_NAME = "outrider_paged"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCall:
    """What one attention module asks for.

    Attributes:
        module: the calling module; stands for its layer.
        query: of all rows, [T, H, D].
        key: new keys of all rows, [T, K, D].
        value: new values of all rows, [T, K, Dv]; Dv may differ from D.
        scaling: factor on the scores; None is 1 / sqrt(D).
        sliding_window: newest positions that a row sees, itself included; None for all.
        softcap: scores become softcap * tanh(scores / softcap).
        sinks: logits of an extra column per head that takes probability and gives nothing, [H].
    """

    module: nn.Module
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scaling: float | None = None
    sliding_window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None


class AttentionBackend(Protocol):
    """Whatever answers attention calls during one forward pass."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Return the attended values, [T, H, Dv]."""
        ...


def attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged: AttentionBackend | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    is_causal: bool | None = None,
    **_ignored: Any,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls; its signature is transformers' (tensors are [1, heads, T, D]).

    Returns:
        The attended values [1, T, H, Dv], and no weights.

    Raises:
        LoadError: the module wants something that paged attention does not do. Seen at load, by the trial pass.
    """
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    refusals = {
        "does not hand keyword arguments to its attention": paged is None,
        "masks attention in its own way": attention_mask is not None,
        "adds a position bias to its attention": position_bias is not None,
        "has attention that is not causal": not causal,
    }
    for reason, refused in refusals.items():
        if refused:
            raise LoadError(f"{type(module).__name__} {reason}")
    assert paged is not None  # refused above
    call = AttentionCall(
        module=module,
        query=query[0].transpose(0, 1),
        key=key[0].transpose(0, 1),
        value=value[0].transpose(0, 1),
        scaling=scaling,
        sliding_window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
    )
    return paged.attend(call)[None], None


def register() -> None:
    """Make `attention_forward` known to transformers as ATTENTION_NAME; may be called again."""
    AttentionInterface.register(ATTENTION_NAME, attention_forward)


@dataclass(slots=True, eq=False)
class _DeviceTile:
    """A tile on the device: rows and positions [S, R], slots [S * L], masks so far by (window, repeats).

    With trees: whether rows see entries, [S, R, L], and the positions of the entries, [S, L].
    """

    rows: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    tree: tuple[torch.Tensor, torch.Tensor] | None = None
    masks: dict[tuple[int | None, int], torch.Tensor] = field(default_factory=dict)

    def mask(self, sliding_window: int | None, repeats: int) -> torch.Tensor:
        """Boolean [S, 1, repeats * R, L]: True where a row sees a cached position."""
        found = self.masks.get((sliding_window, repeats))
        if found is None:
            row_SR1 = self.positions[:, :, None]
            if self.tree is None:
                num_cached = self.slots.numel() // self.rows.shape[0]
                cached = torch.arange(num_cached, device=self.slots.device)
                seen_SRL = cached <= row_SR1
            else:
                seen_SRL, cached = self.tree[0], self.tree[1][:, None]
            if sliding_window is not None:
                seen_SRL = seen_SRL & (cached > row_SR1 - sliding_window)
            found = self.masks[(sliding_window, repeats)] = seen_SRL.repeat(1, repeats, 1)[:, None]
        return found


class PagedAttention:
    """Attention of one batch over a paged KV cache. Lives for one forward pass.

    Args:
        cache: read, and written at the batch's slots.
        layers: each attention module's layer in the cache.
        batch: the rows.
        device: where cache and model are.
    """

    def __init__(
        self, *, cache: PagedKVCache, layers: Mapping[nn.Module, int], batch: ModelInput, device: torch.device
    ) -> None:
        self._cache, self._layers = cache, layers
        tiles = plan_tiles(batch, cache.block_size)
        self._write_slots_T = torch.as_tensor(batch.slot_mapping, dtype=torch.int64, device=device)
        self._order_T = torch.as_tensor(output_order(tiles, len(batch.token_ids)), device=device)
        self._tiles = [
            _DeviceTile(
                rows=torch.as_tensor(tile.rows, device=device),
                positions=torch.as_tensor(tile.positions, device=device),
                slots=torch.as_tensor(tile.slots, device=device).reshape(-1),
                tree=_on_device(tile.tree, device),
            )
            for tile in tiles
        ]

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Write the rows' KV, then let every row see its sequence up to itself; returns [T, H, Dv]."""
        layer = self._layers[call.module]
        self._cache.write(layer, call.key, call.value, self._write_slots_T)
        parts = [self._attend_tile(tile, layer, call) for tile in self._tiles]
        return torch.cat(parts).index_select(0, self._order_T)

    def _attend_tile(self, tile: _DeviceTile, layer: int, call: AttentionCall) -> torch.Tensor:
        """One tile's attended values, [S * R, H, Dv]."""
        num_sequences, num_rows = tile.rows.shape
        key, value = self._cache.gather(layer, tile.slots)
        key_SKLD = key.unflatten(0, (num_sequences, -1)).transpose(1, 2)
        value_SKLD = value.unflatten(0, (num_sequences, -1)).transpose(1, 2)
        num_kv_heads = key_SKLD.shape[1]
        query_SRHD = call.query[tile.rows]
        query_SKGRD = query_SRHD.unflatten(2, (num_kv_heads, -1)).permute(0, 2, 3, 1, 4)
        attended_SKGRD = _attend(query_SKGRD, key_SKLD, value_SKLD, tile, call)
        return attended_SKGRD.permute(0, 3, 1, 2, 4).reshape(num_sequences * num_rows, -1, value_SKLD.shape[-1])


def _on_device(tree: TreeMask | None, device: torch.device) -> tuple[torch.Tensor, torch.Tensor] | None:
    if tree is None:
        return None
    return torch.as_tensor(tree.seen, device=device), torch.as_tensor(tree.positions, device=device)


def _attend(
    query_SKGRD: torch.Tensor, key_SKLD: torch.Tensor, value_SKLD: torch.Tensor, tile: _DeviceTile, call: AttentionCall
) -> torch.Tensor:
    """Attention of one tile, [S, K, G, R, Dv]. Keys and values are never repeated for the heads that share them."""
    num_sequences, _, num_groups, num_rows, _ = query_SKGRD.shape
    if call.softcap is not None or call.sinks is not None:
        return _attend_explicitly(query_SKGRD, key_SKLD, value_SKLD, tile, call)
    if num_sequences == 1 and num_rows > MAX_SHARED_ROWS:
        # Kv heads become the batch, so that one [R, L] mask serves all heads: folded, it would be G times as large.
        shape = (-1, num_groups, -1, -1)
        mask = tile.mask(call.sliding_window, 1)
        return functional.scaled_dot_product_attention(
            query_SKGRD[0],
            key_SKLD[0, :, None].expand(*shape),
            value_SKLD[0, :, None].expand(*shape),
            attn_mask=mask,
            scale=call.scaling,
        )[None]
    folded = functional.scaled_dot_product_attention(
        query_SKGRD.flatten(2, 3),
        key_SKLD,
        value_SKLD,
        attn_mask=tile.mask(call.sliding_window, num_groups),
        scale=call.scaling,
    )
    return folded.reshape(*query_SKGRD.shape[:4], -1)


def _attend_explicitly(
    query_SKGRD: torch.Tensor, key_SKLD: torch.Tensor, value_SKLD: torch.Tensor, tile: _DeviceTile, call: AttentionCall
) -> torch.Tensor:
    """Attention written out, with softmax in float32, for score caps (Gemma 2) and sinks (gpt-oss)."""
    scaling = call.scaling if call.scaling is not None else query_SKGRD.shape[-1] ** -0.5
    scores_SKGRL = query_SKGRD.flatten(2, 3) @ key_SKLD.transpose(2, 3)
    scores_SKGRL = scores_SKGRL.float().reshape(*query_SKGRD.shape[:4], -1) * scaling
    if call.softcap is not None:
        scores_SKGRL = call.softcap * torch.tanh(scores_SKGRL / call.softcap)
    scores_SKGRL = scores_SKGRL.masked_fill(~tile.mask(call.sliding_window, 1)[:, :, None], float("-inf"))
    if call.sinks is not None:
        sinks_KG11 = call.sinks.float().reshape(*query_SKGRD.shape[1:3], 1, 1)
        sinks_SKGR1 = sinks_KG11.expand(*scores_SKGRL.shape[:-1], 1)
        weights = torch.cat([scores_SKGRL, sinks_SKGR1], dim=-1).softmax(dim=-1)[..., :-1]
    else:
        weights = scores_SKGRL.softmax(dim=-1)
    attended = weights.to(value_SKLD.dtype).flatten(2, 3) @ value_SKLD
    return attended.reshape(*query_SKGRD.shape[:4], -1)
