"""How samples are taken and summed up: variants interleaved, warm-up left out, ratios inside a round."""

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import torch

THREADS = 2
"""Threads of both sides of every comparison."""

SETTLE_S = 0.15
"""Pause between two variants: worker threads poll for up to 50 ms after a forward pass, and OpenMP's poll as well."""

Variant = Callable[[], Mapping[str, Sequence[float]]]
"""Runs one side of a comparison once; returns named samples, without its own first steps where those are slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Percentiles of one quantity."""

    num: int
    p25: float
    p50: float
    p75: float
    p90: float
    p99: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        """Sum up at least one sample."""
        points = {f"p{share}": percentile(samples, share / 100) for share in (25, 50, 75, 90, 99)}
        return cls(num=len(samples), **points)


def percentile(samples: Sequence[float], share: float) -> float:
    """The value below which `share` (0..1) of the samples lie, linear between neighbours."""
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """A 95 % confidence interval of the median from order statistics; the whole range when samples are few."""
    ordered = sorted(samples)
    half_width = 0.98 * math.sqrt(len(ordered))
    low = max(0, math.floor(len(ordered) / 2 - half_width))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + half_width) - 1)
    return ordered[low], ordered[high]


class Rounds:
    """Samples by name and round; a name that a variant did not report in a round has no samples there."""

    def __init__(self) -> None:
        self._rounds: list[dict[str, list[float]]] = []

    def add(self, samples: Mapping[str, Sequence[float]]) -> None:
        """Take in one round."""
        self._rounds.append({name: list(values) for name, values in samples.items()})

    def samples(self, name: str) -> list[float]:
        """All samples of one name."""
        return [value for values in self._rounds for value in values.get(name, ())]

    def medians(self, name: str) -> list[float]:
        """The median of each round."""
        return [statistics.median(values[name]) for values in self._rounds]

    def ratios(self, name: str, baseline: str) -> list[float]:
        """Median over the baseline's median, round by round: what both sides share cancels."""
        return [a / b for a, b in zip(self.medians(name), self.medians(baseline), strict=True)]

    def differences(self, name: str, baseline: str) -> list[float]:
        """Median less the baseline's median, round by round."""
        return [a - b for a, b in zip(self.medians(name), self.medians(baseline), strict=True)]


def interleave(variants: Sequence[Variant], *, num_rounds: int, settle_s: float = SETTLE_S) -> Rounds:
    """Run each variant once per round, in turning order, after one round of warm-up that is not kept.

    Args:
        variants: the sides of the comparison; their samples need different names.
        num_rounds: rounds that are kept, >= 1. A single one, as quick runs have it, measures nothing: no warm-up then.
        settle_s: pause before each variant.
    """
    rounds = Rounds()
    for index in warmed_up(num_rounds):
        samples: dict[str, Sequence[float]] = {}
        first = index % len(variants)
        for variant in (*variants[first:], *variants[:first]):
            time.sleep(settle_s)
            samples |= variant()
        if index:
            rounds.add(samples)
        progress(f"round {index} of {num_rounds}" if index else "warm-up")
    return rounds


def warmed_up(num_rounds: int) -> range:
    """Numbers of the rounds to run: 1 and up are kept, and before several of them 0 is the warm-up."""
    return range(0 if num_rounds > 1 else 1, num_rounds + 1)


def progress(text: str) -> None:
    """One line on standard error, which holds no results."""
    print(f"  {text}", file=sys.stderr, flush=True)


@contextmanager
def torch_threads(num_threads: int) -> Iterator[None]:
    """Let torch use so many threads inside the block; the engine keeps it at one, since its kernels bring their own."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
