"""Draft heads on this machine: loaded for a target, timed, and wrapped as drafters."""

import time
from collections.abc import Sequence as Seq

import torch

from cluster.config import DraftConfig, EngineConfig, check_trees
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.draft_growth import CHAIN, TreeShape
from cluster.engine.drafters.draft_job import DraftCapacityError
from cluster.engine.drafters.head import Head, HeadRows, HeadTarget
from cluster.engine.drafters.head_drafter import HeadDrafter
from cluster.engine.drafters.heads import head_target, load_heads
from cluster.engine.drafters.step_cost import TableCost
from cluster.engine.startup import EngineParts
from cluster.engine.step_time import StepTimes, never_falling

_PROBE_SEQUENCES = (1, 2, 4, 8, 12, 16, 24, 32, 64)
_NUM_PROBES = 5


def build_head_drafters(
    parts: EngineParts, engine: EngineConfig, draft: DraftConfig, *, cost: DraftCost, num_threads: int
) -> list[HeadDrafter]:
    """The heads that `draft.heads` names, each ready to draft.

    Args:
        parts: the target.
        engine: its settings.
        draft: the heads, longest draft and KV capacity of each.
        cost: what drafts cost in the verifier.
        num_threads: CPU threads of a head's passes.

    Raises:
        ConfigError: two heads are of one kind, or there can be no trees.
        LoadError: a head is refused or incomplete, or does not fit the target.
    """
    check_trees(engine, draft)
    if not draft.heads:
        return []
    target = target_of(parts, engine, draft, num_threads=num_threads)
    is_measured = engine.draft_budget == "measured"
    return [
        HeadDrafter(
            head,
            max_draft_tokens=min(draft.num_speculative_tokens, engine.num_speculative_tokens),
            shape=shape_of(draft),
            eos_token_ids=parts.eos_token_ids,
            cost=cost,
            pass_cost=TableCost(measure_step_times(head, target)) if is_measured else None,
            has_own_noise=engine.acceptance != "coupled",
        )
        for head in load_heads(draft.heads, target)
    ]


def shape_of(draft: DraftConfig) -> TreeShape:
    """How wide heads' drafts are."""
    return TreeShape(max_nodes=draft.tree_nodes, max_branches=draft.tree_branches) if draft.tree_nodes else CHAIN


def target_of(parts: EngineParts, engine: EngineConfig, draft: DraftConfig, *, num_threads: int) -> HeadTarget:
    """A loaded target as heads see it."""
    max_model_len = min(parts.runner.max_model_len, draft.max_model_len or parts.runner.max_model_len)
    return head_target(
        parts.source,
        dtype=getattr(torch, parts.runner.dtype),
        device="cuda" if torch.cuda.is_available() else "cpu",
        max_model_len=max_model_len,
        max_sequences=engine.max_num_seqs,
        num_threads=num_threads,
        kv_cache_tokens=draft.kv_cache_tokens,
        max_branches=shape_of(draft).max_branches,
    )


def measure_step_times(head: Head, target: HeadTarget) -> StepTimes:
    """Times of a head's steps by the number of sequences; the quickest of a few each."""
    hidden_size = target.config.get_text_config().hidden_size
    features_1F = torch.zeros(1, len(head.feature_layers) * hidden_size, dtype=torch.bfloat16, device=target.device)
    counts = [count for count in _PROBE_SEQUENCES if count == 1 or count <= target.max_sequences]
    seconds = {}
    for count in counts:
        if (taken_s := _step_s(head, count, features_1F)) is None:
            break
        seconds[count] = taken_s
    return StepTimes(
        knots=tuple(zip(seconds, never_falling(list(seconds.values()), [1.0] * len(seconds)), strict=True))
    )


def _step_s(head: Head, num_sequences: int, features_1F: torch.Tensor) -> float | None:
    """Seconds of a step; None when so many sequences do not fit."""
    states = []
    try:
        for _ in range(num_sequences):
            states.append(head.open())
            head.reserve(states[-1], 2, 2)
        return min(_timed_step(head, states, features_1F) for _ in range(_NUM_PROBES))
    except DraftCapacityError:
        return None
    finally:
        for state in states:
            head.close(state)


def _timed_step(head: Head, states: Seq[object], features_1F: torch.Tensor) -> float:
    """A step behind one row; more than one such row in a state only makes its KV longer."""
    for state in states:
        head.reserve(state, 2, 2)
    head.begin([HeadRows(state=state, first_position=0, token_ids=(0,), features_nF=features_1F) for state in states])
    started_s = time.perf_counter()
    head.step(states, [0] * len(states))
    return time.perf_counter() - started_s
