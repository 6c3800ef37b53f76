"""`outrider simulate`: a cluster that does not exist, run by the code that serves."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from autoscaling.simulation.modes import Mode
    from autoscaling.simulation.outcome import Outcome
    from autoscaling.simulation.scenario import Scenario

INTERRUPTED = 130
_DESCRIPTION = """\
Run a cluster on simulated time and compare ways to run it.

Times of rounds come from a roofline model of H100, H200 or B200 nodes (data-sheet figures, dense), or from a
calibration of a real machine. Draft lengths, roles of replicas, routes and the choice of a replica come from the code
that serves. Requests are drawn from a seed: the same seed gives the same run.

SCENARIO is a name (--list shows them) or a YAML or JSON file:

  hardware: {gpu: h100, num_gpus: 8, model: llama-70b, dtype: bf16, draft_model: llama-1b, draft: local,
             price_per_gpu_hour: 3.0}        # or {calibration: calibration.json}
  traffic: {kind: poisson, rate_per_s: 20}   # bursts, diurnal, steps, closed, trace {path: trace.csv}
  classes:                                   # without it: five domains with published acceptance
    - {name: chat, domain: general_chat, acceptance_rate: 0.65, mean_prompt_tokens: 400, mean_output_tokens: 300}
  num_replicas: 8
  duration_s: 600
  num_speculative_tokens: 5
  pools: {ttft_slo_s: 1.0, tpot_slo_s: 0.02}
  modes: [dynamic, batch, one-pool]

