from dataclasses import replace

import pytest

from cluster.engine.memory_plan import DraftMemory, MemoryPlan, kv_tax_tokens, num_reserve_blocks
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


DRAFT = DraftMemory(weights_bytes=60 * MIB, kv_token_bytes=MIB // 8, kv_cache_tokens=800, workspace_bytes=40 * MIB)


def test_d3_a_draft_model_in_the_same_process_is_counted() -> None:
    fits = plan(700 * MIB)
    fits.check()
    with pytest.raises(ConfigError) as caught:
        replace(fits, draft=DRAFT).check()
    # 700 - 300 weights - 50 workspace - 200 for the draft model leaves 150 MiB.
    assert "kv_cache_tokens = 1000 is not allowed: expected at most 600 here" in str(caught.value)
    for part in ("draft model, weights", "draft KV cache, 800 tokens", "draft workspace"):
        assert part in str(caught.value)
    assert "800 MiB" in next(line for line in str(caught.value).splitlines() if line.startswith("total"))


def test_d3_a_draft_model_in_a_process_of_its_own_is_refused_with_its_table() -> None:
    DRAFT.check(200 * MIB)
    DRAFT.check(None)
    with pytest.raises(ConfigError) as caught:
        DRAFT.check(150 * MIB)
    assert caught.value.field == "draft.kv_cache_tokens"
    assert "at most 400 here" in caught.value.allowed
    assert "available" in caught.value.allowed


def test_the_kv_tax_is_lookahead_plus_draft_kv_in_the_targets_tokens() -> None:
    assert kv_tax_tokens(lookahead_tokens=16 * 7, draft_kv_bytes=0, kv_token_bytes=100) == 112
    assert kv_tax_tokens(lookahead_tokens=16 * 7, draft_kv_bytes=1001, kv_token_bytes=100) == 112 + 11


def test_a_tax_is_taken_in_whole_blocks_and_must_leave_two() -> None:
    assert [num_reserve_blocks(tax, 10, 32) for tax in (0, 1, 32, 33, 8 * 32)] == [0, 1, 1, 2, 8]
    with pytest.raises(ConfigError) as caught:
        num_reserve_blocks(8 * 32 + 1, 10, 32)
    assert caught.value.field == "kv_cache_tokens"
    assert "at least 352" in caught.value.allowed


def test_what_is_assumed_beside_tensors_has_a_line_of_its_own_and_counts() -> None:
    with_reserve = replace(plan(800 * MIB), reserve_bytes=100 * MIB)
    assert with_reserve.total_bytes == plan(800 * MIB).total_bytes + 100 * MIB
    assert "context and graphs, assumed                100 MiB" in with_reserve.table()
    assert "assumed" not in plan(800 * MIB).table()
