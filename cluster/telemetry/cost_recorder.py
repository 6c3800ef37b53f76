"""Records what a replica costs: by time while it is there, by round what the time went into."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from cluster.telemetry import names
from cluster.telemetry.cost import CostConfig, Resources, Times, divide_round, usd_per_s
from cluster.telemetry.prometheus import MetricSet
from cluster.types import Role, StepStats

UNKNOWN_DOMAIN, OTHER_DOMAIN = "unknown", "other"
"""Labels of requests without a domain, and of those with one too many."""

MAX_DOMAINS = 16
"""That get series of their own."""

_RESULTS = ("accepted", "rejected")
_BY_ROLE = (
    names.ROLE_SECONDS,
    names.BUSY_SECONDS,
    names.WASTED_SECONDS,
    names.COUNTERFACTUAL_SECONDS,
    names.COST_USD,
)
_BY_DOMAIN = (
    names.DOMAIN_TOKENS,
    names.DOMAIN_SECONDS,
    names.DOMAIN_WASTED_SECONDS,
    names.DOMAIN_COUNTERFACTUAL_SECONDS,
)


class Energy(Protocol):
    """Counts energy (`cluster.telemetry.energy.GpuEnergy`)."""

    def take_joules(self) -> float | None:
        """Energy since the last call; None where it cannot be read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a replica cost in a while.

    Attributes:
        seconds: how long that was.
        usd: its price for that long.
        joules: what its GPUs took; None where they do not say.
    """

    seconds: float
    usd: float
    joules: float | None


class Allocation:
    """What a replica has cost since it was last asked. Not thread safe.

    Args:
        config: prices.
        resources: what it holds.
        now_s: clock time from which it is paid for.
        energy: of its GPUs; None where there is nothing to read.
    """

    def __init__(self, config: CostConfig, resources: Resources, now_s: float, energy: Energy | None = None) -> None:
        self._usd_per_s, self._energy, self._last_s = usd_per_s(config, resources), energy, now_s

    def take(self, now_s: float) -> Spent:
        """What it cost since the last call."""
        seconds, self._last_s = now_s - self._last_s, now_s
        joules = None if self._energy is None else self._energy.take_joules()
        return Spent(seconds=seconds, usd=seconds * self._usd_per_s, joules=joules)


class CostRecorder:
    """Records the rounds and the time of one verifier. Not thread safe: one thread records.

    Args:
        metrics: hold `names.ENGINE_METRICS`.
        domains: that requests are known to have. Their series begin at 0, since Prometheus sees no increase in a
            series' first value.
    """

    def __init__(self, metrics: MetricSet, domains: Iterable[str] = ()) -> None:
        self._metrics = metrics
        self._domains: set[str] = set()
        for role in Role:
            for metric in _BY_ROLE:
                metrics.add(metric, 0, role.value)
        for domain in domains:
            self._label(domain)

    def record_spent(self, spent: Spent, role: Role) -> None:
        """The verifier cost this while it had a role."""
        self._metrics.add(names.ROLE_SECONDS, spent.seconds, role.value)
        self._metrics.add(names.COST_USD, spent.usd, role.value)
        if spent.joules is not None:
            self._metrics.add(names.ENERGY_JOULES, spent.joules, role.value)

    def record_step(self, stats: StepStats, role: Role, times: Times | None) -> None:
        """Add one round.

        Args:
            stats: of the round.
            role: in which it ran.
            times: how long rounds take, as it is known now.
        """
        if not stats.num_rows:
            return
        metrics, label = self._metrics, role.value
        metrics.add(names.BUSY_SECONDS, stats.duration_s, label)
        wasted_s = counterfactual_s = 0.0
        for part in divide_round(stats, times):
            work, domain = part.work, self._label(part.work.domain)
            wasted_s += part.wasted_s
            counterfactual_s += part.counterfactual_s
            metrics.add(names.DOMAIN_TOKENS, work.num_output_tokens, domain, label)
            metrics.add(names.DOMAIN_SECONDS, part.busy_s, domain, label)
            metrics.add(names.DOMAIN_COUNTERFACTUAL_SECONDS, part.counterfactual_s, domain, label)
            if work.num_draft_tokens:
                metrics.add(names.DOMAIN_WASTED_SECONDS, part.wasted_s, domain, label)
                rejected = work.num_draft_tokens - work.num_accepted_tokens
                for result, count in zip(_RESULTS, (work.num_accepted_tokens, rejected), strict=True):
                    metrics.add(names.DOMAIN_DRAFT_TOKENS, count, domain, label, result)
        metrics.add(names.WASTED_SECONDS, wasted_s, label)
        metrics.add(names.COUNTERFACTUAL_SECONDS, counterfactual_s, label)

    def _label(self, domain: str) -> str:
        if domain not in self._domains:
            if len(self._domains) >= MAX_DOMAINS:
                return OTHER_DOMAIN
            self._domains.add(domain)
            self._begin(domain or UNKNOWN_DOMAIN)
        return domain or UNKNOWN_DOMAIN

    def _begin(self, label: str) -> None:
        for role in Role:
            for metric in _BY_DOMAIN:
                self._metrics.add(metric, 0, label, role.value)
            for result in _RESULTS:
                self._metrics.add(names.DOMAIN_DRAFT_TOKENS, 0, label, role.value, result)
