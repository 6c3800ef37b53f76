"""A verifier's place in its pool: heartbeats to the controller, stats to routers, the plan to Serve's autoscaling."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from autoscaling.inversion import role_rate
from autoscaling.pool_config import PoolConfig
from autoscaling.types import ReplicaReport
from cluster.clock import Clock, MonotonicClock
from cluster.telemetry import names
from cluster.telemetry.prometheus import MetricSet
from cluster.types import Role
from deployments.heartbeat import Heartbeat
from deployments.replica_stats import ReplicaStats, StatsWriter


class Member(Protocol):
    """What is asked of a verifier."""

    @property
    def role(self) -> Role:
        """What it does now."""
        ...

    async def set_role(self, role: Role) -> float:
        """Work in another role; seconds that it took."""
        ...

    def report(self) -> ReplicaReport:
        """How it does."""
        ...


class PoolMember:
    """Speaks for one verifier.

    Args:
        verifier: the verifier; started.
        pools: how replicas are divided; None where there is nothing to divide.
        send: brings heartbeats to the controller; None where there is none.
        clock: for the age of news.
    """

    def __init__(
        self,
        verifier: Member,
        pools: PoolConfig | None = None,
        send: Callable[[bytes], Awaitable[bytes]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._verifier, self._pools = verifier, pools
        self._clock = clock or MonotonicClock()
        self._writer = StatsWriter()
        self._heartbeat: Heartbeat | None = None
        if pools is not None and send is not None:
            self._heartbeat = Heartbeat(
                send=send,
                report=verifier.report,
                set_role=verifier.set_role,
                period_s=pools.heartbeat_s,
                clock=self._clock,
            )
        replica = verifier.report().replica_id
        self._metrics = MetricSet(names.MEMBER_METRICS, dict.fromkeys(names.MEMBER_LABELS, replica))
        self._num_told = (0, 0)
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Take the first role, and begin to beat."""
        if self._pools is not None:
            await self._verifier.set_role(self._pools.initial_role())
        if self._heartbeat is not None:
            self._task = asyncio.create_task(self._heartbeat.run())

    def leave(self) -> None:
        """Beat no more."""
        if self._task is not None:
            self._task.cancel()

    def routing_stats(self) -> dict[str, Any]:
        """What routers know of this replica, as Serve wants it."""
        report = self._verifier.report()
        stats = ReplicaStats(
            number=0,
            role=report.role,
            num_running=report.num_running,
            num_waiting=report.num_waiting,
            num_seats=0 if self._pools is None else self._pools.max_num_seqs(report.role),
            num_outstanding_tokens=report.num_outstanding_tokens,
            tokens_per_s=round(report.tokens_per_s, 1),
            tpot_s=self._expected_tpot_s(report),
            domains=report.domains,
        )
        return self._writer.write(stats, self._clock.now_s())

    def autoscaling_stats(self) -> dict[str, float]:
        """What the autoscaling policy reads; nothing before the first plan."""
        planned = 0 if self._heartbeat is None else self._heartbeat.planned_replicas
        return {"planned_replicas": float(planned)} if planned else {}

    def metrics(self) -> str:
        """What became of the heartbeats, as Prometheus text; empty where there are none."""
        return "".join(metrics.render() for metrics in self.metric_sets())

    def metric_sets(self) -> tuple[MetricSet, ...]:
        """What the scrape is made of, brought up to date."""
        if self._heartbeat is None:
            return ()
        stats, (answered, failed) = self._heartbeat.stats, self._num_told
        self._metrics.add(names.HEARTBEATS, stats.num_answered - answered, "answered")
        self._metrics.add(names.HEARTBEATS, stats.num_failed - failed, "failed")
        self._metrics.set(names.HEARTBEAT_AGE, self._heartbeat.reply_age_s)
        self._num_told = (stats.num_answered, stats.num_failed)
        return (self._metrics,)

    def _expected_tpot_s(self, report: ReplicaReport) -> float | None:
        """Time per output token of one more request: predicted from the step times, else what was measured."""
        if report.step_times is None or self._pools is None:
            return report.latency.tpot_p95_s
        acceptance = report.acceptance_rate
        rate = role_rate(
            report.step_times,
            report.role,
            acceptance_rate=self._pools.assumed_acceptance_rate if acceptance is None else acceptance,
            concurrency=report.num_running + report.num_waiting + 1,
            max_num_seqs=self._pools.max_num_seqs(report.role),
            max_tokens=self._pools.num_speculative_tokens,
            mean_context_tokens=report.mean_context_tokens,
        )
        return float(f"{rate.tpot_s:.3g}")  # Serve tells everybody of each change: not of each microsecond.
