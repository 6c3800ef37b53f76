"""What a verifier replica tells to those who route to it, as Serve carries it from `record_routing_stats`."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import msgspec

from cluster.routing.types import DomainStats, PoolLoad
from cluster.types import Role

STATS_PERIOD_S = 0.5
"""How often Serve asks verifiers for their stats."""

BEAT_S = 2.0
"""Stats that stay the same are told again after this long, so that their age says something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStats:
    """What a verifier replica tells to whoever routes to it.

    Attributes:
        number: rises with every change, so that older news are known as such.
        role: what it does now.
        num_running: sequences in its batch.
        num_waiting: sequences that wait for a place in it.
        num_seats: places in it; 0 while unknown.
        num_outstanding_tokens: prompt tokens to compute and output tokens to come.
        tokens_per_s: output of the last seconds.
        tpot_s: expected time per output token of one more request; None while unknown.
        domains: recent statistics of its requests, by `Domain` value.
    """

    number: int
    role: Role
    num_running: int = 0
    num_waiting: int = 0
    num_seats: int = 0
    num_outstanding_tokens: int = 0
    tokens_per_s: float = 0.0
    tpot_s: float | None = None
    domains: dict[str, DomainStats] = field(default_factory=dict)


class StatsWriter:
    """Numbers a replica's stats. Serve tells everybody of each change, so an idle replica changes only now and then."""

    def __init__(self) -> None:
        self._last: ReplicaStats | None = None
        self._written_s = 0.0

    def write(self, stats: ReplicaStats, now_s: float) -> dict[str, Any]:
        """Stats as Serve wants them.

        Args:
            stats: their number is set here.
            now_s: clock time.
        """
        number = 0 if self._last is None else self._last.number
        if replace(stats, number=number) != self._last or now_s - self._written_s >= BEAT_S:
            self._last, self._written_s = replace(stats, number=number + 1), now_s
        written: dict[str, Any] = msgspec.to_builtins(self._last)
        return written


def stats_from_json(data: object) -> ReplicaStats | None:
    """The stats behind what Serve pushed; None when they are of another kind or version."""
    try:
        stats = msgspec.convert(data, ReplicaStats)
    except msgspec.ValidationError:
        return None
    numbers = (stats.num_outstanding_tokens, stats.num_running, stats.num_waiting, stats.num_seats)
    return stats if min(numbers) >= 0 and isfinite(stats.tokens_per_s) else None


def pool_loads(replicas: Iterable[ReplicaStats]) -> dict[Role, PoolLoad]:
    """The load of each pool; a role that no replica has is left out."""
    pools: dict[Role, list[ReplicaStats]] = {}
    for stats in replicas:
        pools.setdefault(stats.role, []).append(stats)
    return {role: _pool_load(members) for role, members in pools.items()}


def _pool_load(members: list[ReplicaStats]) -> PoolLoad:
    seen = [stats for each in members for stats in each.domains.values()]
    num_drafted = sum(stats.num_draft_tokens for stats in seen)
    num_accepted = sum(stats.num_accepted_tokens for stats in seen)
    return PoolLoad(
        num_replicas=len(members),
        num_running=sum(each.num_running for each in members),
        num_waiting=sum(each.num_waiting for each in members),
        num_seats=sum(each.num_seats for each in members),
        tokens_per_s=sum(each.tokens_per_s for each in members),
        # The router takes the least busy one, so one more request finds the best of them.
        tpot_s=min((each.tpot_s for each in members if each.tpot_s is not None), default=None),
        acceptance_rate=num_accepted / num_drafted if num_drafted else None,
    )
