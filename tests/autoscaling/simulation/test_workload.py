from itertools import pairwise, takewhile
from random import Random
from statistics import mean, pvariance

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaling.simulation.arrivals import Arrivals, Bursts, Diurnal, Poisson, Steps
from autoscaling.simulation.workload import (
    SEED_MIX,
    ClosedLoop,
    OpenLoop,
    Replay,
    RequestDraw,
    TraceEntry,
    TrafficClass,
)
from cluster.routing.types import Domain

PROCESSES = (
    Poisson(rate_per_s=5.0),
    Bursts(rate_per_s=2.0, burst_rate_per_s=20.0, mean_calm_s=10.0, mean_burst_s=5.0),
    Diurnal(rate_per_s=5.0, swing_ratio=0.9, period_s=100.0),
    Steps(steps=((0.0, 4.0), (50.0, 0.0), (100.0, 8.0))),
)


def until(process: Arrivals, end_s: float, seed: int = 0) -> list[float]:
    return list(takewhile(lambda time: time < end_s, process.times(Random(seed))))


@pytest.mark.parametrize("process", PROCESSES)
def test_times_rise_and_follow_from_the_seed(process: Arrivals) -> None:
    times = until(process, 300.0)
    assert times == sorted(times) == until(process, 300.0)
    assert times != until(process, 300.0, seed=1)


def test_poisson_gaps_have_mean_and_variance_of_an_exponential() -> None:
    times = until(Poisson(rate_per_s=5.0), 4000.0)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert mean(gaps) == pytest.approx(0.2, rel=0.03)
    assert pvariance(gaps) == pytest.approx(0.04, rel=0.1)


def test_bursts_have_the_mean_rate_of_both_states_and_clump() -> None:
    process = Bursts(rate_per_s=2.0, burst_rate_per_s=20.0, mean_calm_s=10.0, mean_burst_s=5.0)
    times = until(process, 20_000.0)
    assert len(times) / 20_000 == pytest.approx((2 * 10 + 20 * 5) / 15, rel=0.06)
    counts = [0] * 2000
    for time in times:
        counts[int(time / 10)] += 1
    assert pvariance(counts) > 5 * mean(counts)


def test_a_day_begins_at_night_and_peaks_at_noon() -> None:
    times = until(Diurnal(rate_per_s=50.0, swing_ratio=0.9, period_s=100.0), 100.0)
    night = sum(time < 10 or time >= 90 for time in times)
    noon = sum(40 <= time < 60 for time in times)
    assert noon > 5 * night
    assert len(times) == pytest.approx(5000, rel=0.05)


def test_no_request_comes_in_a_step_of_rate_zero() -> None:
    times = until(PROCESSES[3], 150.0)
    assert not [time for time in times if 50 <= time < 100]
    assert sum(time >= 100 for time in times) == pytest.approx(400, rel=0.15)


def test_another_mix_of_classes_moves_no_arrival() -> None:
    one, _ = OpenLoop(arrivals=Poisson(rate_per_s=1.0), classes=SEED_MIX).open(3)
    other, _ = OpenLoop(arrivals=Poisson(rate_per_s=1.0), classes=SEED_MIX[:1]).open(3)
    assert [next(one).arrival_s for _ in range(50)] == [next(other).arrival_s for _ in range(50)]


def test_lengths_have_the_mean_of_their_class_and_shares_decide_how_often_it_comes() -> None:
    common = TrafficClass(name="a", domain=Domain.GENERAL_CHAT, share=3.0, mean_output_tokens=500, spread=0.6)
    rare = TrafficClass(name="b", domain=Domain.GENERAL_CHAT, mean_output_tokens=40, spread=0.0)
    draw = RequestDraw((common, rare), seed=0)
    requests = [draw.at(0.0) for _ in range(20_000)]
    lengths = [each.num_output_tokens for each in requests if each.class_index == 0]
    assert len(lengths) / 20_000 == pytest.approx(0.75, abs=0.01)
    assert mean(lengths) == pytest.approx(500, rel=0.03)
    assert {each.num_output_tokens for each in requests if each.class_index == 1} == {40}


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.integers(1, 100_000))
def test_clients_allow_at_least_what_is_written(num_tokens: int) -> None:
    kind = TrafficClass(name="a", domain=Domain.GENERAL_CHAT, mean_output_tokens=num_tokens, spread=0.0)
    assert num_tokens <= RequestDraw((kind,), 0).at(0.0).max_tokens < 2 * num_tokens + 1


def test_a_closed_loop_sends_the_next_request_when_one_ends() -> None:
    requests, follow = ClosedLoop(concurrency=3, classes=SEED_MIX).open(0)
    assert [each.arrival_s for each in requests] == [0.0, 0.0, 0.0]
    following = follow(7.5)
    assert following is not None and following.arrival_s == 7.5


def test_a_trace_is_replayed_in_order_with_the_class_of_its_domain() -> None:
    entries = (
        TraceEntry(arrival_s=2.0, prompt_tokens=5, output_tokens=6, domain=Domain.CODE_SYNTHESIS),
        TraceEntry(arrival_s=1.0, prompt_tokens=7, output_tokens=8, domain=Domain.STRUCTURED_JSON),
    )
    requests, follow = Replay(entries=entries, classes=SEED_MIX).open(0)
    seen = [(each.arrival_s, each.num_prompt_tokens, SEED_MIX[each.class_index].name) for each in requests]
    assert seen == [(1.0, 7, "JSON"), (2.0, 5, "code")]
    assert follow(3.0) is None


def test_survivals_are_powers_unless_they_were_measured() -> None:
    kind = TrafficClass(name="a", domain=Domain.GENERAL_CHAT, acceptance_rate=0.5)
    assert kind.survivals(3) == (0.5, 0.25, 0.125)
    measured = TrafficClass(name="a", domain=Domain.GENERAL_CHAT, measured_survivals=(0.6, 0.5))
    assert measured.survivals(4) == (0.6, 0.5, 0.0, 0.0)
