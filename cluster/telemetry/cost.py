"""What serving costs: prices of what a replica holds, and how the time of a round is divided. Pure.

A replica costs its price while it is there, idle or not (allocation: what the bill says). The time of its rounds says
who used it: every amount is divided in proportion to that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cluster.errors import check_range
from cluster.types import DomainWork, StepStats

MAX_USD_PER_HOUR = 100_000
"""A price above this is a slip of the unit."""

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostConfig:
    """Prices in USD, for what a replica holds; 0 is no price.

    Attributes:
        usd_per_gpu_hour: of a GPU that `usd_per_gpu_hour_by_name` does not know.
        usd_per_gpu_hour_by_name: by a part of the GPU's name, such as {"H100": 2.5, "H200": 3.5}; the longest part
            that occurs in the name counts, upper and lower case being the same.
        usd_per_cpu_hour: of a CPU that Ray reserves for the replica; 0 where the price of a GPU holds those beside it.
    """

    usd_per_gpu_hour: float = 0.0
    usd_per_gpu_hour_by_name: dict[str, float] = field(default_factory=dict)
    usd_per_cpu_hour: float = 0.0

    def __post_init__(self) -> None:
        """Refuse prices out of range."""
        check_range("cost.usd_per_gpu_hour", self.usd_per_gpu_hour, 0, MAX_USD_PER_HOUR, kind="a price")
        check_range("cost.usd_per_cpu_hour", self.usd_per_cpu_hour, 0, MAX_USD_PER_HOUR, kind="a price")
        for name, price in self.usd_per_gpu_hour_by_name.items():
            check_range(f"cost.usd_per_gpu_hour_by_name.{name}", price, 0, MAX_USD_PER_HOUR, kind="a price")

    def of_gpu(self, name: str) -> float:
        """USD per hour of a GPU with this name."""
        parts = [part for part in self.usd_per_gpu_hour_by_name if part.lower() in name.lower()]
        return self.usd_per_gpu_hour_by_name[max(parts, key=len)] if parts else self.usd_per_gpu_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a replica holds.

    Attributes:
        num_gpus: GPUs; a share of one counts as that.
        num_cpus: CPUs that are reserved for it.
        gpu_names: of the GPUs that it sees, as the driver says; empty where that is not known.
    """

    num_gpus: float = 0.0
    num_cpus: float = 0.0
    gpu_names: tuple[str, ...] = ()


def usd_per_s(config: CostConfig, resources: Resources) -> float:
    """What a replica with these resources costs in a second.

    Args:
        config: prices.
        resources: of the replica.
    """
    names = resources.gpu_names or ("",)
    usd_per_gpu_hour = sum(map(config.of_gpu, names)) / len(names)
    per_hour = usd_per_gpu_hour * resources.num_gpus + config.usd_per_cpu_hour * resources.num_cpus
    return per_hour / _HOUR_S


