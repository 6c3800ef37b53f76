"""What a split of the replicas promises, and which one is chosen."""

import pytest

from autoscaling.pool_config import PoolConfig
from autoscaling.pool_demand import Demand, PoolWork
from autoscaling.pool_objective import Score, SplitModel, bounds, candidates, choose
from autoscaling.types import DecisionReason
from cluster.engine.step_time import StepTimes
from tests.autoscaling.pool_cluster import TIMES

CONFIG = PoolConfig()
FAST = StepTimes(knots=((1, 0.001), (64, 0.064)))
"""Each row costs its full share: drafts never pay, whatever is accepted."""


def model(
    speculative: PoolWork,
    batch: PoolWork,
    *,
    times: StepTimes = TIMES,
    bulk_ratio: float | None = None,
    wanted_ratio: float | None = None,
    acceptance_rate: float = 0.7,
) -> SplitModel:
    demand = Demand(speculative=speculative, batch=batch, times=times, tokens_per_sequence=200.0)
    return SplitModel(
        CONFIG, demand, times=times, acceptance_rate=acceptance_rate, bulk_ratio=bulk_ratio, wanted_ratio=wanted_ratio
    )


def work(num_replicas: int, num_sequences: int = 0, **more: float) -> PoolWork:
    return PoolWork(num_replicas=num_replicas, num_sequences=num_sequences, **more)  # type: ignore[arg-type]


def best(found: SplitModel, low: int, high: int, current: int) -> tuple[int, DecisionReason]:
    score, reason = choose(CONFIG, [found.score(each) for each in range(low, high + 1)], current, found.num_interactive)
    return score.num_speculative, reason


def test_light_load_is_served_by_speculative_replicas() -> None:
    assert best(model(work(1, 4), work(2)), 1, 3, 1) == (3, DecisionReason.HEADROOM)
    assert best(model(work(1, 12), work(2)), 1, 3, 1) == (3, DecisionReason.THROUGHPUT)


def test_sequences_that_would_miss_the_first_token_come_before_throughput() -> None:
    found = model(work(3, 150), work(0))
    assert found.score(3).num_missing == 150
    assert found.score(1).num_missing == 0
    split, reason = best(found, 1, 3, 3)
    assert split < 3
    assert reason is DecisionReason.SLO


def test_a_saturated_pool_becomes_a_batch_pool_however_many_drafts_are_accepted() -> None:
    found = model(work(1, 200), work(0), acceptance_rate=0.6)
    assert found.score(0).tokens_per_s > 1.3 * found.score(1).tokens_per_s
    assert best(found, 0, 1, 1)[0] == 0


def test_where_drafts_do_not_pay_a_speculative_replica_is_as_good_as_a_batch_one_up_to_its_seats() -> None:
    found = model(work(1, 12), work(0), times=FAST)
    assert found.score(1).tokens_per_s == pytest.approx(found.score(0).tokens_per_s)


def test_a_full_speculative_pool_hides_demand() -> None:
    full, free = model(work(1, 16), work(2, 60)), model(work(1, 8), work(2, 60))
    assert full.score(2).load_ratio == pytest.approx(1.0)
    assert free.score(2).load_ratio == pytest.approx(0.25)


def test_what_came_to_free_seats_before_bounds_what_a_full_pool_may_hide() -> None:
    known = model(work(1, 16), work(2, 64), wanted_ratio=0.25)
    assert known.score(2).load_ratio == pytest.approx(20 / 32)
    assert model(work(1, 16), work(2, 64), wanted_ratio=0.1).score(2).load_ratio == pytest.approx(16 / 32)


def test_work_that_waits_beside_free_batch_seats_would_wait_after_a_move_too() -> None:
    insisting = model(work(2, 80, num_waiting=48), work(1))
    assert insisting.score(1).num_missing == 80
    assert best(insisting, 1, 3, 2)[0] == 3


def test_bulk_work_has_no_latency_objective_while_it_is_known_to_be_bulk() -> None:
    unknown, bulk = model(work(3, 90), work(0)), model(work(3, 90), work(0), bulk_ratio=1.0)
    assert (unknown.num_interactive, bulk.num_interactive) == (90, 0)
    assert (best(unknown, 1, 3, 3)[1], best(bulk, 1, 3, 3)) == (DecisionReason.SLO, (3, DecisionReason.HEADROOM))


