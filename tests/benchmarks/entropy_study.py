"""Does the target's entropy foretell more about drafts than the drafter's confidence does?

Token statistics, so a busy machine does no harm. Each way to foretell a draft sees it before its verdict, and learns
from the verdict afterwards, on the same drafts in the same order.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np

from tests.benchmarks.draft_trials import TEMPERATURES, DraftTrial, TrialLog, collect_trials
from tests.benchmarks.entropy_models import (
    AsSaid,
    Calibrated,
    Foreteller,
    Score,
    WithEntropy,
    hindsight_loss,
    num_tried,
    score,
)
from tests.benchmarks.measure import Summary, progress
from tests.benchmarks.report import Answer, Limit, Row

MIN_GAIN, MAX_CALIBRATION_ERROR = 0.01, 0.05
"""Log-loss that a feature must save to be kept, as a share; and the calibration error that is allowed."""

AS_SAID, CALIBRATED = "as said", "calibrated"
WITH_ENTROPY: Mapping[str, Callable[[], Foreteller]] = {
    "entropy by position": lambda: WithEntropy(float),
    "log entropy by position": lambda: WithEntropy(math.log1p),
    "entropy at the first position": lambda: WithEntropy(float, max_position=None),
    "log entropy at the first position": lambda: WithEntropy(math.log1p, max_position=None),
}
WAYS: Mapping[str, Callable[[], Foreteller]] = {AS_SAID: AsSaid, CALIBRATED: Calibrated, **WITH_ENTROPY}

_BATCHES = (1, 8)
_ROWS, _PASS_S = (1, 2, 4, 8, 16, 32, 64), (0.0096, 0.0097, 0.0106, 0.0133, 0.0232, 0.0394, 0.0771)
"""The bundled target's passes on two cores (results/2026-11-30-engine.md): a fixed table, so that nothing is timed."""
_DRAFT_PASS_S = 0.0018
"""A pass of the bundled draft model, in proportion (LOG.md)."""
_NUM_RESAMPLES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One way against another over the same texts.

    Attributes:
        log_loss: of the first way, nats for each trial.
        brier: mean squared error of the first way.
        gain: share of the second way's log-loss that the first one saves.
        interval: its 95 % interval, texts resampled.
        speed: tokens per second over those of the second way, by number of sequences.
    """

    log_loss: float
    brier: float
    gain: float
    interval: tuple[float, float]
    speed: Mapping[int, float]


def measure(*, quick: bool) -> Answer:
    """Collect drafts of all sources, then play them to every way to foretell them."""
    num_per_category, max_tokens = (1, 12) if quick else (3, 96)
    log = collect_trials(
        num_per_category=num_per_category, max_tokens=max_tokens, on_source=lambda name: progress(f"drafts of {name}")
    )
    rows: list[Row] = []
    notes = [*log.notes, f"texts at temperatures {' and '.join(f'{value:g}' for value in TEMPERATURES)} together"]
    for source, drafts in log.drafts.items():
        scores = {way: score(drafts, make(), round_s, _BATCHES) for way, make in WAYS.items()}
        rows += _rows(source, scores)
        notes += _notes(source, drafts, scores)
    return Answer(
        question="Does the target's entropy foretell acceptance better than confidence alone (log-loss by text)?",
        model=f"{log.model}, bundled draft model",
        rows=tuple(rows),
        limits=tuple(_limits(log)),
        counts={"rounds": 1, "prompts": log.num_prompts, "max_tokens": max_tokens}
        | {f"{source}: drafts": len(drafts) for source, drafts in log.drafts.items()}
        | {f"{source}: trials": sum(map(num_tried, drafts)) for source, drafts in log.drafts.items()},
        notes=tuple(notes),
    )


def round_s(source: str, num_sequences: int, num_tokens: int) -> float:
    """Time of a round in which all sequences draft alike; beyond the table it grows as at its end."""
    num_rows = num_sequences * (1 + num_tokens)
    drafting_s = num_tokens * _DRAFT_PASS_S if source == "draft_model" else 0.0
    return float(np.interp(num_rows, _ROWS, _PASS_S)) * max(1.0, num_rows / _ROWS[-1]) + drafting_s


def compare(scores: Mapping[int, Score], baseline: Mapping[int, Score], batches: Seq[int] = _BATCHES) -> Comparison:
    """Sum up two ways that foretold the same drafts.

    Args:
        scores: of one way, by text.
        baseline: of the other.
        batches: numbers of sequences whose speed is compared.
    """
    losses = np.array([[scores[text].log_loss, baseline[text].log_loss] for text in baseline])
    num_trials = sum(part.num_trials for part in scores.values())
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(losses), (_NUM_RESAMPLES, len(losses)))
    resampled = losses[picks].sum(axis=1)
    low, high = np.quantile(1.0 - resampled[:, 0] / resampled[:, 1], (0.025, 0.975))
    total, of_baseline = losses.sum(axis=0)
    return Comparison(
        log_loss=float(total) / num_trials,
        brier=sum(part.brier for part in scores.values()) / num_trials,
        gain=1.0 - float(total / of_baseline),
        interval=(float(low), float(high)),
        speed={batch: _rate(scores, batch) / _rate(baseline, batch) for batch in batches},
    )


def _rate(scores: Mapping[int, Score], batch: int) -> float:
    num_tokens = sum(part.num_tokens[batch] for part in scores.values())
    return batch * num_tokens / sum(part.seconds[batch] for part in scores.values())


def _rows(source: str, scores: Mapping[str, Mapping[int, Score]]) -> Iterator[Row]:
    """Log-loss of each text over that of the calibrated confidence; the confidence as said is the other baseline."""
    baseline = scores[CALIBRATED]
    for way, by_text in scores.items():
        if way != CALIBRATED:
            ratios = [part.log_loss / baseline[text].log_loss for text, part in by_text.items()]
            yield Row(name=f"{source}: {way} / {CALIBRATED}", unit="ratio", summary=Summary.of(ratios))


def _notes(source: str, drafts: Seq[DraftTrial], scores: Mapping[str, Mapping[int, Score]]) -> Iterator[str]:
    baseline = compare(scores[CALIBRATED], scores[AS_SAID])
    yield f"{source}, {AS_SAID}: {_text(compare(scores[AS_SAID], scores[AS_SAID]))}"
    yield f"{source}, {CALIBRATED} against {AS_SAID}: {_text(baseline)}"
    by_way = {way: compare(scores[way], scores[CALIBRATED]) for way in WITH_ENTROPY}
    for way, found in by_way.items():
        yield f"{source}, {way} against {CALIBRATED}: {_text(found)}"
    best = max(by_way.values(), key=lambda found: found.gain)
    verdict = "worth keeping" if best.gain >= MIN_GAIN and best.interval[0] > 0 else "not worth keeping"
    yield f"{source}: the best use of the entropy saves {best.gain:.2%} of the log-loss: {verdict}"
    hindsight = 1.0 - hindsight_loss(drafts, float) / hindsight_loss(drafts, None)
    yield f"{source}: fitted to these very drafts in hindsight, the entropy by position saves {hindsight:.2%}"
    for temperature in TEMPERATURES:
        for position in (0, 1, 2):
            yield f"{source}: {_correlation(drafts, temperature, position)}"


def _text(found: Comparison) -> str:
    low, high = found.interval
    speeds = ", ".join(f"{ratio:.3f} x with {batch}" for batch, ratio in found.speed.items())
    return (
        f"log-loss {found.log_loss:.4f} nats, Brier {found.brier:.4f}, gain {found.gain:.2%} [{low:.2%}, {high:.2%}], "
        f"tokens/s {speeds} sequences"
    )


def _correlation(drafts: Seq[DraftTrial], temperature: float, position: int) -> str:
    """How entropy and acceptance go together by themselves."""
    tried = [d for d in drafts if d.temperature == temperature and position < num_tried(d)]
    entropies = [draft.entropy_bits for draft in tried]
    hits = [float(position < draft.num_accepted) for draft in tried]
    where = f"T={temperature:g}, position {position}, {len(tried)} trials"
    if len(tried) < 3 or np.std(entropies) == 0 or np.std(hits) == 0:
        return f"{where}: too few for a correlation of entropy and acceptance"
    return f"{where}: correlation of entropy and acceptance {np.corrcoef(entropies, hits)[0, 1]:+.3f}"


def _limits(log: TrialLog) -> Iterator[Limit]:
    """The calibration error over the second half of the drafts, at five points."""
    for source, drafts in log.drafts.items():
        calibrated = Calibrated()
        errors = []
        points = {len(drafts) * tenths // 10 for tenths in range(6, 11)}
        for number, draft in enumerate(drafts, start=1):
            calibrated.learn(draft)
            if number in points:
                errors.append(calibrated.model.calibration_error(source) or 0.0)
        yield Limit.at_most_of(f"{source}: calibration error", errors, MAX_CALIBRATION_ERROR)
