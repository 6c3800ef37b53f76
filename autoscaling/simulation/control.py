"""The production controller, policy and ranking on simulated time.

Reports are what `deployments.load_report` would say of a real replica. A gateway offers the ranking a bounded random
part of the wanted pool instead of every replica: looking at eight of them finds nearly as idle a one as looking at a
thousand.
"""

from collections import Counter, deque
from collections.abc import Sequence
from random import Random

from autoscaling.pool_controller import ControllerState, heard_all, initial_state, overview, pin, reply_for, step
from autoscaling.simulation.cost import CostModel
from autoscaling.simulation.modes import Mode
from autoscaling.simulation.replica import SimReplica, Tally
from autoscaling.simulation.workload import SimRequest, TrafficClass
from autoscaling.types import LatencyWindow, Pin, ReplicaReport, Snapshot
from cluster.routing.policies import choose
from cluster.routing.ranking import ReplicaLoad, rank_replicas
from cluster.routing.types import DomainStats, RouteRequest, RouteSnapshot
from cluster.types import Role

WINDOW_S = 10.0
"""Load and latencies of a report are those of this long, as in production."""


class ReplicaMeter:
    """What a replica remembers for its reports."""

    __slots__ = ("_marks", "_ttft")

    def __init__(self) -> None:
        self._ttft: deque[tuple[float, float]] = deque()
        self._marks: deque[tuple[float, float, float, float]] = deque([(0.0, 0.0, 0.0, 0.0)])

    def began(self, request: SimRequest, now_s: float) -> None:
        """A prompt was read."""
        self._ttft.append((now_s, now_s - request.arrival_s))

    def report(self, replica: SimReplica, cost: CostModel, now_s: float) -> ReplicaReport:
        """The report of this moment."""
        replica.advance(now_s)
        marks = self._marks
        while len(marks) > 1 and marks[0][0] < now_s - WINDOW_S:
            marks.popleft()
        begin_s, output, drafted, accepted = marks[0]
        marks.append((now_s, replica.output_tokens, replica.num_drafted, replica.num_accepted))
        num_drafted = replica.num_drafted - drafted
        return ReplicaReport(
            replica_id=replica.replica_id,
            role=replica.role,
            num_running=replica.num_running,
            num_waiting=len(replica.waiting),
            num_outstanding_tokens=replica.num_outstanding_tokens,
            kv_usage_ratio=replica.kv_usage_ratio,
            tokens_per_s=(replica.output_tokens - output) / max(now_s - begin_s, 1e-3),
            acceptance_rate=(replica.num_accepted - accepted) / num_drafted if num_drafted > 0 else None,
            mean_context_tokens=replica.mean_context_tokens,
            step_times=cost.times_at(replica.num_running),
            latency=self._latency(replica, now_s),
            kv_tax_tokens=cost.kv_tax_tokens if replica.role is Role.SPECULATIVE else 0,
        )

    def _latency(self, replica: SimReplica, now_s: float) -> LatencyWindow:
        first = self._ttft
        while first and first[0][0] < now_s - WINDOW_S:
            first.popleft()
        values = sorted(value for _, value in first)
        if replica.waiting and (not values or now_s - replica.waiting[0].arrival_s > values[-1]):
            values.append(now_s - replica.waiting[0].arrival_s)
        return LatencyWindow(
            ttft_p95_s=values[-1 - len(values) // 20] if values else None,
            tpot_p95_s=replica.slowest_tpot_s(),
            num_requests=max(len(values), replica.num_decoding),
        )


class ControlPlane:
    """Routing and roles of a simulated cluster. Mutable.

    Args:
        mode: how the cluster is run.
        replicas: all of them.
        cost: of each.
        classes: of the traffic.
        tally: counts over all replicas.
        random: which replicas a gateway looks at.
        num_gateways: among which the requests in progress are divided.
        num_candidates: replicas that a gateway looks at.
    """

    def __init__(
        self,
        mode: Mode,
        replicas: Sequence[SimReplica],
        cost: CostModel,
        *,
        classes: Sequence[TrafficClass],
        tally: Tally,
        random: Random,
        num_gateways: int,
        num_candidates: int,
    ) -> None:
        self._mode, self._replicas, self._cost, self._classes, self._tally = mode, replicas, cost, classes, tally
        self._draw, self._num_gateways, self._num_candidates = random.random, num_gateways, num_candidates
        self._meters = [ReplicaMeter() for _ in replicas]
        self._by_id = {each.replica_id: index for index, each in enumerate(replicas)}
        self._state: ControllerState = initial_state()
        if mode.num_speculative is not None:
            self._state = pin(self._state, Pin(num_speculative=mode.num_speculative, until_s=1e18))
        self._snapshot = Snapshot()
        self._route_snapshot = RouteSnapshot()
        self._heard_s = 0.0
        self._marks: deque[tuple[float, ...]] = deque()
        self.num_ended = [0] * len(classes)
        self.reasons: Counter[str] = Counter()
        self._pools: dict[Role, list[int]] = {}
        self.roles_changed()

    def began(self, index: int, request: SimRequest, now_s: float) -> None:
        """A replica read a prompt."""
        self._meters[index].began(request, now_s)

    def roles_changed(self) -> None:
        """Sort the replicas by role again."""
        self._pools = {role: [index for index, each in enumerate(self._replicas) if each.role is role] for role in Role}

    @property
    def num_speculative(self) -> int:
        """Replicas of role speculative."""
        return len(self._pools[Role.SPECULATIVE])

    def route(self, request: SimRequest, num_in_progress: int, now_s: float) -> int:
        """Index of the replica that takes a request; decides as well whether it may be drafted for."""
        kind = self._classes[request.class_index]
        route = choose(
            self._mode.policy,
            RouteRequest(
                service_tier=kind.service_tier,
                domain=kind.domain,
                temperature=kind.temperature,
                num_prompt_tokens=request.num_prompt_tokens,
                max_tokens=request.max_tokens,
            ),
            self._seen(num_in_progress // self._num_gateways, now_s),
        )
        self.reasons[route.reason.value] += 1
        request.drafts = route.drafts
        return self._by_id[rank_replicas(self._candidates(route.pool), route.pool)[0][0]]

    def heartbeat(self, now_s: float) -> list[tuple[int, Role]]:
        """All replicas report, the controller decides; returns the changes of role that it asks for."""
        config = self._mode.pools
        reports = [
            meter.report(each, self._cost, now_s) for each, meter in zip(self._replicas, self._meters, strict=True)
        ]
        self._snapshot = heard_all(self._snapshot, reports, now_s)
        self._state, decision = step(config, self._state, self._snapshot, now_s)
        seen = overview(config, self._snapshot, now_s)
        self._heard_s = now_s
        self._route_snapshot = RouteSnapshot(
            acceptance_rate=self._acceptance_rate(), pools=seen.pools, domains=self._domains(now_s)
        )
        wanted = ((index, reply_for(decision, seen, report).role) for index, report in enumerate(reports))
        return [(index, role) for index, role in wanted if role is not self._replicas[index].role]

    def _seen(self, num_active: int, now_s: float) -> RouteSnapshot:
        last = self._route_snapshot
        return RouteSnapshot(
            num_active=num_active,
            acceptance_rate=last.acceptance_rate,
            pools=last.pools,
            domains=last.domains,
            age_s=now_s - self._heard_s,
        )

    def _candidates(self, pool: Role) -> list[ReplicaLoad]:
        indices: Sequence[int] = self._pools[pool] or range(len(self._replicas))
        if len(indices) > self._num_candidates:
            size = len(indices)
            indices = [indices[int(self._draw() * size)] for _ in range(self._num_candidates)]
        replicas = self._replicas
        return [replicas[index].load() for index in indices]

    def _acceptance_rate(self) -> float:
        """Accepted / drafted since the oldest mark; 1 while nothing was drafted."""
        first = self._marks[0] if self._marks else (0.0,) * (1 + 4 * len(self._classes))
        size = len(self._classes)
        drafted = sum(self._tally.drafted[:size]) - sum(first[1 : 1 + size])
        accepted = sum(self._tally.accepted[:size]) - sum(first[1 + size : 1 + 2 * size])
        return min(1.0, accepted / drafted) if drafted > 0 else 1.0

    def _domains(self, now_s: float) -> dict[str, DomainStats]:
        """Over all replicas and the last two minutes, as the controller would add up their reports."""
        size, marks, tally = len(self._classes), self._marks, self._tally
        now = (now_s, *tally.drafted[:size], *tally.accepted[:size], *tally.tokens[:size], *map(float, self.num_ended))
        first = marks[0] if marks else (0.0,) * len(now)
        marks.append(now)
        while marks[0][0] < now_s - 12 * WINDOW_S:
            marks.popleft()
        stats = {}
        for index, kind in enumerate(self._classes):
            drafted, accepted, tokens, ended = (
                now[1 + part * size + index] - first[1 + part * size + index] for part in range(4)
            )
            stats[kind.domain.value] = DomainStats(
                num_requests=int(ended),
                num_output_tokens=int(tokens),
                num_draft_tokens=int(drafted),
                num_accepted_tokens=int(accepted),
                entropy_bits=kind.entropy_bits if tokens else None,
            )
        return stats
