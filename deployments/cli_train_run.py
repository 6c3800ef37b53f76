"""What `outrider train` does: make draft models and heads for a target, and measure how many guesses are accepted."""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cluster.errors import ConfigError, check_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress, TaskID

    from cluster.training.acceptance_report import MeasureReport
    from cluster.training.card import TrainFacts
    from cluster.training.head_card import HeadFacts

INTERRUPTED = 130
# Medusa heads tell all tokens of the target apart, so that a row takes much more memory.
_TOKENS_PER_BATCH = {"eagle3": 2048, "medusa": 512}
Result = TypeVar("Result")

MTP = """\
Not trained here: a next-n module is a part of its target, trained with it, and lies in the target's own checkpoint.
Name it in the setting draft.heads as "mtp". A target without one gets an EAGLE-3 head.
"""


def run_draft_model(args: argparse.Namespace) -> int:
    """Train and print what came of it; returns the exit status.

    Raises:
        ConfigError: an argument is wrong.
        LoadError: the target is refused, or a file of the run is damaged.
    """
    from cluster.training.pipeline import DraftTraining
    from cluster.training.settings import TrainSettings

    settings = TrainSettings(
        output=args.output,
        target=args.target,
        revision=args.revision,
        text_files=tuple(args.text_file),
        data=args.data,
        num_generated_tokens=args.num_generated_tokens,
        num_training_tokens=args.num_training_tokens,
        num_layers=args.num_layers,
        num_shared_layers=args.num_shared_layers,
        head_tokens=args.head_tokens,
        seed=args.seed,
        num_threads=args.threads,
    )
    started_s = time.monotonic()

    def work(bars: "_Bars") -> "TrainFacts":
        training = DraftTraining(settings, bars)
        training.generate()
        training.train()
        return training.write()

    facts = _with_bars(work, "the same command goes on from here")
    if facts is None:
        return INTERRUPTED
    held_out = facts.held_out
    result = _facts_json(
        facts,
        args.output,
        time.monotonic() - started_s,
        {
            "num_tokens": facts.num_held_out_tokens,
            "loss": held_out.loss,
            "same_top_ratio": held_out.same_top_ratio,
            "overlap_ratio": held_out.overlap_ratio,
        },
    )
    _print(
        args.json,
        result,
        f"{args.output}: {facts.num_bytes / 1e6:.1f} MB after {facts.num_steps} steps in {result['duration_s']:.0f} s; "
        f"on held-out text {held_out.same_top_ratio:.3f} of single guesses are right at temperature 0, "
        f"{held_out.overlap_ratio:.3f} could be at 1",
    )
    return 0


def run_head(args: argparse.Namespace) -> int:
    """Train a head and print what came of it; returns the exit status.

    Raises:
        ConfigError: an argument is wrong.
        LoadError: the target is refused, or a file of the run is damaged.
    """
    from cluster.training.head_pipeline import HeadTraining
    from cluster.training.settings import HeadSettings

    # Before it is made an integer, which some floats cannot be.
    check_range("--feature-cache-gb", args.feature_cache_gb, 0, 1 << 20, kind="a number")
    settings = HeadSettings(
        kind=args.kind,
        output=args.output,
        target=args.target,
        revision=args.revision,
        text_files=tuple(args.text_file),
        data=args.data,
        num_generated_tokens=args.num_generated_tokens,
        num_training_tokens=args.num_training_tokens,
        num_draft_tokens=args.num_draft_tokens,
        head_tokens=args.head_tokens,
        seed=args.seed,
        num_threads=args.threads,
        tokens_per_batch=_TOKENS_PER_BATCH[args.kind],
        learning_rate=args.learning_rate,
        max_feature_bytes=int(args.feature_cache_gb * 1e9),
    )
    started_s = time.monotonic()

    def work(bars: "_Bars") -> "HeadFacts":
        training = HeadTraining(settings, bars)
        try:
            training.generate()
            training.train()
            return training.write()
        finally:
            training.close()

    facts = _with_bars(work, "the same command goes on from here")
    if facts is None:
        return INTERRUPTED
    duration_s = time.monotonic() - started_s
    held_out = facts.held_out
    steps = [asdict(step) for step in held_out.steps]
    lengths = {"greedy_length": held_out.greedy_length, "sampled_length": held_out.sampled_length}
    _print(
        args.json,
        _facts_json(
            facts, args.output, duration_s, {"num_tokens": facts.num_held_out_tokens, "steps": steps, **lengths}
        ),
        f"{args.output}: {facts.num_bytes / 1e6:.1f} MB after {facts.num_steps} steps in {duration_s:.0f} s; "
        f"on held-out text {held_out.greedy_length:.2f} tokens a round at temperature 0, and up to "
        f"{held_out.sampled_length:.2f} at 1",
    )
    return 0


