"""What came of a simulated run: counted while it runs, summed up when it ends."""

import math
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autoscaling.simulation.workload import SimRequest, TrafficClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Of a latency, in seconds; None where there was none."""

    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Percentiles":
        """The smallest values that 50, 95 and 99 % do not exceed."""
        ordered = sorted(values)
        picks = [ordered[math.ceil(share * len(ordered)) - 1] if ordered else None for share in (0.5, 0.95, 0.99)]
        return cls(p50=picks[0], p95=picks[1], p99=picks[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSummary:
    """One traffic class.

    Attributes:
        name: of the class.
        num_arrived: requests.
        num_ended: of those, by the end of the run.
        ttft_s: time to the first token.
        tpot_s: time per further token.
        slo_ratio: share of the ended ones within both objectives; None for a class without.
        acceptance_rate: accepted / drafted; None where nothing was drafted.
        mean_acceptance_length: 1 + accepted / rounds with drafts; None where there were none.
    """

    name: str
    num_arrived: int
    num_ended: int
    ttft_s: Percentiles
    tpot_s: Percentiles
    slo_ratio: float | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The cluster at one moment.

    Attributes:
        at_s: simulated time.
        arrivals_per_s: since the last sample.
        tokens_per_s: since the last sample.
        num_speculative: replicas of role speculative.
        num_running: requests in batches.
        num_waiting: requests that wait for a place.
    """

    at_s: float
    arrivals_per_s: float
    tokens_per_s: float
    num_speculative: int
    num_running: int
    num_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run.

    Attributes:
        mode: how the cluster was run.
        duration_s: simulated.
        num_replicas: of the cluster.
        num_arrived: requests.
        num_ended: of those.
        num_refused: of those, since the queue of the chosen replica was full (status 429).
        num_in_flight: of those, not ended at the end of the run.
        output_tokens: written by all replicas.
        tokens_per_s: the same per second.
        goodput_tokens_per_s: of requests that ended within both objectives, or that have none.
        slo_ratio: ended within both objectives, as a share of all that arrived and have objectives.
        ttft_s: of requests with objectives.
        tpot_s: of requests with objectives.
        acceptance_rate: accepted / drafted; None where nothing was drafted.
        mean_acceptance_length: 1 + accepted / rounds with drafts.
        wasted_ratio: refused draft tokens, as a share of all verified rows.
        utilisation: arithmetic done, as a share of the data sheet's dense figure over the whole run.
        busy_ratio: time in which replicas ran rounds.
        num_moves: changes of role.
        mean_speculative: replicas of role speculative, over time.
        cost_per_million: dollars for a million output tokens.
        joules_per_token: energy, by the assumption in `cost.py`.
        classes: each traffic class.
        samples: over time.
        reasons: routing decisions by reason.
    """

    mode: str
    duration_s: float
    num_replicas: int
    num_arrived: int
    num_ended: int
    num_refused: int
    num_in_flight: int
    output_tokens: float
    tokens_per_s: float
    goodput_tokens_per_s: float
    slo_ratio: float
    ttft_s: Percentiles
    tpot_s: Percentiles
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    wasted_ratio: float
    utilisation: float
    busy_ratio: float
    num_moves: int
    mean_speculative: float
    cost_per_million: float
    joules_per_token: float
    classes: tuple[ClassSummary, ...]
    samples: tuple[Sample, ...]
    reasons: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class Recorder:
    """Latencies of ended requests by class.

    Args:
        classes: of the traffic.
        ttft_slo_s: objective for the time to the first token.
        tpot_slo_s: objective for the time per further token.
    """

    def __init__(self, classes: Sequence[TrafficClass], *, ttft_slo_s: float, tpot_slo_s: float) -> None:
        self.classes = tuple(classes)
        self._ttft_slo_s, self._tpot_slo_s = ttft_slo_s, tpot_slo_s
        self.num_arrived = [0] * len(self.classes)
        self.num_met = [0] * len(self.classes)
        self.good_tokens = 0
        self.ttft_s = [array("d") for _ in self.classes]
        self.tpot_s = [array("d") for _ in self.classes]

    def ended(self, request: SimRequest, now_s: float) -> None:
        """A request wrote its last token."""
        index = request.class_index
        ttft_s = request.first_token_s - request.arrival_s
        tpot_s = (now_s - request.first_token_s) / max(1, request.num_output_tokens - 1)
        self.ttft_s[index].append(ttft_s)
        self.tpot_s[index].append(tpot_s)
        is_met = ttft_s <= self._ttft_slo_s and tpot_s <= self._tpot_slo_s
        self.num_met[index] += is_met
        if is_met or not self.classes[index].has_slo:
            self.good_tokens += request.num_output_tokens

    @property
    def num_ended(self) -> int:
        """Of all classes."""
        return sum(map(len, self.ttft_s))

    @property
    def slo_ratio(self) -> float:
        """Met, of all that arrived and have objectives; 1 where there are none."""
        with_slo = [index for index, each in enumerate(self.classes) if each.has_slo]
        arrived = sum(self.num_arrived[index] for index in with_slo)
        return sum(self.num_met[index] for index in with_slo) / arrived if arrived else 1.0

    def latencies(self, *, with_slo: bool = True) -> tuple[Percentiles, Percentiles]:
        """Times to the first token and per further token, over the classes with (or without) objectives."""
        chosen = [index for index, each in enumerate(self.classes) if each.has_slo is with_slo]
        first = [value for index in chosen for value in self.ttft_s[index]]
        further = [value for index in chosen for value in self.tpot_s[index]]
        return Percentiles.of(first), Percentiles.of(further)

    def class_summaries(
        self, drafted: Sequence[float], accepted: Sequence[float], rounds: Sequence[float]
    ) -> tuple[ClassSummary, ...]:
        """One for each class; the arguments are its counts of draft tokens, those accepted, and rounds with drafts."""
        return tuple(
            ClassSummary(
                name=each.name,
                num_arrived=self.num_arrived[index],
                num_ended=len(self.ttft_s[index]),
                ttft_s=Percentiles.of(self.ttft_s[index]),
                tpot_s=Percentiles.of(self.tpot_s[index]),
                slo_ratio=_ratio(self.num_met[index], len(self.ttft_s[index])) if each.has_slo else None,
                acceptance_rate=_ratio(accepted[index], drafted[index]),
                mean_acceptance_length=1 + accepted[index] / rounds[index] if rounds[index] else None,
            )
            for index, each in enumerate(self.classes)
        )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
