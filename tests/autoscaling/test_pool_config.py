"""Limits of the pools' settings."""

from typing import Any

import pytest

from autoscaling.pool_config import PoolConfig
from cluster.errors import ConfigError
from cluster.types import Role


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("mode", {"mode": "both"}),
        ("speculative_max_num_seqs", {"speculative_max_num_seqs": 0}),
        ("batch_max_num_seqs", {"batch_max_num_seqs": 4097}),
        ("min_speculative", {"min_speculative": -1}),
        ("max_speculative", {"min_speculative": 3, "max_speculative": 2}),
        ("min_batch", {"min_batch": -1}),
        ("ttft_slo_s", {"ttft_slo_s": 0.0}),
        ("tpot_slo_s", {"tpot_slo_s": float("nan")}),
        ("heartbeat_s", {"heartbeat_s": 0.0}),
        ("stale_after_s", {"heartbeat_s": 2.0, "stale_after_s": 3.0}),
        ("move_timeout_s", {"heartbeat_s": 1.0, "move_timeout_s": 1.5}),
        ("hold_s", {"hold_s": -1.0}),
        ("cooldown_s", {"cooldown_s": float("inf")}),
        ("margin_ratio", {"margin_ratio": 1.1}),
        ("target_load_ratio", {"target_load_ratio": 0.0}),
        ("assumed_acceptance_rate", {"assumed_acceptance_rate": 2.0}),
        ("num_speculative_tokens", {"num_speculative_tokens": 65}),
        ("max_replicas", {"min_replicas": 1}),
        ("max_replicas", {"max_replicas": 1}),
        ("max_replicas", {"min_replicas": 3, "max_replicas": 2}),
        ("max_replicas", {"min_replicas": 0, "max_replicas": 0}),
        ("min_replicas", {"min_replicas": -1, "max_replicas": 2}),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        PoolConfig(**settings)
    assert caught.value.field == f"pools.{field}"


def test_roles_have_the_seed_documents_seats() -> None:
    assert [PoolConfig().max_num_seqs(role) for role in (Role.SPECULATIVE, Role.BATCH)] == [16, 128]


def test_a_replica_begins_in_the_role_of_the_mode() -> None:
    roles = [PoolConfig(mode=mode).initial_role() for mode in ("dynamic", "speculative", "batch")]
    assert roles == [Role.SPECULATIVE, Role.SPECULATIVE, Role.BATCH]


def test_serve_scales_only_where_bounds_are_given() -> None:
    assert PoolConfig().serve_config() is None


def test_serve_accepts_the_settings_and_finds_the_policy() -> None:
    from ray.serve.config import AutoscalingConfig

    settings = PoolConfig(min_replicas=0, max_replicas=4).serve_config()
    assert settings is not None
    config = AutoscalingConfig(**settings)
    assert (config.min_replicas, config.max_replicas, config.initial_replicas) == (0, 4, 1)
    assert (config.upscale_delay_s, config.downscale_delay_s) == (0, 0)
