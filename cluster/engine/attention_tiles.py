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
    """

    rows: Int64
    positions: Int64
    slots: Int64


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
    lengths_B = batch.positions[starts_B + num_rows_B - 1].astype(np.int64) + 1
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
    return Tile(
        rows=rows_SR,
        positions=batch.positions[rows_SR].astype(np.int64),
        slots=blocks_SL * block_size + cached_SL % block_size,
    )


def output_order(tiles: Sequence[Tile], num_rows: int) -> Int64:
    """Where each of the batch's rows lies in the concatenation of all tiles' rows, int64 [T]."""
    rows = np.concatenate([tile.rows.reshape(-1) for tile in tiles])
    order_T = np.empty(num_rows, np.int64)
    order_T[rows] = np.arange(len(rows))
    return order_T
