"""Kills replicas at random with SIGKILL, and takes the time until their kind is whole again."""

import asyncio
import os
import random
import signal
import time
from dataclasses import dataclass, field

from tests.chaos.production.application import KINDS, Watch, is_alive, pids_of

RECOVERY_S = 180.0
"""A kind that is not whole again by then never will be."""


@dataclass(slots=True, kw_only=True)
class Kill:
    """One of them.

    Attributes:
        kind: of the replica.
        at_s: clock time.
        whole_s: clock time at which its kind was whole again; None before.
    """

    kind: str
    at_s: float
    whole_s: float | None = None

    @property
    def took_s(self) -> float | None:
        """From the kill until the kind was whole again."""
        return None if self.whole_s is None else self.whole_s - self.at_s


@dataclass(slots=True, kw_only=True)
class Killer:
    """Kills one replica after another, never one of a kind that is not whole: never all of a kind at once.

    There is one controller by design, and nothing may depend on it: it is killed like the others.

    Args:
        watch: knows what is whole.
        rng: chooses.
        mean_pause_s: between two kills.

    Attributes:
        kills: so far.
    """

    watch: Watch
    rng: random.Random
    mean_pause_s: float
    kills: list[Kill] = field(default_factory=list)

    async def run(self, duration_s: float) -> None:
        """Kill for so long, then wait until everything is whole. The first kills are one of each kind, in any order."""
        ends_s, firsts = time.monotonic() + duration_s, self.rng.sample(KINDS, len(KINDS))
        waits: list[asyncio.Task[None]] = []
        while (left_s := ends_s - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, 0.3 + self.rng.expovariate(1 / self.mean_pause_s)))
            whole = [kind for kind in KINDS if self._is_whole(kind)]
            wanted = [kind for kind in firsts if kind in whole] or ([] if firsts else whole)
            if wanted and time.monotonic() < ends_s:
                kind = self.rng.choice(wanted)
                firsts = [each for each in firsts if each != kind]
                waits.append(asyncio.create_task(self._kill(kind)))
                await asyncio.sleep(0)  # The task kills before anything else is chosen.
        await asyncio.gather(*waits)

    def _is_whole(self, kind: str) -> bool:
        last_s = max((kill.at_s for kill in self.kills if kill.kind == kind), default=0.0)
        is_pending = any(kill.whole_s is None for kill in self.kills if kill.kind == kind)
        return not is_pending and self.watch.is_whole(kind, last_s)

    async def _kill(self, kind: str) -> None:
        pid = self.rng.choice(pids_of(self.watch.server, kind))
        kill = Kill(kind=kind, at_s=time.monotonic())
        self.kills.append(kill)
        os.kill(pid, signal.SIGKILL)
        while time.monotonic() < kill.at_s + RECOVERY_S:
            await asyncio.sleep(0.25)
            if not is_alive(pid) and self.watch.is_whole(kind, kill.at_s):
                kill.whole_s = time.monotonic()
                return
