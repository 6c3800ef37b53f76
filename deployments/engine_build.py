"""Builds a verifier's engine with its source of drafts, and measures which one that should be when it may choose."""

import logging
import secrets
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from pathlib import Path

from cluster.clock import MonotonicClock
from cluster.config import EngineConfig
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.base import Drafter
from cluster.engine.drafters.best_draft import BestDraft, Promise
from cluster.engine.drafters.draft_ahead import DraftModel
from cluster.engine.drafters.draft_build import build_draft_beside
from cluster.engine.drafters.draft_model import DraftModelDrafter
from cluster.engine.drafters.draft_source import DRAFT_FILE, draft_folder, draft_memory_bytes
from cluster.engine.drafters.factory import build_drafter
from cluster.engine.drafters.head_build import build_head_drafters
from cluster.engine.drafters.head_drafter import HeadDrafter
from cluster.engine.drafters.heads import heads_memory_bytes
from cluster.engine.drafters.step_cost import TableCost
from cluster.engine.drafters.vocab_check import vocabulary_hash
from cluster.engine.engine import Engine
from cluster.engine.memory_plan import kv_tax_tokens, most_lookahead_tokens
from cluster.engine.model_checks import read_json
from cluster.engine.model_runner import ModelRunner
from cluster.engine.probe import pass_seconds, pass_seconds_beside
from cluster.engine.startup import (
    EngineParts,
    available_threads,
    kv_cache_bytes,
    load_parts,
    measure_draft_cost,
    measure_pass_times,
    set_num_threads,
    target_source,
)
from cluster.messages import PROTOCOL_VERSION, Hello
from cluster.transport.zmq import connect
from deployments.draft_client import DraftClient, DraftClientConfig
from deployments.layout import (
    DEFAULT_ACCEPTANCE_RATE,
    DEFAULT_HIT_RATE,
    Layout,
    Measurements,
    NodeShare,
    PassTimes,
    choose_layout,
    forced_layout,
    plan_threads,
)
from deployments.verifier_config import VerifierConfig

ACTOR_ROWS = 20
"""Rows of a drafter's pass at the defaults: five outcomes of four guesses."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltEngine:
    """An engine and what decided on its drafts.

    Attributes:
        engine: ready to serve.
        layout: who drafts.
        client: its end of the drafter actors; None in other layouts.
    """

    engine: Engine
    layout: Layout
    client: DraftClient | None


def build_engine(config: VerifierConfig, node: NodeShare, *, name: str) -> BuiltEngine:
    """Load the target, settle the layout, and put both together.

    Args:
        config: the verifier's.
        node: who shares its node.
        name: of the verifier, for drafters' logs.

    Raises:
        ConfigError: a setting does not fit the model or the machine.
        LoadError: a model is refused or damaged.
    """
    engine, memory, max_plain_seqs = _speculative(config), None, 0
    if config.max_num_seqs_by_role is not None:
        max_plain_seqs = config.max_num_seqs_by_role.batch
    may_be_local = config.drafter in ("auto", "local")
    if may_be_local:
        memory = draft_memory_bytes(_model_name(config), kv_cache_tokens=config.draft.kv_cache_tokens)
    parts = load_parts(engine, memory, max_plain_seqs=max_plain_seqs, **_heads_memory(config))
    model = build_draft_beside(_model_name(config), config.draft, parts) if may_be_local else None
    layout = _settle_layout(config, node, parts.runner, model)
    if model is not None and layout.kind != "local":
        model.close_model()
    num_threads = _threads(config, node if layout.kind == "actor" else replace(node, num_drafters=0))
    set_num_threads(parts.runner, num_threads)
    cost = measure_draft_cost(parts.runner, engine, model_id=parts.model_id)
    client = _client(config, node, parts, cost, name) if layout.kind == "actor" else None
    drafter: Drafter | None = client
    if model is not None and layout.kind == "local":
        set_num_threads(model.runner, num_threads)
        drafter = _local_drafter(config, model, cost)
    heads = []
    if layout.kind != "off":
        heads = build_head_drafters(parts, engine, config.draft, cost=cost, num_threads=num_threads)
    built = Engine.from_parts(
        _settled(engine, layout),
        parts,
        draft_cost=cost,
        drafter=_best_of(config, drafter, heads) if heads or drafter is not None else None,
        kv_tax_tokens=_kv_tax_tokens(config, layout, parts.runner, model),
    )
    built.grammars.warm_up()
    return BuiltEngine(engine=built, layout=layout, client=client)


def _settled(engine: EngineConfig, layout: Layout) -> EngineConfig:
    """The engine's settings where it is known who drafts."""
    if layout.kind == "actor":  # Its drafts are ahead of the verdict already; it takes its times from whole rounds.
        return replace(engine, overlap="off")
    return replace(engine, drafter="off") if layout.kind == "off" else engine


