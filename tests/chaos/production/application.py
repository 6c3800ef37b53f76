"""The application under attack: its start, its processes by kind, and which of its replicas can be used."""

import asyncio
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.chaos.production.clients import new_http
from tests.e2e.conftest import Outrider, start_outrider, stop_for_sure

KINDS = ("drafter", "verifier", "controller", "gateway")

_ALIVE: Mapping[str, str] = {
    "drafter": r'^outrider_drafter_model_loaded{drafter="(\w+)"} 1.0$',
    "verifier": r'^outrider_role{.*engine="(\w+)".*} 1.0$',
    "controller": r'^outrider_pool_replicas{controller="(\w+)"',
    "gateway": r'^outrider_http_active_requests{gateway="(\w+)"}',
}
"""Samples that a replica of a kind has in the scrape when it can be used."""

_RESUMES = re.compile(r"^outrider_resumes_total{(.*)} (\S+)$", re.MULTILINE)

_SCRAPE_PERIOD_S = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Replicas by kind.

    Attributes:
        num_drafters: of them.
        num_verifiers: of them.
        num_gateways: of them.
    """

    num_drafters: int = 2
    num_verifiers: int = 2
    num_gateways: int = 2

    def of(self, kind: str) -> int:
        """Replicas of a kind."""
        return {
            "drafter": self.num_drafters,
            "verifier": self.num_verifiers,
            "controller": 1,
            "gateway": self.num_gateways,
        }[kind]


@contextmanager
def application(model: Path, sizes: Sizes) -> Iterator[Outrider]:
    """Start it, with the model drafting for itself, and stop it.

    Args:
        model: folder; the CPU kernels have to take it, so that texts do not depend on the batch.
        sizes: of its deployments.
    """
    settings = {
        "num_verifiers": sizes.num_verifiers,
        "num_gateways": sizes.num_gateways,
        "num_drafters": sizes.num_drafters,
        "verifier_cpus": 0.2,
        "drafter_cpus": 0.1,
        "engine.kv_cache_tokens": 32_768,
        "draft.kv_cache_tokens": 32_768,
        # The draft model is as large as the target: without a wait its tables would all be late.
        "draft.draft_wait_s": 0.01,
        "pools.speculative_max_num_seqs": 8,
        "pools.batch_max_num_seqs": 32,
    }
    arguments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    server = start_outrider(model, "--drafter", "actor", "--draft-model", str(model), "--num-threads", "1", *arguments)
    try:
        yield server
    finally:
        stop_for_sure(server)


def processes(marker: str) -> dict[int, str]:
    """Living processes of the application by id: command lines without arguments."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if words.strip():  # Of a process that is dead and not yet waited for, nothing is left.
                    found[int(folder.name)] = words.strip()
        except OSError:
            continue
    return found


def pids_of(server: Outrider, kind: str) -> list[int]:
    """Living replicas of a kind. Not Serve's own controller, whose process is called ServeController."""
    name = f":{kind.capitalize()}"
    return sorted(pid for pid, words in processes(server.marker).items() if name in words.split()[0])


def is_alive(pid: int) -> bool:
    """False once a process is gone, or dead and not yet waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def rss_bytes(pid: int) -> int:
    """Resident memory; 0 where the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def num_files(pid: int) -> int:
    """Open file descriptors; 0 where the process is gone."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


@dataclass(slots=True, kw_only=True)
class Watch:
    """Sees by the metrics, as an operator does, which replicas can be used.

    Args:
        server: the application.
        sizes: what is wanted.
    """

    server: Outrider
    sizes: Sizes
    _resumes: dict[str, float] = field(default_factory=dict)
    _scrapes: list[tuple[float, dict[str, set[str]]]] = field(default_factory=list)
    _stopped: bool = False

    async def run(self) -> None:
        """Scrape again and again until `stop`."""
        while not self._stopped:
            began_s = time.monotonic()
            # A connection of its own each time, so that each gateway has its turn.
            async with new_http(self.server.url) as http:
                try:
                    response = await http.get("/metrics", timeout=10)
                    text = response.text if response.status_code == 200 else ""
                except httpx.HTTPError:
                    text = ""
            found = {kind: set(re.findall(sample, text, re.MULTILINE)) for kind, sample in _ALIVE.items()}
            self._resumes |= {labels: float(value) for labels, value in _RESUMES.findall(text)}
            self._scrapes = [*self._scrapes[-40:], (began_s, found)]
            await asyncio.sleep(_SCRAPE_PERIOD_S)

    @property
    def resumes(self) -> dict[str, float]:
        """Requests that gateways went on with elsewhere, by result and reason; those of killed ones as last seen."""
        totals: dict[str, float] = {}
        for labels, value in self._resumes.items():
            found = dict(re.findall(r'(reason|result)="(\w+)"', labels))
            what = f"{found['result']}: {found['reason']}"
            totals[what] = totals.get(what, 0) + value
        return totals

    def stop(self) -> None:
        """Scrape no more."""
        self._stopped = True

    def is_whole(self, kind: str, since_s: float) -> bool:
        """True when all replicas of a kind run and can be used, as seen after a moment."""
        scrapes = [found[kind] for began_s, found in self._scrapes if began_s > since_s]
        if not scrapes or len(pids_of(self.server, kind)) != self.sizes.of(kind):
            return False
        # A gateway's scrape may hold that gateway alone.
        seen = set().union(*scrapes) if kind == "gateway" else scrapes[-1]
        return len(seen) >= self.sizes.of(kind)

    async def wait_whole(self, timeout_s: float) -> list[str]:
        """Wait for all kinds; those that are not whole when the time is over."""
        since_s = time.monotonic()
        while left := [kind for kind in KINDS if not self.is_whole(kind, since_s)]:
            if time.monotonic() > since_s + timeout_s:
                return left
            await asyncio.sleep(0.5)
        return []
