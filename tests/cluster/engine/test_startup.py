"""Settings become a runner that fits the model and the machine, or an error that names the setting."""

import time
from typing import Any

import pytest
import torch

from cluster.config import EngineConfig
from cluster.engine import startup
from cluster.engine.memory_plan import DraftMemory, MemoryPlan
from cluster.engine.model_input import ModelInput
from cluster.engine.model_loader import load_config
from cluster.engine.model_source import ModelSource
from cluster.engine.native.runner import NativeRunner
from cluster.engine.native.weights import read_shape
from cluster.engine.startup import load_parts, measure_draft_cost
from cluster.engine.transformers_runner import TransformersRunner
from cluster.errors import ConfigError


class SlowRunner:
    """Takes one unit of time a pass and a share of it for each further row."""

    vocab_size, num_kv_blocks, block_size, max_model_len = 8, 1, 32, 32
    dtype, numerics = "float32", "invariant"

    def __init__(self, row_share: float) -> None:
        self._row_share = row_share

    def forward(self, batch: ModelInput) -> torch.Tensor:
        rows = len(batch.token_ids)
        time.sleep(0.002 * (1 + self._row_share * (rows - 1)))
        return torch.zeros(rows, self.vocab_size)

    def close(self) -> None: ...


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_draft_cost_is_what_further_rows_take(share: float) -> None:
    times = measure_draft_cost(SlowRunner(share)).model.times
    for num_rows in (8, 20, 64, 100):
        ratio = times.seconds(num_rows) / times.seconds(1)
        assert ratio == pytest.approx(1 + share * (num_rows - 1), rel=0.3)


def test_draft_cost_is_never_nothing() -> None:
    times = measure_draft_cost(SlowRunner(0.0)).model.times
    assert times.seconds(1) < times.seconds(8) < times.seconds(9) < times.seconds(64) < 2.0 * times.seconds(1)


def config_for(source: ModelSource, **changes: Any) -> EngineConfig:
    return EngineConfig(model=str(source.folder), kv_cache_tokens=256, **changes)


def test_a_model_whose_shape_the_kernels_do_not_know_runs_in_transformers(tiny_source: ModelSource) -> None:
    assert isinstance(load_parts(config_for(tiny_source)).runner, TransformersRunner)


def test_every_start_takes_the_same_dtype_and_on_a_cpu_the_one_in_which_texts_keep(tiny_source: ModelSource) -> None:
    assert load_parts(config_for(tiny_source)).runner.dtype == "float32"


def test_invariant_numerics_are_refused_where_they_cannot_be_kept(tiny_source: ModelSource) -> None:
    with pytest.raises(ConfigError, match="numerics"):
        load_parts(config_for(tiny_source, numerics="invariant"))


@pytest.mark.engine
def test_the_bundled_model_runs_on_the_kernels_in_bfloat16(bundled_source: ModelSource) -> None:
    runner = load_parts(EngineConfig(kv_cache_tokens=256)).runner
    assert isinstance(runner, NativeRunner)
    assert (runner.dtype, runner.numerics) == ("bfloat16", "invariant")
    # The memory plan is made from these sizes before anything is loaded.
    shape = runner._model.shape
    kv_bytes = 256 * 2 * 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim
    assert runner._model.arena.num_bytes == pytest.approx(2 * shape.num_weights + kv_bytes, rel=0.01)
    runner.close()


@pytest.mark.engine
def test_limits_beyond_model_or_machine_are_refused_with_the_range(bundled_source: ModelSource) -> None:
    with pytest.raises(ConfigError, match="max_model_len = 9000 is not allowed: expected at most 8192"):
        load_parts(EngineConfig(max_model_len=9000))
    with pytest.raises(ConfigError, match=r"kv_cache_tokens = .* expected at most \d+ here"):
        load_parts(EngineConfig(kv_cache_tokens=1 << 31))


@pytest.mark.engine
def test_d3_a_draft_model_beside_the_target_is_refused_where_only_the_target_fits(
    bundled_source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EngineConfig(kv_cache_tokens=256)
    needed = startup._plan_memory(
        config, read_shape(load_config(bundled_source)), torch.bfloat16, torch.bfloat16, startup._Beside()
    ).total_bytes
    monkeypatch.setattr(startup, "available_bytes", lambda: needed + (1 << 20))
    load_parts(config).runner.close()
    draft = DraftMemory(weights_bytes=80 << 20, kv_token_bytes=1536, kv_cache_tokens=65_536, workspace_bytes=1 << 20)
    with pytest.raises(ConfigError, match=r"(?s)kv_cache_tokens = 256 .*draft model, weights +80 MiB"):
        load_parts(config, draft)


@pytest.mark.engine
def test_the_plan_counts_the_drafts_of_the_one_role_and_the_sequences_of_the_other(
    bundled_source: ModelSource,
) -> None:
    shape = read_shape(load_config(bundled_source))

    def plan(max_num_seqs: int, max_plain_seqs: int) -> MemoryPlan:
        config = EngineConfig(max_num_seqs=max_num_seqs, num_speculative_tokens=7)
        beside = startup._Beside(max_plain_seqs=max_plain_seqs)
        return startup._plan_memory(config, shape, torch.bfloat16, torch.bfloat16, beside)

    one, both = plan(16, 0), plan(16, 128)
    assert one.lookahead_tokens == both.lookahead_tokens == 16 * 7
    assert both.workspace_bytes - one.workspace_bytes == 2 * 4 * (128 - 16) * shape.vocab
    assert plan(16, 8).workspace_bytes == one.workspace_bytes
