"""What the pool controller hears, remembers and decides."""

from dataclasses import dataclass, field
from enum import StrEnum

from cluster.engine.step_time import StepTimes
from cluster.routing.types import DomainStats, PoolLoad
from cluster.types import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyWindow:
    """Latencies of the requests that ended in the last seconds, or of their parts. None where there were none.

    Attributes:
        ttft_p95_s: time to the first token.
        tpot_p95_s: time per output token.
        num_requests: how many it stands on.
    """

    ttft_p95_s: float | None = None
    tpot_p95_s: float | None = None
    num_requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReport:
    """One heartbeat of a verifier replica.

    Attributes:
        replica_id: Serve's id.
        role: what it does now.
        num_running: sequences in its batch.
        num_waiting: sequences that wait for a place in it.
        num_outstanding_tokens: prompt tokens to compute and output tokens to come, an upper estimate.
        kv_usage_ratio: used share of its KV blocks, 0..1.
        tokens_per_s: output of the last seconds.
        acceptance_rate: chance that a draft token was accepted after those before it, of the last seconds; None while
            nothing was drafted.
        mean_context_tokens: KV entries of a running sequence, on average.
        step_times: fitted while serving; None before the first fit.
        latency: of its requests.
        domains: by `Domain` value.
        kv_tax_tokens: KV capacity that role speculative takes from the target, in tokens.
        flip_s: how long its last change of role took; None before the first.
        is_draining: takes no new work, will go away.
    """

    replica_id: str
    role: Role
    num_running: int = 0
    num_waiting: int = 0
    num_outstanding_tokens: int = 0
    kv_usage_ratio: float = 0.0
    tokens_per_s: float = 0.0
    acceptance_rate: float | None = None
    mean_context_tokens: float = 0.0
    step_times: StepTimes | None = None
    latency: LatencyWindow = LatencyWindow()
    domains: dict[str, DomainStats] = field(default_factory=dict)
    kv_tax_tokens: int = 0
    flip_s: float | None = None
    is_draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardReplica:
    """A replica's last report and when it came.

    Attributes:
        report: the last one.
        heard_s: clock time.
    """

    report: ReplicaReport
    heard_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster as the controller sees it.

    Attributes:
        replicas: those heard of lately, by id.
    """

    replicas: dict[str, HeardReplica] = field(default_factory=dict)


class DecisionReason(StrEnum):
    """Why the controller did what it did in one step.

    - steady: the split in force is the best one, or nearly.
    - no_replicas: nothing was heard of any.
    - single_replica: there is nothing to divide, so its role follows the load alone.
    - moving: a change of role is not confirmed yet.
    - cooldown: the last change was too short ago.
    - waiting: another split looks better, but not for long enough yet.
    - slo: a latency objective is missed, and another split misses it less.
    - throughput: another split promises clearly more tokens per second within the objectives.
    - headroom: nothing is lost by more speculative replicas, and they answer the next burst sooner.
    - bounds: a pool is smaller or larger than allowed.
    - pinned: an operator has fixed the split.
    - dry_run: a move would be made, but moves are switched off.
    - stale: too few fresh reports to decide.
    """

    STEADY = "steady"
    NO_REPLICAS = "no_replicas"
    SINGLE_REPLICA = "single_replica"
    MOVING = "moving"
    COOLDOWN = "cooldown"
    WAITING = "waiting"
    SLO = "slo"
    THROUGHPUT = "throughput"
    HEADROOM = "headroom"
    BOUNDS = "bounds"
    PINNED = "pinned"
    DRY_RUN = "dry_run"
    STALE = "stale"


MOVING_REASONS = (
    DecisionReason.SLO,
    DecisionReason.THROUGHPUT,
    DecisionReason.HEADROOM,
    DecisionReason.BOUNDS,
    DecisionReason.PINNED,
)
"""Reasons for which a replica changes its role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One replica changes its role.

    Attributes:
        replica_id: which one.
        role: its new role.
        began_s: clock time of the decision.
    """

    replica_id: str
    role: Role
    began_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """An operator's word on the split.

    Attributes:
        num_speculative: replicas of role speculative.
        until_s: clock time at which it ends.
    """

    num_speculative: int
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one step decided.

    Attributes:
        at_s: clock time.
        reason: why.
        move: the change that begins now; None for none.
        roles: wanted role of every replica heard of, the move included.
        num_replicas: how many replicas the load asks for, bounds applied.
        inputs: the figures that decided, by name, for the log.
    """

    at_s: float
    reason: DecisionReason
    move: Move | None = None
    roles: dict[str, Role] = field(default_factory=dict)
    num_replicas: int = 0
    inputs: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """What the controller answers to a report.

    Attributes:
        role: what the replica should do from now on.
        num_replicas: how many verifier replicas the load asks for; read by the autoscaling policy.
        pools: load by role, for gateways and `explain`.
        domains: recent statistics over all replicas.
    """

    role: Role
    num_replicas: int = 0
    pools: dict[Role, PoolLoad] = field(default_factory=dict)
    domains: dict[str, DomainStats] = field(default_factory=dict)
