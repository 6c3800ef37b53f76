"""Seconds of a forward pass by its number of rows, estimated while passes run. Pure: seconds come in as values."""

from bisect import bisect_right
from typing import Protocol

from cluster.engine.step_time import StepTimeModel, StepTimes

MIN_SECONDS = 1e-6
"""No pass is thought to be quicker: rates and shares are divided by it."""


class PassCost(Protocol):
    """What plans of passes ask."""

    def seconds(self, num_rows: int) -> float:
        """Expected seconds of a pass, above 0; never falls with its rows."""
        ...

    def rows_within(self, seconds: float, max_rows: int) -> int:
        """Most rows of a pass that is over in `seconds`, at most `max_rows`; 0 when not even one row fits."""
        ...

    def observe(self, num_rows: int, seconds: float) -> None:
        """Learn from one pass."""
        ...


class TableCost:
    """A table that was measured before serving, as a whole slower or quicker by what passes take since.

    Kernels work through rows in tiles, so that seconds rise in steps: the thirteenth row may cost what twelve did. A
    straight line plans too wide just behind a step, and its tables come late.

    Args:
        assumed: the table.
    """

    def __init__(self, assumed: StepTimes) -> None:
        self._model = StepTimeModel(assumed=assumed, refit_interval=4)

    def seconds(self, num_rows: int) -> float:
        """Expected seconds of a pass, above 0; never falls with its rows."""
        return max(MIN_SECONDS, self._model.times.forward_s(num_rows))

    def rows_within(self, seconds: float, max_rows: int) -> int:
        """Most rows of a pass that is over in `seconds`, at most `max_rows`; 0 when not even one row fits."""
        return bisect_right(range(1, max_rows + 1), seconds, key=self.seconds)

    def observe(self, num_rows: int, seconds: float) -> None:
        """Learn from one pass."""
        self._model.observe(
            num_rows=num_rows,
            num_sequences=num_rows,
            num_context_tokens=0,
            forward_s=max(seconds, MIN_SECONDS),
            outside_s=0.0,
        )


class StepCost:
    """seconds(rows) = fixed + per_row * rows, both at least 0: weighted least squares, newer passes weighing more.

    While passes of one size only were seen, nothing tells the two apart. Then the slope is `slope_ratio` of the level,
    a steep guess: plans start narrow, widen when wider passes turn out cheap, and teach the fit by that.

    A pass far slower than expected (a pause of the machine, the first use of a kernel) counts as `clip_ratio` times the
    expectation, so it moves the fit a little; a lasting change moves it all the way. No pause makes a pass quicker.

    Args:
        first_guess_s: seconds of a pass of one row before anything was seen.
        decay: weight that older passes keep at each new one, 0..1.
        slope_ratio: cost of a further row in shares of the fixed cost, as assumed without evidence.
        clip_ratio: most that one pass may count, in expectations, > 1.
    """

    def __init__(
        self,
        *,
        first_guess_s: float = 0.005,
        decay: float = 0.96,
        slope_ratio: float = 1 / 16,
        clip_ratio: float = 3.0,
    ) -> None:
        self._decay, self._slope_ratio, self._clip_ratio = decay, slope_ratio, clip_ratio
        self._weight = self._mean_rows = self._mean_s = self._var_rows = self._covariance = 0.0
        self._fixed_s = first_guess_s / (1.0 + slope_ratio)
        self._per_row_s = self._fixed_s * slope_ratio

    @property
    def fixed_s(self) -> float:
        """Seconds of a pass whatever its rows."""
        return self._fixed_s

    @property
    def per_row_s(self) -> float:
        """Seconds that each row adds."""
        return self._per_row_s

    def seconds(self, num_rows: int) -> float:
        """Expected seconds of a pass; never falls with its rows."""
        return max(MIN_SECONDS, self._fixed_s + self._per_row_s * num_rows)

    def rows_within(self, seconds: float, max_rows: int) -> int:
        """Most rows of a pass that is over in `seconds`, at most `max_rows`; 0 when not even one row fits."""
        if self.seconds(max_rows) <= seconds:
            return max_rows
        if self.seconds(1) > seconds:
            return 0
        # Rounding of the division must not let a row in that the sum says does not fit.
        num_rows = min(max_rows, int((seconds - self._fixed_s) / max(self._per_row_s, 1e-15)) + 1)
        while self.seconds(num_rows) > seconds:
            num_rows -= 1
        return num_rows

    def observe(self, num_rows: int, seconds: float) -> None:
        """Learn from one pass.

        Args:
            num_rows: its rows, at least 1.
            seconds: how long it took; a negative value counts as 0.
        """
        seconds = min(max(seconds, MIN_SECONDS), self.seconds(num_rows) * self._clip_ratio)
        self._add(float(num_rows), seconds)
        self._fit()

    def _add(self, rows: float, seconds: float) -> None:
        """Decayed means, variance and covariance (West, 1979): sums of squares would lose their digits."""
        kept = self._weight * self._decay
        self._weight = kept + 1.0
        share = 1.0 / self._weight
        off_rows, off_s = rows - self._mean_rows, seconds - self._mean_s
        self._mean_rows += share * off_rows
        self._mean_s += share * off_s
        self._var_rows = (1.0 - share) * (self._var_rows + share * off_rows * off_rows)
        self._covariance = (1.0 - share) * (self._covariance + share * off_rows * off_s)

    def _fit(self) -> None:
        # The assumed slope counts as much as passes that differ by two rows; a wider spread outvotes it.
        assumed = self._mean_s * self._slope_ratio / (1.0 + self._slope_ratio * self._mean_rows)
        slope = (self._covariance + 4.0 * assumed) / (self._var_rows + 4.0)
        self._per_row_s = min(max(slope, 0.0), self._mean_s / self._mean_rows)
        self._fixed_s = self._mean_s - self._per_row_s * self._mean_rows
