"""Serve runs what was planned, keeps its number where nobody says anything, and never sees an error."""

from types import SimpleNamespace
from typing import Any

import pytest

from autoscaling.serve_policy import AppPlanPolicy, ReplicaPlanPolicy


def points(*values: float) -> list[Any]:
    return [SimpleNamespace(timestamp=float(index), value=value) for index, value in enumerate(values)]


def context(
    raw: Any = None, aggregated: Any = None, *, target: int = 2, low: int = 1, high: int = 8, name: str = "Verifier"
) -> Any:
    return SimpleNamespace(
        raw_metrics=raw,
        aggregated_metrics=aggregated,
        target_num_replicas=target,
        current_num_replicas=target,
        capacity_adjusted_min_replicas=low,
        capacity_adjusted_max_replicas=high,
        deployment_name=name,
    )


def plan(*last: float) -> dict[str, Any]:
    return {"planned_replicas": {f"r{index}": points(1, value) for index, value in enumerate(last)}}


class Broken:
    """Fails whatever is asked of it."""

    target_num_replicas = 3
    deployment_name = "Broken"

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (plan(4, 4), 4),
        (plan(4, 4, 2), 4),
        (plan(2, 4), 4),
        (plan(40), 8),
        (plan(0), 1),
        (plan(float("nan"), 3), 3),
        (plan(float("inf")), 2),
        ({"planned_replicas": {"r0": []}}, 2),
        ({"planned_replicas": {}}, 2),
        ({"other": {"r0": points(7)}}, 2),
        ({"planned_replicas": {"r0": ["nonsense"]}}, 2),
        ({}, 2),
        (None, 2),
    ],
)
def test_the_plan_is_followed_within_bounds_and_silence_changes_nothing(told: Any, wanted: int) -> None:
    assert ReplicaPlanPolicy()(context(told)) == (wanted, {})


def test_averages_serve_where_there_is_nothing_newer() -> None:
    assert ReplicaPlanPolicy()(context(None, {"planned_replicas": {"a": 3.2, "b": 3.0}}))[0] == 3


def test_the_newest_word_counts_and_not_the_average() -> None:
    told = {"planned_replicas": {"a": points(1, 1, 1, 5)}}
    assert ReplicaPlanPolicy()(context(told, {"planned_replicas": {"a": 2.0}}))[0] == 5


def test_from_zero_replicas_the_target_is_kept() -> None:
    assert ReplicaPlanPolicy()(context({}, target=0, low=0))[0] == 0
    assert ReplicaPlanPolicy()(context({}, target=1, low=0))[0] == 1


def test_a_plan_of_zero_scales_to_zero_where_that_is_allowed() -> None:
    assert ReplicaPlanPolicy()(context(plan(0), low=0))[0] == 0


def test_an_error_keeps_the_number_of_one_deployment_and_spares_the_others() -> None:
    assert ReplicaPlanPolicy()(Broken())[0] == 3
    wanted, state = AppPlanPolicy({"Broken": 1.0})(
        {"bad": SimpleNamespace(deployment_name="x"), "good": context(plan(4))}
    )
    assert (wanted, state) == ({"good": 4}, {})


def test_deployments_without_a_plan_keep_their_number() -> None:
    contexts = {"v": context(plan(5, 5)), "g": context({}, name="Gateway"), "d": context({}, name="Drafter")}
    assert AppPlanPolicy()(contexts)[0] == {"v": 5}


@pytest.mark.parametrize(("ratio", "wanted"), [(0.25, 2), (0.5, 3), (0.01, 1), (9.0, 8)])
def test_deployments_may_follow_the_verifiers(ratio: float, wanted: int) -> None:
    contexts = {"v": context(plan(5, 5)), "d": context({}, name="Drafter")}
    assert AppPlanPolicy({"Drafter": ratio})(contexts)[0] == {"v": 5, "d": wanted}


def test_without_a_plan_followers_keep_their_number_too() -> None:
    contexts = {"v": context({}), "d": context({}, name="Drafter")}
    assert AppPlanPolicy({"Drafter": 0.5})(contexts)[0] == {}


@pytest.mark.parametrize("name", ["ReplicaPlanPolicy", "AppPlanPolicy"])
def test_the_policy_works_where_our_packages_are_missing(name: str) -> None:
    import subprocess
    import sys

    from ray.serve.config import AutoscalingPolicy

    settings = {"per_verifier": {"Drafter": 0.5}} if name == "AppPlanPolicy" else {}
    make: Any = AutoscalingPolicy  # not annotated
    policy = make(policy_function=f"autoscaling.serve_policy:{name}", policy_kwargs=settings)
    data = policy.get_serialized_policy_def()
    assert data is not None
    code = (
        "import pickle, sys; from types import SimpleNamespace as S\n"
        "made = pickle.loads(bytes.fromhex(sys.stdin.read()))()\n"
        "point = S(timestamp=0.0, value=3.0)\n"
        "context = S(raw_metrics={'planned_replicas': {'a': [point]}}, aggregated_metrics={}, target_num_replicas=1,\n"
        "    capacity_adjusted_min_replicas=1, capacity_adjusted_max_replicas=4, deployment_name='Verifier')\n"
        f"print(made(context)[0] if {name == 'ReplicaPlanPolicy'} else made({{'v': context}})[0]['v'])\n"
        "assert not any(each.split('.')[0] in ('autoscaling', 'cluster', 'deployments') for each in sys.modules)\n"
    )
    found = subprocess.run(
        [sys.executable, "-I", "-c", code],
        input=data.hex(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.stdout.strip(), found.stderr) == ("3", "")


def test_serve_runs_the_application_policy_under_its_own_delays() -> None:
    from ray.serve import autoscaling_policy
    from ray.serve.config import AutoscalingConfig

    told = context(plan(4, 4))
    told.policy_state, told.total_num_requests = {}, 0.0
    told.config = AutoscalingConfig(min_replicas=1, max_replicas=8, upscale_delay_s=0, downscale_delay_s=0)
    policy: Any = AppPlanPolicy()
    contexts: Any = {"v": told}
    decisions, _ = autoscaling_policy._apply_app_level_autoscaling_config(policy)(contexts)
    assert [*decisions.values()] == [4]
