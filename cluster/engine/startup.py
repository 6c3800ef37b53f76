"""From settings to a loaded model: which runner, which dtype, how many threads, and whether it all fits."""

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from cluster.config import EngineConfig
from cluster.engine.budget import DraftCost
from cluster.engine.calibration import load_calibration
from cluster.engine.memory_plan import DraftMemory, MemoryPlan, most_lookahead_tokens
from cluster.engine.model_loader import eos_token_ids, load_config, load_tokenizer, load_weights
from cluster.engine.model_runner import ModelRunner
from cluster.engine.model_source import ModelSource, resolve_model
from cluster.engine.native.runner import NativeRunner
from cluster.engine.native.weights import Shape, build_native_model, read_shape, unsupported_reason
from cluster.engine.probe import context_pass_seconds, pass_seconds
from cluster.engine.step_time import StepTimeModel, StepTimes, never_falling
from cluster.engine.transformers_runner import TransformersRunner
from cluster.errors import ConfigError

_PROBE_ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_NUM_PROBES = 3
_DRAFT_PASS_ROWS = (1, 4, 8, 12, 13, 16, 20, 24, 25, 30, 36, 37, 48, 49, 64, 96, 128)
_PROBE_CONTEXT = 1024
_LOWEST_ROW_COST = 0.002
"""A row is never taken for free: the share of a pass of one row that it costs at least."""


_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """A loaded model and what belongs to it.

    Attributes:
        runner: forward pass and KV cache.
        tokenizer: of the same model.
        eos_token_ids: ids that end a text.
        model_id: name under which it is served.
        source: where the model lies.
    """

    runner: ModelRunner
    tokenizer: PreTrainedTokenizerBase
    eos_token_ids: frozenset[int]
    model_id: str
    source: ModelSource


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """What the memory plan counts besides the target and its settings; attributes as the arguments of `load_parts`."""

    draft: DraftMemory | None = None
    heads_bytes: int = 0
    max_plain_seqs: int = 0
    tree_nodes: int = 0


def target_source(config: EngineConfig) -> ModelSource:
    """Where the target lies; converts or downloads it when it is not there yet.

    Raises:
        LoadError: there is no such model, or it is refused.
    """
    cache_dir = Path(config.cache_dir) if config.cache_dir else None
    return resolve_model(config.model, revision=config.revision, cache_dir=cache_dir)


def load_parts(
    config: EngineConfig,
    draft: DraftMemory | None = None,
    *,
    max_plain_seqs: int = 0,
    heads_bytes: int = 0,
    tree_nodes: int = 0,
) -> EngineParts:
    """Load the model that `config` names.

    Args:
        config: what the user asks for; `max_num_seqs` is that of rounds with drafts.
        draft: memory of a draft model that this process will hold as well.
        max_plain_seqs: most sequences in a round without drafts, where that is more.
        heads_bytes: memory of draft heads that it will hold as well.
        tree_nodes: most tokens of a draft that is a tree.

    Raises:
        ConfigError: a setting does not fit the model or the machine.
        LoadError: the model is refused or damaged.
    """
    source = target_source(config)
    model_config = load_config(source)
    tokenizer = load_tokenizer(source)
    beside = _Beside(draft=draft, heads_bytes=heads_bytes, max_plain_seqs=max_plain_seqs, tree_nodes=tree_nodes)
    return EngineParts(
        runner=_build_runner(config, source, model_config, beside),
        tokenizer=tokenizer,
        eos_token_ids=eos_token_ids(source, model_config, tokenizer),
        model_id=source.model_id,
        source=source,
    )


def available_threads() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_num_threads(runner: ModelRunner, num_threads: int) -> None:
    """Let a runner's passes use so many CPU threads from now on."""
    if isinstance(runner, NativeRunner):
        runner.set_num_threads(num_threads)
    else:
        torch.set_num_threads(num_threads)


def kv_cache_bytes(runner: ModelRunner) -> int:
    """Memory of a runner's KV cache; 0 where it is not known."""
    return runner.kv_cache_bytes if isinstance(runner, NativeRunner | TransformersRunner) else 0


def measure_draft_cost(
    runner: ModelRunner, config: EngineConfig | None = None, *, model_id: str | None = None
) -> DraftCost:
    """What draft rows add to a round: from a calibration, from a few passes, or nothing where the budget is fixed.

    The passes overwrite KV blocks, so this must come before serving.

    Args:
        runner: the target.
        config: of the engine; None measures.
        model_id: what a calibration must be about; None takes any.

    Raises:
        ConfigError: the calibration is of another model.
        LoadError: the calibration is damaged.
    """
    if config is not None and config.draft_budget == "fixed":
        return DraftCost.free()
    if config is not None and config.calibration is not None:
        times = load_calibration(config.calibration, model_id=model_id).step_times
    else:
        times = _measure_step_times(runner)
    shown = ", ".join(f"{rows} rows {1e3 * seconds:.1f} ms" for rows, seconds in times.knots)
    _logger.info("time of a pass: %s; %.2f us for each 1000 KV entries", shown, 1e9 * times.context_s)
    return DraftCost(model=StepTimeModel(assumed=times))


def measure_pass_times(runner: ModelRunner) -> StepTimes:
    """Times of a draft model's passes by their rows, finely enough to show the steps of its kernels.

    Overwrites KV blocks, so it must come before serving.
    """
    capacity = min(runner.max_model_len, runner.num_kv_blocks * runner.block_size)
    seconds = pass_seconds(runner, [count for count in _DRAFT_PASS_ROWS if count <= capacity])
    return StepTimes(
        knots=tuple(zip(seconds, never_falling(list(seconds.values()), [1.0] * len(seconds)), strict=True))
    )


