"""`outrider calibrate`: measures, on this machine and pair of models, where drafts pay and what rounds take."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import ConfigError, check_range
from deployments.cli_app_args import add_app_arguments, read_app_args

if TYPE_CHECKING:
    from rich.console import Console

    from cluster.engine.calibration import Calibration
    from deployments.app import AppArgs
    from deployments.calibrate import CalibrationRun
    from deployments.calibrate_tally import Cell, Grid

INTERRUPTED = 130
_AUTO = "auto"
_FULL = {
    "workload": "copy,edit,code,chat,json",
    "concurrency": "1,2,4,8,16,32,64",
    "lookahead": "0,2,4,8,auto",
    "turns": "4",
    "turn_s": "0.5",
}
_QUICK = {
    "workload": "copy,code,chat",
    "concurrency": "1,4,16,64",
    "lookahead": "0,4,auto",
    "turns": "2",
    "turn_s": "0.4",
}
_DESCRIPTION = """\
Measure decoding on this machine with this pair of models: concurrency x K x class of text.

First the target's forward passes are timed by rows and context. Then, for each class of text and concurrency, as many
sequences decode together while K changes from turn to turn, so that a busy moment of the machine hits all K alike:

  K = 0        plain decoding
  K = 2, 4, 8  drafts of that length whenever there is one, whatever it costs
  auto         the engine decides, as in `outrider serve`

Classes of text: copy repeats its prompt, edit nearly, json in part, code repeats itself, chat nothing.

Two files come out of it: --out, which `outrider serve --set engine.calibration=FILE` starts from, and --report, a page
with pictures. Files of these names are replaced. The default takes about eight minutes on two cores. Ctrl-C keeps what
was measured; --resume goes on from there.

