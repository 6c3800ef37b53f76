"""Blocks of a head's KV: no slot serves two sequences, what fails changes nothing, the books balance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.engine.drafters.draft_job import DraftCapacityError, DraftLengthError
from cluster.engine.drafters.head_blocks import DraftTails, HeadBlocks, KVRows
from cluster.engine.sequence_blocks import slot_of

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
        slots = [slot_of(rows.blocks, row, SIZE) for rows in sequences for row in range(rows.num_rows)]
        assert len(slots) == len(set(slots))
        assert sum(len(rows.blocks) for rows in sequences) + pool.num_free == 12


@given(st.data(), st.integers(0, 11), st.integers(1, 4))
def test_each_leaf_of_a_growing_tree_sees_its_own_path_and_committed_rows_stay(
    data: st.DataObject, num_kept: int, branches: int
) -> None:
    pool, rows = HeadBlocks(24, SIZE, branches), KVRows()
    pool.reserve(rows, num_kept + SIZE)
    rows.num_rows = num_kept
    memory = {slot_of(rows.blocks, row, SIZE): ("kept", row) for row in range(num_kept)}
    for _ in range(2):  # The second draft finds what the first one left behind.
        tails, paths = DraftTails(rows, SIZE), [[("kept", row) for row in range(num_kept)]]
        for level in range(SIZE):
            parents = data.draw(st.lists(st.integers(0, len(paths) - 1), min_size=1, max_size=branches))
            copies = tails.grow(parents)
            assert not {source for source, _ in copies} & {target for _, target in copies}
            for source, target in copies:
                for offset in range(SIZE):
                    memory[target * SIZE + offset] = memory.get(source * SIZE + offset, ("none", 0))
            paths = [[*paths[parent], (f"leaf {leaf}", level)] for leaf, parent in enumerate(parents)]
            for leaf, path in enumerate(paths):
                memory[slot_of(tails.blocks(leaf), tails.num_rows - 1, SIZE)] = path[-1]
            for leaf, path in enumerate(paths):
                assert [memory[slot_of(tails.blocks(leaf), row, SIZE)] for row in range(len(path))] == path
        assert [memory[slot_of(rows.blocks, row, SIZE)] for row in range(num_kept)] == paths[0][:num_kept]
    pool.release(rows)
    assert pool.num_free == 24


def test_room_for_branches_is_reserved_with_the_first_rows_and_given_back() -> None:
    pool, rows = HeadBlocks(10, SIZE, 3), KVRows()
    pool.reserve(rows, 5)
    pool.reserve(rows, 6)
    assert (len(rows.blocks), len(rows.spare), pool.num_free) == (2, 4, 4)
    with pytest.raises(DraftCapacityError):
        pool.reserve(KVRows(), 1)
    with pytest.raises(DraftLengthError):
        pool.reserve(rows, 25)
    pool.release(rows)
    assert pool.num_free == 10
