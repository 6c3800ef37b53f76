"""What a served token cost, by pool and by domain, from the counters of all replicas. Pure.

Whatever a pool cost is divided in proportion to the time of its rounds, idle time included: so the parts add up to the
bill. A drafter's cost goes to those whose drafts were verified, token by token.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from cluster.telemetry import names
from cluster.types import Role

IDLE = "idle"
"""In place of a domain: nothing ran, and it cost all the same."""

METRICS = (
    names.ROLE_SECONDS,
    names.COST_USD,
    names.ENERGY_JOULES,
    names.BUSY_SECONDS,
    names.DOMAIN_TOKENS,
    names.DOMAIN_SECONDS,
    names.DOMAIN_WASTED_SECONDS,
    names.DOMAIN_COUNTERFACTUAL_SECONDS,
    names.DOMAIN_DRAFT_TOKENS,
    names.DRAFTER_SECONDS,
    names.DRAFTER_COST_USD,
    names.DRAFTER_ENERGY_JOULES,
)
"""That a report is made from."""

LABELS = ("role", "domain", "result")
"""By which their values are told apart; over all others they are added up."""

_MILLION = 1e6


class Totals:
    """Values of the metrics, added up over replicas."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, ...], float] = {}

    def add(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Add a sample.

        Args:
            name: as scraped.
            labels: of the sample; a missing one is empty.
            value: of a counter, or its increase.
        """
        key = (name, *(labels.get(label, "") for label in LABELS))
        self._values[key] = self._values.get(key, 0.0) + value

    def of(self, metric: names.Metric, role: str = "", domain: str = "", result: str = "") -> float:
        """A value; 0 where there was no such sample."""
        return self._values.get((metric.name, role, domain, result), 0.0)

    def has(self, metric: names.Metric) -> bool:
        """True where there was any sample of it."""
        return any(name == metric.name for name, *_ in self._values)

    def label_values(self, metric: names.Metric) -> list[tuple[str, str]]:
        """Role and domain of its samples, in order."""
        return sorted({(role, domain) for name, role, domain, _ in self._values if name == metric.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """What some tokens cost. Lines can be added up.

    Attributes:
        pool: role of the replicas; empty in a sum over pools.
        domain: of the tokens; empty in a sum over domains.
        num_tokens: delivered.
        num_accepted_tokens: draft tokens verified and accepted.
        num_rejected_tokens: draft tokens verified and rejected.
        replica_s: time of verifiers, idle time included.
        busy_s: of that, the time of rounds.
        wasted_s: of that, what rejected draft tokens added.
        counterfactual_s: of rounds, had nothing been drafted.
        drafter_s: time of drafters, idle time included.
        verifier_usd: price of `replica_s`.
        drafter_usd: price of `drafter_s`.
        verifier_joules: energy of the verifiers' GPUs; None where they do not say.
        drafter_joules: the same of drafters.
    """

    pool: str = ""
    domain: str = ""
    num_tokens: float = 0.0
    num_accepted_tokens: float = 0.0
    num_rejected_tokens: float = 0.0
    replica_s: float = 0.0
    busy_s: float = 0.0
    wasted_s: float = 0.0
    counterfactual_s: float = 0.0
    drafter_s: float = 0.0
    verifier_usd: float = 0.0
    drafter_usd: float = 0.0
    verifier_joules: float | None = None
    drafter_joules: float | None = None

    @property
    def usd(self) -> float:
        """Price of verifiers and drafters."""
        return self.verifier_usd + self.drafter_usd

    @property
    def joules(self) -> float | None:
        """Energy of verifiers and drafters; None where neither says."""
        return _added(self.verifier_joules, self.drafter_joules)

    @property
    def usd_per_million_tokens(self) -> float | None:
        """Price of a million delivered tokens; None for no tokens."""
        return self.usd / self.num_tokens * _MILLION if self.num_tokens else None

    @property
    def joules_per_million_tokens(self) -> float | None:
        """Energy of a million delivered tokens; None for no tokens, or where nothing is known."""
        return self.joules / self.num_tokens * _MILLION if self.num_tokens and self.joules is not None else None

    @property
    def drafter_ratio(self) -> float | None:
        """Share of drafters in the price, 0..1; None without a price."""
        return self.drafter_usd / self.usd if self.usd else None

    @property
    def wasted_ratio(self) -> float | None:
        """Share of rejected draft tokens in the time of rounds, 0..1; None where nothing ran."""
        return self.wasted_s / self.busy_s if self.busy_s else None

    @property
    def wasted_usd(self) -> float:
        """Price of that, idle time included in proportion."""
        return self.verifier_usd * (self.wasted_ratio or 0.0)

    @property
    def counterfactual_usd(self) -> float:
        """Price of the same tokens without drafts: no drafter, and verifiers for as much longer as they would take."""
        return self.verifier_usd * self.counterfactual_s / self.busy_s if self.busy_s else self.verifier_usd

    @property
    def counterfactual_usd_per_million_tokens(self) -> float | None:
        """The same for a million delivered tokens; None for no tokens."""
        return self.counterfactual_usd / self.num_tokens * _MILLION if self.num_tokens else None

    def to_json(self) -> dict[str, Any]:
        """All of it, derived values included."""
        derived = (name for name, value in vars(CostLine).items() if isinstance(value, property))
        return asdict(self) | {name: getattr(self, name) for name in derived}


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """What serving cost.

    Attributes:
        lines: by pool and domain.
    """

    lines: tuple[CostLine, ...]

    @property
    def has_prices(self) -> bool:
        """True where anything had a price."""
        return any(line.usd for line in self.lines)

    @property
    def total(self) -> CostLine:
        """All lines added up."""
        return added(self.lines)

    @property
    def pools(self) -> tuple[CostLine, ...]:
        """A line for each pool."""
        pools = dict.fromkeys(line.pool for line in self.lines)
        return tuple(added((line for line in self.lines if line.pool == pool), pool=pool) for pool in pools)

    @property
    def domains(self) -> tuple[CostLine, ...]:
        """A line for each domain, and one for time in which nothing ran at all."""
        domains = dict.fromkeys(line.domain for line in self.lines)
        return tuple(added((line for line in self.lines if line.domain == name), domain=name) for name in domains)


def added(lines: Iterable[CostLine], *, pool: str = "", domain: str = "") -> CostLine:
    """The sum of lines.

    Args:
        lines: any number.
        pool: of the sum.
        domain: of the sum.
    """
    sums: dict[str, Any] = {}
    for line in lines:
        for field in _AMOUNTS:
            sums[field] = _added(sums.get(field), getattr(line, field))
    return CostLine(pool=pool, domain=domain, **sums)


def cost_report(totals: Totals) -> CostReport:
    """The report behind the counters of all replicas."""
    lines = [line for role in Role for line in _pool_lines(totals, role.value)]
    return CostReport(lines=tuple(_with_drafters(totals, lines)))


_AMOUNTS = tuple(field.name for field in fields(CostLine) if field.name not in ("pool", "domain"))


def _added(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _pool_lines(totals: Totals, role: str) -> list[CostLine]:
    """The lines of one pool without its drafters; none where it never was."""
    replica_s, usd = totals.of(names.ROLE_SECONDS, role), totals.of(names.COST_USD, role)
    joules = totals.of(names.ENERGY_JOULES, role) if totals.has(names.ENERGY_JOULES) else None
    domains = [domain for each, domain in totals.label_values(names.DOMAIN_SECONDS) if each == role]
    found = {domain: totals.of(names.DOMAIN_SECONDS, role, domain) for domain in domains}
    seconds = {domain: busy_s for domain, busy_s in found.items() if busy_s > 0}
    whole_s = sum(seconds.values())
    if not whole_s:
        line = CostLine(pool=role, domain=IDLE, replica_s=replica_s, verifier_usd=usd, verifier_joules=joules)
        return [line] if replica_s or usd or joules else []
    return [
        CostLine(
            pool=role,
            domain=domain,
            num_tokens=totals.of(names.DOMAIN_TOKENS, role, domain),
            num_accepted_tokens=totals.of(names.DOMAIN_DRAFT_TOKENS, role, domain, "accepted"),
            num_rejected_tokens=totals.of(names.DOMAIN_DRAFT_TOKENS, role, domain, "rejected"),
            replica_s=replica_s * busy_s / whole_s,
            busy_s=busy_s,
            wasted_s=totals.of(names.DOMAIN_WASTED_SECONDS, role, domain),
            counterfactual_s=totals.of(names.DOMAIN_COUNTERFACTUAL_SECONDS, role, domain),
            verifier_usd=usd * busy_s / whole_s,
            verifier_joules=None if joules is None else joules * busy_s / whole_s,
        )
        for domain, busy_s in seconds.items()
    ]


def _with_drafters(totals: Totals, lines: list[CostLine]) -> list[CostLine]:
    """The lines with what drafters cost: by draft tokens verified; where there were none, in a line of its own."""
    drafter_s, usd = totals.of(names.DRAFTER_SECONDS), totals.of(names.DRAFTER_COST_USD)
    joules = totals.of(names.DRAFTER_ENERGY_JOULES) if totals.has(names.DRAFTER_ENERGY_JOULES) else None
    if not (drafter_s or usd or joules):
        return lines
    drafted = [line.num_accepted_tokens + line.num_rejected_tokens for line in lines]
    if not sum(drafted):
        idle = CostLine(drafter_s=drafter_s, drafter_usd=usd, drafter_joules=joules)
        place = (Role.SPECULATIVE.value, IDLE)
        there = [line for line in lines if (line.pool, line.domain) == place]
        others = [line for line in lines if line not in there]
        return [*others, added((*there, idle), pool=place[0], domain=place[1])]
    shares = [count / sum(drafted) for count in drafted]
    return [
        added(
            (line, CostLine(
                drafter_s=drafter_s * share,
                drafter_usd=usd * share,
                drafter_joules=None if joules is None else joules * share,
            )),
            pool=line.pool,
            domain=line.domain,
        )
        for line, share in zip(lines, shares, strict=True)
    ]  # fmt: skip
