import re
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from cluster.errors import ConfigError
from cluster.telemetry.dashboards.files import render
from cluster.telemetry.dashboards.rule import Rule, Thresholds
from cluster.telemetry.dashboards.rules import rules
from tests.cluster.telemetry.dashboards.promql_names import grouping_labels, known_labels, selectors

each_rule = pytest.mark.parametrize("rule", rules(), ids=lambda each: each.name)


def loaded(path: str, thresholds: Thresholds | None = None) -> Any:
    return yaml.safe_load(render(thresholds)[path])


@each_rule
def test_a_rule_names_metrics_and_labels_of_the_table(rule: Rule) -> None:
    known = known_labels()
    found = selectors(rule.expr)
    assert found
    for name, labels in found:
        assert name in known, f"there is no metric {name}"
        assert labels <= known[name], f"{name} has no labels {labels - known[name]}"
    assert grouping_labels(rule.expr) <= set.union(*(known[name] for name, _ in found))


@each_rule
def test_a_rule_keeps_applications_apart(rule: Rule) -> None:
    if rule.name != "OutriderUnreachable":  # Without a scrape there is no application to name.
        assert re.search(r"\bby \(job", rule.signal), rule.signal


@each_rule
def test_a_rule_says_what_to_do(rule: Rule) -> None:
    assert re.fullmatch(r"Outrider[A-Za-z]+", rule.name)
    assert rule.summary.endswith(".")
    assert len(rule.runbook) > 100
    assert re.fullmatch(r"\d+m", rule.lasting)


def test_what_an_operator_has_to_hear_of_has_a_rule() -> None:
    assert {rule.name.removeprefix("Outrider") for rule in rules()} >= {
        "NoReadyVerifier", "DrafterGone", "DraftFallbacks", "SpeculationDoesNotPay", "AcceptanceNearZero",
        "AcceptanceNearOne", "TimeToFirstToken", "TimePerOutputToken", "Overload", "ControllerOscillates", "Cost",
        "AnswersResumed", "AnswersLost",
    }  # fmt: skip


def test_the_operators_form_holds_the_same_rules() -> None:
    wrapped = loaded("prometheus/prometheusrule.yaml")
    assert wrapped["kind"] == "PrometheusRule"
    assert wrapped["spec"] == loaded("prometheus/rules.yml")


def test_limits_of_the_operator_stand_in_the_rules() -> None:
    thresholds = Thresholds(ttft_slo_s=0.5, usd_per_million_tokens=3)
    (group,) = loaded("prometheus/rules.yml", thresholds)["groups"]
    by_name = {rule["alert"]: rule["expr"] for rule in group["rules"]}
    assert "or 0.5 +" in by_name["OutriderTimeToFirstToken"]
    assert by_name["OutriderCost"].endswith("> 3")


@pytest.mark.parametrize("field", ["ttft_slo_s", "tpot_slo_s", "usd_per_million_tokens"])
def test_a_limit_out_of_range_is_refused_by_name(field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        Thresholds(**{field: -1.0})


def test_the_scrape_names_one_target_with_the_key() -> None:
    ours, rays = loaded("prometheus/prometheus.yml")["scrape_configs"]
    assert ours["static_configs"] == [{"targets": ["localhost:8000"]}]
    assert ours["authorization"]["credentials_file"]
    assert rays["job_name"] == "ray"
