from collections.abc import Callable
from itertools import pairwise
from math import factorial
from random import Random
from statistics import mean

import pytest

from autoscaling.pool_config import PoolConfig
from autoscaling.simulation.arrivals import Poisson, Steps
from autoscaling.simulation.cost import CostModel
from autoscaling.simulation.modes import MODE_NAMES
from autoscaling.simulation.outcome import Outcome
from autoscaling.simulation.simulator import Plant
from autoscaling.simulation.workload import (
    SEED_MIX,
    ClosedLoop,
    OpenLoop,
    Replay,
    SimRequest,
    TraceEntry,
    TrafficClass,
)
from cluster.engine.budget import uniform_length
from cluster.engine.step_time import StepTimes
from cluster.routing.types import Domain

Run = Callable[..., Outcome]

CHAT = TrafficClass(
    name="chat",
    domain=Domain.GENERAL_CHAT,
    acceptance_rate=0.8,
    mean_prompt_tokens=100,
    mean_output_tokens=2000,
    spread=0,
)


@pytest.mark.parametrize("mode", MODE_NAMES)
def test_every_request_that_arrived_has_ended_or_is_in_flight(run: Run, plant: Plant, mode: str) -> None:
    outcome = run(plant, mode)
    assert outcome.num_arrived > 400
    assert outcome.num_arrived == outcome.num_ended + outcome.num_in_flight + outcome.num_refused
    assert sum(each.num_ended for each in outcome.classes) == outcome.num_ended
    assert sum(outcome.reasons.values()) == outcome.num_arrived


@pytest.mark.parametrize("mode", MODE_NAMES)
def test_tokens_of_all_requests_add_up_when_the_cluster_runs_dry(run: Run, plant: Plant, mode: str) -> None:
    random = Random(1)
    entries = tuple(
        TraceEntry(
            arrival_s=random.uniform(0, 20),
            prompt_tokens=random.randint(1, 3000),
            output_tokens=random.randint(1, 300),
            domain=random.choice(list(Domain)),
        )
        for _ in range(300)
    )
    outcome = run(plant, mode, source=Replay(entries=entries, classes=SEED_MIX))
    assert outcome.num_in_flight == 0
    assert outcome.output_tokens == pytest.approx(sum(each.output_tokens for each in entries))


def test_the_same_seed_gives_the_same_run_and_another_gives_another(run: Run, plant: Plant) -> None:
    first = run(plant, "dynamic")
    assert first == run(plant, "dynamic")
    assert first != run(plant, "dynamic", seed=1)


def test_one_client_is_served_at_the_rate_of_the_budget(run: Run, plant: Plant, cost: CostModel) -> None:
    outcome = run(
        plant, "speculative", source=ClosedLoop(concurrency=1, classes=(CHAT,)), classes=(CHAT,), num_replicas=1
    )
    _, rate = uniform_length(0.8, cost.times, num_sequences=1, max_tokens=5, num_context_tokens=1100)
    assert outcome.tpot_s.p50 == pytest.approx(1 / rate, rel=1e-3)


@pytest.mark.parametrize("concurrency", [4, 16])
def test_equal_clients_are_served_at_the_rate_of_the_budget(
    run: Run, plant: Plant, cost: CostModel, concurrency: int
) -> None:
    source = ClosedLoop(concurrency=concurrency, classes=(CHAT,))
    outcome = run(plant, "speculative", source=source, classes=(CHAT,), num_replicas=1)
    _, rate = uniform_length(
        0.8, cost.times, num_sequences=concurrency, max_tokens=5, num_context_tokens=1100 * concurrency
    )
    assert outcome.tokens_per_s == pytest.approx(rate, rel=0.03)  # now and then a prompt is read


def test_waits_follow_the_erlang_formula(run: Run, plant: Plant) -> None:
    seats, round_s, mean_tokens, load = 4, 0.01, 200, 0.7
    service_s = mean_tokens * round_s
    rate = load * seats / service_s
    random, now_s = Random(7), 0.0
    entries = []
    for _ in range(9000):
        now_s += random.expovariate(rate)
        tokens = max(1, round(random.expovariate(1 / mean_tokens)))
        entries.append(TraceEntry(arrival_s=now_s, prompt_tokens=1, output_tokens=tokens, domain=Domain.GENERAL_CHAT))

    class Watching(Replay):
        def open(self, seed: int) -> object:  # type: ignore[override] # keeps the requests to look at them afterwards
            requests, follow = super().open(seed)
            kept = list(requests)
            seen.extend(kept)
            return iter(kept), follow

    seen: list[SimRequest] = []
    pools = PoolConfig(batch_max_num_seqs=seats, heartbeat_s=100, stale_after_s=300, move_timeout_s=300)
    run(
        plant,
        "batch",
        pools,
        source=Watching(entries=tuple(entries), classes=(CHAT,)),
        classes=(CHAT,),
        cost=CostModel(name="flat", times=StepTimes(knots=((1, round_s),))),
        num_replicas=1,
        duration_s=now_s,
        sample_s=now_s / 10,
    )
    waits = [each.first_token_s - each.arrival_s - round_s for each in seen if each.first_token_s >= 0]
    assert mean(waits) == pytest.approx(erlang_wait_s(seats, load * seats, service_s), rel=0.1)


