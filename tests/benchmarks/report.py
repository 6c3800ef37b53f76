"""What a benchmark answers, as a table for people and one JSON line for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal, Self

from rich.console import Console
from rich.table import Table

from tests.benchmarks.environment import Environment
from tests.benchmarks.measure import Rounds, Summary, median_interval

Unit = Literal["s", "tokens/s", "tokens", "ratio"]

_COLUMNS = ("variant", "n", "p25", "p50", "p75", "p90", "p99", "unit")
_SHOWN_IN_MS_BELOW_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One variant of a comparison."""

    name: str
    unit: Unit
    summary: Summary

    @classmethod
    def of(cls, name: str, rounds: Rounds, unit: Unit = "s") -> Self:
        """The variant of that name in `rounds`."""
        return cls(name=name, unit=unit, summary=Summary.of(rounds.samples(name)))

    @classmethod
    def scaled(cls, name: str, samples: Sequence[float], factor: float, unit: Unit) -> Self:
        """A row of its own for samples times `factor`."""
        return cls(name=name, unit=unit, summary=Summary.of([factor * sample for sample in samples]))

    def cells(self) -> tuple[str, ...]:
        """Text of one table row; times are written in ms where they are short."""
        factor, unit = 1.0, str(self.unit)
        if self.unit == "s" and self.summary.p50 < _SHOWN_IN_MS_BELOW_S:
            factor, unit = 1e3, "ms"
        points = (self.summary.p25, self.summary.p50, self.summary.p75, self.summary.p90, self.summary.p99)
        return (self.name, str(self.summary.num), *(f"{factor * point:.4g}" for point in points), unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A number that was promised.

    Attributes:
        name: what is compared with what.
        value: the measured median.
        interval: its 95 % confidence interval, over rounds.
        limit: the worst value that keeps the promise.
        at_most: True when smaller is better.
        aim: a better value that is aimed for, if any.
    """

    name: str
    value: float
    interval: tuple[float, float]
    limit: float
    at_most: bool
    aim: float | None = None

    @classmethod
    def at_most_of(cls, name: str, samples: Sequence[float], limit: float, *, aim: float | None = None) -> Self:
        """A limit from above on the median of `samples`."""
        interval = median_interval(samples)
        return cls(name=name, value=median(samples), interval=interval, limit=limit, at_most=True, aim=aim)

    @classmethod
    def at_least_of(cls, name: str, samples: Sequence[float], limit: float, *, aim: float | None = None) -> Self:
        """A limit from below on the median of `samples`."""
        interval = median_interval(samples)
        return cls(name=name, value=median(samples), interval=interval, limit=limit, at_most=False, aim=aim)

    @property
    def is_met(self) -> bool:
        """True when the median keeps the promise."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def text(self) -> str:
        """One line."""
        sign = "<=" if self.at_most else ">="
        aim = "" if self.aim is None else f", aim {self.aim:g}"
        low, high = self.interval
        verdict = "met" if self.is_met else "MISSED"
        return f"{verdict}: {self.name} {self.value:.4g} [{low:.4g}, {high:.4g}] (limit {sign} {self.limit:g}{aim})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of one benchmark.

    Attributes:
        question: what was asked.
        model: what it was asked of.
        rows: variants, baseline included.
        limits: promises, with their outcome.
        counts: rounds, tokens, rows and the like.
        notes: what a reader must know to read the numbers.
    """

    question: str
    model: str
    rows: tuple[Row, ...]
    limits: tuple[Limit, ...] = ()
    counts: dict[str, int]
    notes: tuple[str, ...] = ()

    def as_json(self, name: str) -> dict[str, Any]:
        """Plain values; times in seconds."""
        rows = [{"name": row.name, "unit": row.unit, **asdict(row.summary)} for row in self.rows]
        limits = [asdict(limit) | {"is_met": limit.is_met} for limit in self.limits]
        return {"benchmark": name, **asdict(self), "rows": rows, "limits": limits}


def print_answer(name: str, answer: Answer, console: Console) -> None:
    """A table, then limits and notes."""
    table = Table(title=f"{name}: {answer.question}", title_justify="left", title_style="bold")
    for column in _COLUMNS:
        is_text = column in ("variant", "unit")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=column != "variant")
    for row in answer.rows:
        table.add_row(*row.cells())
    console.print(table)
    for limit in answer.limits:
        console.print(limit.text(), style="green" if limit.is_met else "bold red", markup=False, highlight=False)
    for note in answer.notes:
        console.print(f"note: {note}", markup=False, highlight=False)


def json_line(answers: dict[str, Answer], environment: Environment, *, quick: bool) -> str:
    """Everything of a run, on one line."""
    body = {
        **asdict(environment),
        "was_idle": environment.was_idle,
        "quick": quick,
        "answers": [answer.as_json(name) for name, answer in answers.items()],
    }
    return json.dumps(body)


def markdown(answers: dict[str, Answer], environment: Environment, *, title: str, command: str) -> str:
    """The same as a file to keep."""
    versions = ", ".join(f"{name} {value}" for name, value in environment.versions.items())
    lines = [
        f"# {title}",
        "",
        f"    {command}",
        "",
        f"Commit {environment.commit}; {versions}.",
        f"{environment.cpu}, {environment.num_cores} cores, {' '.join(environment.isa)}.",
        f"Load average {environment.load_before:.2f} before, {environment.load_after:.2f} after"
        + ("." if environment.was_idle else ": **the machine was not idle, do not trust these numbers.**"),
    ]
    for name, answer in answers.items():
        counts = ", ".join(f"{key} {value}" for key, value in answer.counts.items())
        lines += ["", f"## {name}", "", f"{answer.question} Model: {answer.model}. {counts}.", ""]
        lines += [f"| {' | '.join(_COLUMNS)} |", "| --- " + "| ---: " * (len(_COLUMNS) - 2) + "| --- |"]
        lines += [f"| {' | '.join(row.cells())} |" for row in answer.rows]
        lines += ["", *(f"- {limit.text()}" for limit in answer.limits), *(f"- note: {note}" for note in answer.notes)]
    return "\n".join(lines).rstrip() + "\n"
