"""Blocks out of circulation: what is kept back, what nobody loses for it, and books that balance all the while."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster.engine.block_pool import BlockPool, extend_block_hashes

BLOCK_SIZE = 4


def hashes_of(text: int, num_blocks: int) -> list[bytes]:
    hashes: list[bytes] = []
    extend_block_hashes(hashes, [text] * (num_blocks * BLOCK_SIZE), BLOCK_SIZE, "")
    return hashes


def taken(pool: BlockPool, num_blocks: int, *, may_borrow: bool = False) -> list[int]:
    block_ids = pool.allocate(num_blocks, may_borrow=may_borrow)
    assert block_ids is not None
    return block_ids


def published(pool: BlockPool, text: int, num_blocks: int) -> list[int]:
    """Held blocks that can be found by their content."""
    block_ids = taken(pool, num_blocks)
    for block_id, block_hash in zip(block_ids, hashes_of(text, num_blocks), strict=True):
        pool.publish(block_id, block_hash)
    return block_ids


def test_withheld_blocks_are_not_given_away_until_they_come_back() -> None:
    pool = BlockPool(10, BLOCK_SIZE)
    pool.withhold(4)
    assert (pool.num_free_blocks, pool.num_withheld_blocks, pool.num_used_blocks) == (6, 4, 0)
    assert pool.allocate(7) is None
    held = taken(pool, 6)
    pool.withhold(0)
    assert (pool.num_free_blocks, pool.num_withheld_blocks) == (4, 0)
    assert not set(taken(pool, 4)) & set(held)
    pool.check_integrity()


def test_what_is_not_free_is_collected_as_it_is_released_and_nobody_loses_a_block() -> None:
    pool = BlockPool(6, BLOCK_SIZE)
    held = taken(pool, 5)
    pool.withhold(3)
    assert pool.num_withheld_blocks == 1
    assert all(pool.num_references(block_id) == 1 for block_id in held)
    pool.release(held[:1])
    assert (pool.num_withheld_blocks, pool.num_free_blocks) == (2, 0)
    pool.check_integrity()
    pool.release(held[1:])
    assert (pool.num_withheld_blocks, pool.num_free_blocks) == (3, 3)
    pool.check_integrity()


def test_the_least_valuable_free_blocks_are_withheld_first_and_lose_their_content() -> None:
    pool = BlockPool(6, BLOCK_SIZE)
    for text in (1, 2):
        pool.release(published(pool, text, 2))
    pool.withhold(3)  # Two without content, and the end of the text that was used least recently.
    assert [len(pool.match_prefix(hashes_of(text, 2))) for text in (1, 2)] == [1, 2]
    pool.check_integrity()


def test_usage_is_a_share_of_what_is_in_circulation() -> None:
    pool = BlockPool(8, BLOCK_SIZE)
    taken(pool, 3)
    assert pool.usage_ratio == 3 / 8
    pool.withhold(2)
    assert pool.usage_ratio == 3 / 6
    pool.withhold(7)
    assert pool.usage_ratio == 1.0


def test_a_borrower_takes_withheld_blocks_last_and_they_are_collected_again() -> None:
    pool = BlockPool(6, BLOCK_SIZE)
    pool.withhold(3)
    first = taken(pool, 3, may_borrow=True)
    assert pool.num_withheld_blocks == 3
    assert pool.allocate(1) is None
    second = taken(pool, 2, may_borrow=True)
    assert (pool.num_withheld_blocks, pool.num_used_blocks) == (1, 5)
    assert pool.allocate(2, may_borrow=True) is None
    pool.check_integrity()
    pool.release(first)
    assert (pool.num_withheld_blocks, pool.num_free_blocks) == (3, 1)
    pool.release(second)
    assert (pool.num_withheld_blocks, pool.num_free_blocks) == (3, 3)
    pool.check_integrity()


def test_a_pool_is_never_withheld_as_a_whole() -> None:
    with pytest.raises(AssertionError):
        BlockPool(4, BLOCK_SIZE).withhold(4)


class RandomUse(RuleBasedStateMachine):
    """Takes, borrows, shares, releases and withholds in any order."""

    @initialize(num_blocks=st.integers(2, 12))
    def start(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks, BLOCK_SIZE)
        self.held: list[list[int]] = []
        self.num_asked = 0

    @rule(num_blocks=st.integers(0, 12))
    def withhold(self, num_blocks: int) -> None:
        self.num_asked = min(num_blocks, self.pool.num_blocks - 1)
        before = [list(block_ids) for block_ids in self.held]
        num_used = self.pool.num_used_blocks
        self.pool.withhold(self.num_asked)
        assert (before, num_used) == (self.held, self.pool.num_used_blocks), "somebody lost a block"

    @rule(num_blocks=st.integers(0, 6), text=st.integers(0, 3), may_borrow=st.booleans(), publishes=st.booleans())
    def take(self, *, num_blocks: int, text: int, may_borrow: bool, publishes: bool) -> None:
        pool = self.pool
        num_free, num_withheld = pool.num_free_blocks, pool.num_withheld_blocks
        block_ids = pool.allocate(num_blocks, may_borrow=may_borrow)
        num_available = num_free + (num_withheld if may_borrow else 0)
        assert (block_ids is None) == (num_blocks > num_available)
        if block_ids is None:
            return
        assert pool.num_withheld_blocks == num_withheld - max(0, num_blocks - num_free)
        assert not set(block_ids) & {block_id for others in self.held for block_id in others}
        self.held.append(block_ids)
        if publishes:
            for block_id, block_hash in zip(block_ids, hashes_of(text, num_blocks), strict=True):
                pool.publish(block_id, block_hash)

    @rule(text=st.integers(0, 3))
    def share(self, text: int) -> None:
        self.held.append(self.pool.match_prefix(hashes_of(text, 6)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.pool.release(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @invariant()
    def books_balance(self) -> None:
        if not hasattr(self, "pool"):
            return
        pool = self.pool
        pool.check_integrity()
        pool.check_holders(self.held)
        assert pool.num_free_blocks + pool.num_used_blocks + pool.num_withheld_blocks == pool.num_blocks
        assert pool.num_withheld_blocks == min(self.num_asked, pool.num_blocks - pool.num_used_blocks)
        assert 0.0 <= pool.usage_ratio <= 1.0

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            for block_ids in self.held:
                self.pool.release(block_ids)
            assert self.pool.num_withheld_blocks == self.num_asked
            assert self.pool.num_free_blocks == self.pool.num_blocks - self.num_asked


TestRandomUse = RandomUse.TestCase
TestRandomUse.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None, database=None, derandomize=True
)
