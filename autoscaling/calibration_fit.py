"""From timed passes and rounds to a table of step times. Pure."""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import groupby

from cluster.engine.calibration import Point
from cluster.engine.step_time import StepTimes, never_falling

_LEAST_S = 1e-7
"""No pass is quicker than this, whatever the fit says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSample:
    """A forward pass that was timed.

    Attributes:
        num_rows: of the pass.
        num_context_tokens: KV entries that its sequences held, summed over them.
        seconds: it took.
    """

    num_rows: int
    num_context_tokens: int
    seconds: float


def fit_step_times(passes: Iterable[PassSample], points: Iterable[Point] = ()) -> StepTimes:
    """The table that lies nearest to what was timed.

    Args:
        passes: each number of rows with one length of context or more; 1 row must be among them.
        points: cells of the sweep; what their rounds took outside the pass is divided among sequences and draft rows.
    """
    context_s, knots = _fit_passes(sorted(passes, key=lambda sample: sample.num_rows))
    sequence_s, draft_row_s = _fit_outside(points)
    return StepTimes(knots=knots, context_s=context_s, sequence_s=sequence_s, draft_row_s=draft_row_s)


def _fit_passes(passes: Seq[PassSample]) -> tuple[float, tuple[tuple[int, float], ...]]:
    """Least squares: one slope over the context for all, and a time without context for each number of rows."""
    groups = {rows: list(group) for rows, group in groupby(passes, key=lambda sample: sample.num_rows)}
    covariance = variance = 0.0
    for group in groups.values():
        mean_context, mean_s = _means(group)
        # Relative to the time of such passes: else the long ones, whose error is as long, would decide alone.
        weight = 1.0 / max(mean_s, _LEAST_S) ** 2
        for sample in group:
            distance = sample.num_context_tokens - mean_context
            covariance += weight * distance * (sample.seconds - mean_s)
            variance += weight * distance * distance
    context_s = max(0.0, covariance / variance) if variance else 0.0
    bases = []
    for group in groups.values():
        mean_context, mean_s = _means(group)
        bases.append(max(mean_s - context_s * mean_context, _LEAST_S))
    rising = never_falling(bases, [len(group) for group in groups.values()])
    return context_s, tuple(zip(groups, rising, strict=True))


def _means(group: Seq[PassSample]) -> tuple[float, float]:
    context = sum(sample.num_context_tokens for sample in group) / len(group)
    return context, sum(sample.seconds for sample in group) / len(group)


def _fit_outside(points: Iterable[Point]) -> tuple[float, float]:
    """Seconds outside the pass for each sequence and each draft row, neither below 0. Each round counts by its size."""
    ss = sd = dd = sy = dy = 0.0
    for point in points:
        sequences, drafts = float(point.concurrency), max(0.0, point.round.num_rows - point.concurrency)
        outside_s = max(0.0, point.round.total_s - point.round.forward_s - point.round.draft_s)
        weight = 1.0 / (sequences + drafts) ** 2
        ss += weight * sequences * sequences
        sd += weight * sequences * drafts
        dd += weight * drafts * drafts
        sy += weight * sequences * outside_s
        dy += weight * drafts * outside_s
    determinant = ss * dd - sd * sd
    if determinant > 1e-9 * ss * dd:
        sequence_s, draft_row_s = (sy * dd - dy * sd) / determinant, (dy * ss - sy * sd) / determinant
        if sequence_s >= 0 and draft_row_s >= 0:
            return sequence_s, draft_row_s
        if sequence_s < 0:
            return 0.0, dy / dd
    return (sy / ss if ss else 0.0), 0.0
