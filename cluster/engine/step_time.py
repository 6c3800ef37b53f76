"""How long a round takes by its rows, its sequences and their context: a table, and how it is fitted while serving."""

from bisect import bisect_left
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from math import log

_GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192)
"""Rows at which passes are kept apart."""

_LOG_GRID = tuple(log(rows) for rows in _GRID)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of a round. Never falls with rows, sequences or context.

    Attributes:
        knots: (rows, seconds) of a forward pass without context, rows rising from 1; straight lines between and after.
        context_s: of the pass, for each KV entry that is read, summed over sequences.
        sequence_s: outside the pass, for each sequence: drawing and committing its token.
        draft_row_s: outside the pass, for each draft token: drawing and comparing.
    """

    knots: tuple[tuple[int, float], ...]
    context_s: float = 0.0
    sequence_s: float = 0.0
    draft_row_s: float = 0.0

    def seconds(self, num_rows: float, num_context_tokens: float = 0.0, *, num_sequences: float | None = None) -> float:
        """Time of a round.

        Args:
            num_rows: of the pass, at least 1.
            num_context_tokens: KV entries that its sequences hold, summed over sequences.
            num_sequences: whose rows they are, the rest being drafts; None for one row each.
        """
        num_sequences = num_rows if num_sequences is None else num_sequences
        outside_s = self.sequence_s * num_sequences + self.draft_row_s * (num_rows - num_sequences)
        return self.forward_s(num_rows, num_context_tokens) + outside_s

    def forward_s(self, num_rows: float, num_context_tokens: float = 0.0) -> float:
        """Time of the forward pass alone."""
        context_s = self.context_s * num_context_tokens
        knots = self.knots
        if len(knots) == 1:
            return knots[0][1] + context_s
        index = min(max(bisect_left(knots, (num_rows, 0.0)), 1), len(knots) - 1)
        (rows, time_s), (next_rows, next_s) = knots[index - 1], knots[index]
        return time_s + (next_s - time_s) * (num_rows - rows) / (next_rows - rows) + context_s


@dataclass(slots=True)
class _Ratio:
    """Measured time as a multiple of the assumed one, for passes of about one size."""

    value: float = 1.0
    count: int = 0


@dataclass(slots=True)
class _Outside:
    """Discounted least squares of what a round takes outside its pass, over sequences and draft rows."""

    ss: float = 0.0
    sd: float = 0.0
    dd: float = 0.0
    sy: float = 0.0
    dy: float = 0.0

    def add(self, num_sequences: int, num_draft_rows: int, taken_s: float, decay: float) -> None:
        self.ss = self.ss * decay + num_sequences * num_sequences
        self.sd = self.sd * decay + num_sequences * num_draft_rows
        self.dd = self.dd * decay + num_draft_rows * num_draft_rows
        self.sy = self.sy * decay + num_sequences * taken_s
        self.dy = self.dy * decay + num_draft_rows * taken_s

    def solve(self, prior: tuple[float, float], ridge: float) -> tuple[float, float]:
        """Seconds for each sequence and each draft row; the prior decides where nothing varied."""
        a, b, c = self.ss + ridge, self.sd, self.dd + ridge
        y, z = self.sy + ridge * prior[0], self.dy + ridge * prior[1]
        determinant = a * c - b * b
        per_sequence, per_row = (y * c - z * b) / determinant, (z * a - y * b) / determinant
        if per_row < 0:
            return y / a, 0.0
        if per_sequence < 0:
            return 0.0, z / c
        return per_sequence, per_row


@dataclass(slots=True, kw_only=True)
class StepTimeModel:
    """Refits a table to the rounds that run.

    The pass is kept as a multiple of the assumed table, by size: sizes that do not occur follow their neighbours that
    do, so that a machine which has become slower is slower for all of them. One odd round moves little: a measurement
    counts for at most `_CLIP` times more or less than what was known.

    Attributes:
        assumed: the table before serving, measured or from a calibration.
        refit_interval: rounds between two tables.
    """

    assumed: StepTimes
    refit_interval: int = 16
    _ratios: list[_Ratio] = field(default_factory=lambda: [_Ratio() for _ in _GRID])
    _outside: _Outside = field(default_factory=_Outside)
    _num_new: int = 0
    _times: StepTimes | None = None

    @property
    def times(self) -> StepTimes:
        """The table in force."""
        if self._times is None:
            self._times = self._fit()
        return self._times

    def observe(
        self, *, num_rows: int, num_sequences: int, num_context_tokens: int, forward_s: float, outside_s: float
    ) -> None:
        """Learn from a round that decoded only.

        Args:
            num_rows: of its pass, drafts included, at least 1.
            num_sequences: that it decoded.
            num_context_tokens: KV entries that they hold, summed.
            forward_s: time of the pass.
            outside_s: time of the round without the pass and without waiting for drafts.
        """
        ratio = self._ratios[_nearest(num_rows)]
        seen = forward_s / self.assumed.forward_s(num_rows, num_context_tokens)
        if ratio.count >= _MIN_COUNT:
            seen = min(max(seen, ratio.value / _CLIP), ratio.value * _CLIP)
        ratio.count = min(ratio.count + 1, _MEMORY)
        ratio.value += (seen - ratio.value) / ratio.count
        taken_s = outside_s
        if self._times is not None:
            expected_s = self._times.sequence_s * num_sequences + self._times.draft_row_s * (num_rows - num_sequences)
            taken_s = min(taken_s, 4 * expected_s + _LONG_OUTSIDE_S)
        self._outside.add(num_sequences, num_rows - num_sequences, taken_s, 1 - 1 / _MEMORY)
        self._num_new += 1
        if self._num_new >= self.refit_interval:
            self._num_new = 0
            self._times = self._fit()

    def _fit(self) -> StepTimes:
        seen = [(_LOG_GRID[i], ratio.value, ratio.count) for i, ratio in enumerate(self._ratios) if ratio.count]
        largest = max(
            [rows for rows, _ in self.assumed.knots] + [_GRID[i] for i, r in enumerate(self._ratios) if r.count]
        )
        rows = sorted({rows for rows, _ in self.assumed.knots} | {rows for rows in _GRID if rows <= largest})
        seconds = [self.assumed.forward_s(r) * _interpolate(seen, log(r)) for r in rows]
        weights = [1 + self._ratios[_nearest(r)].count for r in rows]
        rising = never_falling(seconds, weights)
        context_s = self.assumed.context_s * _interpolate(seen, log(largest) / 2)
        prior = (self.assumed.sequence_s, self.assumed.draft_row_s)
        per_sequence, per_row = self._outside.solve(prior, ridge=1.0)
        return replace(
            self.assumed,
            knots=tuple(zip(rows, rising, strict=True)),
            context_s=context_s,
            sequence_s=per_sequence,
            draft_row_s=per_row,
        )


_MIN_COUNT = 8
"""Rounds of a size after which one of them is judged by the others."""

_MEMORY = 64
"""Rounds that an estimate stands on."""

_CLIP = 1.25
_LONG_OUTSIDE_S = 0.001


def never_falling(values: Seq[float], weights: Seq[float]) -> list[float]:
    """The nearest sequence that never falls (pool adjacent violators).

    Args:
        values: what was measured.
        weights: how much each counts, > 0.
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        mean, total, count = value, float(weight), 1
        while pools and pools[-1][0] > mean:
            other, other_total, other_count = pools.pop()
            mean = (mean * total + other * other_total) / (total + other_total)
            total, count = total + other_total, count + other_count
        pools.append((mean, total, count))
    return [mean for mean, _, count in pools for _ in range(count)]


def _nearest(num_rows: int) -> int:
    """Index of the grid size nearest to a number of rows, on a logarithmic scale."""
    place = bisect_left(_GRID, num_rows)
    if place == 0 or place == len(_GRID):
        return min(place, len(_GRID) - 1)
    return place if num_rows * num_rows > _GRID[place - 1] * _GRID[place] else place - 1


def _interpolate(seen: Seq[tuple[float, float, int]], place: float) -> float:
    """The ratio at a place of the logarithmic scale, between those seen; 1 when nothing was."""
    if not seen:
        return 1.0
    index = bisect_left(seen, (place, float("-inf"), 0))
    if index == 0 or index == len(seen):
        return seen[min(index, len(seen) - 1)][1]
    (low, low_ratio, _), (high, high_ratio, _) = seen[index - 1], seen[index]
    return low_ratio + (high_ratio - low_ratio) * (place - low) / (high - low)
