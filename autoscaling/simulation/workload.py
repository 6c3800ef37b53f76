"""Who asks for what: classes of requests, and where requests come from. All is drawn from a seed."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Protocol

from autoscaling.simulation.arrivals import Arrivals
from cluster.routing.types import Domain


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficClass:
    """Requests that are alike.

    Attributes:
        name: how reports call it.
        domain: kind of text.
        share: weight among the classes, > 0.
        acceptance_rate: chance that a draft token is accepted, given that all before it were.
        mean_prompt_tokens: mean of a log-normal distribution.
        mean_output_tokens: the same for the answer.
        spread: standard deviation of the logarithm of both lengths; 0 for equal lengths.
        entropy_bits: the target's, per token.
        temperature: of sampling.
        service_tier: priority, flex or auto, as in a request.
        has_slo: its latency counts for goodput; bulk work counts whenever it is done.
        draft_ratio: share of rounds for which there is a draft at all (prompt lookup finds none in many).
        measured_survivals: chance that draft token i is accepted, where it was measured; else acceptance_rate ** i.
    """

    name: str
    domain: Domain
    share: float = 1.0
    acceptance_rate: float = 0.65
    mean_prompt_tokens: float = 512.0
    mean_output_tokens: float = 256.0
    spread: float = 0.6
    entropy_bits: float = 2.0
    temperature: float = 0.7
    service_tier: str = "auto"
    has_slo: bool = True
    draft_ratio: float = 1.0
    measured_survivals: tuple[float, ...] = ()

    def survivals(self, num_tokens: int) -> tuple[float, ...]:
        """Chance that draft token i is accepted, where there is a draft; 0 behind those that were measured."""
        if self.measured_survivals:
            return (*self.measured_survivals, *(0.0 for _ in range(num_tokens)))[:num_tokens]
        return tuple(self.acceptance_rate**place for place in range(1, num_tokens + 1))


class SimRequest:
    """A request on its way through the cluster. Mutable: an hour of a large cluster has a million of them.

    Attributes:
        arrival_s: when it came.
        num_prompt_tokens: to read.
        num_output_tokens: to write, known to nobody but the simulator.
        class_index: its traffic class.
        first_token_s: when its prompt was read; negative before.
        max_tokens: what the client allows: the next power of two.
        drafts: it may use drafts.
    """

    __slots__ = (
        "arrival_s", "class_index", "drafts", "first_token_s", "max_tokens", "num_output_tokens", "num_prompt_tokens",
    )  # fmt: skip

    def __init__(self, arrival_s: float, num_prompt_tokens: int, num_output_tokens: int, class_index: int) -> None:
        self.arrival_s = arrival_s
        self.num_prompt_tokens, self.num_output_tokens = num_prompt_tokens, num_output_tokens
        self.class_index = class_index
        self.first_token_s = -1.0
        self.max_tokens = 1 << (num_output_tokens - 1).bit_length()
        self.drafts = True

    @property
    def kv_tokens(self) -> int:
        """Cache entries when it ends."""
        return self.num_prompt_tokens + self.num_output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEntry:
    """One line of a trace.

    Attributes:
        arrival_s: seconds from the start.
        prompt_tokens: to read.
        output_tokens: to write.
        domain: kind of text.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    domain: Domain


class RequestDraw:
    """Draws what is asked for. Classes and lengths come from generators of their own: another mix moves no arrival.

    Args:
        classes: one is drawn for each request by its share.
        seed: the same seed gives the same requests.
    """

    def __init__(self, classes: Sequence[TrafficClass], seed: int) -> None:
        self._classes = tuple(classes)
        self._picks, self._lengths = Random(f"{seed}/classes"), Random(f"{seed}/lengths")
        self._indices = range(len(self._classes))
        self._thresholds = list(accumulate(each.share for each in classes))

    def at(self, arrival_s: float) -> SimRequest:
        """The next request."""
        index = self._picks.choices(self._indices, cum_weights=self._thresholds)[0]
        kind = self._classes[index]
        prompt = _length(kind.mean_prompt_tokens, kind.spread, self._lengths)
        output = _length(kind.mean_output_tokens, kind.spread, self._lengths)
        return SimRequest(arrival_s, prompt, output, index)


