"""What is remembered of the mix of work and of drafts."""

import pytest

from autoscaling import pool_memory
from autoscaling.pool_demand import Demand, PoolWork
from autoscaling.pool_memory import AVERAGE_S, BULK_MEMORY_S, WANTED_MEMORY_S, Learned


def demand(speculative: tuple[int, int], batch: tuple[int, int], acceptance_rate: float | None = None) -> Demand:
    return Demand(
        speculative=PoolWork(num_replicas=speculative[0], num_sequences=speculative[1]),
        batch=PoolWork(num_replicas=batch[0], num_sequences=batch[1]),
        acceptance_rate=acceptance_rate,
    )


def learn(learned: Learned, seen: Demand, now_s: float) -> Learned:
    """With 16 seats for each speculative replica."""
    return pool_memory.learn(learned, seen, now_s, 16)


BOTH = demand((1, 10), (1, 30))
ONE = demand((2, 40), (0, 0))


def test_the_first_look_at_two_pools_tells_the_mix() -> None:
    assert learn(Learned(), BOTH, 5.0).bulk_ratio == pytest.approx(0.75)


def test_later_looks_move_it_slowly_and_a_second_look_at_the_same_time_not_at_all() -> None:
    learned = learn(Learned(), BOTH, 5.0)
    moved = learn(learned, demand((1, 40), (1, 0)), 6.0)
    assert 0.75 * (1 - 1.1 / AVERAGE_S) < moved.bulk_ratio < 0.75  # type: ignore[operator]
    assert learn(moved, demand((1, 40), (1, 0)), 6.0) == moved
    assert learn(moved, demand((1, 40), (1, 0)), 100.0).bulk_ratio == pytest.approx(0, abs=0.01)


def test_the_mix_is_kept_while_one_pool_is_empty_but_not_for_ever() -> None:
    learned = learn(Learned(), BOTH, 5.0)
    assert learn(learned, ONE, 5.0 + BULK_MEMORY_S).bulk_ratio == pytest.approx(0.75)
    assert learn(learned, ONE, 6.0 + BULK_MEMORY_S).bulk_ratio is None


def test_without_work_nothing_is_learned() -> None:
    assert learn(Learned(), demand((1, 0), (1, 0)), 5.0) == Learned()


def test_the_last_measured_acceptance_is_kept_while_nobody_drafts() -> None:
    learned = learn(Learned(), demand((1, 1), (0, 0), 0.4), 1.0)
    assert learn(learned, demand((0, 0), (1, 1)), 2.0).acceptance_rate == 0.4


def test_free_speculative_seats_tell_how_much_work_wants_them() -> None:
    learned = learn(Learned(), demand((2, 20), (1, 60)), 5.0)
    assert learned.wanted_ratio == pytest.approx(0.25)
    full = demand((1, 16), (2, 64))
    assert learn(learned, full, 6.0).wanted_ratio == pytest.approx(0.25)
    assert learn(learned, full, 6.0 + WANTED_MEMORY_S).wanted_ratio is None


def test_a_pool_that_fills_up_shows_that_more_work_wants_it_by_now() -> None:
    learned = learn(Learned(), demand((2, 20), (1, 60)), 5.0)
    assert learn(learned, demand((2, 32), (1, 60)), 6.0).wanted_ratio is None


def test_another_number_of_speculative_replicas_begins_a_new_average() -> None:
    learned = learn(Learned(), demand((2, 20), (1, 60)), 5.0)
    assert learn(learned, demand((3, 40), (1, 40)), 6.0).wanted_ratio == pytest.approx(0.5)
