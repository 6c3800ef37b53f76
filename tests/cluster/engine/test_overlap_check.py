"""Whether drafting beside the pass pays: the better way stays, and looking costs next to nothing."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.engine.overlap_check import BLOCK_ROUNDS, LOOK_ROUNDS, NUM_BLOCKS, OverlapCheck


def run(
    check: OverlapCheck, num_rounds: int, *, off: float, on: float, size: int = 8, noise: float = 0.0
) -> list[bool]:
    """Rounds of 10 tokens at so many tokens per second in each way; which way each one took."""
    generator, ways = random.Random(1), []
    for _ in range(num_rounds):
        way = check.choose(size)
        rate = (on if way else off) * (1 + noise * generator.uniform(-1, 1))
        check.observe(num_tokens=10, seconds=10 / rate, is_clean=True)
        ways.append(way)
    return ways


def test_the_first_look_takes_both_ways_in_turn_and_the_better_one_stays() -> None:
    for on, stays in ((130.0, True), (80.0, False)):
        check = OverlapCheck()
        ways = run(check, NUM_BLOCKS * BLOCK_ROUNDS, off=100.0, on=on)
        assert [ways[i : i + BLOCK_ROUNDS] for i in range(0, len(ways), BLOCK_ROUNDS)] == [
            [index % 2 == 1] * BLOCK_ROUNDS for index in range(NUM_BLOCKS)
        ]
        assert not check.is_looking
        assert run(check, 500, off=100.0, on=on) == [stays] * 500


def test_a_gain_within_the_noise_changes_nothing() -> None:
    check = OverlapCheck()
    run(check, NUM_BLOCKS * BLOCK_ROUNDS, off=100.0, on=101.0)
    assert not check.choose(8)


def test_it_looks_again_and_follows_what_has_changed() -> None:
    check = OverlapCheck()
    run(check, 100, off=100.0, on=130.0, noise=0.1)
    assert check.choose(8)
    ways = run(check, 12_000, off=100.0, on=70.0, noise=0.1)
    assert sum(ways[-1000:]) <= LOOK_ROUNDS, "what was seen at first is outweighed"


@pytest.mark.parametrize(("off", "on"), [(100.0, 80.0), (80.0, 100.0)])
def test_less_than_one_round_in_a_hundred_goes_into_looks_after_the_first(off: float, on: float) -> None:
    check = OverlapCheck()
    ways = run(check, 20_000, off=off, on=on, noise=0.05)
    num_other = sum(way != (on > off) for way in ways[NUM_BLOCKS * BLOCK_ROUNDS :])
    assert 0 < num_other < 200


@settings(max_examples=8, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(2, 64), min_size=1, max_size=12), stretch=st.integers(1, 60))
def test_batches_that_change_all_the_time_bring_no_more_looks(sizes: list[int], stretch: int) -> None:
    check, num_on, num_rounds = OverlapCheck(), 0, 0
    while num_rounds < 2000:
        for size in sizes:
            num_on += sum(run(check, stretch, off=100.0, on=50.0, size=size))
            num_rounds += stretch
    assert num_on <= LOOK_ROUNDS + 0.01 * num_rounds


def test_sizes_are_judged_apart_and_a_new_one_takes_the_way_of_its_neighbour() -> None:
    check = OverlapCheck()
    run(check, 100, off=100.0, on=130.0, size=8)
    assert check.choose(15)
    assert check.choose(16), "never looked at: as for 8 to 15"
    run(check, 6000, off=100.0, on=70.0, size=32)
    assert not check.choose(32)
    assert check.choose(8)


def test_rounds_that_do_more_than_decode_are_not_counted() -> None:
    check = OverlapCheck()
    for _ in range(NUM_BLOCKS * BLOCK_ROUNDS):
        way = check.choose(8)
        check.observe(num_tokens=10, seconds=0.01 if way else 0.1, is_clean=False)
    assert not check.choose(8), "nothing was measured, so the way stays"


def test_a_look_is_given_up_where_the_size_changes_in_it() -> None:
    check = OverlapCheck()
    run(check, BLOCK_ROUNDS + 5, off=100.0, on=130.0, size=8)
    assert check.is_looking
    assert not check.choose(64)
    assert not check.is_looking


def test_clocks_that_stand_still_decide_nothing() -> None:
    check = OverlapCheck()
    for _ in range(100):
        check.choose(4)
        check.observe(num_tokens=4, seconds=0.0, is_clean=True)
    assert not check.choose(4)
