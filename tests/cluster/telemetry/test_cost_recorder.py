"""What a verifier and its rounds cost, as it stands in the scrape."""

import pytest

from cluster.telemetry import names
from cluster.telemetry.cost import CostConfig, Resources
from cluster.telemetry.cost_recorder import MAX_DOMAINS, Allocation, CostRecorder
from cluster.telemetry.prometheus import MetricSet
from cluster.types import DomainWork, Role, StepStats
from tests.cluster.telemetry.test_cost import LINEAR, a_round, work


class FakeEnergy:
    """One joule at each look."""

    def take_joules(self) -> float | None:
        return 1.0


def recorder() -> tuple[CostRecorder, MetricSet]:
    metrics = MetricSet(names.ENGINE_METRICS, {"model_name": "m", "engine": "e"})
    return CostRecorder(metrics), metrics


def value(metrics: MetricSet, metric: names.Metric, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(metric.name, {"model_name": "m", "engine": "e", **labels})


def test_time_and_price_run_while_a_replica_is_there() -> None:
    allocation = Allocation(CostConfig(usd_per_cpu_hour=3600.0), Resources(num_cpus=2), 10.0)
    spent = allocation.take(13.0)
    assert (spent.seconds, spent.usd, spent.joules) == (3.0, 6.0, None)
    assert allocation.take(13.0).usd == 0


def test_each_second_counts_for_the_role_in_which_it_passed() -> None:
    costs, metrics = recorder()
    allocation = Allocation(CostConfig(usd_per_cpu_hour=3600.0), Resources(num_cpus=1), 0.0, FakeEnergy())
    costs.record_spent(allocation.take(4.0), Role.SPECULATIVE)
    costs.record_spent(allocation.take(5.0), Role.BATCH)
    assert value(metrics, names.ROLE_SECONDS, role="speculative") == 4
    assert value(metrics, names.COST_USD, role="speculative") == 4
    assert value(metrics, names.ROLE_SECONDS, role="batch") == 1
    assert value(metrics, names.ENERGY_JOULES, role="batch") == 1


def test_without_energy_counters_there_is_no_series_of_energy_and_all_others_begin_at_0() -> None:
    costs, metrics = recorder()
    costs.record_spent(Allocation(CostConfig(), Resources(), 0.0).take(1.0), Role.BATCH)
    assert value(metrics, names.ENERGY_JOULES, role="batch") is None
    for metric in (names.COST_USD, names.BUSY_SECONDS, names.WASTED_SECONDS, names.COUNTERFACTUAL_SECONDS):
        assert value(metrics, metric, role="speculative") == 0


def test_a_round_is_recorded_by_role_and_domain_and_the_domains_add_up() -> None:
    costs, metrics = recorder()
    step = a_round(work("code", 1, drafted=4, accepted=3), work("", 2), duration_s=7.0)
    costs.record_step(step, Role.SPECULATIVE, LINEAR)
    costs.record_step(step, Role.SPECULATIVE, LINEAR)
    assert value(metrics, names.BUSY_SECONDS, role="speculative") == 14
    for whole, part in (
        (names.BUSY_SECONDS, names.DOMAIN_SECONDS),
        (names.COUNTERFACTUAL_SECONDS, names.DOMAIN_COUNTERFACTUAL_SECONDS),
    ):
        parts = [value(metrics, part, domain=name, role="speculative") for name in ("code", "unknown")]
        assert sum(each or 0.0 for each in parts) == pytest.approx(value(metrics, whole, role="speculative"))
    assert value(metrics, names.WASTED_SECONDS, role="speculative") == pytest.approx(2)
    assert value(metrics, names.DOMAIN_WASTED_SECONDS, domain="code", role="speculative") == pytest.approx(2)
    assert value(metrics, names.DOMAIN_TOKENS, domain="code", role="speculative") == 8
    assert value(metrics, names.DOMAIN_TOKENS, domain="unknown", role="speculative") == 4
    accepted = {"domain": "code", "role": "speculative", "result": "accepted"}
    assert value(metrics, names.DOMAIN_DRAFT_TOKENS, **accepted) == 6
    assert value(metrics, names.DOMAIN_DRAFT_TOKENS, **accepted | {"result": "rejected"}) == 2
    assert value(metrics, names.BUSY_SECONDS, role="batch") == 0


def test_series_of_known_domains_begin_at_0_in_both_roles_and_those_of_others_with_their_first_round() -> None:
    metrics = MetricSet(names.ENGINE_METRICS, {"model_name": "m", "engine": "e"})
    costs = CostRecorder(metrics, ["code"])
    costs.record_step(a_round(work("prose", 1)), Role.BATCH, None)
    tokens = [
        value(metrics, names.DOMAIN_TOKENS, domain=domain, role=role)
        for domain in ("code", "prose")
        for role in ("speculative", "batch")
    ]
    assert tokens == [0, 0, 0, 1]
    assert value(metrics, names.DOMAIN_DRAFT_TOKENS, domain="code", role="speculative", result="rejected") == 0
    assert value(metrics, names.DOMAIN_WASTED_SECONDS, domain="prose", role="speculative") == 0


def test_a_round_without_rows_is_not_busy() -> None:
    costs, metrics = recorder()
    costs.record_step(StepStats(duration_s=1.0), Role.BATCH, None)
    assert value(metrics, names.BUSY_SECONDS, role="batch") == 0


def test_domains_without_end_share_one_series() -> None:
    costs, metrics = recorder()
    for index in range(MAX_DOMAINS + 5):
        step = a_round(DomainWork(domain=f"d{index}", num_sequences=1, num_rows=1, num_output_tokens=1))
        costs.record_step(step, Role.BATCH, None)
    assert value(metrics, names.DOMAIN_TOKENS, domain="other", role="batch") == 5
    assert value(metrics, names.DOMAIN_TOKENS, domain=f"d{MAX_DOMAINS}", role="batch") is None
