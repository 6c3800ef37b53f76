"""When requests come: arrival processes, drawn from a generator that is passed in."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Protocol


class Arrivals(Protocol):
    """A process that yields times."""

    def times(self, random: Random) -> Iterator[float]:
        """Seconds from the start, rising, without end unless the process has one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Independent arrivals.

    Attributes:
        rate_per_s: mean.
    """

    rate_per_s: float

    def times(self, random: Random) -> Iterator[float]:
        """Exponential gaps."""
        now_s = 0.0
        while True:
            now_s += random.expovariate(self.rate_per_s)
            yield now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """A Markov-modulated Poisson process of two states.

    Attributes:
        rate_per_s: in the calm state.
        burst_rate_per_s: in the other.
        mean_calm_s: how long calm lasts.
        mean_burst_s: how long a burst lasts.
    """

    rate_per_s: float
    burst_rate_per_s: float
    mean_calm_s: float
    mean_burst_s: float

    def times(self, random: Random) -> Iterator[float]:
        """Gaps are cut where the state changes, which is exact since they have no memory."""
        now_s, is_burst = 0.0, False
        change_s = random.expovariate(1 / self.mean_calm_s)
        while True:
            gap_s = random.expovariate(self.burst_rate_per_s if is_burst else self.rate_per_s)
            if now_s + gap_s < change_s:
                now_s += gap_s
                yield now_s
                continue
            now_s, is_burst = change_s, not is_burst
            change_s = now_s + random.expovariate(1 / (self.mean_burst_s if is_burst else self.mean_calm_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Diurnal:
    """A rate that rises and falls as a sine, lowest at the start.

    Attributes:
        rate_per_s: mean.
        swing_ratio: how far the rate goes from the mean, 0..1.
        period_s: of a day.
    """

    rate_per_s: float
    swing_ratio: float
    period_s: float

    def times(self, random: Random) -> Iterator[float]:
        """By thinning (Lewis and Shedler 1979)."""
        peak = self.rate_per_s * (1 + self.swing_ratio)
        now_s = 0.0
        while True:
            now_s += random.expovariate(peak)
            rate = self.rate_per_s * (1 - self.swing_ratio * math.cos(2 * math.pi * now_s / self.period_s))
            if random.random() * peak < rate:
                yield now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A rate that jumps.

    Attributes:
        steps: (from when on, rate), times rising from 0; a rate of 0 is a pause.
    """

    steps: tuple[tuple[float, float], ...]

    def times(self, random: Random) -> Iterator[float]:
        """Poisson in each step."""
        ends = (*(begin for begin, _ in self.steps[1:]), math.inf)
        for (begin_s, rate), end_s in zip(self.steps, ends, strict=True):
            now_s = begin_s
            while rate > 0 and (now_s := now_s + random.expovariate(rate)) < end_s:
                yield now_s