A trace is CSV with a header, or JSON lines: arrival_s, prompt_tokens, output_tokens, domain.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser(
        "simulate",
        help="run a cluster on simulated time",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", nargs="?", metavar="SCENARIO", help="a name or a file")
    parser.add_argument("--list", action="store_true", help="show the scenarios and modes that come with Outrider")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--report", type=Path, metavar="F.html", help="write a page with pictures")
    parser.add_argument("--modes", metavar="A,B", help="ways to run the cluster; default: those of the scenario")
    parser.add_argument("--calibration", type=Path, metavar="FILE", help="for the scenario measured-here")
    parser.add_argument("--replicas", type=int, metavar="N", help="instead of the scenario's")
    parser.add_argument("--duration", type=float, metavar="S", help="simulated seconds instead of the scenario's")
    parser.add_argument("--seed", type=int, metavar="N", help="instead of the scenario's")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the scenario and print what came of it; returns the exit status.

    Raises:
        ConfigError: an argument or something in the scenario is wrong.
        LoadError: the calibration is refused.
    """
    from rich.console import Console

    from autoscaling.simulation.scenarios import find_scenario

    if args.list:
        _print_list(Console(), as_json=args.json)
        return 0
    if args.scenario is None:
        raise ConfigError(field="SCENARIO", value=None, allowed="a name or a file; --list shows the names")
    scenario = _changed(find_scenario(args.scenario, args.calibration), args)
    modes = scenario.make_modes()
    _check_report(args.report)
    outcomes = _simulate(scenario, modes, Console(stderr=True))
    is_complete = len(outcomes) == len(modes)
    if args.report is not None and outcomes:
        _write_report(args.report, scenario, modes, outcomes)
    if args.json:
        print(json.dumps(_as_json(scenario, outcomes)))
    elif outcomes:
        _print(scenario, outcomes, Console())
    return 0 if is_complete else INTERRUPTED


def _changed(scenario: "Scenario", args: argparse.Namespace) -> "Scenario":
    """The scenario with the settings of the command line."""
    given = {"num_replicas": args.replicas, "duration_s": args.duration, "seed": args.seed}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if args.modes is not None:
        changes["modes"] = tuple(args.modes.split(","))
    return replace(scenario, **changes)


def _check_report(path: Path | None) -> None:
    """Before minutes of work, not after."""
    if path is not None and not path.parent.is_dir():
        raise ConfigError(field="--report", value=str(path), allowed="a file in a folder that exists")


def _simulate(scenario: "Scenario", modes: "tuple[Mode, ...]", console: "Console") -> "list[Outcome]":
    """The modes one after the other; Ctrl-C keeps those that are done."""
    from rich import progress as bars

    from autoscaling.simulation.simulator import simulate

    outcomes: list[Outcome] = []
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.TimeElapsedColumn())
    with bars.Progress(*columns, console=console, transient=True) as progress:
        try:
            for mode in modes:
                task = progress.add_task(mode.name, total=scenario.duration_s)
                outcomes.append(simulate(scenario.plant(), mode, partial(_advance, progress, task)))
        except KeyboardInterrupt:
            console.print(f"interrupted; done: {', '.join(each.mode for each in outcomes) or 'nothing'}")
    return outcomes


def _advance(progress: "Progress", task: "TaskID", now_s: float) -> None:
    progress.update(task, completed=now_s)


def _write_report(path: Path, scenario: "Scenario", modes: "tuple[Mode, ...]", outcomes: "list[Outcome]") -> None:
    from autoscaling.simulation.pictures import simulation_page

    try:
        path.write_text(simulation_page(scenario, outcomes, {mode.name: mode.text for mode in modes}), encoding="utf-8")
    except OSError as error:
        raise ConfigError(field="--report", value=str(path), allowed=f"a file that can be written ({error})") from None


def _as_json(scenario: "Scenario", outcomes: "list[Outcome]") -> dict[str, Any]:
    return {
        "scenario": scenario.name,
        "text": scenario.text,
        "replica": scenario.cost.name,
        "num_replicas": scenario.num_replicas,
        "duration_s": scenario.duration_s,
        "seed": scenario.seed,
        "price_per_hour": scenario.cost.price_per_hour * scenario.num_replicas,
        "notes": scenario.cost.notes,
        "claims": [asdict(each) for each in scenario.claims],
        "curves": asdict(scenario.curves) if scenario.curves is not None else None,
        "checks": [asdict(each) | {"error_ratio": each.error_ratio} for each in scenario.checks],
        "outcomes": [each.as_json() for each in outcomes],
    }


def _print_list(console: "Console", *, as_json: bool) -> None:
    from rich.table import Table

    from autoscaling.simulation.modes import MODE_NAMES
    from autoscaling.simulation.scenarios import SCENARIOS

    if as_json:
        scenarios = {name: known.text for name, known in SCENARIOS.items()}
        print(json.dumps({"scenarios": scenarios, "modes": MODE_NAMES}))
        return
    table = Table(title="Scenarios", title_justify="left")
    table.add_column("name", no_wrap=True)
    table.add_column("what it shows")
    for name, known in SCENARIOS.items():
        table.add_row(name, known.text)
    console.print(table)
    console.print("modes: " + ", ".join(MODE_NAMES), markup=False, highlight=False)


def _print(scenario: "Scenario", outcomes: "list[Outcome]", console: "Console") -> None:
    from autoscaling.simulation.pictures import COLUMNS, check_text, outcome_row

    console.print(f"{scenario.name}: {scenario.text}", markup=False, highlight=False, style="bold")
    console.print(
        f"{scenario.num_replicas} replicas, {scenario.cost.name}, {scenario.duration_s:g} s, seed {scenario.seed}",
        markup=False,
        highlight=False,
    )
    for note in scenario.cost.notes:
        console.print(note, markup=False, highlight=False, style="dim")
    # A mode is a column: so many rows of numbers would not fit on a terminal.
    rows = [outcome_row(each) for each in outcomes]
    fields = [(name, *(row[index] for row in rows)) for index, name in enumerate(COLUMNS)]
    _print_table(console, fields[0], fields[1:], right=True)
    if scenario.claims:
        claims = [(each.topic, each.published, each.computed, each.verdict) for each in scenario.claims]
        _print_table(console, ("published figures", "published", "computed", "verdict"), claims)
        for each in scenario.claims:
            console.print(f"{each.topic}: {each.why}", markup=False, highlight=False)
    if scenario.checks:
        console.print(check_text(scenario), markup=False, highlight=False)


def _print_table(
    console: "Console", columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: bool = False
) -> None:
    from rich.table import Table

    table = Table(show_lines=not right)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if right and index else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
