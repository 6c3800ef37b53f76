"""KV blocks of a head: a fixed number, shared by all sequences that draft; and where drafts go. Pure; no torch."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from cluster.engine.drafters.draft_job import DraftCapacityError, DraftLengthError

TAIL_BLOCKS = 2
"""Blocks of a further branch: enough for as many levels as a block has rows, wherever in a block they begin."""


@dataclass(slots=True, eq=False)
class KVRows:
    """Rows of one sequence in the head's KV. The place of a row says nothing about its position: there may be gaps.

    Attributes:
        blocks: in order. Only `HeadBlocks` changes them.
        spare: blocks for further branches of a draft, `TAIL_BLOCKS` each. Only `HeadBlocks` changes them.
        num_rows: leading rows that are kept; what lies behind them may be overwritten.
    """

    blocks: list[int] = field(default_factory=list)
    spare: list[int] = field(default_factory=list)
    num_rows: int = 0


class HeadBlocks:
    """Hands out blocks.

    Args:
        num_blocks: of all sequences.
        block_size: rows of a block.
        max_branches: leaves of a draft that grow at once; 1 for chains.
    """

    def __init__(self, num_blocks: int, block_size: int, max_branches: int = 1) -> None:
        self._free, self._num_blocks, self._size = list(range(num_blocks)), num_blocks, block_size
        self._num_spare = TAIL_BLOCKS * (max_branches - 1)

    @property
    def num_free(self) -> int:
        """Blocks that no sequence holds."""
        return len(self._free)

    def reserve(self, rows: KVRows, num_rows: int) -> None:
        """Make room for so many rows behind those that are kept, and for all further branches of a draft.

        Raises:
            DraftCapacityError: too few blocks are free; nothing was changed.
            DraftLengthError: there would be too few even without other sequences.
        """
        num_needed = -(-(rows.num_rows + num_rows) // self._size)
        if num_needed + self._num_spare > self._num_blocks:
            raise DraftLengthError(f"{rows.num_rows + num_rows} rows need more than all blocks of the head")
        num_new, num_spare = max(0, num_needed - len(rows.blocks)), self._num_spare - len(rows.spare)
        if num_new + num_spare > len(self._free):
            raise DraftCapacityError(
                f"{num_new + num_spare} KV blocks of the head are needed, {self.num_free} are free"
            )
        rows.blocks += [self._free.pop() for _ in range(num_new)]
        rows.spare += [self._free.pop() for _ in range(num_spare)]

    def release(self, rows: KVRows) -> None:
        """Take all blocks back."""
        self._free += rows.blocks + rows.spare
        rows.blocks, rows.spare, rows.num_rows = [], [], 0


class DraftTails:
    """Where the rows of one draft lie: each leaf of a tree that grows level by level has a path of its own.

    All that leaves share are the blocks before the first one that draft tokens write to. From there on each has blocks
    of its own, its tail. A leaf's first child goes on in its tail; for each further one the tail is copied, committed
    rows at its beginning included. So a row sees its own path, in order, and nothing masks the others.

    Args:
        rows: of the sequence, with room for the draft.
        block_size: rows of a block.
    """

    def __init__(self, rows: KVRows, block_size: int) -> None:
        first, spare = rows.num_rows // block_size, rows.spare
        self._shared, self._start, self._size = rows.blocks[:first], rows.num_rows - first * block_size, block_size
        self._tails = [rows.blocks[first:]]
        self._free = [spare[place : place + TAIL_BLOCKS] for place in range(0, len(spare), TAIL_BLOCKS)]
        self._num_kept, self.num_levels = rows.num_rows, 0

    @property
    def num_rows(self) -> int:
        """Rows of each leaf's path, kept ones included."""
        return self._num_kept + self.num_levels

    def grow(self, parents: Seq[int]) -> list[tuple[int, int]]:
        """Put a level behind the newest one, which is the last committed row at first.

        Args:
            parents: for each new leaf the number of the one that it follows. At most as many as may grow at once.

        Returns:
            Blocks to copy before the level's rows are written: sources and destinations, no block in both.
        """
        followed, end = set(parents), self._start + self.num_levels
        self._free += [tail for leaf, tail in enumerate(self._tails) if leaf not in followed]
        tails: list[list[int]] = []
        copies: list[tuple[int, int]] = []
        for parent in parents:
            tail = self._tails[parent]
            if parent not in followed:
                source, tail = tail, self._free.pop()
                copies += list(zip(source, tail, strict=False))[: -(-end // self._size)]
            followed.discard(parent)
            tails.append(tail)
        self._tails, self.num_levels = tails, self.num_levels + 1
        return copies

    def blocks(self, leaf: int) -> list[int]:
        """The blocks of a leaf's path, in order."""
        return [*self._shared, *self._tails[leaf]]
