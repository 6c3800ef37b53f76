"""Runs benchmarks one after the other, each in a fresh process: `python -m tests.benchmarks.bench [NAME ...]`.

Tables come first; the last line of standard output is one JSON object. Progress goes to standard error.
"""

import argparse
import datetime
import multiprocessing
import shlex
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path

from rich.console import Console

from cluster.config import BUNDLED
from tests.benchmarks.environment import load_average, read_environment
from tests.benchmarks.measure import progress
from tests.benchmarks.report import Answer, json_line, markdown, print_answer

BENCHMARKS = (
    "decode_step",
    "verify_step",
    "row_cost",
    "idle_speculation",
    "generate_plain",
    "generate_lookup",
    "generate_chat",
    "concurrency",
    "over_http",
    "sampler_cost",
    "channel",
    "start_up",
    "run_ahead",
    "never_slower",
    "pool_goodput",
    "domain_accuracy",
    "entropy_study",
    "telemetry_cost",
    "structured_output",
    "dual_streams",
    "drafters",
)
"""Modules of this package with `measure(*, quick: bool) -> Answer`."""

TAKES_MODELS = ("run_ahead",)
"""Those whose `measure` also takes `model` and `draft`."""

TAKES_HEADS = ("drafters",)
"""Those whose `measure` also takes `heads`."""

RESULTS = Path(__file__).parent / "results"
_TABLE_WIDTH = 120


def main() -> int:
    """Run what was asked for; returns 0 even where a limit is missed, since that is a result."""
    args = _parse_args()
    load_before = load_average()
    names = args.names or BENCHMARKS
    answers: dict[str, Answer] = {}
    console = Console(width=None if sys.stdout.isatty() else _TABLE_WIDTH)
    for name in names:
        progress(f"{name} ...")
        models: dict[str, object] = {"model": args.model, "draft": args.draft} if name in TAKES_MODELS else {}
        if name in TAKES_HEADS:
            models["heads"] = args.head
        answers[name] = _run_alone(name, quick=args.quick, models=models)
        print_answer(name, answers[name], console)
    environment = read_environment(load_before)
    if not environment.was_idle:
        progress(f"the load average was {load_before:.2f} at the start: do not trust these numbers")
    if args.save:
        today = datetime.date.today().isoformat()
        title = f"Benchmarks of {today}: {args.save}"
        command = shlex.join(["python", "-m", "tests.benchmarks.bench", *sys.argv[1:]])
        path = RESULTS / f"{today}-{args.save}.md"
        path.write_text(markdown(answers, environment, title=title, command=command), encoding="utf-8")
        progress(f"written to {path}")
    print(json_line(answers, environment, quick=args.quick))
    return 0


def _run_alone(name: str, *, quick: bool, models: Mapping[str, object]) -> Answer:
    """Measure in a process of its own: no benchmark inherits another's threads, heap or compiled code."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measure, name, quick, models).result()


def _measure(name: str, quick: bool, models: Mapping[str, object]) -> Answer:
    answer: Answer = import_module(f"tests.benchmarks.{name}").measure(quick=quick, **models)
    return answer


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.benchmarks.bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which to run (default: all): {', '.join(BENCHMARKS)}"
    )
    parser.add_argument("--quick", action="store_true", help="tiny counts: shows that the code runs, measures nothing")
    takers = ", ".join(TAKES_MODELS)
    parser.add_argument("--model", default=BUNDLED, metavar="FOLDER", help=f"target of {takers} (default: bundled)")
    parser.add_argument(
        "--draft", default=BUNDLED, metavar="FOLDER", help=f"draft model of {takers} (default: bundled)"
    )
    parser.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="FOLDER",
        help=f"draft head for {', '.join(TAKES_HEADS)}; may be repeated",
    )
    parser.add_argument("--save", metavar="LABEL", help="also write results/DATE-LABEL.md")
    args = parser.parse_args()
    if unknown := set(args.names) - set(BENCHMARKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    return args


if __name__ == "__main__":
    sys.exit(main())
