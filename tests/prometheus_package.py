"""Prometheus from Debian's package, unpacked into a cache folder: no root, no service, nothing installed.

`python -m tests.prometheus_package` fetches it ahead of the tests; it needs apt-get and dpkg, and nothing of .venv.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """Where the programs are."""

    server: Path
    promtool: Path


class UnavailableError(Exception):
    """There is no Prometheus here; the text says why."""


def find() -> Prometheus:
    """Prometheus on the PATH, or in the cache, or fetched into it.

    Raises:
        UnavailableError: none can be had.
    """
    on_path = [shutil.which(name) for name in ("prometheus", "promtool")]
    if all(on_path):
        server, promtool = map(str, on_path)
        return Prometheus(server=Path(server), promtool=Path(promtool))
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outrider" / "prometheus"
    found = Prometheus(server=folder / "usr/bin/prometheus", promtool=folder / "usr/bin/promtool")
    if not (found.server.exists() and found.promtool.exists()):
        _fetch(folder)
    return found


def _fetch(folder: Path) -> None:
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise UnavailableError(f"no prometheus on the PATH, and no {program} to fetch Debian's package with")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        package = _download(Path(scratch))
        unpacked = Path(scratch) / "unpacked"
        _run("dpkg", "-x", str(package), str(unpacked), folder=Path(scratch))
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)


def _download(scratch: Path) -> Path:
    """The package; with lists of packages of its own where the machine's are missing, which needs no root."""
    try:
        _run("apt-get", "download", "prometheus", folder=scratch)
    except UnavailableError:
        lists, cache = scratch / "lists", scratch / "cache"
        for each in (lists / "partial", cache / "archives/partial"):
            each.mkdir(parents=True)
        own: tuple[str, ...] = (
            "-o",
            f"Dir::State::Lists={lists}",
            "-o",
            f"Dir::Cache={cache}",
            "-o",
            "Acquire::Retries=3",
        )
        if os.geteuid() == 0:  # Otherwise apt changes to a user that may not write here.
            own = (*own, "-o", "APT::Sandbox::User=root")
        _run("apt-get", *own, "update", folder=scratch)
        _run("apt-get", *own, "download", "prometheus", folder=scratch)
    return next(scratch.glob("prometheus_*.deb"))


def _run(*command: str, folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        raise UnavailableError(f"{' '.join(command)}: {error.stderr.strip()[-500:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{' '.join(command)}: {error}") from None


def main() -> int:
    """Fetch it and say where it is."""
    try:
        found = find()
    except UnavailableError as error:
        sys.stderr.write(f"no Prometheus: {error}\n")
        return 0 if shutil.which("apt-get") is None else 1
    sys.stdout.write(f"{found.server}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
