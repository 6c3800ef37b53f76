"""The `outrider` command. A subcommand is a module with `add_parser(subparsers)`, listed in `COMMANDS`."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from cluster.errors import OutriderError

COMMANDS = (
    "deployments.cli_serve",
    "deployments.cli_pools",
    "deployments.cli_lossless",
    "deployments.cli_train",
    "deployments.cli_calibrate",
    "deployments.cli_simulate",
    "deployments.cli_plan",
    "deployments.cli_explain",
    "deployments.cli_dashboards",
    "deployments.cli_cost",
)
"""Modules of the subcommands, in the order of `outrider --help`. They import Ray and torch only when they run."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit status."""
    parser = argparse.ArgumentParser(prog="outrider", description="Serve language models with exact speculation.")
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in COMMANDS:
        import_module(module).add_parser(subparsers)
    args = parser.parse_args(argv)
    try:
        status: int = args.run(args)
    except OutriderError as error:
        print(f"outrider: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
