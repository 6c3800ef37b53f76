"""The blocks of one sequence: what it takes from the pool and the prefix cache, publishes there, and gives back."""

from collections.abc import Iterable
from collections.abc import Sequence as Seq

from cluster.engine.block_pool import BlockPool, extend_block_hashes
from cluster.engine.sequence import Sequence


def num_blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that hold `num_tokens` tokens."""
    return -(-num_tokens // block_size)


def slot_of(block_table: Seq[int], index: int, block_size: int) -> int:
    """KV slot of a sequence's entry; there is a block for it."""
    return block_table[index // block_size] * block_size + index % block_size


class SequenceBlocks:
    """Keeps `sequence.block_table`; the only code that moves blocks between a sequence and the pool.

    Args:
        sequence: whose blocks; its tokens only ever grow.
        pool: where they come from.
        enable_prefix_cache: take up and publish full blocks.
    """

    __slots__ = ("_enable_prefix_cache", "_hashes", "_num_published", "_pool", "sequence")

    def __init__(self, sequence: Sequence, pool: BlockPool, *, enable_prefix_cache: bool) -> None:
        self.sequence = sequence
        self._pool = pool
        self._enable_prefix_cache = enable_prefix_cache
        self._hashes: list[bytes] = []
        self._num_published = 0

    @property
    def num_usable_blocks(self) -> int:
        """Leading blocks that may come from the prefix cache."""
        sequence = self.sequence
        if not self._enable_prefix_cache:
            return 0
        if sequence.request.sampling.prompt_logprobs is not None and not sequence.has_new_output:
            return 0  # The logits of every prompt position are asked for.
        # At least one token is computed, or there would be no logits to draw from.
        return (sequence.num_tokens - 1) // self._pool.block_size

    def match_prefix(self) -> list[int]:
        """Take references to the cached blocks of the longest known prefix; `take` or the pool gets them next."""
        if self._enable_prefix_cache:
            self._extend_hashes()
        return self._pool.match_prefix(self._hashes[: self.num_usable_blocks])

    def leads(self, other: "SequenceBlocks", index: int) -> bool:
        """True when block `index` of both holds the same text, prefix included.

        Knows only hashed blocks: both must have been through `match_prefix`.
        """
        return index < len(self._hashes) and self._hashes[index] == other._hashes[index]

    def take(self, cached: list[int], *, num_spare_blocks: int) -> bool:
        """Start the block table: the cached blocks plus new ones for all other tokens, or give the cached ones back.

        Taking all at once keeps a prefill from being stuck half-way.

        Args:
            cached: from `match_prefix`; `num_computed_tokens` is set to what they hold.
            num_spare_blocks: free blocks that must be left.
        """
        num_new = num_blocks_for(self.sequence.num_tokens, self._pool.block_size) - len(cached)
        new = self._pool.allocate(num_new) if num_new + num_spare_blocks <= self._pool.num_free_blocks else None
        if new is None:
            self._pool.release(cached)
            return False
        self.sequence.block_table[:] = cached + new
        self.sequence.num_computed_tokens = len(cached) * self._pool.block_size
        self._num_published = len(cached)
        return True

    def grow(self, num_tokens: int) -> bool:
        """Extend the block table to `num_tokens` slots; False, and no change, when the pool has too few blocks.

        Withheld blocks are kept from newcomers: a running sequence takes one rather than cost another its place.
        """
        table = self.sequence.block_table
        num_missing = num_blocks_for(num_tokens, self._pool.block_size) - len(table)
        if num_missing <= 0:
            return True
        block_ids = self._pool.allocate(num_missing, may_borrow=True)
        if block_ids is None:
            return False
        table += block_ids
        return True

    def fit_lookahead(self, draft: tuple[int, ...]) -> tuple[int, ...]:
        """Reserve slots for a draft, one for each node of a tree, and cut it to what free blocks hold.

        A longer draft never keeps fewer tokens: whether one is kept must not depend on those behind it.
        """
        if not draft:
            return draft
        num_tokens, table = self.sequence.num_tokens, self.sequence.block_table
        num_blocks = min(
            num_blocks_for(num_tokens + len(draft), self._pool.block_size),
            len(table) + self._pool.num_free_blocks + self._pool.num_withheld_blocks,
        )
        self.grow(num_blocks * self._pool.block_size)
        return draft[: len(table) * self._pool.block_size - num_tokens]

    def commit(self) -> None:
        """Publish the blocks that are full of computed, committed tokens and give lookahead blocks back."""
        sequence, block_size = self.sequence, self._pool.block_size
        num_full = sequence.num_computed_tokens // block_size
        if self._enable_prefix_cache and num_full > self._num_published:
            self._extend_hashes()
            for index in range(self._num_published, num_full):
                self._pool.publish(sequence.block_table[index], self._hashes[index])
            self._num_published = num_full
        num_kept = num_blocks_for(sequence.num_tokens, block_size)
        if len(sequence.block_table) > num_kept:
            self._pool.release(sequence.block_table[num_kept:])
            del sequence.block_table[num_kept:]

    def release(self) -> None:
        """Give all blocks back; published ones can be found until they are evicted."""
        self._pool.release(self.sequence.block_table)
        self.sequence.block_table.clear()

    def _extend_hashes(self) -> None:
        sequence = self.sequence
        extend_block_hashes(self._hashes, sequence.token_ids, self._pool.block_size, sequence.request.cache_salt)


def is_held_back(blocks: SequenceBlocks, num_cached_blocks: int, leaders: Iterable[SequenceBlocks]) -> bool:
    """True when a sibling has rows in this plan towards the very block that is needed next.

    Such a wait ends: each round that holds a sequence back brings a sibling nearer to the end of their prefix.

    Args:
        blocks: of a waiting sequence, after `match_prefix`.
        num_cached_blocks: how many that found.
        leaders: blocks of the sequences that the plan prefills.
    """
    if num_cached_blocks >= blocks.num_usable_blocks:
        return False
    return any(leader.leads(blocks, num_cached_blocks) for leader in leaders)
