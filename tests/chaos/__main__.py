"""`python -m tests.chaos --minutes 10 [--report FILE]`: kills what it can, for so long, and says what came of it."""

import argparse
import shlex
import sys
import tempfile
from pathlib import Path

from tests.chaos.conftest import save_model
from tests.chaos.production.application import Sizes
from tests.chaos.production.run import Plan, chaos


def main() -> int:
    """Run; 0 where nothing happened that must not."""
    args = _parser().parse_args()
    sizes = Sizes(num_drafters=args.drafters, num_verifiers=args.verifiers, num_gateways=args.gateways)
    plan = Plan(
        storm_s=60 * args.minutes, mean_pause_s=args.pause_s, num_clients=args.clients, seed=args.seed, sizes=sizes
    )
    with tempfile.TemporaryDirectory(prefix="or-chaos-") as folder:
        command = shlex.join(["python", "-m", "tests.chaos", *sys.argv[1:]])
        report = chaos(save_model(Path(folder) / "tiny"), plan, command=command)
    text = report.markdown()
    if args.report is not None:
        args.report.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 1 if report.problems() else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long replicas are killed (default: 10)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report there as well")
    parser.add_argument("--pause-s", type=float, default=4.0, help="mean time between two kills (default: 4)")
    parser.add_argument("--clients", type=int, default=6, help="clients at once (default: 6)")
    parser.add_argument("--seed", type=int, default=0, help="of calls and kills (default: 0)")
    for kind in ("verifiers", "drafters", "gateways"):
        parser.add_argument(f"--{kind}", type=int, default=2, choices=range(1, 9), help="replicas (default: 2)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