class Times(Protocol):
    """How long rounds take (`cluster.engine.step_time.StepTimes`)."""

    @property
    def sequence_s(self) -> float:
        """Outside the pass, for each sequence."""
        ...

    @property
    def draft_row_s(self) -> float:
        """Outside the pass, for each draft token."""
        ...

    def forward_s(self, num_rows: float, num_context_tokens: float = 0.0) -> float:
        """Time of a pass."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainCost:
    """What a round spent on the sequences of one domain.

    Attributes:
        work: what was done for them.
        busy_s: of the round's wall time.
        wasted_s: of that, what rejected draft tokens added to the round.
        counterfactual_s: what plain decoding would have taken for the same tokens.
    """

    work: DomainWork
    busy_s: float
    wasted_s: float = 0.0
    counterfactual_s: float = 0.0


def divide_round(stats: StepStats, times: Times | None) -> list[DomainCost]:
    """Divide the wall time of a round among the domains of its sequences.

    Each sequence pays alike for what a plain round of all of them takes, since that is mostly reading the weights. The
    rest goes to the rows that came on top, prompts and drafts, row by row. The fitted times give the proportions, and
    the measured time is divided: a slow round is slow for all of its parts.

    Plain decoding would have needed no drafts (nor the time in which the round looked for them), and for each accepted
    token one more place in a plain round of the sequences that decoded.

    Args:
        stats: of the round.
        times: as they are known now; None takes a row more to cost nothing.

    Returns:
        The parts; `busy_s` adds up to the round's duration. Nothing for a round without rows.
    """
    if not stats.num_rows or not stats.domains:
        return []
    if times is None or (not stats.num_draft_tokens and stats.num_rows == stats.num_sequences):
        times = _FLAT  # All rows are alike: no need to ask.
    return _Round(stats, times).divide()


class _Flat:
    """Rows cost nothing beside the pass."""

    sequence_s = draft_row_s = 0.0

    def forward_s(self, num_rows: float, num_context_tokens: float = 0.0) -> float:
        return 1.0


_FLAT = _Flat()


class _Round:
    """The parts of one round, as the fitted times see them; then scaled to the measured time."""

    def __init__(self, stats: StepStats, times: Times) -> None:
        self._stats, self._times = stats, times
        self._num_drafts = stats.num_draft_tokens
        self._whole_s = self._seconds(stats.num_rows, self._num_drafts)
        self._plain_s = self._seconds(stats.num_sequences, 0)

    def divide(self) -> list[DomainCost]:
        stats, works = self._stats, self._stats.domains
        busy = self._shared(self._whole_s, [(work.num_sequences, work.num_rows) for work in works])
        scale, worked = stats.duration_s / self._whole_s, self._worked_s() / self._whole_s
        if not self._num_drafts:
            return [
                DomainCost(work=work, busy_s=scale * part, counterfactual_s=worked * part)
                for work, part in zip(works, busy, strict=True)
            ]
        undrafted = self._shared(
            self._seconds(stats.num_rows - self._num_drafts, 0),
            [(work.num_sequences, work.num_rows - work.num_draft_tokens) for work in works],
        )
        per_rejected_s, per_accepted_s = self._rejected_s(), self._accepted_s()
        return [
            DomainCost(
                work=work,
                busy_s=scale * part,
                wasted_s=worked * per_rejected_s * (work.num_draft_tokens - work.num_accepted_tokens),
                counterfactual_s=worked * (plain + per_accepted_s * work.num_accepted_tokens),
            )
            for work, part, plain in zip(works, busy, undrafted, strict=True)
        ]

    def _worked_s(self) -> float:
        return max(0.0, self._stats.duration_s - self._stats.draft_wait_s)

    def _seconds(self, num_rows: int, num_drafts: int) -> float:
        outside_s = self._times.sequence_s * self._stats.num_sequences + self._times.draft_row_s * num_drafts
        return self._times.forward_s(num_rows, self._stats.num_context_tokens) + outside_s

    def _shared(self, seconds: float, loads: Sequence[tuple[int, int]]) -> list[float]:
        """Divide seconds among loads of (sequences, rows)."""
        num_sequences, num_rows = sum(count for count, _ in loads), sum(rows for _, rows in loads)
        first_s = min(seconds, self._plain_s) / num_sequences
        num_further = num_rows - num_sequences
        if not num_further:
            return [seconds / num_sequences * count for count, _ in loads]
        further_s = (seconds - first_s * num_sequences) / num_further
        return [first_s * count + further_s * (rows - count) for count, rows in loads]

    def _rejected_s(self) -> float:
        """What each rejected draft token added to the round."""
        num_rejected = self._num_drafts - sum(work.num_accepted_tokens for work in self._stats.domains)
        if not num_rejected:
            return 0.0
        without_s = self._seconds(self._stats.num_rows - num_rejected, self._num_drafts - num_rejected)
        return max(0.0, self._whole_s - without_s) / num_rejected

    def _accepted_s(self) -> float:
        """What a token costs in a plain round of the sequences that decoded."""
        stats = self._stats
        num_accepted = sum(work.num_accepted_tokens for work in stats.domains)
        num_decoding = max(stats.num_output_tokens - num_accepted, stats.num_drafts, 1)
        return self._times.forward_s(num_decoding, stats.num_context_tokens) / num_decoding + self._times.sequence_s
