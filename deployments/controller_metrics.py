"""What the controller shows of the pools in the scrape."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping

from autoscaling.pool_config import PoolConfig
from autoscaling.types import MOVING_REASONS, Decision, DecisionReason, ReplicaReport, Snapshot
from cluster.routing.types import PoolLoad
from cluster.telemetry import names
from cluster.telemetry.prometheus import MetricSet
from cluster.types import Role


class ControllerRecorder:
    """Turns decisions into Prometheus text. Not thread safe.

    Args:
        config: of the pools; its objectives are shown, and replicas silent for longer than it allows are not.
        replica: value of the label `controller`.
    """

    def __init__(self, config: PoolConfig, replica: str) -> None:
        self.metrics = MetricSet(names.CONTROLLER_METRICS, dict.fromkeys(names.CONTROLLER_LABELS, replica))
        self.configure(config)
        for reason in DecisionReason:
            self.metrics.add(names.POOL_DECISIONS, 0, reason.value)
        for role in Role:
            for reason in MOVING_REASONS:
                self.metrics.add(names.POOL_MOVES, 0, role.value, reason.value)
        self._inputs: dict[str, set[str]] = {"now": set(), "move": set()}

    def configure(self, config: PoolConfig) -> None:
        """Show other objectives."""
        self._stale_after_s = config.stale_after_s
        self.metrics.set(names.POOL_OBJECTIVE, config.ttft_slo_s, "ttft")
        self.metrics.set(names.POOL_OBJECTIVE, config.tpot_slo_s, "tpot")

    def record(
        self, decision: Decision, snapshot: Snapshot, pools: Mapping[Role, PoolLoad], *, is_pinned: bool
    ) -> None:
        """Add one decision, and show the pools as they are."""
        metrics = self.metrics
        metrics.add(names.POOL_DECISIONS, 1, decision.reason.value)
        metrics.set(names.POOL_LAST_DECISION, time.time(), decision.reason.value)
        if decision.move is not None:
            metrics.add(names.POOL_MOVES, 1, decision.move.role.value, decision.reason.value)
            metrics.set(names.POOL_LAST_MOVE, time.time(), decision.move.role.value, decision.reason.value)
            self._record_inputs("move", decision.inputs)
        self._record_inputs("now", decision.inputs)
        metrics.set(names.POOL_PINNED, is_pinned)
        metrics.set(names.PLANNED_REPLICAS, decision.num_replicas)
        targets = Counter(decision.roles.values())
        oldest_s = decision.at_s - self._stale_after_s
        reports = [heard.report for heard in snapshot.replicas.values() if heard.heard_s >= oldest_s]
        metrics.set(names.POOL_LEAVING, sum(report.is_draining for report in reports))
        for role in Role:
            load = pools.get(role, PoolLoad())
            metrics.set(names.POOL_REPLICAS, load.num_replicas, role.value)
            metrics.set(names.POOL_TARGET, targets[role], role.value)
            metrics.set(names.POOL_RUNNING, load.num_running, role.value)
            metrics.set(names.POOL_WAITING, load.num_waiting, role.value)
            metrics.set(names.POOL_TOKENS_PER_S, load.tokens_per_s, role.value)
            self._record_latency(role, [report for report in reports if report.role is role])

    def _record_inputs(self, which: str, inputs: Mapping[str, float]) -> None:
        self._inputs[which] |= inputs.keys()
        for name in self._inputs[which]:
            self.metrics.set(names.POOL_DECISION_INPUT, inputs.get(name, math.nan), name, which)

    def _record_latency(self, role: Role, reports: Iterable[ReplicaReport]) -> None:
        latencies = [report.latency for report in reports]
        for kind, values in (
            ("ttft", [each.ttft_p95_s for each in latencies]),
            ("tpot", [each.tpot_p95_s for each in latencies]),
        ):
            worst = max((value for value in values if value is not None), default=0.0)
            self.metrics.set(names.POOL_LATENCY, worst, role.value, kind)
