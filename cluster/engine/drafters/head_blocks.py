"""KV blocks of a head: a fixed number, shared by all sequences that draft. Pure; no torch."""

from dataclasses import dataclass, field

from cluster.engine.drafters.draft_job import DraftCapacityError, DraftLengthError


@dataclass(slots=True, eq=False)
class KVRows:
    """Rows of one sequence in the head's KV. The place of a row says nothing about its position: there may be gaps.

    Attributes:
        blocks: in order. Only `HeadBlocks` changes them.
        num_rows: leading rows that are kept; what lies behind them may be overwritten.
    """

    blocks: list[int] = field(default_factory=list)
    num_rows: int = 0


class HeadBlocks:
    """Hands out blocks.

    Args:
        num_blocks: of all sequences.
        block_size: rows of a block.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._free, self._num_blocks, self._size = list(range(num_blocks)), num_blocks, block_size

    @property
    def num_free(self) -> int:
        """Blocks that no sequence holds."""
        return len(self._free)

    def reserve(self, rows: KVRows, num_rows: int) -> None:
        """Make room for so many rows behind those that are kept.

        Raises:
            DraftCapacityError: too few blocks are free; nothing was changed.
            DraftLengthError: there would be too few even without other sequences.
        """
        num_needed = -(-(rows.num_rows + num_rows) // self._size)
        if num_needed > self._num_blocks:
            raise DraftLengthError(f"{rows.num_rows + num_rows} rows need more than all blocks of the head")
        num_new = max(0, num_needed - len(rows.blocks))
        if num_new > len(self._free):
            raise DraftCapacityError(f"{num_new} KV blocks of the head are needed, {len(self._free)} are free")
        rows.blocks += [self._free.pop() for _ in range(num_new)]

    def release(self, rows: KVRows) -> None:
        """Take all blocks back."""
        self._free += rows.blocks
        rows.blocks, rows.num_rows = [], 0

    def slot(self, rows: KVRows, row: int) -> int:
        """Where a row's KV lies; there is room for it."""
        return rows.blocks[row // self._size] * self._size + row % self._size
