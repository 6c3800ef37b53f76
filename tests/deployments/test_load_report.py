from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaling.types import ReplicaReport
from cluster.engine.step_time import StepTimes
from cluster.types import FinishReason, Request, RequestOutput, Role, SamplingParams, SpeculationStats, StepStats
from deployments import wire
from deployments.load_report import (
    DOMAIN_WINDOW_S,
    MAX_DOMAINS,
    MAX_SAMPLES,
    PART_S,
    WINDOW_S,
    LoadMeter,
    Samples,
    WindowSums,
    percentile,
)
from deployments.verifier import VerifierCore
from deployments.verifier_config import VerifierConfig
from tests.deployments.fake_engine import FakeEngine


def request(name: str, *, prompt: int = 10, max_tokens: int = 20, at_s: float = 0.0, domain: str = "") -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=tuple(range(prompt)),
        sampling=SamplingParams(max_tokens=max_tokens, seed=0),
        arrival_s=at_s,
        domain=domain,
    )


def output(name: str, num_tokens: int, total: int, *, ends: bool = False, **stats: float) -> RequestOutput:
    return RequestOutput(
        request_id=name,
        token_ids=(1,) * num_tokens,
        num_output_tokens=total,
        finish_reason=FinishReason.STOP if ends else None,
        speculation=SpeculationStats(**stats) if ends else None,  # type: ignore[arg-type]
    )


def report(meter: LoadMeter, now_s: float) -> ReplicaReport:
    return meter.report("r1", Role.SPECULATIVE, now_s)


def test_outstanding_tokens_are_the_prompt_until_the_first_token_and_then_the_output_to_come() -> None:
    meter = LoadMeter()
    meter.record_arrival(request("a"))
    assert report(meter, 0.0).num_outstanding_tokens == 30
    meter.record_outputs([output("a", 2, 2)], 1.0)
    assert report(meter, 1.0).num_outstanding_tokens == 18
    meter.record_outputs([output("a", 3, 5, ends=True)], 2.0)
    assert report(meter, 2.0).num_outstanding_tokens == 0
    assert meter.num_in_flight == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["add", "token", "end", "drop"])), max_size=40))
def test_outstanding_tokens_never_go_below_zero_and_end_at_zero(events: list[tuple[int, str]]) -> None:
    meter, totals = LoadMeter(), dict[str, int]()
    for at, (number, event) in enumerate(events):
        name = str(number)
        if event == "add" and name not in totals:
            totals[name] = 0
            meter.record_arrival(request(name, at_s=float(at)))
        elif event == "drop":
            totals.pop(name, None)
            meter.record_drop(name)
        elif name in totals:
            totals[name] += 7
            meter.record_outputs([output(name, 7, totals[name], ends=event == "end")], float(at))
            if event == "end":
                del totals[name]
        assert report(meter, float(at)).num_outstanding_tokens >= 0
    for name in totals:
        meter.record_drop(name)
    assert report(meter, 99.0).num_outstanding_tokens == 0


def test_rates_are_those_of_the_last_seconds() -> None:
    meter = LoadMeter()
    for second in range(20):
        accepted = 3 if second >= 10 else 0
        stats = StepStats(num_output_tokens=5, num_tried_tokens=4, accepted_per_position=(accepted,))
        meter.record_step(stats, float(second))
    now = report(meter, 19.9)
    assert now.tokens_per_s == pytest.approx(5.0, rel=0.1)
    assert now.acceptance_rate == pytest.approx(0.75)
    later = report(meter, 19.0 + 2 * WINDOW_S)
    assert (later.tokens_per_s, later.acceptance_rate) == (0.0, None)


def test_a_burst_after_a_pause_is_not_diluted_by_the_pause() -> None:
    meter = LoadMeter()
    for tenth in range(20):
        meter.record_step(StepStats(num_output_tokens=10), 100.0 + tenth / 10)
    assert report(meter, 102.0).tokens_per_s == pytest.approx(100.0, rel=0.3)


def test_waiting_ones_are_those_in_flight_that_do_not_run() -> None:
    meter = LoadMeter()
    for name in "abc":
        meter.record_arrival(request(name))
    assert (report(meter, 0.0).num_running, report(meter, 0.0).num_waiting) == (0, 3)
    meter.record_step(StepStats(num_running=2, num_waiting=1, kv_cache_usage_ratio=0.5), 0.1)
    assert (report(meter, 0.1).num_running, report(meter, 0.1).num_waiting) == (2, 1)
    assert report(meter, 0.1).kv_usage_ratio == 0.5
    for name in "abc":
        meter.record_drop(name)
    assert (report(meter, 0.2).num_running, report(meter, 0.2).num_waiting) == (0, 0)