def erlang_wait_s(servers: int, offered: float, service_s: float) -> float:
    """Mean wait in M/M/c."""
    tail = offered**servers / factorial(servers) * servers / (servers - offered)
    busy = tail / (sum(offered**k / factorial(k) for k in range(servers)) + tail)
    return busy * service_s / (servers - offered)


@pytest.mark.parametrize("concurrency", [4, 40, 150])
def test_the_controller_comes_to_rest_under_a_constant_load(run: Run, plant: Plant, concurrency: int) -> None:
    source = ClosedLoop(concurrency=concurrency, classes=SEED_MIX)
    outcome = run(plant, "dynamic", source=source, duration_s=80.0, sample_s=1.0)
    late = [each.num_speculative for each in outcome.samples if each.at_s > 40]
    changes = sum(before != after for before, after in pairwise(late))
    assert changes <= 2, late  # classes are drawn, so the load is not quite constant


def test_roles_follow_the_load_up_and_down(run: Run, plant: Plant) -> None:
    steps = Steps(steps=((0.0, 2.0), (20.0, 45.0), (50.0, 1.0)))
    outcome = run(plant, "dynamic", source=OpenLoop(arrivals=steps, classes=SEED_MIX), duration_s=140.0)
    by_time = {each.at_s: each.num_speculative for each in outcome.samples}
    assert by_time[15.0] == 4
    assert min(count for at_s, count in by_time.items() if 25 <= at_s <= 60) < 4
    assert by_time[135.0] == 4


def test_two_static_pools_never_move(run: Run, plant: Plant) -> None:
    source = OpenLoop(arrivals=Poisson(rate_per_s=30.0), classes=SEED_MIX)
    outcome = run(plant, "static", source=source, duration_s=20.0)
    assert {each.num_speculative for each in outcome.samples} == {2}
    assert outcome.num_moves == 0


def test_nobody_drafts_for_what_the_rules_send_elsewhere(run: Run, plant: Plant) -> None:
    outcome = run(plant, "static", duration_s=20.0, num_replicas=1)
    drafted = {each.name: each.acceptance_rate is not None for each in outcome.classes}
    assert drafted["JSON"] and not drafted["bulk creative"]


def test_speculation_is_faster_at_low_load_and_batch_carries_more_at_high_load(run: Run, plant: Plant) -> None:
    calm, busy = (OpenLoop(arrivals=Poisson(rate_per_s=rate), classes=SEED_MIX) for rate in (1.0, 40.0))
    fast_s, slow_s = (run(plant, mode, source=calm).tpot_s.p50 for mode in ("speculative", "batch"))
    assert fast_s is not None and slow_s is not None and fast_s < 0.6 * slow_s
    speculative, batch = (run(plant, mode, source=busy, duration_s=30.0) for mode in ("speculative", "batch"))
    assert speculative.goodput_tokens_per_s < 0.8 * batch.goodput_tokens_per_s


def test_price_and_time_make_the_cost_of_a_million_tokens(run: Run, plant: Plant) -> None:
    outcome = run(plant, "batch")
    dollars = 4 * 5 * 3.0 / 60
    assert outcome.cost_per_million == pytest.approx(dollars / outcome.output_tokens * 1e6)


def test_a_full_queue_refuses_and_nothing_is_lost(run: Run, plant: Plant) -> None:
    flood = OpenLoop(arrivals=Poisson(rate_per_s=200.0), classes=SEED_MIX)
    outcome = run(plant, "speculative", source=flood, duration_s=20.0, num_replicas=1, max_queued_requests=50)
    assert outcome.num_refused > 1000
    assert outcome.num_arrived == outcome.num_ended + outcome.num_in_flight + outcome.num_refused
    assert max(each.num_waiting for each in outcome.samples) <= 50
