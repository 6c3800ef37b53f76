"""Limits that change while sequences run, as with a change of role."""

import pytest

from cluster.engine.sequence import Sequence, SequenceStatus
from tests.cluster.engine.scheduler_harness import (
    FakeEngine,
    continuation,
    decoding_engine,
    drafts_of,
    make_scheduler,
    make_sequence,
)


def sequences(count: int, *, max_tokens: int = 30, prompt_tokens: int = 5) -> list[Sequence]:
    return [make_sequence(f"r{i}", (i % 5,) * prompt_tokens, max_tokens=max_tokens) for i in range(count)]


def status_of(items: list[Sequence]) -> list[str]:
    return [item.status.name for item in items]


def test_more_seats_are_taken_in_the_next_round() -> None:
    scheduler = make_scheduler(max_num_seqs=2)
    engine, items = FakeEngine(scheduler), sequences(6)
    for item in items:
        engine.add(item)
    engine.step()
    assert scheduler.num_running == 2
    scheduler.set_limits(max_num_seqs=5, withholds_reserve=False)
    engine.step()
    assert (scheduler.num_running, scheduler.num_waiting) == (5, 1)
    engine.drain()


def test_those_who_run_above_fewer_seats_run_to_their_end_and_new_ones_wait() -> None:
    scheduler = make_scheduler(max_num_seqs=6)
    running = sequences(6, max_tokens=10)
    engine = decoding_engine(scheduler, *running)
    late = engine.add(make_sequence("late", (1, 2, 3), max_tokens=4))
    scheduler.set_limits(max_num_seqs=2, withholds_reserve=True)
    while late.status is SequenceStatus.WAITING:
        assert scheduler.num_running <= 6
        assert len(engine.step().scheduled) > 0
    assert status_of(running).count("FINISHED") >= 5
    assert all(item.num_preemptions == 0 for item in running)
    engine.drain()


def test_of_too_many_only_as_many_as_have_a_seat_are_drafted_for() -> None:
    scheduler = make_scheduler(max_num_seqs=6)
    engine = decoding_engine(scheduler, *sequences(6))
    scheduler.set_limits(max_num_seqs=2, withholds_reserve=False)
    plan = engine.step({s.request_id: continuation(s.token_ids, 3) for s in scheduler.decoding()})
    assert drafts_of(plan) == {"r0": 3, "r1": 3}
    assert plan.num_cut_draft_tokens == 12
    engine.drain()


def test_the_reserve_is_kept_from_newcomers_and_given_to_them_when_it_is_not_withheld() -> None:
    scheduler = make_scheduler(num_blocks=10, num_reserve_blocks=6)
    engine, items = FakeEngine(scheduler), sequences(4, prompt_tokens=7, max_tokens=1)  # Two blocks each.
    for item in items:
        engine.add(item)
    scheduler.schedule(0.0, {})
    assert scheduler.num_running == 2
    scheduler.set_limits(max_num_seqs=8, withholds_reserve=False)
    scheduler.schedule(0.0, {})
    assert scheduler.num_running == 4


def test_running_sequences_and_their_drafts_use_the_reserve_before_anybody_is_preempted() -> None:
    scheduler = make_scheduler(num_blocks=7, num_reserve_blocks=3, enable_prefix_cache=False)
    items = sequences(2, prompt_tokens=7, max_tokens=9)  # Two blocks each: all that newcomers may have.
    engine = decoding_engine(scheduler, *items)
    assert scheduler.pool.num_free_blocks == 0
    plan = engine.step({"r0": continuation(items[0].token_ids, 4)})
    assert drafts_of(plan) == {"r0": 4}
    while scheduler.has_work:
        assert not engine.step().preempted
    assert scheduler.pool.num_withheld_blocks == 3


def test_a_full_pool_withholds_what_is_released_and_preempts_nobody() -> None:
    scheduler = make_scheduler(num_blocks=16, num_reserve_blocks=8, enable_prefix_cache=False)
    scheduler.set_limits(max_num_seqs=8, withholds_reserve=False)
    items = sequences(8, prompt_tokens=5, max_tokens=4)  # Never more than two blocks each.
    engine = decoding_engine(scheduler, *items)
    assert scheduler.pool.num_free_blocks == 0
    scheduler.set_limits(max_num_seqs=8, withholds_reserve=True)
    assert scheduler.pool.num_withheld_blocks == 0
    while scheduler.has_work:
        assert not engine.step().preempted
    assert scheduler.pool.num_withheld_blocks == 8


@pytest.mark.parametrize("withholds_reserve", [True, False])
def test_what_is_accepted_fits_whether_the_reserve_is_withheld_or_not(withholds_reserve: bool) -> None:
    scheduler = make_scheduler(num_blocks=10, num_reserve_blocks=4)  # Blocks of four tokens.
    scheduler.set_limits(max_num_seqs=8, withholds_reserve=withholds_reserve)
    assert scheduler.capacity_tokens == 24
    assert scheduler.can_ever_fit(24)
    assert not scheduler.can_ever_fit(25)
    engine = FakeEngine(scheduler)
    engine.add(make_sequence("longest", (1,) * 4, max_tokens=20))
    scheduler.set_limits(max_num_seqs=8, withholds_reserve=True)
    engine.drain()


def test_without_a_reserve_nothing_is_ever_withheld() -> None:
    scheduler = make_scheduler(num_blocks=10)
    for withholds_reserve in (True, False, True):
        scheduler.set_limits(max_num_seqs=8, withholds_reserve=withholds_reserve)
        assert scheduler.pool.num_free_blocks == 10
    assert scheduler.can_ever_fit(40)