def test_measured_times_per_token_above_the_predicted_ones_count() -> None:
    slow = model(work(2, 20, tpot_p95_s=0.03), work(1, 10))
    assert slow.score(2).tpot_s == pytest.approx(2 * model(work(2, 20), work(1, 10)).score(2).tpot_s)


def test_measured_times_per_token_below_the_predicted_ones_may_be_old_and_do_not_count() -> None:
    quick = model(work(2, 20, tpot_p95_s=0.0001), work(1, 10))
    assert quick.score(2).tpot_s == model(work(2, 20), work(1, 10)).score(2).tpot_s


def test_slow_first_tokens_of_a_full_pool_ask_for_more_seats() -> None:
    found = model(work(1, 16, ttft_p95_s=3.0), work(2, 20))
    assert found.score(1).ttft_s == pytest.approx(3.0)
    assert found.score(2).ttft_s == pytest.approx(1.5)


def test_slow_first_tokens_beside_free_seats_come_from_long_prompts_and_ask_for_nothing() -> None:
    assert model(work(1, 4, ttft_p95_s=3.0), work(2, 20)).score(1).ttft_s == 0


def score(split: int, tokens_per_s: float, *, missing: float = 0.0, load_ratio: float = 0.5) -> Score:
    return Score(
        num_speculative=split,
        num_missing=missing,
        tokens_per_s=tokens_per_s,
        load_ratio=load_ratio,
        tpot_s=0.02,
        ttft_s=0.0,
    )


@pytest.mark.parametrize(
    ("scores", "wanted"),
    [
        ([score(1, 100), score(2, 104, load_ratio=1)], (1, DecisionReason.HEADROOM)),
        ([score(1, 100), score(2, 106, load_ratio=1)], (2, DecisionReason.THROUGHPUT)),
        ([score(1, 100), score(2, 99.5)], (2, DecisionReason.HEADROOM)),
        ([score(1, 100), score(2, 98)], (1, DecisionReason.HEADROOM)),
        ([score(1, 100), score(2, 99.5, load_ratio=0.9)], (1, DecisionReason.HEADROOM)),
        ([score(1, 100, missing=9), score(2, 50)], (2, DecisionReason.SLO)),
        ([score(1, 100, missing=0.4), score(2, 50)], (1, DecisionReason.HEADROOM)),
        ([score(1, 100), score(2, 500, missing=9)], (1, DecisionReason.HEADROOM)),
        ([score(1, 100), score(0, 100)], (1, DecisionReason.HEADROOM)),
    ],
)
def test_latency_comes_first_then_clear_throughput_then_headroom(
    scores: list[Score], wanted: tuple[int, DecisionReason]
) -> None:
    found, reason = choose(CONFIG, scores, 1, 10.0)
    assert (found.num_speculative, reason) == wanted


@pytest.mark.parametrize(
    ("settings", "num_replicas", "wanted"),
    [
        ({}, 3, (1, 3)),
        ({}, 1, (0, 1)),
        ({}, 0, (0, 0)),
        ({"min_speculative": 0}, 3, (0, 3)),
        ({"min_batch": 1}, 3, (1, 2)),
        ({"min_speculative": 2, "min_batch": 2}, 3, (2, 2)),
        ({"max_speculative": 2}, 5, (1, 2)),
        ({"min_speculative": 9}, 3, (3, 3)),
        ({"mode": "batch"}, 3, (0, 0)),
        ({"mode": "speculative"}, 3, (3, 3)),
    ],
)
def test_bounds_never_ask_for_more_replicas_than_there_are(
    settings: dict[str, object], num_replicas: int, wanted: tuple[int, int]
) -> None:
    assert bounds(PoolConfig(**settings), num_replicas) == wanted  # type: ignore[arg-type]


def test_all_splits_of_few_replicas_are_looked_at_and_of_many_a_few() -> None:
    assert candidates(1, 5, 2) == [1, 2, 3, 4, 5]
    many = candidates(1, 1000, 400)
    assert len(many) < 25
    assert {1, 399, 400, 401, 1000} <= set(many)
