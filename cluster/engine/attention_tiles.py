"""Which sequences of a batch attend in one call. Pure: numpy in, numpy out.

One sequence with many rows (a prefill chunk) is a tile. Sequences with few rows each (decodes, verifications) share
padded tiles, because one call per sequence and layer costs more than the padding.

Shapes: T rows of the batch, B sequences, S sequences of a tile, R rows and L cached positions of each of them (padded).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cluster.engine.model_input import ModelInput

# Rows per sequence up to which sequences share a tile.
MAX_SHARED_ROWS = 16
# Slots of one shared tile: bounds the copy of keys and values, not the batch.
MAX_SHARED_SLOTS = 65_536

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Sequences that attend in one call. Host side.

    Attributes:
        rows: the batch's rows, [S, R]; a shorter sequence repeats its last row.
        positions: their positions, [S, R].
        slots: KV slots in order of position, [S, L]; past its end a sequence repeats its first slot, never another's.
        tree: what rows see where some of them are nodes of a draft tree; None where position alone decides.
    """

    rows: Int64
    positions: Int64
    slots: Int64
    tree: "TreeMask | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeMask:
    """What the rows of a tile see of their sequences, sliding windows aside.

    Attributes:
        positions: of the cached entries, [S, L]: those of tree nodes, which lie in the order of their slots, count the
            nodes on their path.
        seen: whether a row sees an entry, [S, R, L].
    """

    positions: Int64
    seen: npt.NDArray[np.bool_]


def plan_tiles(batch: ModelInput, block_size: int) -> list[Tile]:
    """Cut a batch into tiles, longest sequence first.

    Args:
        batch: the rows; nothing is mutated.
        block_size: tokens per KV block.

    Returns:
        Tiles that hold every row once, besides the repeats that fill them up.
    """
    starts_B = np.flatnonzero(np.diff(batch.row_sequences, prepend=-1))
    num_rows_B = np.diff(starts_B, append=len(batch.row_sequences))
    if batch.row_parents is None:
        lengths_B = batch.positions[starts_B + num_rows_B - 1].astype(np.int64) + 1
    else:  # Nodes of trees take a slot each, whatever their positions.
        lengths_B = batch.positions[starts_B].astype(np.int64) + num_rows_B
    groups: list[list[int]] = []
    for index in np.argsort(-lengths_B, kind="stable").tolist():
        if groups and _shares(groups[-1], index, num_rows_B, lengths_B):
            groups[-1].append(index)
        else:
            groups.append([index])
    return [
        _tile(batch, block_size, starts_B[group], num_rows_B[group], lengths_B[group])
        for group in map(np.asarray, groups)
    ]


def _shares(group: Sequence[int], index: int, num_rows_B: Int64, lengths_B: Int64) -> bool:
    """True when a sequence fits a tile without much padding; group[0] is the longest."""
    longest = lengths_B[group[0]]
    few_rows = max(num_rows_B[group[-1]], num_rows_B[index]) <= MAX_SHARED_ROWS
    return bool(few_rows and 2 * lengths_B[index] >= longest and (len(group) + 1) * longest <= MAX_SHARED_SLOTS)


def _tile(batch: ModelInput, block_size: int, starts_S: Int64, num_rows_S: Int64, lengths_S: Int64) -> Tile:
    rows_SR = starts_S[:, None] + np.minimum(np.arange(num_rows_S.max()), num_rows_S[:, None] - 1)
    cached_L = np.arange(lengths_S.max())
    cached_SL = np.where(cached_L < lengths_S[:, None], cached_L, 0)
    tables = batch.block_tables[batch.row_sequences[starts_S]].astype(np.int64)
    blocks_SL = np.take_along_axis(tables, cached_SL // block_size, axis=1)
    has_tree = batch.row_parents is not None and bool((batch.row_parents[rows_SR] >= 0).any())
    return Tile(
        rows=rows_SR,
        positions=batch.positions[rows_SR].astype(np.int64),
        slots=blocks_SL * block_size + cached_SL % block_size,
        tree=_tree_mask(batch, rows_SR, cached_L) if has_tree else None,
    )


def _tree_mask(batch: ModelInput, rows_SR: Int64, cached_L: Int64) -> TreeMask:
    """Masks of a tile. Entry `first + r` of a sequence is that of its row r, `first` being row 0's position."""
    assert batch.row_parents is not None, "it has trees"
    positions_SR = batch.positions[rows_SR].astype(np.int64)
    positions_SL = np.tile(cached_L, (len(rows_SR), 1))
    seen_SRL = cached_L <= positions_SR[:, :, None]
    for index, (rows_R, first) in enumerate(zip(rows_SR, positions_SR[:, 0].tolist(), strict=True)):
        parents_R = batch.row_parents[rows_R]
        for place in np.flatnonzero(parents_R >= 0).tolist():
            if place and rows_R[place] == rows_R[place - 1]:  # It only fills the tile up.
                seen_SRL[index, place] = seen_SRL[index, place - 1]
                continue
            parent = int(parents_R[place] - rows_R[0])
            seen_SRL[index, place] = seen_SRL[index, parent]
            seen_SRL[index, place, first + place] = True
            positions_SL[index, first + place] = positions_SR[index, place]
    return TreeMask(positions=positions_SL, seen=seen_SRL)


def output_order(tiles: Sequence[Tile], num_rows: int) -> Int64:
    """Where each of the batch's rows lies in the concatenation of all tiles' rows, int64 [T]."""
    rows = np.concatenate([tile.rows.reshape(-1) for tile in tiles])
    order_T = np.empty(num_rows, np.int64)
    order_T[rows] = np.arange(len(rows))
    return order_T
