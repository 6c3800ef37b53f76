"""What a calibration says: where drafts stop paying, what to be warned of, and how well the model of it fits. Pure."""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from cluster.engine.calibration import Acceptance, Calibration, Point
from cluster.engine.step_time import StepTimes

MIN_ACCEPTANCE_RATE = 0.65
"""A class of text whose draft tokens are accepted less often than this, after those before them, is warned of."""

MIN_GAP = 0.02
"""A mean acceptance length counts as under break-even when it is lower by this share: smaller gaps are noise."""

Cells = Mapping[tuple[int | None, int], Point]
"""Points of one class of text by (K, concurrency)."""


def cells(points: Iterable[Point], workload: str) -> Cells:
    """The points of one class of text, by K and concurrency."""
    return {(p.num_speculative_tokens, p.concurrency): p for p in points if p.workload == workload}


def speed_up(of: Cells, num_tokens: int | None, concurrency: int) -> float | None:
    """Tokens per second of a cell over those of plain decoding beside it; None where one of them is missing."""
    plain, drafted = of.get((0, concurrency)), of.get((num_tokens, concurrency))
    return drafted.tokens_per_s / plain.tokens_per_s if plain and drafted else None


def best_fixed(of: Cells, concurrency: int) -> tuple[int, float] | None:
    """The fixed K above 0 with the most tokens per second, and its speed-up; None where none was measured."""
    found = [
        (speed, num_tokens)
        for num_tokens, at in of
        if at == concurrency and num_tokens and (speed := speed_up(of, num_tokens, at)) is not None
    ]
    speed, num_tokens = max(found, default=(0.0, 0))
    return (num_tokens, speed) if found else None


def crossover(of: Cells) -> float | None:
    """The concurrency from which on no fixed K beats plain decoding; None where one does at the highest measured.

    Between two measured concurrencies it lies where the straight line through both speed-ups passes 1.
    """
    measured = sorted({at for _, at in of})
    speeds = [(at, best[1]) for at in measured if (best := best_fixed(of, at)) is not None]
    if not speeds or speeds[-1][1] >= 1:
        return None
    paying = [index for index, (_, speed) in enumerate(speeds) if speed >= 1]
    if not paying:
        return float(speeds[0][0])
    (low, low_speed), (high, high_speed) = speeds[paying[-1]], speeds[paying[-1] + 1]
    return low + (high - low) * (low_speed - 1) / (low_speed - high_speed)


def crossovers(points: Seq[Point]) -> dict[str, float | None]:
    """By class of text."""
    return {workload: crossover(cells(points, workload)) for workload in dict.fromkeys(p.workload for p in points)}


def break_even(times: StepTimes, point: Point) -> float:
    """The mean acceptance length at which a cell's drafts bring as many tokens per second as plain decoding."""
    num_sequences, taken = point.concurrency, point.round
    plain_s = times.seconds(num_sequences, taken.num_context_tokens)
    rows = max(taken.num_rows, num_sequences)
    drafted_s = times.seconds(rows, taken.num_context_tokens, num_sequences=num_sequences) + taken.draft_s
    return drafted_s / plain_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """What a sequence may expect of drafts in a round, over all sources.

    Attributes:
        draft_ratio: share of rounds with a draft, 0..1.
        survivals: chance that draft token i survives, where there is a draft.
    """

    draft_ratio: float
    survivals: tuple[float, ...]

    @classmethod
    def of(cls, acceptance: Iterable[Acceptance], workload: str) -> "Drafts":
        """Sum over the sources of one class of text."""
        ratio = 0.0
        tokens: dict[int, float] = {}
        for entry in acceptance:
            if entry.workload != workload:
                continue
            ratio += entry.draft_ratio
            for position, chance in enumerate(accumulate(entry.per_position, mul)):
                tokens[position] = tokens.get(position, 0.0) + entry.draft_ratio * chance
        survivals = tuple(each / ratio for each in tokens.values()) if ratio else ()
        return cls(draft_ratio=min(ratio, 1.0), survivals=survivals)

    def expected_tokens(self, num_tokens: int) -> float:
        """Tokens of a round with up to so many draft tokens, the target's own included."""
        return 1.0 + self.draft_ratio * sum(self.survivals[:num_tokens])


def predicted_tokens_per_s(calibration: Calibration, point: Point, drafts: Drafts) -> float:
    """What the step times and the acceptance of the class say of a cell; its drafting time is taken as measured.

    Where the engine chooses K, the best K of those that were measured is assumed.

    Args:
        calibration: step times.
        point: the cell.
        drafts: of its class of text.
    """
    if point.num_speculative_tokens is not None:
        return _rate(calibration.step_times, point, drafts, point.num_speculative_tokens)
    lengths = range(len(drafts.survivals) + 1)
    return max(_rate(calibration.step_times, point, drafts, length) for length in lengths)


def _rate(times: StepTimes, point: Point, drafts: Drafts, num_tokens: int) -> float:
    num_sequences = point.concurrency
    rows = num_sequences * (1 + drafts.draft_ratio * num_tokens)
    seconds = times.seconds(rows, point.round.num_context_tokens, num_sequences=num_sequences)
    if num_tokens:
        seconds += point.round.draft_s
    return num_sequences * drafts.expected_tokens(num_tokens) / seconds


def round_time_errors(calibration: Calibration) -> list[float]:
    """How far step times miss the mean round of each cell, as a share of it; rows and context are the cell's own."""
    errors = []
    for point in calibration.points:
        rows = max(point.round.num_rows, point.concurrency)
        expected_s = point.round.draft_s + calibration.step_times.seconds(
            rows, point.round.num_context_tokens, num_sequences=point.concurrency
        )
        errors.append(abs(expected_s / point.round.total_s - 1))
    return errors


def warnings(calibration: Calibration) -> tuple[str, ...]:
    """What the owner of this pair of models should know, a sentence each."""
    found = []
    for workload in calibration.workloads:
        found += _acceptance_warnings(calibration.acceptance, workload)
        if text := _break_even_warning(calibration, workload):
            found.append(text)
    return tuple(found)


def _acceptance_warnings(acceptance: Iterable[Acceptance], workload: str) -> list[str]:
    return [
        f"{workload}: alpha = {entry.conditional_rate:.2f} with drafts of {entry.source}, below {MIN_ACCEPTANCE_RATE}: "
        f"such text is guessed badly"
        for entry in acceptance
        if entry.workload == workload and entry.num_drafts and entry.conditional_rate < MIN_ACCEPTANCE_RATE
    ]


def _break_even_warning(calibration: Calibration, workload: str) -> str | None:
    """The lowest concurrency from which on the mean acceptance length of each fixed K is too small for its cost."""
    of = cells(calibration.points, workload)
    lowest = None
    for concurrency in sorted({at for _, at in of}, reverse=True):
        drafted = [p for (num_tokens, at), p in of.items() if at == concurrency and num_tokens]
        if not drafted:
            continue
        best = max(drafted, key=lambda p: p.mean_acceptance_length / break_even(calibration.step_times, p))
        if best.mean_acceptance_length >= (1 - MIN_GAP) * break_even(calibration.step_times, best):
            break
        lowest = best
    if lowest is None:
        return None
    return (
        f"{workload}: from concurrency {lowest.concurrency} on MAL is under break-even at every fixed K "
        f"({lowest.mean_acceptance_length:.2f} against {break_even(calibration.step_times, lowest):.2f} "
        f"at K = {lowest.num_speculative_tokens})"
    )