def _speculative(config: VerifierConfig) -> EngineConfig:
    """The engine's settings in the role that it starts in."""
    seats = config.max_num_seqs_by_role
    return config.engine if seats is None else replace(config.engine, max_num_seqs=seats.speculative)


def _heads_memory(config: VerifierConfig) -> dict[str, int]:
    """What `load_parts` plans for draft heads, before anything is loaded."""
    draft = config.draft
    if not draft.heads or config.drafter == "off":
        return {}
    num_bytes = heads_memory_bytes(draft.heads, target_source(config.engine), kv_cache_tokens=draft.kv_cache_tokens)
    return {"heads_bytes": num_bytes, "tree_nodes": draft.tree_nodes}


def _kv_tax_tokens(config: VerifierConfig, layout: Layout, target: ModelRunner, model: DraftModel | None) -> int:
    """What role speculative takes of the target's KV cache; 0 where the replica has one role only."""
    if config.max_num_seqs_by_role is None or layout.kind == "off":
        return 0
    longest = max(config.engine.num_speculative_tokens, config.draft.tree_nodes)
    num_seqs, num_rows = config.max_num_seqs_by_role.speculative, config.engine.max_num_batched_tokens
    return kv_tax_tokens(
        lookahead_tokens=most_lookahead_tokens(num_seqs, longest, num_rows),
        draft_kv_bytes=kv_cache_bytes(model.runner) if model is not None and layout.kind == "local" else 0,
        kv_token_bytes=max(1, kv_cache_bytes(target) // (target.num_kv_blocks * target.block_size)),
    )


def _model_name(config: VerifierConfig) -> str:
    assert config.draft.model is not None
    return config.draft.model


def _settle_layout(config: VerifierConfig, node: NodeShare, target: ModelRunner, model: DraftModel | None) -> Layout:
    if config.drafter != "auto":
        layout = forced_layout(config.drafter, f"drafter = {config.drafter!r}")
    else:
        assert model is not None
        layout = choose_layout(measure(config, node, target, model.runner))
    _logger.info("layout %s: %s", layout.kind, layout.reason)
    return layout


def measure(config: VerifierConfig, node: NodeShare, target: ModelRunner, draft: ModelRunner) -> Measurements:
    """Time the passes that the choice of a layout stands on. Overwrites KV, and changes both runners' threads.

    An actor on the same node is imitated by running the draft model in a second thread: it takes memory bandwidth from
    the target as well as cores.

    Args:
        config: the verifier's.
        node: who shares its node.
        target: loaded, not serving yet.
        draft: the draft model, loaded into this process.
    """
    num_tokens = min(config.draft.num_speculative_tokens, config.engine.num_speculative_tokens)
    rows = (1, 1 + num_tokens)
    num_alone, num_beside = _threads(config, replace(node, num_drafters=0)), _threads(config, node)
    set_num_threads(draft, num_alone)
    set_num_threads(target, num_alone)
    alone, local = pass_seconds(target, rows), pass_seconds(draft, (1, ACTOR_ROWS))
    set_num_threads(draft, config.draft.num_threads)
    beside, actor = alone, pass_seconds(draft, (1, ACTOR_ROWS))
    if node.num_drafters:
        set_num_threads(target, num_beside)
        beside, many_s = pass_seconds_beside(target, rows, draft, ACTOR_ROWS)
        actor = {1: actor[1], ACTOR_ROWS: many_s}
    acceptance_rate, hit_rate = expected_rates(draft_folder(_model_name(config)))
    return Measurements(
        num_cores=available_threads(),
        shares_node=node.num_drafters > 0,
        target=_times(alone),
        target_beside_actor=_times(beside),
        draft_local=_times(local),
        draft_actor=_times(actor),
        num_speculative_tokens=num_tokens,
        acceptance_rate=acceptance_rate,
        hit_rate=hit_rate,
    )


def _times(seconds: Mapping[int, float]) -> PassTimes:
    num_rows = max(seconds)
    return PassTimes(one_s=seconds[1], many_s=seconds[num_rows], num_rows=num_rows)


def expected_rates(folder: Path) -> tuple[float, float]:
    """Acceptance and table hits of a draft model, as `acceptance_rate` and `table_hit_rate` of its card say, 0..1."""
    card = read_json(folder, DRAFT_FILE) or {}

    def rate(name: str, default: float) -> float:
        value = card.get(name, default)
        if isinstance(value, int | float) and 0 <= value <= 1:
            return float(value)
        _logger.warning("%s: %s = %r is no share of 0 to 1; %s is assumed", folder, name, value, default)
        return default

    return rate("acceptance_rate", DEFAULT_ACCEPTANCE_RATE), rate("table_hit_rate", DEFAULT_HIT_RATE)


def _threads(config: VerifierConfig, node: NodeShare) -> int:
    plan = plan_threads(
        num_cores=available_threads(),
        engine_threads=config.engine.num_threads,
        node=node,
        drafter_threads=config.draft.num_threads,
    )
    if plan.warning:
        _logger.warning("%s", plan.warning)
    return plan.verifier


def _local_drafter(config: VerifierConfig, model: DraftModel, cost: DraftCost) -> DraftModelDrafter:
    is_measured = config.engine.draft_budget == "measured"
    return DraftModelDrafter(
        model,
        max_draft_tokens=min(config.draft.num_speculative_tokens, config.engine.num_speculative_tokens),
        cost=cost,
        pass_cost=TableCost(measure_pass_times(model.runner)) if is_measured else None,
        has_own_noise=config.engine.acceptance != "coupled",
    )


def build_client(
    parts: EngineParts, config: DraftClientConfig, *, node_id: str, name: str, cost: DraftCost | None = None
) -> DraftClient:
    """A verifier's end towards drafter actors; it knows none yet.

    Args:
        parts: of the verifier's engine.
        config: the client's.
        node_id: the verifier's node.
        name: of the verifier.
        cost: of drafts in the verifier.
    """
    return DraftClient(
        hello=Hello(
            version=PROTOCOL_VERSION,
            incarnation=secrets.randbits(62),
            model_hash=parts.model_id,
            tokenizer_hash=vocabulary_hash(parts.tokenizer),
            name=name,
        ),
        node_id=node_id,
        connect=lambda address: connect(address, node_id),
        vocab_size=parts.runner.vocab_size,
        clock=MonotonicClock(),
        config=config,
        cost=cost,
    )


def _client(config: VerifierConfig, node: NodeShare, parts: EngineParts, cost: DraftCost, name: str) -> DraftClient:
    draft = config.draft
    client = DraftClientConfig(
        num_speculative_tokens=min(draft.num_speculative_tokens, config.engine.num_speculative_tokens),
        draft_wait_s=draft.draft_wait_s,
    )
    return build_client(parts, client, node_id=node.node_id, name=name, cost=cost)


def _best_of(config: VerifierConfig, drafter: Drafter | None, heads: Seq[HeadDrafter]) -> Drafter:
    """Prompt lookup, a draft model and heads. What costs passes here is asked only where it promises more."""
    lookup = build_drafter(config.engine.drafter, max_draft_tokens=config.engine.num_speculative_tokens)
    free = [lookup] if isinstance(drafter, DraftModelDrafter) else [drafter, lookup]
    entries: list[tuple[Drafter, Promise | None]] = [(each, None) for each in free if each is not None]
    if isinstance(drafter, DraftModelDrafter):
        entries.append((drafter, drafter.promise))
    entries += [(head, head.promise) for head in heads]
    return BestDraft(*entries)
