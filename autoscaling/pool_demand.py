"""What the reports of the live replicas say together: the work of each pool, and what predictions stand on."""

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaling.inversion import mean_step_times
from autoscaling.pool_config import PoolConfig
from autoscaling.types import ReplicaReport, Snapshot
from cluster.engine.step_time import StepTimes
from cluster.types import Role

MIN_REQUESTS = 5
"""Latencies of fewer requests are no evidence."""

FULL_RATIO = 0.9
"""Share of its seats from which on a pool counts as full: arrivals come in bursts."""

USUAL_TOKENS = 128.0
"""Tokens to come of a sequence where no report says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWork:
    """The replicas of one role.

    Attributes:
        num_replicas: live ones.
        num_sequences: running and waiting.
        num_waiting: of these.
        tokens_per_s: their output.
        ttft_p95_s: measured, averaged over replicas by requests; None without enough of them.
        tpot_p95_s: the same for the time per output token.
    """

    num_replicas: int = 0
    num_sequences: int = 0
    num_waiting: int = 0
    tokens_per_s: float = 0.0
    ttft_p95_s: float | None = None
    tpot_p95_s: float | None = None

    def is_full(self, max_num_seqs: int) -> bool:
        """True when nearly all of its seats are taken, so many of each replica."""
        return self.num_sequences >= FULL_RATIO * self.num_replicas * max_num_seqs


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """All live replicas.

    Attributes:
        speculative: the pool of that role.
        batch: the other one.
        times: average of the fitted step times; None while there is no fit.
        acceptance_rate: average over the replicas that drafted; None while none did.
        mean_context_tokens: KV entries of a running sequence.
        tokens_per_sequence: to come, an upper estimate.
        kv_sequences: running sequences that would fill the KV blocks of one replica; None while unknown.
    """

    speculative: PoolWork
    batch: PoolWork
    times: StepTimes | None = None
    acceptance_rate: float | None = None
    mean_context_tokens: float = 0.0
    tokens_per_sequence: float = USUAL_TOKENS
    kv_sequences: float | None = None

    @property
    def num_replicas(self) -> int:
        """Live ones."""
        return self.speculative.num_replicas + self.batch.num_replicas

    @property
    def has_both_pools(self) -> bool:
        """Neither pool is empty."""
        return bool(self.speculative.num_replicas and self.batch.num_replicas)

    @property
    def num_sequences(self) -> int:
        """Running and waiting, of both pools."""
        return self.speculative.num_sequences + self.batch.num_sequences


def live_replicas(config: PoolConfig, snapshot: Snapshot, now_s: float) -> dict[str, ReplicaReport]:
    """The reports that count, by id: neither old nor of a replica that is going away."""
    oldest_s = now_s - config.stale_after_s
    return {
        replica_id: heard.report
        for replica_id, heard in snapshot.replicas.items()
        if heard.heard_s >= oldest_s and not heard.report.is_draining
    }


def demand_of(live: Mapping[str, ReplicaReport], roles: Mapping[str, Role]) -> Demand:
    """The reports put together.

    Args:
        live: reports by replica.
        roles: wanted role by replica; a replica's load counts for that one.
    """
    reports = list(live.values())
    num_sequences = sum(each.num_running + each.num_waiting for each in reports)
    num_tokens = sum(each.num_outstanding_tokens for each in reports)
    rates = [each.acceptance_rate for each in reports if each.acceptance_rate is not None]
    speculative = [report for replica_id, report in live.items() if roles[replica_id] is Role.SPECULATIVE]
    batch = [report for replica_id, report in live.items() if roles[replica_id] is Role.BATCH]
    return Demand(
        speculative=_work(speculative),
        batch=_work(batch),
        times=mean_step_times(each.step_times for each in reports if each.step_times is not None),
        acceptance_rate=sum(rates) / len(rates) if rates else None,
        mean_context_tokens=_mean_context(reports),
        tokens_per_sequence=num_tokens / num_sequences if num_tokens and num_sequences else USUAL_TOKENS,
        kv_sequences=_kv_sequences(reports),
    )


def _work(reports: list[ReplicaReport]) -> PoolWork:
    return PoolWork(
        num_replicas=len(reports),
        num_sequences=sum(each.num_running + each.num_waiting for each in reports),
        num_waiting=sum(each.num_waiting for each in reports),
        tokens_per_s=sum(each.tokens_per_s for each in reports),
        ttft_p95_s=_by_requests([(each.latency.ttft_p95_s, each.latency.num_requests) for each in reports]),
        tpot_p95_s=_by_requests([(each.latency.tpot_p95_s, each.latency.num_requests) for each in reports]),
    )


def _by_requests(values: list[tuple[float | None, int]]) -> float | None:
    known = [(value, num_requests) for value, num_requests in values if value is not None and num_requests > 0]
    total = sum(num_requests for _, num_requests in known)
    return sum(value * num_requests for value, num_requests in known) / total if total >= MIN_REQUESTS else None


def _mean_context(reports: list[ReplicaReport]) -> float:
    num_running = sum(each.num_running for each in reports)
    return sum(each.num_running * each.mean_context_tokens for each in reports) / num_running if num_running else 0.0


def _kv_sequences(reports: list[ReplicaReport]) -> float | None:
    # A nearly empty cache says nothing: what it holds may be prefixes that nobody uses.
    full = [each for each in reports if each.kv_usage_ratio >= 0.1 and each.num_running]
    usage = sum(each.kv_usage_ratio for each in full)
    return sum(each.num_running for each in full) / usage if full else None
