"""Settings out of range are refused with field, value and range, before anything is loaded."""

from typing import Any

import pytest

from cluster.config import Acceptance, DraftConfig, EngineConfig
from cluster.errors import ConfigError


def test_the_defaults_of_the_draft_model_are_allowed() -> None:
    config = DraftConfig()
    assert (config.model, config.num_speculative_tokens, config.max_fan_out, config.num_threads) == (None, 4, 4, 1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"model": " "}, "a folder"),
        ({"heads": ("/some/head", " ")}, "each once"),
        ({"heads": ("mtp", "mtp")}, "each once"),
        ({"num_speculative_tokens": 0}, "from 1 to 64"),
        ({"num_speculative_tokens": 65}, "from 1 to 64"),
        ({"max_fan_out": 0}, "from 1 to 64"),
        ({"max_fan_out": 65}, "from 1 to 64"),
        ({"kv_cache_tokens": 255}, "from 256 to 4294967296"),
        ({"kv_cache_tokens": (1 << 32) + 1}, "from 256 to 4294967296"),
        ({"max_model_len": -1}, "from 0 to 16777216"),
        ({"max_model_len": (1 << 24) + 1}, "from 0 to 16777216"),
        ({"max_sequences": 0}, "from 1 to 65536"),
        ({"max_sequences": 65_537}, "from 1 to 65536"),
        ({"num_threads": 0}, "from 1 to 1024"),
        ({"num_threads": 1025}, "from 1 to 1024"),
        ({"draft_wait_s": -0.1}, "seconds from 0 to 1"),
        ({"draft_wait_s": 1.1}, "seconds from 0 to 1"),
        ({"draft_wait_s": float("nan")}, "seconds from 0 to 1"),
        ({"idle_timeout_s": 0.5}, "seconds from 1 to 86400"),
        ({"idle_timeout_s": float("inf")}, "seconds from 1 to 86400"),
        ({"port": -1}, "from 0 to 65535"),
        ({"port": 65_536}, "from 0 to 65535"),
    ],
)
def test_each_limit_of_the_draft_model_is_refused_with_field_value_and_range(
    values: dict[str, Any], expected: str
) -> None:
    ((name, value),) = values.items()
    with pytest.raises(ConfigError) as caught:
        DraftConfig(**values)
    assert caught.value.field == f"draft.{name}"
    assert repr(caught.value.value) == repr(value)
    assert expected in caught.value.allowed


@pytest.mark.parametrize(
    "values",
    [
        {"num_speculative_tokens": 1},
        {"num_speculative_tokens": 64},
        {"kv_cache_tokens": 256},
        {"draft_wait_s": 1.0},
        {"idle_timeout_s": 1.0},
        {"port": 65_535},
        {"model": "bundled"},
    ],
)
def test_the_ends_of_the_ranges_are_allowed(values: dict[str, Any]) -> None:
    DraftConfig(**values)


def test_the_acceptance_rule_is_one_of_three_and_coupled_unless_said() -> None:
    assert EngineConfig().acceptance == "coupled"
    rules: tuple[Acceptance, ...] = ("coupled", "rejection", "block")
    assert tuple(EngineConfig(acceptance=rule).acceptance for rule in rules) == rules
    with pytest.raises(ConfigError, match=r"acceptance.*one of coupled, rejection, block"):
        EngineConfig(acceptance="sometimes")  # type: ignore[arg-type]
