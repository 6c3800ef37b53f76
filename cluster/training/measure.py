"""One measurement of a draft model or head beside its target: acceptance by category, and how good coupling is."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from cluster.config import TARGETS_OWN_HEAD, DraftConfig, EngineConfig
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.draft_build import build_draft_model
from cluster.engine.drafters.draft_model import DraftModelDrafter
from cluster.engine.drafters.draft_source import draft_folder, load_draft_model
from cluster.engine.drafters.eagle3_source import is_eagle3
from cluster.engine.drafters.head_drafter import HeadDrafter
from cluster.engine.drafters.heads import head_target, load_heads
from cluster.engine.drafters.medusa_source import HEADS_FIELD
from cluster.engine.engine import Engine
from cluster.engine.model_checks import CONFIG_FILE, read_json
from cluster.engine.startup import EngineParts, available_threads, load_parts
from cluster.errors import check_range
from cluster.training.acceptance import AcceptanceRun, WrittenText
from cluster.training.acceptance_report import MeasureReport
from cluster.training.coupling import Coupling, compare_rules
from cluster.training.questions import collect_questions
from cluster.training.reporter import Reporter

# A draft row is never counted as costing anything, so that every round drafts as many tokens as it may.
_FREE = DraftCost.free()
_MAX_NUM_SEQS = 16
_KV_CACHE_TOKENS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSettings:
    """What is measured.

    Attributes:
        draft: "bundled", the folder of a draft model or head, or "mtp" for the module in the target's checkpoint.
        target: "bundled", a folder, or a hub id.
        revision: commit of a hub id.
        spec_bench: file of Spec-Bench's questions; None leaves them out.
        limit: most questions of a category; None for all.
        max_tokens: of each answer.
        num_speculative_tokens: guesses in every round.
        num_threads: CPU threads; 0 takes the cores this process may use.
        num_texts: texts on which both rules are compared.
        num_positions: positions of each of them.
        num_seeds: draws at each position.
    """

    draft: str
    target: str
    revision: str | None = None
    spec_bench: Path | None = None
    limit: int | None = None
    max_tokens: int = 128
    num_speculative_tokens: int = 4
    num_threads: int = 0
    num_texts: int = 40
    num_positions: int = 50
    num_seeds: int = 8

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        for field, value in (("--limit", self.limit), ("--max-tokens", self.max_tokens)):
            if value is not None:
                check_range(field, value, 1, 1 << 20)


def measure(settings: MeasureSettings, reporter: Reporter) -> MeasureReport:
    """Run target and draft model over all questions, then compare the rules on what was written.

    The rules are compared for draft models only: a head has no distribution without the target's pass before it.

    Raises:
        ConfigError: a setting is wrong, or there is no question.
        LoadError: a model is refused.
    """
    started_s = time.monotonic()
    questions = collect_questions(settings.spec_bench, settings.limit)
    is_head = settings.draft == TARGETS_OWN_HEAD or is_head_folder(draft_folder(settings.draft))
    config = _engine_config(settings)
    parts = load_parts(config)
    loaded = None if is_head else _DraftModel(settings, config, parts)
    drafter = _head_drafter(settings, config, parts) if loaded is None else loaded.drafter
    engine = Engine.from_parts(config, parts, drafter=drafter)
    try:
        run = AcceptanceRun(engine, questions, max_tokens=settings.max_tokens, seed=0)
        reporter.begin("acceptance", 0, run.num_turns_left)
        run.run(lambda: reporter.advance(1))
        coupling = None if loaded is None else loaded.compare(run.texts, settings, reporter)
    finally:
        engine.close()
    return MeasureReport(
        draft=Path(settings.draft) if settings.draft == TARGETS_OWN_HEAD else draft_folder(settings.draft),
        target=parts.model_id,
        num_speculative_tokens=settings.num_speculative_tokens,
        max_tokens=settings.max_tokens,
        counts=run.counts,
        coupling=coupling,
        num_skipped=run.num_skipped,
        duration_s=time.monotonic() - started_s,
    )


def is_head_folder(folder: Path) -> bool:
    """True for a folder that holds a head on a target's hidden states."""
    about = read_json(folder, CONFIG_FILE) or {}
    return is_eagle3(about) or HEADS_FIELD in about


class _DraftModel:
    """A draft model with weights of its own, and what the rules are compared with."""

    def __init__(self, settings: MeasureSettings, config: EngineConfig, parts: EngineParts) -> None:
        folder = draft_folder(settings.draft)
        loaded = load_draft_model(folder, parts.source, target_tokenizer=parts.tokenizer)
        draft_config = DraftConfig(kv_cache_tokens=_KV_CACHE_TOKENS, num_threads=config.num_threads)
        model = build_draft_model(loaded, draft_config, eos_token_ids=parts.eos_token_ids)
        self.drafter = DraftModelDrafter(model, max_draft_tokens=settings.num_speculative_tokens, cost=_FREE)
        self._target, self._draft = parts.runner, model.runner
        self._target_ids = None if loaded.target_ids is None else loaded.target_ids.tolist()

    def compare(self, written: Sequence[WrittenText], settings: MeasureSettings, reporter: Reporter) -> Coupling:
        """Compare both rules on some of the texts."""
        # At equal distances, so that all categories are among them.
        texts = written[:: max(1, len(written) // settings.num_texts)][: settings.num_texts]
        reporter.begin("coupling", 0, len(texts))
        return compare_rules(
            self._target,
            self._draft,
            self._target_ids,
            texts,
            num_positions=settings.num_positions,
            num_seeds=settings.num_seeds,
            on_text=lambda: reporter.advance(1),
        )


def _head_drafter(settings: MeasureSettings, config: EngineConfig, parts: EngineParts) -> HeadDrafter:
    target = head_target(
        parts.source,
        dtype=getattr(torch, parts.runner.dtype),
        device="cuda" if torch.cuda.is_available() else "cpu",
        max_model_len=parts.runner.max_model_len,
        max_sequences=_MAX_NUM_SEQS,
        num_threads=config.num_threads,
        kv_cache_tokens=_KV_CACHE_TOKENS,
    )
    (head,) = load_heads([settings.draft], target)
    return HeadDrafter(
        head, max_draft_tokens=settings.num_speculative_tokens, eos_token_ids=parts.eos_token_ids, cost=_FREE
    )


def _engine_config(settings: MeasureSettings) -> EngineConfig:
    return EngineConfig(
        model=settings.target,
        revision=settings.revision,
        num_threads=settings.num_threads or available_threads(),
        drafter="off",
        draft_budget="fixed",
        num_speculative_tokens=settings.num_speculative_tokens,
        max_num_seqs=_MAX_NUM_SEQS,
        kv_cache_tokens=_KV_CACHE_TOKENS,
    )
