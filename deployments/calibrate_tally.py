"""What is measured in one cell of a calibration, and how it becomes a `Point`. Pure."""

import statistics
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from cluster.engine.calibration import Point, RoundTimes
from cluster.types import StepStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A place in the sweep.

    Attributes:
        workload: class of text.
        concurrency: sequences that decode at once.
        num_speculative_tokens: K; None where the engine chooses.
    """

    workload: str
    concurrency: int
    num_speculative_tokens: int | None

    @property
    def name(self) -> str:
        """For people."""
        chosen = "auto" if self.num_speculative_tokens is None else self.num_speculative_tokens
        return f"{self.workload}, {self.concurrency} at once, K = {chosen}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What is swept.

    Attributes:
        workloads: classes of text.
        concurrency: sequences that decode at once, rising.
        lookaheads: K, rising, None (the engine chooses) last.
        num_turns: how often each cell is measured.
        turn_s: how long each time.
        max_rows: most rows in a round; cells that need more are left out.
    """

    workloads: tuple[str, ...]
    concurrency: tuple[int, ...]
    lookaheads: tuple[int | None, ...]
    num_turns: int
    turn_s: float
    max_rows: int

    @property
    def groups(self) -> list[tuple[Cell, ...]]:
        """Cells that are measured in turn: those of one class of text and concurrency."""
        return [
            tuple(
                Cell(workload=workload, concurrency=concurrency, num_speculative_tokens=num_tokens)
                for num_tokens in self.lookaheads
                if concurrency * (1 + (num_tokens or 0)) <= self.max_rows
            )
            for workload in self.workloads
            for concurrency in self.concurrency
        ]

    @property
    def longest_draft(self) -> int:
        """Largest K."""
        return max((num_tokens or 0 for num_tokens in self.lookaheads), default=0)

    @property
    def largest_round(self) -> int:
        """Most rows of a round in any cell."""
        cells = [cell for group in self.groups for cell in group]
        return max(cell.concurrency * (1 + (cell.num_speculative_tokens or 0)) for cell in cells)


@dataclass(slots=True)
class Turn:
    """One time that a cell was measured.

    Attributes:
        num_tokens: output by sequence.
        duration_s: of its rounds.
    """

    num_tokens: dict[str, int] = field(default_factory=dict)
    duration_s: float = 0.0


@dataclass(slots=True)
class Tally:
    """Everything measured in one cell."""

    turns: list[Turn] = field(default_factory=list)
    num_rounds: int = 0
    _sums: dict[str, float] = field(default_factory=dict)
    _num_sequence_rounds: int = 0
    _num_drafted: int = 0
    _num_accepted: int = 0

    def add_round(self, stats: StepStats, num_sequences: int) -> None:
        """Count a round in which all sequences decoded."""
        self.num_rounds += 1
        self._num_sequence_rounds += num_sequences
        self._num_drafted += stats.num_draft_tokens
        self._num_accepted += sum(stats.accepted_per_position)
        for name, value in (
            ("total_s", stats.duration_s),
            ("forward_s", stats.forward_s),
            ("draft_s", stats.draft_wait_s),
            ("sampling_s", stats.sampling_s),
            ("num_rows", stats.num_rows),
            ("num_context_tokens", stats.num_context_tokens),
        ):
            self._sums[name] = self._sums.get(name, 0.0) + value

    def point(self, cell: Cell) -> Point | None:
        """What it comes to; None while nothing was measured."""
        turns = [turn for turn in self.turns if turn.duration_s > 0 and turn.num_tokens]
        if not turns or not self.num_rounds:
            return None
        return Point(
            workload=cell.workload,
            concurrency=cell.concurrency,
            num_speculative_tokens=cell.num_speculative_tokens,
            tokens_per_s=statistics.median(sum(turn.num_tokens.values()) / turn.duration_s for turn in turns),
            tpot_s=statistics.median(_tpot_s(turn) for turn in turns),
            num_repeats=len(turns),
            num_rounds=self.num_rounds,
            round=RoundTimes(**{name: total / self.num_rounds for name, total in self._sums.items()}),
            mean_acceptance_length=1.0 + self._num_accepted / self._num_sequence_rounds,
            acceptance_rate=self._num_accepted / self._num_drafted if self._num_drafted else None,
        )


def _tpot_s(turn: Turn) -> float:
    return statistics.mean(turn.duration_s / count for count in turn.num_tokens.values())


def missing_cells(grid: Grid, points: Seq[Point]) -> list[tuple[Cell, ...]]:
    """Groups of which a cell was not measured as often as the grid wants."""
    done = {(p.workload, p.concurrency, p.num_speculative_tokens): p.num_repeats for p in points}
    return [
        group
        for group in grid.groups
        if any(
            done.get((cell.workload, cell.concurrency, cell.num_speculative_tokens), 0) < grid.num_turns
            for cell in group
        )
    ]
