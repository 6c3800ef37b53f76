"""What was heard of the replicas and what it adds up to: the snapshot, the pools, the domains."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from autoscaling.inversion import mean_step_times, role_rate
from autoscaling.pool_config import PoolConfig
from autoscaling.pool_demand import live_replicas
from autoscaling.types import HeardReplica, ReplicaReport, Snapshot
from cluster.engine.step_time import StepTimes
from cluster.routing.types import DomainStats, PoolLoad, merge_domains
from cluster.types import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The pools and the domains over all live replicas.

    Attributes:
        pools: load by role; a missing role has no replicas.
        domains: by `Domain` value.
    """

    pools: dict[Role, PoolLoad] = field(default_factory=dict)
    domains: dict[str, DomainStats] = field(default_factory=dict)


def heard(snapshot: Snapshot, report: ReplicaReport, now_s: float, *, forget_after_s: float = 60.0) -> Snapshot:
    """The snapshot with one more report; see `heard_all`."""
    return heard_all(snapshot, (report,), now_s, forget_after_s=forget_after_s)


def heard_all(
    snapshot: Snapshot, reports: Iterable[ReplicaReport], now_s: float, *, forget_after_s: float = 60.0
) -> Snapshot:
    """The snapshot with more reports.

    Args:
        snapshot: what was heard before.
        reports: the new ones; the last one of a replica counts.
        now_s: clock time at which they came.
        forget_after_s: replicas that were silent for longer are left out.
    """
    oldest_s = now_s - forget_after_s
    replicas = {replica_id: each for replica_id, each in snapshot.replicas.items() if each.heard_s >= oldest_s}
    for report in reports:
        replicas[report.replica_id] = HeardReplica(report=report, heard_s=now_s)
    return Snapshot(replicas=replicas)


def overview(config: PoolConfig, snapshot: Snapshot, now_s: float) -> Overview:
    """Pools and domains over the live replicas."""
    live = live_replicas(config, snapshot, now_s)
    by_role: dict[Role, list[ReplicaReport]] = {}
    for report in live.values():
        by_role.setdefault(report.role, []).append(report)
    times = mean_step_times(report.step_times for report in live.values() if report.step_times is not None)
    return Overview(
        pools={role: _pool_load(config, role, reports, times) for role, reports in by_role.items()},
        domains=merge_domains(report.domains for report in live.values()),
    )


def _pool_load(config: PoolConfig, role: Role, reports: list[ReplicaReport], times: StepTimes | None) -> PoolLoad:
    num_running = sum(each.num_running for each in reports)
    num_waiting = sum(each.num_waiting for each in reports)
    rates = [each.acceptance_rate for each in reports if each.acceptance_rate is not None]
    acceptance_rate = sum(rates) / len(rates) if rates else None
    tpot_s = None
    if times is not None:
        context = sum(each.num_running * each.mean_context_tokens for each in reports)
        tpot_s = role_rate(
            times,
            role,
            acceptance_rate=config.assumed_acceptance_rate if acceptance_rate is None else acceptance_rate,
            concurrency=(num_running + num_waiting) / len(reports) + 1,
            max_num_seqs=config.max_num_seqs(role),
            max_tokens=config.num_speculative_tokens,
            mean_context_tokens=context / num_running if num_running else 0.0,
        ).tpot_s
    return PoolLoad(
        num_replicas=len(reports),
        num_running=num_running,
        num_waiting=num_waiting,
        num_seats=len(reports) * config.max_num_seqs(role),
        tokens_per_s=sum(each.tokens_per_s for each in reports),
        tpot_s=tpot_s,
        acceptance_rate=acceptance_rate,
    )
