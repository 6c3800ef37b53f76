"""What this process knows of the verifier replicas: their own word, pushed by Serve, and what was sent to them since.

A verifier returns `ReplicaStats` from Serve's `record_routing_stats`. Serve's controller pushes them to every process
that holds a handle, where `VerifierRouter` hands them to `VIEW`. Nothing is polled, and Outrider's own controller has
no part in it: while it is away, requests are routed as before.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.clock import Clock, MonotonicClock
from cluster.routing.outstanding import Outstanding
from cluster.routing.prefix import PrefixTable
from cluster.routing.ranking import STALE_AFTER_S, ReplicaLoad, rank_replicas
from cluster.routing.types import RouteSnapshot, merge_domains
from cluster.telemetry import names
from cluster.telemetry.prometheus import MetricSet
from cluster.types import Role
from deployments.replica_stats import ReplicaStats, pool_loads, stats_from_json

SILENT_S = 10.0
"""A replica that says nothing for this long hangs, if another one is heard: each speaks at least every 2 seconds."""

MAX_CALLS = 65_536
"""Calls whose replica is remembered."""

ROUTER_CLASS = "deployments.verifier_router.VerifierRouter"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A replica's last word and when it came; None while it has said nothing that can be read."""

    stats: ReplicaStats | None
    heard_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewCounts:
    """What a view counted; every count only rises.

    Attributes:
        degraded: what could not be used, by reason.
        routed: calls by wanted pool ("any" for none) and role of the replica chosen ("unknown" for none).
        num_prefix_hits: calls that went to a replica which computed their prefix before.
    """

    degraded: Counter[str]
    routed: Counter[tuple[str, str]]
    num_prefix_hits: int = 0


