"""What a verifier tells about its load: windows over its rounds and requests, and the report made from them."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autoscaling.types import LatencyWindow, ReplicaReport
from cluster.engine.step_time import StepTimes
from cluster.routing.types import DomainStats
from cluster.types import Request, RequestOutput, Role, SpeculationStats, StepStats

WINDOW_S = 10.0
"""Load and latencies are those of this long."""

DOMAIN_WINDOW_S = 120.0
"""Domains change slowly, and a domain's requests may be rare."""

PART_S = 2.0
"""A stream that lasts longer gives one time per output token for each such part of it."""

MAX_SAMPLES = 1024
MAX_DOMAINS = 16
_NUM_BUCKETS = 20


class WindowSums:
    """Sums of a few numbers over the last seconds, in a fixed number of buckets.

    Args:
        size: how many numbers.
        window_s: over how long, at most.
    """

    def __init__(self, size: int, window_s: float) -> None:
        self._size, self._window_s = size, window_s
        self._buckets: deque[tuple[int, list[float]]] = deque()

    def add(self, now_s: float, *values: float) -> None:
        """Add to the sums."""
        index = self._index(now_s)
        self._drop_old(index)
        if not self._buckets or self._buckets[-1][0] != index:
            self._buckets.append((index, [0.0] * self._size))
        sums = self._buckets[-1][1]
        for position, value in enumerate(values):
            sums[position] += value

    def sums(self, now_s: float) -> list[float]:
        """The sums over the window."""
        self._drop_old(self._index(now_s))
        return [sum(column) for column in zip(*(sums for _, sums in self._buckets), strict=True)] or [0.0] * self._size

    def span_s(self, now_s: float) -> float:
        """How long the sums have been gathered for: the window, or less right after a pause."""
        if not self._buckets:
            return self._window_s
        begin_s = self._buckets[0][0] * self._window_s / _NUM_BUCKETS
        return min(self._window_s, max(1.0, now_s - begin_s))

    def _index(self, now_s: float) -> int:
        return math.floor(now_s / self._window_s * _NUM_BUCKETS)

    def _drop_old(self, index: int) -> None:
        while self._buckets and self._buckets[0][0] <= index - _NUM_BUCKETS:
            self._buckets.popleft()


class Samples:
    """Values of the last seconds, at most `MAX_SAMPLES`."""

    def __init__(self) -> None:
        self._values: deque[tuple[float, float]] = deque(maxlen=MAX_SAMPLES)

    def add(self, now_s: float, value: float) -> None:
        """One more."""
        self._values.append((now_s, value))

    def values(self, now_s: float) -> list[float]:
        """Those of the window."""
        while self._values and self._values[0][0] < now_s - WINDOW_S:
            self._values.popleft()
        return [value for _, value in self._values]


@dataclass(slots=True, kw_only=True)
class _InFlight:
    """What is known of a choice that has not ended."""

    arrival_s: float
    num_prompt_tokens: int
    num_tokens_left: int
    domain: str
    num_output_tokens: int = 0
    part_begin_s: float | None = None
    part_num_tokens: int = 0


