"""`outrider dashboards`: Grafana dashboards, Prometheus scrape configuration and alert rules as files."""

import argparse
from pathlib import Path

from cluster.errors import ConfigError

_DESCRIPTION = """\
Write dashboards for Grafana, with provisioning that also fits Ray's, and for Prometheus a scrape configuration and
alert rules, also in the form that its Kubernetes operator reads. Files that are there already are written anew.

The limits of the alerts can be set here. Where a controller runs, its objectives (pools.ttft_slo_s, pools.tpot_slo_s)
take the place of the two below.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the subcommand."""
    from cluster.telemetry.dashboards.rule import Thresholds

    parser = subparsers.add_parser(
        "dashboards",
        help="write Grafana dashboards and Prometheus rules",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    usual = Thresholds()
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write to")
    parser.add_argument(
        "--target", default="localhost:8000", metavar="HOST:PORT", help="what Prometheus scrapes (default: %(default)s)"
    )
    parser.add_argument(
        "--grafana-path", default="/etc/grafana/outrider", metavar="DIR",
        help="where Grafana finds the dashboards (default: %(default)s)",
    )  # fmt: skip
    for flag, value, what in (
        ("--ttft-slo-s", usual.ttft_slo_s, "objective for the time to the first token, p95"),
        ("--tpot-slo-s", usual.tpot_slo_s, "objective for the time per output token, p95"),
        ("--usd-per-million-tokens", usual.usd_per_million_tokens, "what a million delivered tokens may cost"),
    ):
        parser.add_argument(flag, type=float, default=value, metavar="N", help=f"{what} (default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the files and list them.

    Raises:
        ConfigError: a limit is out of range, or the folder cannot be written.
    """
    from cluster.telemetry.dashboards.files import render
    from cluster.telemetry.dashboards.rule import Thresholds

    thresholds = Thresholds(
        ttft_slo_s=args.ttft_slo_s,
        tpot_slo_s=args.tpot_slo_s,
        usd_per_million_tokens=args.usd_per_million_tokens,
    )
    for path, text in render(thresholds, target=args.target, grafana_path=args.grafana_path).items():
        file = args.out / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(field="--out", value=str(args.out), allowed=f"a folder to write to ({error})") from None
        print(file)
    return 0
