"""`outrider cost`: what delivered tokens cost, by pool and by domain, and what they would have cost without drafts."""

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError
from cluster.telemetry.cost_report import CostLine, CostReport, cost_report
from cluster.telemetry.focus import write_focus
from deployments.cost_sources import Counted, from_prometheus, from_server

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_DESCRIPTION = """\
What delivered tokens cost, by pool and by domain.

With --url, the counters of a running server: what its replicas cost since each of them started. Replicas that are gone
are not in it. With --prometheus, what the counters rose by in the time of --since, gone replicas included; a replica's
first value counts from the first time that Prometheus saw it.

cost         price of verifiers and drafters while they were there, idle time included, divided by the time of rounds
drafter      share of drafters in that; it goes to the pool and domains whose drafts were verified
wasted       share of the rounds' time that rejected draft tokens added, by the fitted step times
without      cost of the same tokens without speculation: verifiers for as much longer as plain decoding would take, and
             no drafter; and how far that is from what they did cost

Prices: `cost` in the arguments of the application, such as --set cost.usd_per_gpu_hour=2.5 with `outrider serve`. The
energy is that of GPUs, where NVIDIA's library (package extra `gpu`) can read it.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser(
        "cost",
        help="show what tokens cost, by pool and by domain",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--url", help="a running server, such as http://127.0.0.1:8000")
    source.add_argument("--prometheus", metavar="URL", help="a Prometheus server that watches it")
    parser.add_argument("--since", metavar="DURATION", help="with --prometheus: such as 30m, 24h or 7d (default: 24h)")
    parser.add_argument(
        "--match", default="", metavar="LABELS", help="with --prometheus: only these, such as 'namespace=\"prod\"'"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write rows with the columns of FOCUS 1.2 too")
    parser.add_argument(
        "--account", default="self-hosted", metavar="NAME", help="BillingAccountId in the rows (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read, print, write.

    Raises:
        ConfigError: nothing answers, an argument is not understood, or the file cannot be written.
    """
    counted = _counted(args)
    report = cost_report(counted.totals)
    if args.csv is not None:
        _write_csv(args.csv, report, counted, args.account)
    if args.json:
        print(json.dumps(to_json(report, counted)))
        return 0
    from rich.console import Console

    Console().print(render(report, counted))
    return 0


def _counted(args: argparse.Namespace) -> Counted:
    if args.prometheus is not None:
        return from_prometheus(args.prometheus, args.since or "24h", args.match)
    if args.since is not None:
        allowed = "nothing beside --url: counters hold totals since the start, Prometheus knows more"
        raise ConfigError(field="--since", value=args.since, allowed=allowed)
    return from_server(args.url)


def _write_csv(path: Path, report: CostReport, counted: Counted, account: str) -> None:
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            write_focus(file, report.lines, begin=_moment(counted.begin_s), end=_moment(counted.end_s), account=account)
    except OSError as error:
        raise ConfigError(field="--csv", value=str(path), allowed=f"a file that can be written ({error})") from None


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def to_json(report: CostReport, counted: Counted) -> dict[str, Any]:
    """The report as it is printed with `--json`."""
    return {
        "begin": _moment(counted.begin_s).isoformat(timespec="seconds"),
        "end": _moment(counted.end_s).isoformat(timespec="seconds"),
        "total": report.total.to_json(),
        "pools": [line.to_json() for line in report.pools],
        "domains": [line.to_json() for line in report.domains],
        "lines": [line.to_json() for line in report.lines],
    }


def render(report: CostReport, counted: Counted) -> "Group":
    """The report as tables."""
    from rich.console import Group
    from rich.text import Text

    hours = (counted.end_s - counted.begin_s) / 3600
    begin, end = (f"{_moment(each):%Y-%m-%d %H:%M:%S}" for each in (counted.begin_s, counted.end_s))
    head = Text.assemble((begin, "bold"), " to ", (end, "bold"), f" UTC ({hours:.2f} h)")
    notes = [] if report.has_prices else [Text("No prices are set: see `cost` in the application's arguments.", "dim")]
    total = report.total
    return Group(
        head,
        _table("pool", report.pools, total, lambda line: line.pool),
        _table("domain", report.domains, total, lambda line: line.domain),
        *notes,
    )


def _table(title: str, lines: tuple[CostLine, ...], total: CostLine, name: Callable[[CostLine], str]) -> "Table":
    from rich.table import Column, Table

    heads = (
        "tokens", "replica hours", "busy", "$", "$ per million", "J per million", "drafter", "wasted",
        "$ per million without",
    )  # fmt: skip
    table = Table(title, *(Column(head, justify="right") for head in heads))
    for line in lines:
        table.add_row(name(line), *_cells(line))
    table.add_section()
    table.add_row("total", *_cells(total), style="bold")
    return table


def _cells(line: CostLine) -> tuple[str, ...]:
    has_price = line.usd > 0
    return (
        f"{line.num_tokens:,.0f}",
        f"{(line.replica_s + line.drafter_s) / 3600:.3f}",
        _ratio(line.busy_s / line.replica_s if line.replica_s else None),
        f"{line.usd:.4f}" if has_price else "-",
        _amount(line.usd_per_million_tokens if has_price else None),
        _amount(line.joules_per_million_tokens),
        _ratio(line.drafter_ratio),
        _ratio(line.wasted_ratio),
        _without(line),
    )


def _without(line: CostLine) -> str:
    """The price without drafts and how far it is from the real one; the ratio of times where there are no prices."""
    if line.usd > 0:
        change = line.counterfactual_usd / line.usd - 1
        amount = _amount(line.counterfactual_usd_per_million_tokens)
        return amount if amount == "-" else f"{amount} ({change:+.1%})"
    return f"({line.counterfactual_s / line.busy_s - 1:+.1%})" if line.busy_s else "-"


def _amount(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