class LoadMeter:
    """Follows the rounds and requests of one engine. Bounded by what is in flight; not thread safe."""

    def __init__(self) -> None:
        self._last = StepStats()
        self._in_flight: dict[str, _InFlight] = {}
        self._num_outstanding_tokens = 0
        self._steps = WindowSums(3, WINDOW_S)
        self._ttft, self._tpot = Samples(), Samples()
        self._domains: dict[str, WindowSums] = {}  # of requests, output, drafted, accepted, with entropy, bits

    @property
    def num_in_flight(self) -> int:
        """Choices that have not ended."""
        return len(self._in_flight)

    def record_arrival(self, request: Request) -> None:
        """A choice was handed to the engine."""
        # Output of an earlier attempt is computed together with the prompt.
        num_prompt_tokens = len(request.prompt_token_ids) + len(request.output_token_ids)
        left = len(request.prompt_token_ids) + request.sampling.max_tokens
        self._in_flight[request.request_id] = _InFlight(
            arrival_s=request.arrival_s,
            num_prompt_tokens=num_prompt_tokens,
            num_tokens_left=left,
            domain=request.domain,
        )
        self._num_outstanding_tokens += left

    def record_drop(self, request_id: str) -> None:
        """A choice is gone; unknown ids are ignored."""
        choice = self._in_flight.pop(request_id, None)
        if choice is not None:
            self._num_outstanding_tokens -= choice.num_tokens_left

    def record_step(self, stats: StepStats, now_s: float) -> None:
        """A round was run."""
        self._last = stats
        num_accepted = sum(stats.accepted_per_position)
        self._steps.add(now_s, stats.num_output_tokens, stats.num_tried_tokens, num_accepted)

    def record_outputs(self, outputs: Iterable[RequestOutput], now_s: float) -> None:
        """What the round emitted; outputs of unknown choices are ignored."""
        for output in outputs:
            choice = self._in_flight.get(output.request_id)
            if choice is None:
                continue
            if output.token_ids:
                self._record_tokens(choice, output, now_s)
            if output.finish_reason is not None:
                self._end_part(choice, now_s)
                self._record_end(choice, output, now_s)
                self.record_drop(output.request_id)

    def report(
        self,
        replica_id: str,
        role: Role,
        now_s: float,
        *,
        step_times: StepTimes | None = None,
        kv_tax_tokens: int = 0,
        flip_s: float | None = None,
    ) -> ReplicaReport:
        """The report of this moment.

        Args:
            replica_id: Serve's id.
            role: in force.
            now_s: clock time.
            step_times: fitted by the engine, if they are.
            kv_tax_tokens: what drafting takes of the KV cache.
            flip_s: how long the last change of role took.
        """
        num_output, num_tried, num_accepted = self._steps.sums(now_s)
        num_running = min(self._last.num_running, self.num_in_flight)
        begun = [each for each in self._in_flight.values() if each.num_output_tokens]
        num_context = sum(each.num_prompt_tokens + each.num_output_tokens for each in begun)
        return ReplicaReport(
            replica_id=replica_id,
            role=role,
            num_running=num_running,
            num_waiting=self.num_in_flight - num_running,
            num_outstanding_tokens=self._num_outstanding_tokens,
            kv_usage_ratio=self._last.kv_cache_usage_ratio,
            tokens_per_s=num_output / self._steps.span_s(now_s),
            acceptance_rate=num_accepted / num_tried if num_tried else None,
            mean_context_tokens=num_context / len(begun) if begun else 0.0,
            step_times=step_times,
            latency=self._latency(now_s),
            domains=self._domain_stats(now_s),
            kv_tax_tokens=kv_tax_tokens,
            flip_s=flip_s,
        )

    def _record_tokens(self, choice: _InFlight, output: RequestOutput, now_s: float) -> None:
        num_new = len(output.token_ids)
        # The first token ends the prefill: from there on only output is outstanding.
        left = max(0, choice.num_tokens_left - num_new - (0 if choice.num_output_tokens else choice.num_prompt_tokens))
        self._num_outstanding_tokens -= choice.num_tokens_left - left
        choice.num_tokens_left = left
        choice.num_output_tokens += num_new
        if choice.part_begin_s is None:
            self._ttft.add(now_s, now_s - choice.arrival_s)
            choice.part_begin_s = now_s
            return
        choice.part_num_tokens += num_new
        if now_s - choice.part_begin_s >= PART_S:
            self._end_part(choice, now_s)

    def _end_part(self, choice: _InFlight, now_s: float) -> None:
        if choice.part_begin_s is not None and choice.part_num_tokens:
            self._tpot.add(now_s, (now_s - choice.part_begin_s) / choice.part_num_tokens)
            choice.part_begin_s, choice.part_num_tokens = now_s, 0

    def _record_end(self, choice: _InFlight, output: RequestOutput, now_s: float) -> None:
        domain, num_tokens = choice.domain, choice.num_output_tokens
        if not domain or (domain not in self._domains and len(self._domains) >= MAX_DOMAINS):
            return
        stats = output.speculation or SpeculationStats()
        has_entropy = stats.entropy_bits_sum > 0.0
        self._domains.setdefault(domain, WindowSums(6, DOMAIN_WINDOW_S)).add(
            now_s,
            1,
            num_tokens,
            stats.num_acceptable_tokens,
            stats.num_accepted_tokens,
            num_tokens if has_entropy else 0,
            stats.entropy_bits_sum,
        )

    def _latency(self, now_s: float) -> LatencyWindow:
        first, parts = self._ttft.values(now_s), self._tpot.values(now_s)
        # Who waits longer than all that were served is late already, and must not be heard of only when it is over.
        longest = max(first, default=0.0)
        waits = (now_s - each.arrival_s for each in self._in_flight.values() if each.part_begin_s is None)
        first += [wait_s for wait_s in waits if wait_s > longest]
        return LatencyWindow(
            ttft_p95_s=percentile(first, 0.95),
            tpot_p95_s=percentile(parts, 0.95),
            num_requests=max(len(first), len(parts)),
        )

    def _domain_stats(self, now_s: float) -> dict[str, DomainStats]:
        found = {}
        for name, sums in list(self._domains.items()):
            num_requests, num_output, num_drafted, num_accepted, num_with_bits, bits = sums.sums(now_s)
            if not num_requests:
                del self._domains[name]
                continue
            found[name] = DomainStats(
                num_requests=int(num_requests),
                num_output_tokens=int(num_output),
                num_draft_tokens=int(num_drafted),
                num_accepted_tokens=int(num_accepted),
                entropy_bits=bits / num_with_bits if num_with_bits else None,
            )
        return found


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest of the values that at least this share of them does not exceed; None for no values.

    Args:
        values: in any order.
        share: above 0, at most 1.
    """
    if not values:
        return None
    return sorted(values)[math.ceil(share * len(values)) - 1]
