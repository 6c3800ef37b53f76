import pytest

from cluster.engine.block_pool import BlockPool, extend_block_hashes

BLOCK_SIZE = 4


def hashes_of(token_ids: list[int], salt: str = "") -> list[bytes]:
    hashes: list[bytes] = []
    extend_block_hashes(hashes, token_ids, BLOCK_SIZE, salt)
    return hashes


def published(pool: BlockPool, token_ids: list[int]) -> list[int]:
    """Blocks that hold these tokens, published and still held."""
    hashes = hashes_of(token_ids)
    block_ids = pool.allocate(len(hashes))
    assert block_ids is not None
    for block_id, block_hash in zip(block_ids, hashes, strict=True):
        pool.publish(block_id, block_hash)
    return block_ids


def test_only_full_blocks_are_hashed() -> None:
    assert len(hashes_of(list(range(7)))) == 1
    assert hashes_of(list(range(3))) == []


def test_hashing_in_steps_equals_hashing_at_once() -> None:
    token_ids = list(range(40))
    hashes: list[bytes] = []
    for num_tokens in range(len(token_ids) + 1):
        extend_block_hashes(hashes, token_ids[:num_tokens], BLOCK_SIZE, "")
    assert hashes == hashes_of(token_ids)


def test_a_block_hash_covers_everything_before_the_block() -> None:
    left, right = hashes_of([1, 2, 3, 4, 5, 6, 7, 8]), hashes_of([9, 2, 3, 4, 5, 6, 7, 8])
    assert left[1] != right[1]


def test_hashes_of_one_text_differ_between_salts() -> None:
    texts = [hashes_of(list(range(8)), salt) for salt in ("", "tenant-a", "tenant-b")]
    assert len({block_hash for hashes in texts for block_hash in hashes}) == 6


def test_a_lone_surrogate_in_a_salt_is_accepted() -> None:
    assert len(hashes_of(list(range(4)), "\ud800")) == 1


def test_block_hashes_are_the_same_in_every_process() -> None:
    assert [value.hex() for value in hashes_of([0, 1, 2, 3])] == ["b595a3a2dfe7bcd22ffc26493d53b2a0"]


def test_allocate_takes_all_or_nothing() -> None:
    pool = BlockPool(4, BLOCK_SIZE)
    assert pool.allocate(5) is None
    assert pool.num_free_blocks == 4
    block_ids = pool.allocate(4)
    assert block_ids is not None
    assert sorted(block_ids) == [0, 1, 2, 3]
    assert (pool.num_free_blocks, pool.num_used_blocks) == (0, 4)
    assert pool.allocate(0) == []
    pool.check_integrity()


def test_a_released_block_is_found_again_by_its_content() -> None:
    pool = BlockPool(4, BLOCK_SIZE)
    block_ids = published(pool, list(range(8)))
    pool.release(block_ids)
    assert pool.num_used_blocks == 0
    assert pool.match_prefix(hashes_of(list(range(8)))) == block_ids
    assert pool.num_used_blocks == 2
    pool.check_integrity()


def test_match_stops_at_the_first_missing_block() -> None:
    pool = BlockPool(8, BLOCK_SIZE)
    block_ids = published(pool, list(range(8)))
    other = hashes_of([*range(4), 50, 51, 52, 53])
    assert pool.match_prefix(other) == block_ids[:1]
    assert pool.match_prefix(hashes_of([7, *range(7)])) == []


def test_a_shared_block_is_free_only_after_its_last_holder() -> None:
    pool = BlockPool(4, BLOCK_SIZE)
    block_ids = published(pool, list(range(4)))
    assert pool.match_prefix(hashes_of(list(range(4)))) == block_ids
    pool.release(block_ids)
    assert pool.num_used_blocks == 1
    pool.release(block_ids)
    assert pool.num_used_blocks == 0
    pool.check_integrity()


def test_a_held_block_is_never_given_away() -> None:
    pool = BlockPool(4, BLOCK_SIZE)
    held = published(pool, list(range(8)))
    given = pool.allocate(2)
    assert given is not None
    assert not set(held) & set(given)
    assert pool.allocate(1) is None


def test_blocks_without_content_are_given_before_cached_ones() -> None:
    pool = BlockPool(4, BLOCK_SIZE)
    pool.release(published(pool, list(range(8))))
    pool.allocate(2)
    assert len(pool.match_prefix(hashes_of(list(range(8))))) == 2


def test_the_least_recently_used_text_is_evicted_first() -> None:
    pool = BlockPool(3, BLOCK_SIZE)
    texts = [[start] * 4 for start in range(3)]
    for text in texts:
        pool.release(published(pool, text))
    pool.release(pool.match_prefix(hashes_of(texts[0])))  # used again, so the second is the oldest now
    pool.allocate(1)
    assert [bool(pool.match_prefix(hashes_of(text))) for text in texts] == [True, False, True]
    pool.check_integrity()


def test_a_text_is_evicted_from_its_end() -> None:
    pool = BlockPool(3, BLOCK_SIZE)
    block_ids = published(pool, list(range(12)))
    pool.release(block_ids)
    assert pool.allocate(1) == block_ids[2:]
    assert pool.match_prefix(hashes_of(list(range(12)))) == block_ids[:2]


def test_an_evicted_block_is_no_longer_found() -> None:
    pool = BlockPool(1, BLOCK_SIZE)
    block_ids = published(pool, list(range(4)))
    pool.release(block_ids)
    assert pool.allocate(1) == block_ids
    assert not pool.is_published(block_ids[0])
    assert pool.match_prefix(hashes_of(list(range(4)))) == []
    pool.check_integrity()


def test_of_two_equal_blocks_the_first_stays_the_findable_one() -> None:
    pool = BlockPool(4, BLOCK_SIZE)
    first, second = published(pool, list(range(4))), published(pool, list(range(4)))
    assert first != second
    assert not pool.is_published(second[0])
    assert pool.match_prefix(hashes_of(list(range(4)))) == first
    pool.check_integrity()


def test_publishing_twice_changes_nothing() -> None:
    pool = BlockPool(2, BLOCK_SIZE)
    block_ids = published(pool, list(range(4)))
    pool.publish(block_ids[0], hashes_of(list(range(4)))[0])
    pool.check_integrity()


def test_a_double_release_is_refused() -> None:
    pool = BlockPool(2, BLOCK_SIZE)
    block_ids = pool.allocate(1)
    assert block_ids is not None
    pool.release(block_ids)
    with pytest.raises(AssertionError, match="more often than taken"):
        pool.release(block_ids)


def test_a_block_cannot_be_published_without_a_holder_or_under_two_contents() -> None:
    pool = BlockPool(2, BLOCK_SIZE)
    with pytest.raises(AssertionError, match="by nobody"):
        pool.publish(0, b"x")
    block_ids = published(pool, list(range(4)))
    with pytest.raises(AssertionError, match="two contents"):
        pool.publish(block_ids[0], b"x")


def test_integrity_check_sees_a_lost_block() -> None:
    pool = BlockPool(2, BLOCK_SIZE)
    pool._plain_free.pop()
    with pytest.raises(AssertionError, match="lost"):
        pool.check_integrity()
