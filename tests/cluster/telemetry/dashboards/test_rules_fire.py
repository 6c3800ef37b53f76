"""Each alert, in Prometheus' own `promtool test rules`: silent while all is well, firing when it should."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from cluster.telemetry.dashboards.files import render
from tests.prometheus_package import UnavailableError, find

pytestmark = pytest.mark.slow  # The first run fetches a package.

LONG = "x60"
"""An hour of samples, one a minute."""

EVAL_TIME = "45m"
"""After longer than any alert has to last."""

Series = dict[str, str]
GATEWAY = 'job="outrider",gateway="g"'
ENGINE = 'job="outrider",engine="e",model_name="m"'
DRAFTS_MANY: Series = {f"vllm:spec_decode_num_draft_tokens_total{{{ENGINE}}}": f"0+1500{LONG}"}
ALIVE: Series = {f"outrider_http_active_requests{{{GATEWAY}}}": f"1{LONG}"}


def still(value: float) -> str:
    return f"{value}+0{LONG}"


def rising(per_sample: float) -> str:
    return f"0+{per_sample}{LONG}"


def requests(status: str, per_sample: float) -> Series:
    return {f'outrider_http_requests_total{{{GATEWAY},route="/v1/completions",status="{status}"}}': rising(per_sample)}


def resumes(result: str, per_sample: float) -> Series:
    return {f'outrider_resumes_total{{{GATEWAY},reason="replica_lost",result="{result}"}}': rising(per_sample)}


def slow(histogram: str, *, over_s: float) -> Series:
    """All values lie between `over_s` and twice that."""
    return {
        f'{histogram}_bucket{{{ENGINE},le="{over_s}"}}': still(0),
        f'{histogram}_bucket{{{ENGINE},le="{2 * over_s}"}}': rising(10),
        f'{histogram}_bucket{{{ENGINE},le="+Inf"}}': rising(10),
        f"vllm:num_requests_running{{{ENGINE}}}": still(1),
        f'outrider_role{{{ENGINE},role="speculative"}}': still(1),
    }


def accepting(per_sample: float) -> Series:
    return {f"vllm:spec_decode_num_accepted_tokens_total{{{ENGINE}}}": rising(per_sample)} | DRAFTS_MANY


def gain(plain: float, used: float) -> Series:
    return {
        f'outrider_counterfactual_seconds_total{{{ENGINE},role="speculative"}}': rising(plain),
        f'outrider_busy_seconds_total{{{ENGINE},role="speculative"}}': rising(used),
    } | DRAFTS_MANY


def drafter(*, connected: int) -> Series:
    return {
        f"outrider_drafter_connected{{{ENGINE}}}": still(connected),
        f'outrider_layout{{{ENGINE},kind="actor"}}': still(1),
        f'outrider_layout{{{ENGINE},kind="ngram"}}': still(0),
    }


def fallbacks(reason: str) -> Series:
    return {
        f'outrider_draft_fallbacks_total{{{ENGINE},reason="{reason}"}}': rising(80),
        f'outrider_draft_lookups_total{{{ENGINE},result="hit"}}': rising(20),
    }


def moves(role: str, per_sample: float) -> Series:
    return {
        f'outrider_pool_moves_total{{job="outrider",controller="c",role="{role}",reason="slo"}}': rising(per_sample)
    }


def planned(number: int) -> Series:
    return {
        'outrider_planned_replicas{job="outrider",controller="c"}': still(number),
        'outrider_pool_replicas{job="outrider",controller="c",role="speculative"}': still(1),
        'outrider_pool_replicas{job="outrider",controller="c",role="batch"}': still(1),
    }


def cost(usd: float) -> Series:
    return {
        f'outrider_cost_usd_total{{{ENGINE},role="batch"}}': rising(usd),
        f"vllm:generation_tokens_total{{{ENGINE}}}": rising(1_000_000),
    } | ALIVE


def refused(number: int) -> Series:
    return {'outrider_user_config_refused{job="outrider",deployment="Gateway",replica="g"}': still(number)}


def verifiers(number: int) -> Series:
    return {
        f'outrider_router_replicas{{{GATEWAY},role="speculative"}}': still(number),
        f'outrider_router_replicas{{{GATEWAY},role="batch"}}': still(0),
    }


WRONG_AND_RIGHT: dict[str, tuple[Series, Series]] = {
    "OutriderUnreachable": ({}, ALIVE),
    "OutriderNoReadyVerifier": (verifiers(0), verifiers(1)),
    "OutriderVerifiersMissing": (planned(3), planned(2)),
    "OutriderErrors": (requests("200", 97) | requests("503", 3), requests("200", 97) | requests("429", 90)),
    "OutriderAnswersLost": (resumes("gave_up", 1), resumes("resumed", 1)),
    "OutriderAnswersResumed": (resumes("resumed", 1), resumes("resumed", 0.1)),
    "OutriderSettingsRefused": (refused(1), refused(0)),
    "OutriderTimeToFirstToken": (
        slow("vllm:time_to_first_token_seconds", over_s=2), slow("vllm:time_to_first_token_seconds", over_s=0.5),
    ),
    "OutriderTimePerOutputToken": (
        slow("vllm:request_time_per_output_token_seconds", over_s=0.1)
        | {'outrider_pool_objective_seconds{job="outrider",controller="c",kind="tpot"}': still(0.05)},
        # The objective of the controller takes the place of 0.1 s.
        slow("vllm:request_time_per_output_token_seconds", over_s=0.1)
        | {'outrider_pool_objective_seconds{job="outrider",controller="c",kind="tpot"}': still(0.5)},
    ),
    "OutriderOverload": (requests("200", 90) | requests("429", 10), requests("200", 97) | requests("503", 50)),
    "OutriderPreemptions": (
        {f"vllm:num_preemptions_total{{{ENGINE}}}": rising(15)}, {f"vllm:num_preemptions_total{{{ENGINE}}}": still(9)},
    ),
    "OutriderDrafterGone": (drafter(connected=0), drafter(connected=1)),
    "OutriderDraftFallbacks": (fallbacks("disconnected"), fallbacks("unprofitable")),
    "OutriderSpeculationDoesNotPay": (gain(plain=9, used=10), gain(plain=15, used=10)),
    "OutriderAcceptanceNearZero": (accepting(10), accepting(300)),
    "OutriderAcceptanceNearOne": (accepting(1499), accepting(1200)),
    "OutriderControllerOscillates": (
        moves("batch", 0.5) | moves("speculative", 0.5), moves("batch", 0.5) | moves("speculative", 0.1),
    ),
    "OutriderControllerSilent": (
        {'outrider_heartbeat_reply_age_seconds{job="outrider",engine="e"}': still(30)},
        {'outrider_heartbeat_reply_age_seconds{job="outrider",engine="e"}': still(0.5)},
    ),
    "OutriderCost": (cost(11), cost(9)),
}  # fmt: skip


def expectation(name: str, severity: str, series: Series, *, fires: bool) -> dict[str, Any]:
    job = "" if name == "OutriderUnreachable" else ', job="outrider"'
    labels = f'ALERTS{{alertname="{name}", alertstate="firing", severity="{severity}"{job}}}'
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{name}",alertstate="firing"}}',
                "eval_time": EVAL_TIME,
                "exp_samples": [{"labels": labels, "value": 1}] if fires else [],
            }
        ],
    }


def write_test(folder: Path, rule: dict[str, Any]) -> str:
    """A file for one rule alone: promtool evaluates every rule of a file again in each test."""
    name = rule["alert"]
    tests = [
        expectation(name, rule["labels"]["severity"], series, fires=fires)
        for series, fires in zip(WRONG_AND_RIGHT[name], (True, False), strict=True)
    ]
    group = {"name": "outrider", "rules": [rule]}
    (folder / f"{name}.rules.yml").write_text(yaml.safe_dump({"groups": [group]}))
    file = {"rule_files": [f"{name}.rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (folder / f"{name}.yml").write_text(yaml.safe_dump(file))
    return f"{name}.yml"


def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    try:
        promtool = find().promtool
    except UnavailableError as error:
        pytest.skip(str(error))
    (group,) = yaml.safe_load(render()["prometheus/rules.yml"])["groups"]
    assert WRONG_AND_RIGHT.keys() == {rule["alert"] for rule in group["rules"]}
    files = [write_test(tmp_path, rule) for rule in group["rules"]]
    done = subprocess.run(
        [promtool, "test", "rules", *files], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
