"""Prices, and how the measured time of a round is divided."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.engine.step_time import StepTimes
from cluster.errors import ConfigError
from cluster.telemetry.cost import CostConfig, DomainCost, Resources, divide_round, usd_per_s
from cluster.types import DomainWork, StepStats

TIMES = StepTimes(knots=((1, 0.010), (8, 0.012), (32, 0.020), (64, 0.036)), context_s=1e-7, sequence_s=5e-5)
LINEAR = StepTimes(knots=((1, 1.0), (2, 2.0)))
"""Each row costs as much as the first: drafts cannot pay."""

FREE = StepTimes(knots=((1, 1.0),))
"""Rows cost nothing beside the pass: each accepted token is won."""


def a_round(*works: DomainWork, duration_s: float = 1.0, wait_s: float = 0.0) -> StepStats:
    accepted = sum(work.num_accepted_tokens for work in works)
    return StepStats(
        duration_s=duration_s,
        draft_wait_s=wait_s,
        num_rows=sum(work.num_rows for work in works),
        num_sequences=sum(work.num_sequences for work in works),
        num_output_tokens=sum(work.num_output_tokens for work in works),
        num_draft_tokens=sum(work.num_draft_tokens for work in works),
        num_drafts=sum(work.num_draft_tokens > 0 for work in works),
        accepted_per_position=(accepted,) if accepted else (),
        domains=works,
    )


def work(domain: str, sequences: int, *, prompt: int = 0, drafted: int = 0, accepted: int = 0) -> DomainWork:
    return DomainWork(
        domain=domain,
        num_sequences=sequences,
        num_rows=sequences + prompt + drafted,
        num_output_tokens=sequences + accepted,
        num_draft_tokens=drafted,
        num_accepted_tokens=accepted,
    )


def totals(parts: list[DomainCost]) -> tuple[float, float, float]:
    return sum(p.busy_s for p in parts), sum(p.wasted_s for p in parts), sum(p.counterfactual_s for p in parts)


@st.composite
def works(draw: st.DrawFn) -> list[DomainWork]:
    found = []
    for name in draw(st.lists(st.sampled_from("abcd"), min_size=1, unique=True)):
        drafted = draw(st.integers(0, 20))
        accepted = draw(st.integers(0, drafted))
        sequences, prompt = draw(st.integers(1, 16)), draw(st.integers(0, 300))
        found.append(work(name, sequences, prompt=prompt, drafted=drafted, accepted=accepted))
    return found


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(works(), st.floats(1e-4, 2.0), st.floats(0.0, 1.0), st.sampled_from([TIMES, LINEAR, FREE, None]))
def test_the_parts_add_up_to_the_round_and_none_is_negative(
    mix: list[DomainWork], duration_s: float, wait: float, times: StepTimes | None
) -> None:
    parts = divide_round(a_round(*mix, duration_s=duration_s, wait_s=wait * duration_s), times)
    busy_s, wasted_s, _ = totals(parts)
    assert busy_s == pytest.approx(duration_s)
    assert 0 <= wasted_s <= duration_s
    assert all(part.busy_s >= 0 and part.wasted_s >= 0 and part.counterfactual_s >= 0 for part in parts)
    assert [part.work for part in parts] == mix


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(works(), st.sampled_from([TIMES, LINEAR, FREE, None]))
def test_a_round_without_drafts_is_what_plain_decoding_takes(mix: list[DomainWork], times: StepTimes | None) -> None:
    plain = [work(each.domain, each.num_sequences, prompt=each.num_rows % 7) for each in mix]
    parts = divide_round(a_round(*plain), times)
    assert [part.counterfactual_s for part in parts] == pytest.approx([part.busy_s for part in parts])
    assert totals(parts)[1] == 0


def test_where_rows_are_free_accepted_tokens_are_rounds_saved_and_rejected_ones_cost_nothing() -> None:
    (part,) = divide_round(a_round(work("a", 1, drafted=4, accepted=3), duration_s=2.0), FREE)
    assert part.counterfactual_s == pytest.approx(2.0 * 4)
    assert part.wasted_s == 0


def test_where_rows_cost_as_much_as_tokens_drafts_save_nothing_and_rejected_ones_are_lost() -> None:
    (part,) = divide_round(a_round(work("a", 1, drafted=4, accepted=3), duration_s=5.0), LINEAR)
    assert part.counterfactual_s == pytest.approx(4.0)
    assert part.wasted_s == pytest.approx(1.0)


def test_a_batch_that_drafts_alike_would_have_taken_as_many_rounds_as_each_has_tokens() -> None:
    (part,) = divide_round(a_round(work("a", 8, drafted=32, accepted=16)), TIMES)
    drafted_s, plain_s = TIMES.seconds(40, num_sequences=8), TIMES.seconds(8)
    assert part.counterfactual_s == pytest.approx(3 * plain_s / drafted_s)


def test_looking_for_drafts_is_time_that_plain_decoding_saves() -> None:
    (part,) = divide_round(a_round(work("a", 1), duration_s=1.0, wait_s=0.25), TIMES)
    assert [part.busy_s, part.counterfactual_s] == pytest.approx([1.0, 0.75])


def test_drafts_of_others_cost_a_domain_nothing_where_rows_are_cheap() -> None:
    code, prose = divide_round(a_round(work("code", 1, drafted=7, accepted=7), work("prose", 1)), FREE)
    assert code.busy_s == pytest.approx(prose.busy_s)


def test_a_domain_pays_for_its_own_prompts_and_drafts() -> None:
    reading, prose = divide_round(a_round(work("rag", 1, prompt=98), work("prose", 1)), LINEAR)
    assert reading.busy_s == pytest.approx(99 * prose.busy_s)


def test_a_round_without_rows_has_no_parts() -> None:
    assert divide_round(StepStats(duration_s=1.0), TIMES) == []


def test_the_longest_part_of_a_gpus_name_gives_its_price() -> None:
    prices = CostConfig(usd_per_gpu_hour=1.0, usd_per_gpu_hour_by_name={"h100": 2.0, "H100 NVL": 3.0})
    assert prices.of_gpu("NVIDIA H100 80GB HBM3") == 2.0
    assert prices.of_gpu("NVIDIA H100 NVL") == 3.0
    assert prices.of_gpu("NVIDIA L4") == 1.0


def test_a_replica_pays_for_its_share_of_gpus_and_for_its_cpus() -> None:
    prices = CostConfig(usd_per_gpu_hour=3.6, usd_per_cpu_hour=0.36, usd_per_gpu_hour_by_name={"H200": 7.2})
    assert usd_per_s(prices, Resources(num_cpus=2)) == pytest.approx(0.0002)
    assert usd_per_s(prices, Resources(num_gpus=0.25)) == pytest.approx(0.00025)
    assert usd_per_s(prices, Resources(num_gpus=4, gpu_names=("NVIDIA H200",) * 4)) == pytest.approx(0.008)
    assert usd_per_s(CostConfig(), Resources(num_gpus=8, num_cpus=96)) == 0


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"usd_per_gpu_hour": -1}, "cost.usd_per_gpu_hour"),
        ({"usd_per_cpu_hour": float("nan")}, "cost.usd_per_cpu_hour"),
        ({"usd_per_gpu_hour_by_name": {"H100": 1e9}}, "cost.usd_per_gpu_hour_by_name.H100"),
    ],
)
def test_a_price_out_of_range_is_refused_by_name(bad: dict[str, float], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        CostConfig(**bad)  # type: ignore[arg-type]
