"""Costs as rows of FOCUS 1.2, the FinOps Open Cost and Usage Specification (https://focus.finops.org).

All columns that 1.2 calls mandatory, what it recommends where it is known here, and our own with the prefix `x_`. The
priced quantity is hours of replicas; the consumed quantity is delivered tokens.
"""

import csv
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TextIO

from cluster.errors import ConfigError
from cluster.telemetry.cost_report import CostLine

_HOUR_S = 3600.0
_NAME = "Outrider"

_CONSTANT = {
    "BillingAccountName": "",
    "BillingCurrency": "USD",
    "ChargeCategory": "Usage",
    "ChargeClass": "",
    "ChargeFrequency": "Usage-Based",
    "ConsumedUnit": "Tokens",
    "InvoiceIssuerName": _NAME,
    "PricingUnit": "Hours",
    "ProviderName": _NAME,
    "PublisherName": _NAME,
    "ServiceCategory": "AI and Machine Learning",
    "ServiceName": "Language model serving",
    "ServiceSubcategory": "Generative AI",
}

_COSTS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")

_OF_LINE: dict[str, Callable[[CostLine], object]] = {
    "ChargeDescription": lambda line: f"Tokens of domain {line.domain} from pool {line.pool}",
    "ConsumedQuantity": lambda line: _number(line.num_tokens),
    "PricingQuantity": lambda line: _number((line.replica_s + line.drafter_s) / _HOUR_S),
    "x_AcceptedDraftTokens": lambda line: _number(line.num_accepted_tokens),
    "x_CounterfactualCost": lambda line: _number(line.counterfactual_usd),
    "x_Domain": lambda line: line.domain,
    "x_DrafterCost": lambda line: _number(line.drafter_usd),
    "x_EnergyJoules": lambda line: _number(line.joules),
    "x_Pool": lambda line: line.pool,
    "x_RejectedDraftTokens": lambda line: _number(line.num_rejected_tokens),
    "x_WastedCost": lambda line: _number(line.wasted_usd),
}

_OF_PERIOD = ("BillingAccountId", "BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart")

COLUMNS = tuple(sorted({*_CONSTANT, *_COSTS, *_OF_LINE, *_OF_PERIOD}, key=lambda name: (name.startswith("x_"), name)))
"""In the order of the file: FOCUS' own by name, then ours."""


def write_focus(
    file: TextIO, lines: Iterable[CostLine], *, begin: datetime, end: datetime, account: str = "self-hosted"
) -> None:
    """Write one row for each line.

    Args:
        file: opened with newline="".
        lines: by pool and domain.
        begin: of the charges, with a time zone.
        end: of the charges, exclusive.
        account: billing account.

    Raises:
        ConfigError: the account has no name.
    """
    if not account.strip():
        raise ConfigError(field="account", value=account, allowed="a name")
    period = {
        "BillingAccountId": account,
        "BillingPeriodStart": _time(_month(begin)),
        "BillingPeriodEnd": _time(_month(_month(end - timedelta(seconds=1)) + timedelta(days=32))),
        "ChargePeriodStart": _time(begin),
        "ChargePeriodEnd": _time(end),
    }
    writer = csv.DictWriter(file, COLUMNS)
    writer.writeheader()
    for line in lines:
        costs = dict.fromkeys(_COSTS, _number(line.usd))
        writer.writerow(_CONSTANT | period | costs | {name: value(line) for name, value in _OF_LINE.items()})


def _month(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _number(value: float | None) -> str:
    """A decimal as FOCUS wants it: no plus sign in the exponent, nothing for what is not known."""
    return "" if value is None else f"{value:.12g}".replace("e+", "E").replace("e-", "E-")
