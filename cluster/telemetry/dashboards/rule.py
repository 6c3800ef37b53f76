"""What an alert rule is made of, and the limits that an operator sets."""

from dataclasses import dataclass
from enum import StrEnum

from cluster.errors import check_range
from cluster.telemetry.dashboards.model import Needs


class Severity(StrEnum):
    """How soon somebody has to look: `critical` now, `warning` today."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Where an operator's own limits stand.

    Attributes:
        ttft_slo_s: objective for the p95 of the time to the first token, where no controller states one.
        tpot_slo_s: objective for the p95 of the time per output token, where no controller states one.
        usd_per_million_tokens: what a million delivered tokens may cost.
    """

    ttft_slo_s: float = 2.0
    tpot_slo_s: float = 0.1
    usd_per_million_tokens: float = 10.0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        check_range("ttft_slo_s", self.ttft_slo_s, 0, 3600, kind="seconds")
        check_range("tpot_slo_s", self.tpot_slo_s, 0, 3600, kind="seconds")
        check_range("usd_per_million_tokens", self.usd_per_million_tokens, 0, 1_000_000, kind="a price")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One alert.

    Attributes:
        name: of the alert.
        signal: PromQL of the figure; it has a value whenever what it needs is there, right or wrong.
        wrong: comparison that makes it an alert.
        lasting: how long it has to be wrong, as 5m.
        severity: how soon somebody has to look.
        summary: one sentence; {{ $value }} is the figure.
        runbook: what it means, where to look, what to do.
        needs: what has to be there before the figure has a value.
    """

    name: str
    signal: str
    wrong: str
    lasting: str
    severity: Severity
    summary: str
    runbook: str
    needs: Needs = Needs.TRAFFIC

    @property
    def expr(self) -> str:
        """The rule's query: it has a value only while something is wrong."""
        return f"({self.signal}) {self.wrong}"
