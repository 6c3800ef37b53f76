"""A closed loop for the pool controller: replicas that obey after a heartbeat, loads by a formula from step times."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from autoscaling.inversion import Rate, role_rate
from autoscaling.pool_config import PoolConfig
from autoscaling.pool_controller import ControllerState, heard_all, initial_state, overview, reply_for, step
from autoscaling.types import Decision, LatencyWindow, Move, ReplicaReport, Snapshot
from cluster.engine.step_time import StepTimes
from cluster.types import Role

TIMES = StepTimes(knots=((1, 0.020), (32, 0.021), (64, 0.030), (128, 0.052), (256, 0.1)), context_s=2e-7)
"""Reading weights bounds a round up to about 32 rows; beyond, arithmetic does."""

TOKENS_PER_REQUEST = 200


@dataclass(frozen=True, kw_only=True)
class Work:
    """Sequences that are there all the time, by what they want.

    Attributes:
        auto: fills free speculative seats first, then goes to the batch pool.
        interactive: goes to the speculative pool, and waits there for a seat.
        bulk: goes to the batch pool.
    """

    auto: int = 0
    interactive: int = 0
    bulk: int = 0


@dataclass(kw_only=True)
class FakeReplica:
    """One verifier replica.

    Attributes:
        role: what it does.
        obeys: changes its role when told so.
        is_silent: reports nothing.
        is_draining: takes no new work.
        is_known: has reported; before that it gets no work.
        load: sequences that are there.
    """

    role: Role
    obeys: bool = True
    is_silent: bool = False
    is_draining: bool = False
    is_known: bool = False
    load: int = 0


@dataclass
class FakeCluster:
    """Replicas and their controller. Time is counted in heartbeats."""

    config: PoolConfig
    replicas: dict[str, FakeReplica]
    work: Work = field(default_factory=Work)
    times: StepTimes = TIMES
    acceptance_rate: float = 0.7
    noise_ratio: float = 0.0
    seed: int = 0
    repeats: int = 1
    now_s: float = 100.0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.state: ControllerState = initial_state()
        self.snapshot = Snapshot()
        self.decisions: list[Decision] = []

    @property
    def moves(self) -> list[Move]:
        return [decision.move for decision in self.decisions if decision.move is not None]

    @property
    def num_speculative(self) -> int:
        return len(self._pool(Role.SPECULATIVE))

    @property
    def tokens_per_s(self) -> float:
        return sum(self._rate(each).tokens_per_s for each in self.replicas.values())

    def run(self, seconds: float) -> list[Move]:
        """Let time pass; returns the moves that began."""
        num_before = len(self.decisions)
        for _ in range(round(seconds / self.config.heartbeat_s)):
            self.beat()
        return [each.move for each in self.decisions[num_before:] if each.move is not None]

    def beat(self) -> Decision:
        """One heartbeat period: work spreads, replicas report, the controller decides, replicas obey."""
        self.now_s += self.config.heartbeat_s
        self._spread()
        reports = [self.report(name) for name, each in self.replicas.items() if not each.is_silent]
        for _ in range(self.repeats):
            self.snapshot = heard_all(self.snapshot, reports, self.now_s)
            self.state, decision = step(self.config, self.state, self.snapshot, self.now_s)
            self.decisions.append(decision)
            seen = overview(self.config, self.snapshot, self.now_s)
        for report in reports:
            self.replicas[report.replica_id].is_known = True
            if self.replicas[report.replica_id].obeys:
                self.replicas[report.replica_id].role = reply_for(decision, seen, report).role
        return decision

    def report(self, name: str) -> ReplicaReport:
        each = self.replicas[name]
        rate = self._rate(each)
        seats = self.config.max_num_seqs(each.role)
        load = round(each.load * self._noise())
        ttft_s = 0.05 + rate.num_waiting * TOKENS_PER_REQUEST / max(rate.tokens_per_s, 1.0)
        factor = self._noise()
        times = replace(self.times, knots=tuple((rows, seconds * factor) for rows, seconds in self.times.knots))
        return ReplicaReport(
            replica_id=name,
            role=each.role,
            num_running=min(load, seats),
            num_waiting=max(load - seats, 0),
            num_outstanding_tokens=load * TOKENS_PER_REQUEST,
            tokens_per_s=rate.tokens_per_s * self._noise(),
            acceptance_rate=self.acceptance_rate if each.role is Role.SPECULATIVE and load else None,
            mean_context_tokens=400.0,
            step_times=times,
            latency=LatencyWindow(
                ttft_p95_s=ttft_s * self._noise() if load else None,
                tpot_p95_s=rate.tpot_s * self._noise() if load else None,
                num_requests=load,
            ),
            is_draining=each.is_draining,
        )

    def _spread(self) -> None:
        speculative, batch = self._pool(Role.SPECULATIVE), self._pool(Role.BATCH)
        seats = len(speculative) * self.config.speculative_max_num_seqs
        wanted = self.work.interactive + self.work.auto
        in_speculative = self.work.interactive + min(self.work.auto, max(seats - self.work.interactive, 0))
        in_batch = self.work.bulk + wanted - in_speculative
        if not batch or not speculative:
            in_speculative, in_batch = (in_speculative + in_batch, 0) if speculative else (0, in_speculative + in_batch)
        for each in self.replicas.values():
            each.load = 0
        for pool, amount in ((speculative, in_speculative), (batch, in_batch)):
            for index, each in enumerate(pool):
                each.load = amount // len(pool) + (index < amount % len(pool))

    def _pool(self, role: Role) -> list[FakeReplica]:
        takers = (each for each in self.replicas.values() if not each.is_silent and not each.is_draining)
        return [each for each in takers if each.role is role and each.is_known]

    def _rate(self, each: FakeReplica) -> Rate:
        return role_rate(
            self.times,
            each.role,
            acceptance_rate=self.acceptance_rate,
            concurrency=each.load,
            max_num_seqs=self.config.max_num_seqs(each.role),
            max_tokens=7,
            mean_context_tokens=400.0,
        )

    def _noise(self) -> float:
        return 1 + self.random.uniform(-self.noise_ratio, self.noise_ratio)


def cluster(roles: str, config: PoolConfig | None = None, **settings: Any) -> FakeCluster:
    """A cluster of replicas r0, r1, ... with a role for each letter of `roles`: s or b."""
    names = {"s": Role.SPECULATIVE, "b": Role.BATCH}
    replicas = {f"r{index}": FakeReplica(role=names[letter]) for index, letter in enumerate(roles)}
    return FakeCluster(config or PoolConfig(), replicas, **settings)
