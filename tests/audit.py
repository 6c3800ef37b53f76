"""`make audit`: known vulnerabilities of the pinned packages, as OSV knows them.

Where the service cannot be reached it says so and does not fail: a machine without a network can still check a change.
"""

import argparse
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

SERVICE = "https://api.osv.dev/v1/query"
PINS = Path(__file__).parents[1] / "constraints.txt"
PROBE_S = 15.0


def main(argv: Sequence[str] | None = None) -> int:
    """Audit the pins; the exit status is 0 when nothing is known against them, or nobody can be asked."""
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=__doc__)
    parser.add_argument("--pins", default=str(PINS), metavar="FILE", help="exact versions, one a line")
    parser.add_argument("--service", default=SERVICE, metavar="URL", help="of OSV's queries (default: %(default)s)")
    args = parser.parse_args(argv)
    if (reason := _why_unreachable(args.service)) is not None:
        sys.stdout.write(f"audit skipped: {args.service} cannot be reached ({reason})\n")
        return 0
    # The pins are complete and exact, so nothing has to be resolved, downloaded or installed.
    command = [sys.executable, "-m", "pip_audit", "--requirement", args.pins, "--no-deps", "--disable-pip"]
    command += ["--vulnerability-service", "osv", "--osv-url", args.service, "--progress-spinner", "off"]
    return subprocess.run(command, check=False).returncode


def _why_unreachable(service: str) -> str | None:
    probe = urllib.request.Request(service, data=b"{}", headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(probe, timeout=PROBE_S):
            return None
    except urllib.error.HTTPError:
        return None  # An empty question is answered with an error, but answered.
    except OSError as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main())