def test_latencies_are_of_first_tokens_and_of_parts_of_streams() -> None:
    meter = LoadMeter()
    meter.record_arrival(request("a", at_s=0.0, max_tokens=1000))
    meter.record_outputs([output("a", 1, 1)], 0.5)
    assert report(meter, 0.5).latency.ttft_p95_s == pytest.approx(0.5)
    assert report(meter, 0.5).latency.tpot_p95_s is None
    for tick in range(1, 30):
        meter.record_outputs([output("a", 1, 1 + tick)], 0.5 + tick / 10)
    assert PART_S < 2.9
    # The stream still runs, and is known to take a tenth of a second per token.
    assert report(meter, 3.4).latency.tpot_p95_s == pytest.approx(0.1)
    assert report(meter, 3.4 + WINDOW_S + 1).latency.ttft_p95_s is None


def test_who_waits_longer_than_all_that_were_served_counts_before_it_is_served() -> None:
    meter = LoadMeter()
    meter.record_arrival(request("late", at_s=0.0))
    meter.record_arrival(request("quick", at_s=5.0))
    meter.record_outputs([output("quick", 1, 1)], 5.1)
    assert report(meter, 6.0).latency.ttft_p95_s == pytest.approx(6.0)


def test_domains_have_their_own_acceptance_and_entropy() -> None:
    meter = LoadMeter()
    for index, (domain, bits) in enumerate((("code", 1.0), ("code", 3.0), ("chat", 0.0), ("", 9.0))):
        name = str(index)
        meter.record_arrival(request(name, domain=domain))
        stats = {"num_draft_tokens": 8, "num_accepted_tokens": 6, "entropy_bits_sum": bits * 10}
        meter.record_outputs([output(name, 10, 10, ends=True, **stats)], 1.0)
    domains = report(meter, 1.0).domains
    assert set(domains) == {"code", "chat"}
    assert (domains["code"].num_requests, domains["code"].acceptance_rate) == (2, 0.75)
    assert domains["code"].entropy_bits == pytest.approx(2.0)
    assert domains["chat"].entropy_bits is None
    assert report(meter, 2 + DOMAIN_WINDOW_S).domains == {}


def test_wide_trees_do_not_look_like_bad_drafts() -> None:
    meter = LoadMeter()
    meter.record_arrival(request("a", domain="code"))
    stats = {"num_draft_tokens": 64, "num_draft_levels": 8, "num_accepted_tokens": 6}
    meter.record_outputs([output("a", 10, 10, ends=True, **stats)], 1.0)
    assert report(meter, 1.0).domains["code"].acceptance_rate == 0.75


def test_memory_is_bounded_by_what_is_in_flight() -> None:
    meter, samples, sums = LoadMeter(), Samples(), WindowSums(1, WINDOW_S)
    for index in range(5000):
        name = str(index)
        meter.record_arrival(request(name, at_s=0.0, domain=f"domain-{index}"))
        meter.record_outputs([output(name, 1, 1, ends=True)], 0.001 * index)
        samples.add(0.0, index)
        sums.add(index / 100, 1.0)
    assert meter.num_in_flight == 0
    assert len(report(meter, 5.0).domains) == MAX_DOMAINS
    assert len(samples.values(0.0)) == MAX_SAMPLES
    assert sums.sums(49.99) == pytest.approx([1000], rel=0.06)


def test_a_mean_context_is_over_those_that_decode() -> None:
    meter = LoadMeter()
    meter.record_arrival(request("a", prompt=100))
    meter.record_arrival(request("b", prompt=5000))
    meter.record_outputs([output("a", 4, 4)], 1.0)
    assert report(meter, 1.0).mean_context_tokens == 104


def test_what_the_engine_knows_is_passed_on() -> None:
    times = StepTimes(knots=((1, 0.01),))
    told = LoadMeter().report("r", Role.BATCH, 0.0, step_times=times, kv_tax_tokens=7, flip_s=0.02)
    expected = ReplicaReport(replica_id="r", role=Role.BATCH, step_times=times, kv_tax_tokens=7, flip_s=0.02)
    assert replace(told, tokens_per_s=0.0) == expected


def test_the_percentile_is_a_value_that_enough_of_them_do_not_exceed() -> None:
    assert percentile([], 0.95) is None
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([float(n) for n in range(100)], 0.95) == 94.0


@pytest.mark.anyio
async def test_a_verifier_reports_what_its_engine_does() -> None:
    engine = FakeEngine(step_s=0.001)
    core = VerifierCore(VerifierConfig(), lambda: engine, replica="r1")
    await core.start()
    try:
        stream = core.generate(wire.encode(wire.GenerateCall(requests=(request("a", max_tokens=60),))))
        await anext(stream)
        during = core.report()
        assert (during.replica_id, during.role, during.num_running + during.num_waiting) == ("r1", Role.SPECULATIVE, 1)
        assert during.kv_tax_tokens == engine.kv_tax_tokens
        assert [item async for item in stream]
        await core.set_role(Role.BATCH)
        after = core.report()
        assert (after.num_running, after.num_waiting, after.num_outstanding_tokens) == (0, 0, 0)
        assert after.tokens_per_s > 0
        assert after.acceptance_rate == pytest.approx(2 / 3)
        assert (after.role, after.kv_tax_tokens) == (Role.BATCH, 0)
        assert after.flip_s is not None
    finally:
        await core.stop()
