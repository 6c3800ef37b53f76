"""Blocks of a head's KV: no slot serves two sequences, what fails changes nothing, the books balance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.engine.drafters.draft_job import DraftCapacityError, DraftLengthError
from cluster.engine.drafters.head_blocks import HeadBlocks, KVRows

SIZE = 4


def test_room_behind_the_kept_rows_is_reserved_once() -> None:
    pool, rows = HeadBlocks(8, SIZE), KVRows()
    pool.reserve(rows, 9)
    pool.reserve(rows, 12)
    assert (len(rows.blocks), pool.num_free) == (3, 5)
    rows.num_rows = 10
    pool.reserve(rows, 3)
    assert (len(rows.blocks), pool.num_free) == (4, 4)


def test_a_sequence_that_does_not_fit_now_changes_nothing() -> None:
    pool, first, second = HeadBlocks(4, SIZE), KVRows(), KVRows()
    pool.reserve(first, 9)
    with pytest.raises(DraftCapacityError):
        pool.reserve(second, 5)
    assert (second.blocks, pool.num_free) == ([], 1)
    pool.release(first)
    pool.reserve(second, 5)


def test_a_sequence_that_never_fits_is_told_so() -> None:
    with pytest.raises(DraftLengthError):
        HeadBlocks(4, SIZE).reserve(KVRows(num_rows=9), 8)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=40))
def test_no_slot_serves_two_sequences_and_blocks_balance(steps: list[tuple[int, int]]) -> None:
    pool, sequences = HeadBlocks(12, SIZE), [KVRows() for _ in range(4)]
    for index, num_rows in steps:
        try:
            pool.reserve(sequences[index], num_rows)
            sequences[index].num_rows += num_rows
        except (DraftCapacityError, DraftLengthError):
            pool.release(sequences[index])
        slots = [pool.slot(rows, row) for rows in sequences for row in range(rows.num_rows)]
        assert len(slots) == len(set(slots))
        assert sum(len(rows.blocks) for rows in sequences) + pool.num_free == 12
