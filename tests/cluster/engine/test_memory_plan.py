import pytest

from cluster.engine.memory_plan import MemoryPlan
from cluster.errors import ConfigError

MIB = 1 << 20


def plan(available_bytes: int | None) -> MemoryPlan:
    return MemoryPlan(
        weights_bytes=300 * MIB,
        kv_token_bytes=MIB // 4,
        kv_cache_tokens=1000,
        lookahead_tokens=64 * 7,
        workspace_bytes=50 * MIB,
        available_bytes=available_bytes,
    )


def test_the_table_names_every_part_and_counts_lookahead_inside_the_kv_cache() -> None:
    lines = [line.split() for line in plan(800 * MIB).table().splitlines()]
    assert [(line[0], int(line[-2])) for line in lines] == [
        ("weights", 300),
        ("KV", 250),
        ("of", 112),
        ("workspace", 50),
        ("total", 600),
        ("available", 800),
    ]


@pytest.mark.parametrize("available_bytes", [600 * MIB, 800 * MIB, None])
def test_a_plan_that_fits_or_cannot_be_judged_passes(available_bytes: int | None) -> None:
    plan(available_bytes).check()


def test_a_plan_that_does_not_fit_names_the_setting_its_limit_and_the_table() -> None:
    with pytest.raises(ConfigError) as caught:
        plan(450 * MIB).check()
    assert caught.value.field == "kv_cache_tokens"
    assert "at most 400 here" in str(caught.value)
    assert "workspace" in str(caught.value)