class Source(Protocol):
    """Where requests come from."""

    def open(self, seed: int) -> tuple[Iterator[SimRequest], Callable[[float], SimRequest | None]]:
        """Requests in the order of their arrival, and what follows when one ends (None: nothing)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """Clients that do not wait for each other.

    Attributes:
        arrivals: when.
        classes: what.
    """

    arrivals: Arrivals
    classes: tuple[TrafficClass, ...]

    def open(self, seed: int) -> tuple[Iterator[SimRequest], Callable[[float], SimRequest | None]]:
        """See `Source`."""
        draw = RequestDraw(self.classes, seed)
        return (draw.at(time_s) for time_s in self.arrivals.times(Random(f"{seed}/arrivals"))), lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """Clients that send their next request when the last one ended, as calibrations and many benchmarks do.

    Attributes:
        concurrency: how many.
        classes: what.
    """

    concurrency: int
    classes: tuple[TrafficClass, ...]

    def open(self, seed: int) -> tuple[Iterator[SimRequest], Callable[[float], SimRequest | None]]:
        """See `Source`."""
        draw = RequestDraw(self.classes, seed)
        return (draw.at(0.0) for _ in range(self.concurrency)), draw.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The requests of a trace, each in the first class of its domain (the last class, where there is none).

    Attributes:
        entries: of the trace, in any order.
        classes: what they are.
    """

    entries: tuple[TraceEntry, ...]
    classes: tuple[TrafficClass, ...]

    def open(self, seed: int) -> tuple[Iterator[SimRequest], Callable[[float], SimRequest | None]]:
        """See `Source`; the seed decides nothing."""
        by_domain = {each.domain: index for index, each in reversed(list(enumerate(self.classes)))}
        last = len(self.classes) - 1
        requests = (
            SimRequest(entry.arrival_s, entry.prompt_tokens, entry.output_tokens, by_domain.get(entry.domain, last))
            for entry in sorted(self.entries, key=lambda entry: entry.arrival_s)
        )
        return requests, lambda _: None


def _length(mean: float, spread: float, random: Random) -> int:
    """At least 1; log-normal with this mean."""
    if spread == 0:
        return max(1, round(mean))
    return max(1, round(random.lognormvariate(math.log(mean) - spread * spread / 2, spread)))


SEED_MIX = (
    TrafficClass(
        name="JSON", domain=Domain.STRUCTURED_JSON, share=0.2, acceptance_rate=0.85, entropy_bits=0.8,
        mean_prompt_tokens=600, mean_output_tokens=200, temperature=0.0, service_tier="priority",
    ),
    TrafficClass(
        name="code", domain=Domain.CODE_SYNTHESIS, share=0.2, acceptance_rate=0.78, entropy_bits=1.0,
        mean_prompt_tokens=900, mean_output_tokens=400, temperature=0.2,
    ),
    TrafficClass(
        name="summary", domain=Domain.RAG_SUMMARY, share=0.15, acceptance_rate=0.72, entropy_bits=1.2,
        mean_prompt_tokens=2000, mean_output_tokens=250, temperature=0.3,
    ),
    TrafficClass(
        name="chat", domain=Domain.GENERAL_CHAT, share=0.25, acceptance_rate=0.65, entropy_bits=2.2,
        mean_prompt_tokens=400, mean_output_tokens=300,
    ),
    TrafficClass(
        name="bulk creative", domain=Domain.CREATIVE_WRITING, share=0.2, acceptance_rate=0.38, entropy_bits=3.6,
        mean_prompt_tokens=300, mean_output_tokens=800, temperature=1.0, service_tier="flex", has_slo=False,
    ),
)  # fmt: skip
"""Domains with the acceptance and entropy that the seed documents claim for them; shares and lengths are assumed."""
