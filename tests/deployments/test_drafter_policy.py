"""How many drafters, and that Serve's controller can run the policy."""

from types import SimpleNamespace
from typing import Any

import pytest

from cluster.errors import ConfigError
from deployments.drafter_policy import LateTablePolicy, desired_drafters
from deployments.drafter_scaling import DrafterScaling


@pytest.mark.parametrize(
    ("num", "late", "busy", "wanted"),
    [
        (1, [0.5], [0.9], 2),
        (1, [0.1], [0.9], 1),
        (1, [0.0], [0.0], 1),
        (3, [0.0, 0.0, 0.0], [0.1, 0.1, 0.1], 2),
        (3, [0.0, 0.0, 0.0], [0.5, 0.5, 0.5], 3),
        (2, [0.3, 0.3], [0.0, 0.0], 3),
        (2, [], [], 2),
    ],
)
def test_late_tables_add_a_drafter_and_idle_ones_remove_it(
    num: int, late: list[float], busy: list[float], wanted: int
) -> None:
    assert desired_drafters(num, late, busy) == wanted


def context(metrics: Any, target: int = 2) -> Any:
    return SimpleNamespace(aggregated_metrics=metrics, target_num_replicas=target)


def test_the_policy_reads_what_replicas_report() -> None:
    policy = LateTablePolicy(add_above=0.05)
    assert policy(context({"late_ratio": {"a": 0.1}, "busy_ratio": {"a": 0.9}})) == (3, {})


@pytest.mark.parametrize("metrics", [None, {}, {"late_ratio": None}, {"late_ratio": {}, "busy_ratio": {}}])
def test_a_policy_that_hears_nothing_changes_nothing(metrics: Any) -> None:
    assert LateTablePolicy()(context(metrics))[0] == 2


def test_serve_accepts_the_settings_and_finds_the_policy() -> None:
    from ray.serve.config import AutoscalingConfig

    scaling = DrafterScaling(min_replicas=2, max_replicas=5, add_above_late_ratio=0.1)
    config = AutoscalingConfig(**scaling.serve_config())
    assert (config.min_replicas, config.max_replicas) == (2, 5)
    policy: Any = config.policy.get_policy()(**config.policy.policy_kwargs)
    assert policy(context({"late_ratio": {"a": 0.15}, "busy_ratio": {"a": 0.9}}))[0] == 3


@pytest.mark.parametrize(
    ("values", "field", "expected"),
    [
        ({"min_replicas": 0}, "min_replicas", "from 1 to 1024"),
        ({"min_replicas": 3, "max_replicas": 2}, "max_replicas", "from 3 to 1024"),
        ({"add_above_late_ratio": 1.5}, "add_above_late_ratio", "from 0 to 1"),
        ({"remove_below_busy_ratio": -0.1}, "remove_below_busy_ratio", "from 0 to 1"),
        ({"upscale_delay_s": float("nan")}, "upscale_delay_s", "from 0 to 86400"),
        ({"downscale_delay_s": -1}, "downscale_delay_s", "from 0 to 86400"),
    ],
)
def test_settings_out_of_range_are_refused_with_field_value_and_range(
    values: dict[str, Any], field: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        DrafterScaling(**values)
    assert caught.value.field == f"drafter_scaling.{field}"
    assert expected in caught.value.allowed
    assert repr(caught.value.value) in str(caught.value)
