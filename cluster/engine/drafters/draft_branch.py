"""One outcome of a round, what is drafted behind it, and its KV blocks."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from cluster.engine.block_pool import BlockPool
from cluster.engine.sequence_blocks import num_blocks_for


@dataclass(slots=True, eq=False)
class Branch:
    """One outcome of a round and what is drafted behind it.

    Attributes:
        num_accepted: draft tokens accepted in this outcome, k.
        token_ids: the token that follows them, then the tokens drafted so far.
        max_tokens: where it ends: length of `token_ids` when done.
        start: position of its first token.
        block_table: blocks shared with the sequence, then its own.
        num_shared_blocks: leading blocks that belong to the sequence.
    """

    num_accepted: int
    token_ids: list[int]
    max_tokens: int
    start: int
    block_table: list[int] = field(default_factory=list)
    num_shared_blocks: int = 0

    @property
    def is_done(self) -> bool:
        """Nothing more is drafted here."""
        return len(self.token_ids) >= self.max_tokens

    def end_at(self, stop_ids: frozenset[int]) -> None:
        """Draft nothing behind a token that ends the text."""
        if self.token_ids[-1] in stop_ids:
            self.max_tokens = len(self.token_ids)

    @property
    def own_blocks(self) -> list[int]:
        """Blocks that are freed with it."""
        return self.block_table[self.num_shared_blocks :]

    def free(self, pool: BlockPool) -> None:
        """Give its own blocks back; nothing more can be computed here."""
        pool.release(self.own_blocks)
        del self.block_table[self.num_shared_blocks :]


def fork(pool: BlockPool, trunk: Seq[int], branch: Branch) -> bool:
    """Give a branch blocks for all of its tokens but the last, which is drawn and not computed.

    Args:
        pool: where they come from.
        trunk: the sequence's blocks: the full ones before the branch are shared.
        branch: without blocks yet.

    Returns:
        False, and no change, when too few are free.
    """
    num_shared = branch.start // pool.block_size
    own = pool.allocate(num_blocks_for(branch.start + branch.max_tokens - 1, pool.block_size) - num_shared)
    if own is None:
        return False
    branch.num_shared_blocks = num_shared
    branch.block_table = [*trunk[:num_shared], *own]
    return True
