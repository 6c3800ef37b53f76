"""The event loop: arrivals, changes on replicas, heartbeats, in the order of simulated time."""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from random import Random

from autoscaling.simulation.control import ControlPlane
from autoscaling.simulation.cost import CostModel
from autoscaling.simulation.modes import Mode
from autoscaling.simulation.outcome import Outcome, Recorder, Sample
from autoscaling.simulation.rates import RateBook
from autoscaling.simulation.replica import SimReplica, Tally
from autoscaling.simulation.workload import SimRequest, Source, TrafficClass
from cluster.types import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A cluster and its traffic.

    Attributes:
        cost: of each replica.
        source: of requests.
        classes: of the traffic.
        num_replicas: all alike.
        duration_s: simulated.
        seed: the same seed gives the same run.
        prompt_rows: most prompt tokens in a pass.
        flip_s: how long a change of role takes.
        num_gateways: among which the requests in progress are divided.
        num_candidates: replicas that a gateway looks at for a request.
        sample_s: between two samples for pictures.
        max_queued_requests: a replica refuses a request when so many have no first token; as in production.
        max_queued_tokens: the same for their prompt tokens.
    """

    cost: CostModel
    source: Source
    classes: tuple[TrafficClass, ...]
    num_replicas: int
    duration_s: float
    seed: int = 0
    prompt_rows: int = 2048
    flip_s: float = 0.1
    num_gateways: int = 1
    num_candidates: int = 8
    sample_s: float = 10.0
    max_queued_requests: int = 512
    max_queued_tokens: int = 262_144


def simulate(plant: Plant, mode: Mode, on_progress: Callable[[float], None] = lambda _: None) -> Outcome:
    """Run a cluster in one mode.

    Args:
        plant: the cluster.
        mode: how it is run.
        on_progress: told the simulated time at each sample.
    """
    return _Run(plant, mode).until_end(on_progress)


class _Run:
    """One run, from nothing to its outcome."""

    def __init__(self, plant: Plant, mode: Mode) -> None:
        self.plant, self.mode = plant, mode
        rates = RateBook(plant.cost, plant.classes, mode.drafting)
        self.tally = Tally(rates.num_classes)
        pools = mode.pools
        num_speculative = mode.num_speculative
        self.replicas = [
            SimReplica(
                f"replica-{index:04d}",
                pools.initial_role() if num_speculative is None else list(Role)[index >= num_speculative],
                rates=rates,
                tally=self.tally,
                seats={role: pools.max_num_seqs(role) for role in Role},
                kv_capacity=plant.cost.kv_capacity_tokens,
                prompt_rows=plant.prompt_rows,
            )
            for index in range(plant.num_replicas)
        ]
        self.control = ControlPlane(
            mode,
            self.replicas,
            plant.cost,
            classes=plant.classes,
            tally=self.tally,
            random=Random(f"{plant.seed}/candidates"),
            num_gateways=plant.num_gateways,
            num_candidates=plant.num_candidates,
        )
        self.recorder = Recorder(plant.classes, ttft_slo_s=pools.ttft_slo_s, tpot_slo_s=pools.tpot_slo_s)
        self.requests, self.follow = plant.source.open(plant.seed)
        self.events: list[tuple[float, int, int]] = []  # time, replica, its version when the event was planned
        self.flips: list[tuple[float, int, Role]] = []
        self.samples: list[Sample] = []
        self.num_arrived = self.num_ended = self.num_refused = self.num_moves = 0
        self.speculative_s = self.counted_until_s = 0.0
        self.arrived_before, self.output_before = 0, 0.0

    def until_end(self, on_progress: Callable[[float], None]) -> Outcome:
        """Go from event to event."""
        duration_s, events = self.plant.duration_s, self.events
        heartbeat_s, sample_s = 0.0, self.plant.sample_s
        arrival = next(self.requests, None)
        while True:
            arrival_s = arrival.arrival_s if arrival is not None else inf
            event_s = events[0][0] if events else inf
            tick_s = min(heartbeat_s, sample_s, self.flips[0][0] if self.flips else inf)
            now_s = min(arrival_s, event_s, tick_s)
            if now_s >= duration_s:
                break
            if event_s <= now_s:
                self._replica_event()
            elif tick_s <= now_s:
                if self.flips and self.flips[0][0] <= now_s:
                    self._flip()
                elif heartbeat_s <= now_s:
                    self._heartbeat(now_s)
                    heartbeat_s += self.mode.pools.heartbeat_s
                else:
                    self._sample(now_s)
                    on_progress(now_s)
                    sample_s += self.plant.sample_s
            elif arrival is not None:
                self._arrive(arrival, now_s)
                arrival = next(self.requests, None)
        for replica in self.replicas:
            replica.advance(duration_s)
        self._count_roles(duration_s)
        if not self.samples or duration_s - self.samples[-1].at_s > self.plant.sample_s / 2:
            self._sample(duration_s)
        return self._outcome()

    def _arrive(self, request: SimRequest, now_s: float) -> None:
        self.recorder.num_arrived[request.class_index] += 1
        index = self.control.route(request, self.num_arrived - self.num_ended - self.num_refused, now_s)
        self.num_arrived += 1
        replica = self.replicas[index]
        if replica.num_queued and self._is_full(replica, request):
            self.num_refused += 1
        elif replica.add(request, now_s):
            self._plan(index, now_s)

    def _is_full(self, replica: SimReplica, request: SimRequest) -> bool:
        """Production refuses with status 429 then."""
        return (
            replica.num_queued >= self.plant.max_queued_requests
            or replica.queued_tokens + request.num_prompt_tokens > self.plant.max_queued_tokens
        )

    def _replica_event(self) -> None:
        now_s, index, version = heappop(self.events)
        replica = self.replicas[index]
        if version != replica.version:
            return
        began, ended = replica.settle(now_s)
        for request in began:
            self.control.began(index, request, now_s)
        for request in ended:
            self.num_ended += 1
            self.control.num_ended[request.class_index] += 1
            self.recorder.ended(request, now_s)
        self._plan(index, now_s)
        for _ in ended:
            following = self.follow(now_s)
            if following is not None:
                self._arrive(following, now_s)

    def _plan(self, index: int, now_s: float) -> None:
        replica = self.replicas[index]
        next_s = replica.plan()
        if next_s < inf:
            heappush(self.events, (now_s + next_s, index, replica.version))

    def _heartbeat(self, now_s: float) -> None:
        under_way = {index for _, index, _ in self.flips}
        for index, role in self.control.heartbeat(now_s):
            if index not in under_way:
                heappush(self.flips, (now_s + self.plant.flip_s, index, role))

    def _flip(self) -> None:
        now_s, index, role = heappop(self.flips)
        self._count_roles(now_s)
        self.replicas[index].set_role(role, now_s)
        self._plan(index, now_s)
        self.control.roles_changed()
        self.num_moves += 1

    def _count_roles(self, now_s: float) -> None:
        self.speculative_s += (now_s - self.counted_until_s) * self.control.num_speculative
        self.counted_until_s = now_s

    def _sample(self, now_s: float) -> None:
        for replica in self.replicas:
            replica.advance(now_s)
        before_s = self.samples[-1].at_s if self.samples else 0.0
        elapsed_s = max(now_s - before_s, 1e-9)
        output = sum(each.output_tokens for each in self.replicas)
        self.samples.append(
            Sample(
                at_s=now_s,
                arrivals_per_s=(self.num_arrived - self.arrived_before) / elapsed_s,
                tokens_per_s=(output - self.output_before) / elapsed_s,
                num_speculative=self.control.num_speculative,
                num_running=sum(each.num_running for each in self.replicas),
                num_waiting=sum(len(each.waiting) for each in self.replicas),
            )
        )
        self.arrived_before, self.output_before = self.num_arrived, output

    def _outcome(self) -> Outcome:
        plant, tally, recorder = self.plant, self.tally, self.recorder
        duration_s, num_replicas, cost = plant.duration_s, plant.num_replicas, plant.cost
        output = sum(each.output_tokens for each in self.replicas)
        drafted, accepted, rounds = sum(tally.drafted), sum(tally.accepted), sum(tally.rounds)
        busy_s = sum(each.busy_s for each in self.replicas)
        num_rows = sum(each.num_rows for each in self.replicas)
        energy_j = cost.energy_j(busy_s=busy_s, idle_s=duration_s * num_replicas - busy_s, num_rows=num_rows)
        ttft_s, tpot_s = recorder.latencies()
        return Outcome(
            mode=self.mode.name,
            duration_s=duration_s,
            num_replicas=num_replicas,
            num_arrived=self.num_arrived,
            num_ended=self.num_ended,
            num_refused=self.num_refused,
            num_in_flight=sum(each.num_ongoing for each in self.replicas),
            output_tokens=output,
            tokens_per_s=output / duration_s,
            goodput_tokens_per_s=recorder.good_tokens / duration_s,
            slo_ratio=recorder.slo_ratio,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            acceptance_rate=accepted / drafted if drafted else None,
            mean_acceptance_length=1 + accepted / rounds if rounds else None,
            wasted_ratio=(drafted - accepted) / num_rows if num_rows else 0.0,
            utilisation=num_rows * cost.row_flops_s / (duration_s * num_replicas),
            busy_ratio=busy_s / (duration_s * num_replicas),
            num_moves=self.num_moves,
            mean_speculative=self.speculative_s / duration_s,
            cost_per_million=cost.price_per_hour * num_replicas * duration_s / 3600 / output * 1e6 if output else 0.0,
            joules_per_token=energy_j / output if output else 0.0,
            classes=recorder.class_summaries(tally.drafted, tally.accepted, tally.rounds),
            samples=tuple(self.samples),
            reasons=dict(self.control.reasons),
        )