def run_mtp(args: argparse.Namespace) -> int:
    """Never trains.

    Raises:
        ConfigError: always.
    """
    allowed = f"eagle3, medusa or draft-model. {' '.join(MTP.split())}"
    raise ConfigError(field="train", value="mtp", allowed=allowed)


def run_measure(args: argparse.Namespace) -> int:
    """Measure and print a table; returns the exit status.

    Raises:
        ConfigError: an argument is wrong.
        LoadError: a model is refused.
    """
    from cluster.training.acceptance_report import write_acceptance
    from cluster.training.measure import MeasureSettings, measure

    if args.threads < 0:
        raise ConfigError(field="--threads", value=args.threads, allowed="an integer, at least 0")
    settings = MeasureSettings(
        draft=args.draft,
        target=args.target,
        revision=args.revision,
        spec_bench=args.spec_bench,
        limit=args.limit,
        max_tokens=args.max_tokens,
        num_threads=args.threads,
    )
    report = _with_bars(lambda bars: measure(settings, bars), "nothing was written")
    if report is None:
        return INTERRUPTED
    if args.write:
        write_acceptance(report)
    if not args.json:
        _print_table(report)
    _print(args.json, report.as_json(), _measured(report))
    return 0


def _measured(report: "MeasureReport") -> str:
    """The last line for people."""
    coupling = report.coupling
    if coupling is None:
        return f"{report.draft}: the table says all; the rules of acceptance are compared for draft models only"
    return (
        f"one guess at temperature 1: coupled rule {coupling.coupled_rate:.3f}, ratio rule {coupling.ratio_rate:.3f}, "
        f"share {coupling.share:.3f} ({coupling.num_pairs} pairs of distributions, {coupling.num_draws} draws)"
    )


class _Bars:
    """Progress on standard error: a bar for each phase."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def begin(self, phase: str, done: int, total: int) -> None:
        """A phase begins; the bar of the one before it is full."""
        if self._task is not None:
            total_before = self._progress.tasks[-1].total
            self._progress.update(self._task, completed=total_before)
        self._task = self._progress.add_task(phase, total=total, completed=min(done, total), note="")

    def advance(self, amount: int, note: str = "") -> None:
        """So much more of the phase is done."""
        assert self._task is not None
        self._progress.update(self._task, advance=amount, note=note)


def _with_bars(work: "Callable[[_Bars], Result]", on_interrupt: str) -> "Result | None":
    """Do the work with progress bars; None when it was interrupted."""
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    columns = (
        bars.TextColumn("{task.description:18}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[note]}"),
    )
    try:
        with bars.Progress(*columns, console=console) as progress:
            return work(_Bars(progress))
    except KeyboardInterrupt:
        console.print(f"interrupted; {on_interrupt}")
        return None


def _print(as_json: bool, result: dict[str, object], summary: str) -> None:
    if not as_json:
        print(summary)
    print(json.dumps(result))


def _facts_json(
    facts: "TrainFacts | HeadFacts", output: Path, duration_s: float, held_out: dict[str, object]
) -> dict[str, object]:
    return {
        "output": str(output),
        "target": facts.target,
        "num_bytes": facts.num_bytes,
        "num_parameters": facts.num_parameters,
        "num_generated_tokens": sum(count.num_tokens for count in facts.sources),
        "num_training_tokens": facts.num_training_tokens,
        "num_steps": facts.num_steps,
        "held_out": held_out,
        "duration_s": round(duration_s, 1),
    }


def _print_table(report: "MeasureReport") -> None:
    from rich.console import Console
    from rich.table import Table

    title = f"{report.draft.name} for {report.target}: {report.num_speculative_tokens} guesses in every round"
    table = Table(title=title)
    table.add_column("category", no_wrap=True)
    for temperature in ("T=0", "T=1"):
        for heading in ("alpha", "mean length", "drafted"):
            table.add_column(f"{heading} {temperature}", justify="right")
    for name, *pair in report.rows():
        cells: list[str] = []
        for counts in pair:
            cells += [f"{counts.rate:.3f}", f"{counts.mean_length:.2f}", f"{counts.num_draft_tokens}"]
        table.add_row(name, *cells)
    Console().print(table)
