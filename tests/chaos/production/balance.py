"""What the application holds when nobody asks for anything: processes, memory, files, and gauges that must be zero."""

import asyncio
import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tests.chaos.production.application import KINDS, num_files, processes, rss_bytes
from tests.chaos.production.clients import new_http
from tests.e2e.conftest import Outrider

ZERO_GAUGES = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "outrider_queued_requests",
    "outrider_queued_tokens",
    "outrider_http_active_requests",
    "outrider_drafter_sequences",
    "outrider_drafter_kv_cache_usage_ratio",
)
"""KV blocks, queues and followed sequences: all of them are free when nobody asks for anything."""

ZERO_S = 30.0

_SERVING = re.compile(r"ray::(ServeReplica:\w+:(?P<kind>\w+)|(?P<other>\w+))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Taken at one moment.

    Attributes:
        num_processes: by kind; Ray's own by name.
        rss_bytes: of each process.
        num_files: of each process.
        kinds: of each process.
        not_zero: gauges that should be, and are not.
    """

    num_processes: Mapping[str, int]
    rss_bytes: Mapping[int, int]
    num_files: Mapping[int, int]
    kinds: Mapping[int, str]
    not_zero: Mapping[str, float]

    @property
    def total_bytes(self) -> int:
        """Resident memory of all processes; what they share counts several times."""
        return sum(self.rss_bytes.values())

    def by_kind(self, values: Mapping[int, int]) -> dict[str, int]:
        """The largest value of each kind."""
        largest: dict[str, int] = defaultdict(int)
        for pid, value in values.items():
            largest[self.kinds[pid]] = max(largest[self.kinds[pid]], value)
        return dict(largest)


async def take_balance(server: Outrider) -> Balance:
    """Wait until the gauges are zero, for a while, and take everything down."""
    ends_s = time.monotonic() + ZERO_S
    text = await _scrape(server)
    while (not_zero := _not_zero(text)) and time.monotonic() < ends_s:
        await asyncio.sleep(0.5)
        text = await _scrape(server)
    kinds = {pid: _kind(words) for pid, words in processes(server.marker).items()}
    return Balance(
        num_processes=Counter(kinds.values()),
        rss_bytes={pid: rss_bytes(pid) for pid in kinds},
        num_files={pid: num_files(pid) for pid in kinds},
        kinds=kinds,
        not_zero=not_zero,
    )


def growth(before: Balance, after: Balance) -> dict[str, tuple[int, int]]:
    """Bytes and files that processes gained which lived all the time, by kind: the most of any."""
    grown: dict[str, tuple[int, int]] = {}
    for pid in before.kinds.keys() & after.kinds.keys():
        num_bytes = after.rss_bytes[pid] - before.rss_bytes[pid]
        files = after.num_files[pid] - before.num_files[pid]
        old = grown.get(after.kinds[pid], (0, 0))
        grown[after.kinds[pid]] = (max(old[0], num_bytes), max(old[1], files))
    return grown


async def _scrape(server: Outrider) -> str:
    async with new_http(server.url) as http:
        return (await http.get("/metrics")).text


def _not_zero(text: str) -> dict[str, float]:
    values = {name: _total(text, name) for name in ZERO_GAUGES}
    return {name: value for name, value in values.items() if value}


def _total(text: str, name: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE))


def _kind(words: str) -> str:
    """A replica's kind, or the name of one of Ray's processes."""
    if found := _SERVING.match(words):
        kind = (found["kind"] or found["other"]).lower()
        return kind if kind in KINDS else f"ray: {found['kind'] or found['other']}"
    found = re.search(r"gcs_server|raylet|deployments\.cli|dashboard|log_monitor|monitor", words)
    return f"ray: {found[0] if found else words.split(maxsplit=1)[0]}"
