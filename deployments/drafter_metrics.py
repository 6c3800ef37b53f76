"""What a drafter replica reports: its scrape, and the share of late tables that scaling decides on."""

from dataclasses import asdict

from cluster.engine.drafters.run_ahead_state import Counters, RunAheadSnapshot
from cluster.telemetry import names
from cluster.telemetry.cost_recorder import Spent
from cluster.telemetry.prometheus import MetricSet

_COUNTERS = {
    "num_rounds": names.DRAFTER_ROUNDS,
    "num_tables": names.DRAFTER_TABLES,
    "num_late_tables": names.DRAFTER_LATE_TABLES,
    "num_short_tables": names.DRAFTER_SHORT_TABLES,
    "num_cancelled_jobs": names.DRAFTER_CANCELLED,
    "num_branches": names.DRAFTER_BRANCHES,
    "num_draft_tokens": names.DRAFTER_DRAFT_TOKENS,
    "num_evicted": names.DRAFTER_EVICTED,
}
_LOSSES = ("unknown", "capacity", "length")


class DrafterRecorder:
    """Turns snapshots, whose counts only rise, into Prometheus text. Not thread safe.

    Args:
        replica: value of the label `drafter`.
    """

    def __init__(self, replica: str) -> None:
        self.metrics = MetricSet(names.DRAFTER_METRICS, dict.fromkeys(names.DRAFTER_LABELS, replica))
        self._counters = Counters()
        self._num_steps = self._num_failures = 0
        self._forward_s = 0.0
        for reason in _LOSSES:
            self.metrics.add(names.DRAFTER_LOST, 0, reason)

    def record(self, snapshot: RunAheadSnapshot | None, *, busy_ratio: float, num_failures: int) -> None:
        """Add what happened since the last call; None stands for a model that is not loaded."""
        metrics = self.metrics
        metrics.set(names.DRAFTER_LOADED, snapshot is not None)
        metrics.set(names.DRAFTER_BUSY, busy_ratio)
        metrics.add(names.DRAFTER_FAILURES, num_failures - self._num_failures)
        self._num_failures = num_failures
        if snapshot is None:
            return
        metrics.set(names.DRAFTER_VERIFIERS, len(snapshot.peers))
        metrics.set(names.DRAFTER_SEQUENCES, snapshot.num_sequences)
        metrics.set(names.DRAFTER_KV_USAGE, snapshot.kv_cache_usage_ratio)
        metrics.add(names.DRAFTER_STEPS, snapshot.num_steps - self._num_steps)
        metrics.add(names.DRAFTER_FORWARD_SECONDS, snapshot.forward_s - self._forward_s)
        self._num_steps, self._forward_s = snapshot.num_steps, snapshot.forward_s
        now, before, self._counters = asdict(snapshot.counters), asdict(self._counters), snapshot.counters
        for field, metric in _COUNTERS.items():
            metrics.add(metric, now[field] - before[field])
        for reason in _LOSSES:
            metrics.add(names.DRAFTER_LOST, now[f"num_lost_{reason}"] - before[f"num_lost_{reason}"], reason)

    def record_spent(self, spent: Spent) -> None:
        """The drafter cost this since the last call."""
        self.metrics.add(names.DRAFTER_SECONDS, spent.seconds)
        self.metrics.add(names.DRAFTER_COST_USD, spent.usd)
        if spent.joules is not None:
            self.metrics.add(names.DRAFTER_ENERGY_JOULES, spent.joules)


class LateShare:
    """The share of tables that came too late, since the last time it was asked for."""

    def __init__(self) -> None:
        self._num_tables = self._num_late = 0

    def take(self, counters: Counters) -> float:
        """The share over what is new, 0..1; 0 when nothing is.

        A job that a newer round made stale gave no table in time either, so it counts as late.
        """
        num_late = counters.num_late_tables + counters.num_cancelled_jobs
        num_tables = counters.num_tables + counters.num_cancelled_jobs
        new_late, new_tables = num_late - self._num_late, num_tables - self._num_tables
        self._num_late, self._num_tables = num_late, num_tables
        return new_late / new_tables if new_tables > 0 else 0.0