Exit status: 0 measured, 2 a setting is wrong, 130 interrupted.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser(
        "calibrate",
        help="measure where drafts pay on this machine",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_app_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the calibration as JSON instead of a table")
    parser.add_argument(
        "--out", type=Path, default=Path("calibration.json"), metavar="FILE", help="default: %(default)s"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="default: like --out, with the ending .html")
    parser.add_argument("--quick", action="store_true", help="fewer classes, K and turns: about a minute")
    parser.add_argument("--resume", action="store_true", help="go on with the interrupted run that wrote --out")
    parser.add_argument("--workload", metavar="CLASS,..", help="copy, edit, code, chat, json; default: all")
    parser.add_argument(
        "--concurrency", metavar="N,..", help="default: 1,2,4,8,16,32,64, as far as engine.max_num_seqs allows"
    )
    parser.add_argument("--lookahead", metavar="K,..", help="default: 0,2,4,8,auto")
    parser.add_argument("--turns", type=int, metavar="N", help="how often each cell is measured; default: 4")
    parser.add_argument("--turn-s", type=float, metavar="S", help="seconds of each time; default: 0.5")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, write both files and print what was found; returns the exit status.

    Raises:
        ConfigError: an argument is wrong.
        LoadError: a model is refused or damaged, or the file to go on with is.
    """
    from rich.console import Console

    from cluster.engine.calibration import load_calibration, save_calibration
    from deployments.calibrate import CalibrationRun
    from deployments.calibrate_engine import Workbench
    from deployments.calibrate_sweep import SEQUENCE_TOKENS

    console, report = Console(stderr=True), args.report or args.out.with_suffix(".html")
    _check_folders(args.out, report)
    app_args = read_app_args(args)
    grid = _grid(args, app_args)
    earlier = load_calibration(args.out) if args.resume else None
    bench = Workbench(app_args, max_tokens=grid.longest_draft, num_kv_tokens=max(grid.concurrency) * SEQUENCE_TOKENS)
    measured, is_interrupted = None, False
    with bench:
        try:
            with console.status(f"loading {app_args.engine.model}"):
                bench.load()
            measured = CalibrationRun(bench, grid, num_probes=3 if args.quick else 7, earlier=earlier)
            _measure(measured, args.out, console)
        except KeyboardInterrupt:
            is_interrupted = True
        calibration = measured.calibration() if measured is not None else None
        if calibration is not None:
            save_calibration(calibration, args.out)
    if calibration is None:
        console.print("interrupted before anything was measured")
        return INTERRUPTED
    _write_report(calibration, report)
    _show(calibration, args, console, report)
    return INTERRUPTED if is_interrupted else 0


def _check_folders(*paths: Path) -> None:
    """Refused before minutes are spent on measuring."""
    for path in paths:
        if path.is_dir() or not path.resolve().parent.is_dir():
            raise ConfigError(field="--out or --report", value=str(path), allowed="a file in a folder that exists")


def _grid(args: argparse.Namespace, app_args: "AppArgs") -> "Grid":
    from deployments.calibrate import make_grid
    from deployments.calibrate_prompts import WORKLOADS

    defaults = _QUICK if args.quick else _FULL
    workloads = tuple(dict.fromkeys((args.workload or defaults["workload"]).split(",")))
    for workload in workloads:
        if workload not in WORKLOADS:
            raise ConfigError(field="--workload", value=workload, allowed=f"some of {', '.join(WORKLOADS)}")
    num_turns = int(defaults["turns"]) if args.turns is None else args.turns
    turn_s = float(defaults["turn_s"]) if args.turn_s is None else args.turn_s
    check_range("--turns", num_turns, 1, 1000)
    check_range("--turn-s", turn_s, 0, 600, kind="seconds")
    return make_grid(
        app_args,
        workloads=workloads,
        concurrency=_numbers("--concurrency", args.concurrency or defaults["concurrency"], 1, 4096),
        lookaheads=_lookaheads(args.lookahead or defaults["lookahead"]),
        num_turns=num_turns,
        turn_s=turn_s,
    )


def _lookaheads(text: str) -> tuple[int | None, ...]:
    names = text.split(",")
    fixed = _numbers("--lookahead", ",".join(name for name in names if name != _AUTO), 0, 64)
    return (*fixed, None) if _AUTO in names else fixed


def _numbers(field: str, text: str, low: int, high: int) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        allowed = f"whole numbers from {low} to {high}, as 1,2,4"
        raise ConfigError(field=field, value=text, allowed=allowed) from None
    for number in numbers:
        check_range(field, number, low, high)
    return numbers


def _measure(measured: "CalibrationRun", out: Path, console: "Console") -> None:
    """Run both parts under a progress bar; the file is written anew after each group of cells."""
    from rich import progress as bars

    from cluster.engine.calibration import save_calibration

    text = bars.TextColumn("{task.description}")
    columns = (bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeElapsedColumn(), bars.TimeRemainingColumn(), text)
    with bars.Progress(*columns, console=console) as progress:
        passes = progress.add_task("passes of the target", total=measured.num_passes)
        measured.time_passes(lambda: progress.advance(passes))
        turns = progress.add_task("sweep", total=measured.num_turns)
        num_begun = 0

        def on_turn(cell: "Cell") -> None:
            nonlocal num_begun
            progress.update(turns, completed=num_begun, description=cell.name)
            num_begun += 1

        def on_group() -> None:
            progress.update(turns, completed=num_begun)
            if (calibration := measured.calibration()) is not None:
                save_calibration(calibration, out)

        measured.sweep(on_turn, on_group)


def _write_report(calibration: "Calibration", path: Path) -> None:
    from autoscaling.calibration_report import calibration_page

    try:
        path.write_text(calibration_page(calibration), encoding="utf-8")
    except OSError as error:
        raise ConfigError(field="--report", value=str(path), allowed=f"a file that can be written ({error})") from None


def _show(calibration: "Calibration", args: argparse.Namespace, console: "Console", report: Path) -> None:
    """Results on standard output; warnings, and where the files are, on standard error."""
    from rich.console import Console
    from rich.table import Table

    from autoscaling.calibration_analysis import warnings
    from autoscaling.calibration_report import SUMMARY_COLUMNS, summary_rows

    if args.json:
        print(args.out.read_text(encoding="utf-8"), end="")
    else:
        title = f"{calibration.model_id}, drafts from {calibration.drafter}; speed-ups at the lowest concurrency"
        table = Table(title=title)
        for column in SUMMARY_COLUMNS:
            table.add_column(column, justify="left" if column == SUMMARY_COLUMNS[0] else "right")
        for row in summary_rows(calibration):
            table.add_row(*map(str, row))
        Console().print(table)
    for text in warnings(calibration):
        console.print(f"warning: {text}", markup=False, highlight=False, soft_wrap=True)
    if not calibration.is_complete:
        console.print(
            "interrupted: what was measured is kept; `outrider calibrate --resume` with the same options goes on"
        )
    console.print(f"written: {args.out}, {report}", markup=False, highlight=False, soft_wrap=True)
