"""Costs by pool and domain: every part is part of the bill, and the bill is all of its parts."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.telemetry import names
from cluster.telemetry.cost_report import IDLE, CostLine, CostReport, Totals, cost_report

AMOUNT = st.floats(0, 1e6, allow_subnormal=False)


def totals_of(values: dict[str, dict[tuple[str, ...], float]]) -> Totals:
    totals = Totals()
    for name, samples in values.items():
        for labels, amount in samples.items():
            totals.add(name, dict(zip(("role", "domain", "result"), labels, strict=False)), amount)
    return totals


@st.composite
def counters(draw: st.DrawFn) -> Totals:
    totals = Totals()
    has_energy = draw(st.booleans())
    for role in draw(st.lists(st.sampled_from(["speculative", "batch"]), unique=True)):
        for metric in (names.ROLE_SECONDS, names.COST_USD) + (names.ENERGY_JOULES,) * has_energy:
            totals.add(metric.name, {"role": role}, draw(AMOUNT))
        for domain in draw(st.lists(st.sampled_from(["code", "prose", "rag"]), unique=True)):
            labels = {"role": role, "domain": domain}
            totals.add(names.DOMAIN_SECONDS.name, labels, draw(st.floats(1e-3, 1e6)))
            for metric in (names.DOMAIN_TOKENS, names.DOMAIN_COUNTERFACTUAL_SECONDS):
                totals.add(metric.name, labels, draw(AMOUNT))
            for result in draw(st.lists(st.sampled_from(["accepted", "rejected"]), unique=True)):
                totals.add(names.DOMAIN_DRAFT_TOKENS.name, labels | {"result": result}, draw(AMOUNT))
    if draw(st.booleans()):
        for metric in (names.DRAFTER_SECONDS, names.DRAFTER_COST_USD) + (names.DRAFTER_ENERGY_JOULES,) * has_energy:
            totals.add(metric.name, {}, draw(AMOUNT))
    return totals


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(counters())
def test_pools_and_domains_both_add_up_to_the_bill(totals: Totals) -> None:
    report = cost_report(totals)
    known = {
        "num_tokens": totals_over(totals, names.DOMAIN_TOKENS),
        "replica_s": sum(totals.of(names.ROLE_SECONDS, role) for role in ("speculative", "batch")),
        "verifier_usd": sum(totals.of(names.COST_USD, role) for role in ("speculative", "batch")),
        "drafter_usd": totals.of(names.DRAFTER_COST_USD),
    }
    for lines in (report.lines, report.pools, report.domains, (report.total,)):
        for name, amount in known.items():
            assert sum(getattr(line, name) for line in lines) == pytest.approx(amount, rel=1e-6, abs=1e-3)
        for field in fields(CostLine):
            if field.name not in ("pool", "domain"):
                assert _sum(lines, field.name) == pytest.approx(_sum((report.total,), field.name), rel=1e-6, abs=1e-3)
    assert len({(line.pool, line.domain) for line in report.lines}) == len(report.lines)


def totals_over(totals: Totals, metric: names.Metric) -> float:
    return sum(totals.of(metric, role, domain) for role, domain in totals.label_values(metric))


def _sum(lines: tuple[CostLine, ...], name: str) -> float:
    return sum(getattr(line, name) or 0.0 for line in lines)


def a_report(**more: dict[tuple[str, ...], float]) -> CostReport:
    values: dict[str, dict[tuple[str, ...], float]] = {
        "outrider_role_seconds_total": {("speculative",): 100.0, ("batch",): 50.0},
        "outrider_cost_usd_total": {("speculative",): 10.0, ("batch",): 5.0},
        "outrider_domain_seconds_total": {("speculative", "code"): 15.0, ("speculative", "prose"): 5.0},
        "outrider_domain_tokens_total": {("speculative", "code"): 2000.0, ("speculative", "prose"): 500.0},
        "outrider_domain_wasted_seconds_total": {("speculative", "code"): 3.0},
        "outrider_domain_counterfactual_seconds_total": {("speculative", "code"): 45.0, ("speculative", "prose"): 5.0},
        "outrider_domain_draft_tokens_total": {
            ("speculative", "code", "accepted"): 1200.0, ("speculative", "code", "rejected"): 300.0,
        },
    }  # fmt: skip
    return cost_report(totals_of(values | more))


def test_idle_time_is_paid_by_who_used_the_pool_and_an_unused_pool_stands_alone() -> None:
    code, prose, idle = a_report().lines
    assert (code.verifier_usd, prose.verifier_usd) == (7.5, 2.5)
    assert code.usd_per_million_tokens == pytest.approx(3750)
    assert (idle.pool, idle.domain, idle.usd, idle.usd_per_million_tokens) == ("batch", IDLE, 5.0, None)


def test_a_drafters_cost_goes_to_whose_drafts_were_verified() -> None:
    code, prose, _ = a_report(
        outrider_drafter_cost_usd_total={(): 2.5}, outrider_drafter_seconds_total={(): 90.0}
    ).lines
    assert (code.drafter_usd, prose.drafter_usd) == (2.5, 0.0)
    assert code.drafter_ratio == 0.25
    assert code.drafter_s == 90


def test_a_drafter_that_nobody_used_costs_all_the_same() -> None:
    report = a_report(
        outrider_drafter_cost_usd_total={(): 2.5},
        outrider_drafter_seconds_total={(): 90.0},
        outrider_domain_draft_tokens_total={},
    )
    assert report.total.usd == 17.5
    assert [(line.pool, line.domain) for line in report.lines if line.drafter_usd] == [("speculative", IDLE)]


def test_waste_and_the_counterfactual_are_in_proportion_to_the_time_of_rounds() -> None:
    code, prose, _ = a_report(outrider_drafter_cost_usd_total={(): 2.5}).lines
    assert (code.wasted_ratio, code.wasted_usd) == (0.2, 1.5)
    assert code.counterfactual_usd == pytest.approx(22.5)  # three times the verifiers, no drafter
    assert prose.counterfactual_usd == pytest.approx(prose.usd)


def test_energy_is_unknown_where_no_counter_is_and_divided_where_one_is() -> None:
    assert a_report().total.joules is None
    assert a_report().total.joules_per_million_tokens is None
    report = a_report(
        outrider_energy_joules_total={("speculative",): 40.0, ("batch",): 20.0},
        outrider_drafter_energy_joules_total={(): 6.0},
        outrider_drafter_cost_usd_total={(): 1.0},
    )
    assert [line.joules for line in report.lines] == [36.0, 10.0, 20.0]
    assert report.total.joules == 66


def test_json_holds_what_is_derived_too() -> None:
    line: dict[str, Any] = a_report().total.to_json()
    assert (line["usd"], line["num_tokens"]) == (15.0, 2500.0)
    assert line["usd_per_million_tokens"] == pytest.approx(6000)


def test_a_domain_that_was_never_served_has_no_line() -> None:
    lines = a_report(outrider_domain_seconds_total={("speculative", "code"): 1.0, ("speculative", "rag"): 0.0}).lines
    assert [(line.pool, line.domain) for line in lines] == [("speculative", "code"), ("batch", IDLE)]


def test_without_counters_there_is_nothing_to_report() -> None:
    report = cost_report(Totals())
    assert (report.lines, report.total.usd, report.has_prices) == ((), 0.0, False)