def _measure_step_times(runner: ModelRunner) -> StepTimes:
    """The table before serving."""
    capacity = min(runner.max_model_len, runner.num_kv_blocks * runner.block_size)
    seconds = pass_seconds(runner, [count for count in _PROBE_ROWS if count <= capacity], _NUM_PROBES)
    knots = [(1, seconds[1])]
    for num_rows, taken_s in list(seconds.items())[1:]:
        rows, last_s = knots[-1]
        slope_s = max((taken_s - last_s) / (num_rows - rows), _LOWEST_ROW_COST * seconds[1])
        knots.append((num_rows, last_s + slope_s * (num_rows - rows)))
    num_context = min(capacity - 1, _PROBE_CONTEXT)
    far_s = context_pass_seconds(runner, num_context)
    context_s = max(0.0, (far_s - seconds[1]) / num_context) if num_context > 0 else 0.0
    return StepTimes(knots=tuple(knots), context_s=context_s)


def _build_runner(
    config: EngineConfig, source: ModelSource, model_config: PretrainedConfig, beside: _Beside
) -> ModelRunner:
    reason = "a GPU is present" if torch.cuda.is_available() else unsupported_reason(model_config)
    if reason is None:
        return _build_native(config, source, model_config, beside)
    _logger.info("running %s in transformers' own code: %s", source.model_id, reason)
    return _build_general(config, source)


def _build_native(
    config: EngineConfig, source: ModelSource, model_config: PretrainedConfig, beside: _Beside
) -> NativeRunner:
    """The CPU kernels. Weights that were published in bf16 are stored so under either dtype: widening them is exact."""
    torch.set_num_threads(1)  # The kernels bring their own threads; two pools would fight for the cores.
    kv_dtype = torch.float32 if config.dtype == "float32" else torch.bfloat16
    weight_dtype = torch.bfloat16 if model_config.dtype == torch.bfloat16 else kv_dtype
    max_model_len = _max_model_len(config, model_config.max_position_embeddings)
    num_kv_blocks = config.kv_cache_tokens // config.block_size
    shape = read_shape(model_config)
    plan = _plan_memory(config, shape, weight_dtype, kv_dtype, beside)
    _logger.info("memory plan\n%s", plan.table())
    plan.check()
    started_s = time.monotonic()
    model = build_native_model(
        model_config,
        load_weights(source, weight_dtype),
        num_kv_blocks=num_kv_blocks,
        block_size=config.block_size,
        max_model_len=max_model_len,
        kv_dtype=kv_dtype,
    )
    runner = NativeRunner(
        model,
        num_kv_blocks=num_kv_blocks,
        max_model_len=max_model_len,
        num_threads=config.num_threads or available_threads(),
    )
    _logger.info(
        "loaded %s in %.1f s, %d MB", source.model_id, time.monotonic() - started_s, model.arena.num_bytes >> 20
    )
    return runner


def _build_general(config: EngineConfig, source: ModelSource) -> TransformersRunner:
    if config.numerics == "invariant":
        raise ConfigError(field="numerics", value="invariant", allowed="auto or fast for a model of this kind")
    torch.set_num_threads(config.num_threads or available_threads())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, config.dtype) if config.dtype != "auto" else _default_dtype(device)
    return TransformersRunner.load(
        source,
        dtype=dtype,
        num_kv_blocks=config.kv_cache_tokens // config.block_size,
        block_size=config.block_size,
        max_model_len=config.max_model_len,
        device=device,
    )


def _max_model_len(config: EngineConfig, limit: int) -> int:
    if config.max_model_len > limit:
        raise ConfigError(field="max_model_len", value=config.max_model_len, allowed=f"at most {limit} for this model")
    return config.max_model_len or limit


def _default_dtype(device: str) -> torch.dtype:
    """The dtype that "auto" stands for: the same on every start, or replicas of one model would write different texts.

    In float32 the rows of different batches differ by too little to change a token; in bfloat16 on a CPU they do.
    """
    return torch.float32 if device == "cpu" else torch.bfloat16


def _plan_memory(
    config: EngineConfig, shape: Shape, weight_dtype: torch.dtype, kv_dtype: torch.dtype, beside: _Beside
) -> MemoryPlan:
    """The plan for the CPU kernels: weights in panels, beside an embedding that stays row-major."""
    row_elements = 2 * shape.hidden + shape.qkv_columns + shape.num_heads * shape.head_dim + shape.intermediate
    longest = max(config.num_speculative_tokens, beside.tree_nodes)
    lookahead_tokens = most_lookahead_tokens(config.max_num_seqs, longest, config.max_num_batched_tokens)
    # Right after a change of role as many as before still run, and as many as may have drafts do.
    max_logit_rows = max(config.max_num_seqs, beside.max_plain_seqs) + lookahead_tokens
    return MemoryPlan(
        weights_bytes=shape.num_weights * weight_dtype.itemsize,
        kv_token_bytes=2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * kv_dtype.itemsize,
        kv_cache_tokens=config.kv_cache_tokens,
        lookahead_tokens=lookahead_tokens,
        # Buffers grow to twice what a round needs; logits and activations are float32.
        workspace_bytes=2 * 4 * (config.max_num_batched_tokens * row_elements + max_logit_rows * shape.vocab),
        available_bytes=available_bytes(),
        draft=beside.draft,
        heads_bytes=beside.heads_bytes,
    )


def available_bytes() -> int | None:
    """Memory that new allocations can take, or None where the system does not say."""
    path = Path("/proc/meminfo")
    if not path.exists():
        return None
    fields = dict(line.split(":", 1) for line in path.read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024
