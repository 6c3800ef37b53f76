"""One measurement of a draft model beside its target: acceptance by category, and how good coupling is."""

import time
from dataclasses import dataclass
from pathlib import Path

from cluster.config import DraftConfig, EngineConfig
from cluster.engine.budget import DraftCost
from cluster.engine.drafters.draft_build import build_draft_model
from cluster.engine.drafters.draft_model import DraftModelDrafter
from cluster.engine.drafters.draft_source import draft_folder, load_draft_model
from cluster.engine.engine import Engine
from cluster.engine.startup import available_threads, load_parts
from cluster.errors import check_range
from cluster.training.acceptance import AcceptanceRun
from cluster.training.acceptance_report import MeasureReport
from cluster.training.coupling import compare_rules
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
        draft: "bundled" or a folder.
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

    Raises:
        ConfigError: a setting is wrong, or there is no question.
        LoadError: a model is refused.
    """
    started_s = time.monotonic()
    questions = collect_questions(settings.spec_bench, settings.limit)
    folder = draft_folder(settings.draft)
    config = _engine_config(settings)
    parts = load_parts(config)
    loaded = load_draft_model(folder, parts.source, target_tokenizer=parts.tokenizer)
    draft_config = DraftConfig(kv_cache_tokens=_KV_CACHE_TOKENS, num_threads=config.num_threads)
    model = build_draft_model(loaded, draft_config, eos_token_ids=parts.eos_token_ids)
    drafter = DraftModelDrafter(model, max_draft_tokens=settings.num_speculative_tokens, cost=_FREE)
    engine = Engine.from_parts(config, parts, drafter=drafter)
    try:
        run = AcceptanceRun(engine, questions, max_tokens=settings.max_tokens, seed=0)
        reporter.begin("acceptance", 0, run.num_turns_left)
        run.run(lambda: reporter.advance(1))
        # At equal distances, so that all categories are among them.
        texts = run.texts[:: max(1, len(run.texts) // settings.num_texts)][: settings.num_texts]
        reporter.begin("coupling", 0, len(texts))
        coupling = compare_rules(
            parts.runner,
            model.runner,
            None if loaded.target_ids is None else loaded.target_ids.tolist(),
            texts,
            num_positions=settings.num_positions,
            num_seeds=settings.num_seeds,
            on_text=lambda: reporter.advance(1),
        )
    finally:
        engine.close()
    return MeasureReport(
        draft=folder,
        target=parts.model_id,
        num_speculative_tokens=settings.num_speculative_tokens,
        max_tokens=settings.max_tokens,
        counts=run.counts,
        coupling=coupling,
        num_skipped=run.num_skipped,
        duration_s=time.monotonic() - started_s,
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