class PoolView:
    """Replicas as this process sees them. Safe to use from any thread.

    Args:
        clock: tells how old news are.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or MonotonicClock()
        self._lock = threading.Lock()
        self._replicas: dict[str, _Known] = {}
        self._outstanding = Outstanding()
        self._replica_of: dict[str, str] = {}
        self._prefixes = PrefixTable()
        self._turn = 0
        self._degraded: Counter[str] = Counter()
        self._routed: Counter[tuple[str, str]] = Counter()
        self._num_prefix_hits = 0

    @property
    def replica_ids(self) -> frozenset[str]:
        """Replicas that take work, as Serve says."""
        return frozenset(self._replicas)

    def publish(self, pushed: Iterable[tuple[str, object]]) -> None:
        """Serve's news: ids of all replicas that take work, with what each said last."""
        now_s = self._clock.now_s()
        with self._lock:
            self._replicas = {replica_id: self._heard(replica_id, data, now_s) for replica_id, data in pushed}

    def rank(self, replica_ids: Sequence[str], call_id: str, kwargs: Mapping[str, object]) -> list[list[str]]:
        """Groups of replica ids for a call, best first; the call counts as sent to the first.

        Args:
            replica_ids: those that may be chosen.
            call_id: names the call, for `done`.
            kwargs: the call's keyword arguments; what cannot be read of them is counted and left out.
        """
        pool, prefix, num_tokens = self._wishes(kwargs)
        now_s = self._clock.now_s()
        with self._lock:
            holder = self._prefixes.find(prefix)
            loads = [self._load(replica_id, holder, now_s) for replica_id in replica_ids]
            groups = rank_replicas(loads, pool, offset=self._turn)
            self._turn += 1
            if groups:
                best = groups[0][0]
                self._outstanding.send(call_id, best, num_tokens, now_s)
                self._note(kwargs.get("call_id"), best)
                self._prefixes.put(prefix, best)
                self._num_prefix_hits += best == holder
                self._routed[pool or "any", self._role(best) or "unknown"] += 1
        return groups

    def done(self, call_id: str) -> None:
        """A call ended."""
        with self._lock:
            self._outstanding.done(call_id)

    def has_lost(self, call_id: str) -> bool:
        """True when the replica that a call went to hangs, as far as this process knows.

        Args:
            call_id: our own, as in the call's keyword arguments.
        """
        now_s = self._clock.now_s()
        with self._lock:
            replica_id = self._replica_of.get(call_id, "")
            known = self._replicas.get(replica_id)
            # One that takes no more work is no more told of, and goes on with what it has.
            if known is None or known.stats is None or now_s - known.heard_s < SILENT_S:
                return False
            # If nobody is heard, the news are late and not the replicas.
            return any(now_s - each.heard_s < STALE_AFTER_S for each in self._replicas.values() if each.stats)

    def forget(self, call_id: str) -> None:
        """A call is over, for `has_lost`."""
        with self._lock:
            self._replica_of.pop(call_id, None)

    def degrade(self, reason: str) -> None:
        """Something could not be used, so load alone decides."""
        with self._lock:
            self._degraded[reason] += 1

    def snapshot(self) -> RouteSnapshot:
        """The pools, for a routing decision; the requests at this gateway are not known here."""
        now_s = self._clock.now_s()
        known = [(each.stats, now_s - each.heard_s) for each in self._replicas.values() if each.stats is not None]
        # Old news are better than none, and their age is told; but one silent replica must not spoil the others' news.
        used = [each for each in known if each[1] <= STALE_AFTER_S] or known
        domains = merge_domains(stats.domains for stats, _ in used)
        num_drafted = sum(each.num_draft_tokens for each in domains.values())
        num_accepted = sum(each.num_accepted_tokens for each in domains.values())
        return RouteSnapshot(
            acceptance_rate=num_accepted / num_drafted if num_drafted else 1.0,
            pools=pool_loads(stats for stats, _ in used),
            domains=domains,
            age_s=max((age_s for _, age_s in used), default=float("inf")),
        )

    def counts(self) -> "ViewCounts":
        """What was counted so far."""
        with self._lock:
            return ViewCounts(
                degraded=Counter(self._degraded), routed=Counter(self._routed), num_prefix_hits=self._num_prefix_hits
            )

    def _note(self, call_id: object, replica_id: str) -> None:
        if isinstance(call_id, str) and len(self._replica_of) < MAX_CALLS:
            self._replica_of[call_id] = replica_id

    def _heard(self, replica_id: str, data: object, now_s: float) -> _Known:
        known = self._replicas.get(replica_id, _Known(stats=None, heard_s=now_s))
        if not data:
            return known  # It was not asked yet.
        stats = stats_from_json(data)
        if stats is None:
            self._degraded["stats"] += 1
            return known
        # Each handle has a router of its own, and they do not hear at the same time.
        if known.stats is not None and stats.number <= known.stats.number:
            return known
        self._outstanding.heard(replica_id, now_s)
        return _Known(stats=stats, heard_s=now_s)

    def _load(self, replica_id: str, holder: str | None, now_s: float) -> ReplicaLoad:
        num_tokens, num_calls = self._outstanding.of(replica_id)
        known = self._replicas.get(replica_id)
        stats, age_s = (None, 0.0) if known is None else (known.stats, now_s - known.heard_s)
        is_fresh = stats is not None and age_s <= STALE_AFTER_S
        if stats is not None and is_fresh:
            num_tokens += stats.num_outstanding_tokens
            num_calls += stats.num_running + stats.num_waiting
        return ReplicaLoad(
            replica_id=replica_id,
            role=stats.role if stats is not None and is_fresh else None,
            num_outstanding_tokens=num_tokens,
            num_ongoing=num_calls,
            age_s=age_s,
            has_prefix=replica_id == holder,
        )

    def _role(self, replica_id: str) -> Role | None:
        known = self._replicas.get(replica_id)
        return None if known is None or known.stats is None else known.stats.role

    def _wishes(self, kwargs: Mapping[str, object]) -> tuple[Role | None, tuple[int, ...], int]:
        """(pool, prefix keys, tokens) of a call."""
        pool, prefix, num_tokens = kwargs.get("pool"), kwargs.get("prefix", ()), kwargs.get("num_tokens", 0)
        role = _ROLES.get(pool) if isinstance(pool, str) else None
        if role is None and pool is not None:
            self.degrade("pool")
        if not isinstance(prefix, tuple | list) or not all(type(key) is int for key in prefix):
            self.degrade("prefix")
            prefix = ()
        if type(num_tokens) is not int or num_tokens < 0:
            self.degrade("num_tokens")
            num_tokens = 0
        return role, tuple(prefix), num_tokens


_ROLES = {role.value: role for role in Role}

VIEW = PoolView()
"""This process's."""


class RouterRecorder:
    """Turns a view's counts into Prometheus text.

    Args:
        view: what is told about.
        gateway: value of the label `gateway`.
    """

    def __init__(self, view: PoolView, gateway: str) -> None:
        self._view, self._last = view, view.counts()
        self._metrics = MetricSet(names.ROUTER_METRICS, dict.fromkeys(names.GATEWAY_LABELS, gateway))

    def render(self) -> str:
        """The scrape."""
        return self.refresh().render()

    def refresh(self) -> MetricSet:
        """The metrics, brought up to date."""
        now, last = self._view.counts(), self._last
        self._last = now
        for reason, count in now.degraded.items():
            self._metrics.add(names.ROUTER_DEGRADED, count - last.degraded[reason], reason)
        for (pool, role), count in now.routed.items():
            self._metrics.add(names.ROUTER_CALLS, count - last.routed[pool, role], pool, role)
        self._metrics.add(names.ROUTER_PREFIX_HITS, now.num_prefix_hits - last.num_prefix_hits)
        snapshot = self._view.snapshot()
        self._metrics.set(names.ROUTER_STATS_AGE, snapshot.age_s)
        for role in Role:
            load = snapshot.pools.get(role)
            self._metrics.set(names.ROUTER_REPLICAS, 0 if load is None else load.num_replicas, role.value)
        return self._metrics
