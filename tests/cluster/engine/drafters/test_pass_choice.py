import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.engine.drafters.pass_choice import MAX_SKIPS, Candidate, choose
from cluster.engine.drafters.step_cost import StepCost


def cost_of(fixed_s: float, row_s: float) -> StepCost:
    cost = StepCost()
    for num_rows in (1, 16, 64) * 30:
        cost.observe(num_rows, fixed_s + row_s * num_rows)
    return cost


COST = cost_of(0.001, 0.0001)


def job(peer: bytes, num_rows: int, left_s: float, num_steps_left: int = 4, **fields: Any) -> Candidate:
    return Candidate(peer=peer, num_rows=num_rows, num_steps_left=num_steps_left, left_s=left_s, **fields)


def prompt(num_rows: int = 128, **fields: Any) -> Candidate:
    return job(b"c", num_rows, math.inf, 1, is_catching_up=True, **fields)


def test_all_jobs_share_a_pass_that_is_short_enough_for_all() -> None:
    jobs = [job(b"a", 8, 0.1), job(b"b", 8, 0.02), job(b"a", 8, 0.1)]
    assert choose(jobs, cost=COST, max_rows=256) == [1, 0, 2]


def test_drafts_that_have_time_wait_for_a_verifier_that_has_not() -> None:
    # b needs passes of at most 2 ms: 10 rows. Its own 4 fit, the 20 of a wait, the 5 of c go along.
    jobs = [job(b"a", 20, 0.5), job(b"b", 4, 0.0081), job(b"c", 5, 0.6)]
    assert choose(jobs, cost=COST, max_rows=256) == [1, 2]


def test_a_verifier_that_no_pass_can_save_holds_nobody_up() -> None:
    jobs = [job(b"a", 60, 0.5), job(b"b", 4, 0.0001), job(b"c", 9, -0.3)]
    assert sorted(choose(jobs, cost=COST, max_rows=256)) == [0, 1, 2]


def test_a_prompt_waits_for_tables_that_would_be_late_otherwise() -> None:
    tight, loose = job(b"a", 4, 0.008), job(b"a", 4, 1.0)
    assert choose([prompt(), tight], cost=COST, max_rows=256) == [1]
    assert choose([prompt(), loose], cost=COST, max_rows=256) == [1, 0]
    assert choose([prompt()], cost=COST, max_rows=256) == [0]


def test_what_waited_long_enough_goes_first() -> None:
    jobs = [job(b"a", 4, 0.008), prompt(num_skipped=MAX_SKIPS)]
    assert choose(jobs, cost=COST, max_rows=256)[0] == 1


def test_what_is_too_late_comes_after_what_can_be_in_time() -> None:
    jobs = [job(b"a", 30, -0.01), job(b"b", 30, 0.5)]
    assert choose(jobs, cost=COST, max_rows=40) == [1]


candidates = st.lists(
    st.builds(
        Candidate,
        peer=st.sampled_from([b"a", b"b", b"c"]),
        num_rows=st.integers(1, 128),
        num_steps_left=st.integers(1, 8),
        left_s=st.floats(-1.0, 1.0) | st.just(math.inf),
        is_catching_up=st.booleans(),
        num_skipped=st.integers(0, 20),
    ),
    max_size=12,
)


@given(candidates, st.integers(1, 256))
def test_a_pass_is_never_empty_and_full_only_by_its_first_job(jobs: list[Candidate], max_rows: int) -> None:
    chosen = choose(jobs, cost=COST, max_rows=max_rows)
    assert len(set(chosen)) == len(chosen)
    assert bool(chosen) == bool(jobs)
    assert len(chosen) <= 1 or sum(jobs[index].num_rows for index in chosen) <= max_rows


@pytest.mark.parametrize("waiting", [prompt(), job(b"b", 60, -1.0)], ids=["prompt", "late"])
def test_an_endless_stream_of_urgent_jobs_starves_nobody(waiting: Candidate) -> None:
    for num_skipped in range(MAX_SKIPS + 1):
        jobs = [job(b"a", 30, 0.02), replace(waiting, num_skipped=num_skipped)]
        chosen = choose(jobs, cost=COST, max_rows=64)
        assert (1 in chosen) == (num_skipped == MAX_SKIPS)


def test_drafts_that_have_time_are_not_starving() -> None:
    jobs = [job(b"a", 20, 0.5, num_skipped=100), job(b"b", 4, 0.0081)]
    assert choose(jobs, cost=COST, max_rows=256) == [1]


def test_passes_stay_short_for_a_verifier_whose_next_round_may_come() -> None:
    jobs = [job(b"a", 10, 0.5) for _ in range(5)]
    assert len(choose(jobs, cost=COST, max_rows=256, longest_s=0.0035)) == 2
    assert len(choose(jobs, cost=COST, max_rows=256, longest_s=0.00001)) == 5, "no pass is so short"
