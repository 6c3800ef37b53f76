"""Rows with the columns of FOCUS 1.2."""

import csv
import io
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from cluster.errors import ConfigError
from cluster.telemetry.cost_report import CostLine
from cluster.telemetry.focus import write_focus

MANDATORY = {
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd",
    "ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity",
    "PricingUnit", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName",
}  # fmt: skip
"""Of the specification, version 1.2: columns of feature level "Mandatory"."""

MAY_BE_NULL = {"BillingAccountName", "ChargeClass", "x_EnergyJoules"}
BEGIN, END = datetime(2026, 1, 31, 22, 30, tzinfo=UTC), datetime(2026, 2, 1, 6, 0, tzinfo=UTC)
LINES = (
    CostLine(
        pool="speculative", domain="code", num_tokens=2e21, num_accepted_tokens=12, num_rejected_tokens=3,
        replica_s=1800, drafter_s=1800, verifier_usd=0.5, drafter_usd=0.25, busy_s=10, wasted_s=2, counterfactual_s=30,
        verifier_joules=7.0,
    ),
    CostLine(pool="batch", domain="idle", verifier_usd=1e-9, replica_s=60),
)  # fmt: skip


def rows(begin: datetime = BEGIN, end: datetime = END) -> list[dict[str, str]]:
    file = io.StringIO(newline="")
    write_focus(file, LINES, begin=begin, end=end, account="team")
    return list(csv.DictReader(io.StringIO(file.getvalue(), newline="")))


def test_every_mandatory_column_is_there_and_filled_and_our_own_are_marked() -> None:
    for row in rows():
        assert set(row) >= MANDATORY
        assert {name for name, value in row.items() if not value} <= MAY_BE_NULL
        assert all(re.fullmatch(r"(x_)?([A-Z][a-z]+)+", name) for name in row)


def test_a_row_says_what_was_paid_for_which_tokens() -> None:
    code, idle = rows()
    for name in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"):
        assert float(code[name]) == 0.75
    assert (float(code["PricingQuantity"]), code["PricingUnit"]) == (1.0, "Hours")
    assert (code["ConsumedQuantity"], code["ConsumedUnit"]) == ("2E21", "Tokens")
    assert (code["x_Pool"], code["x_Domain"]) == ("speculative", "code")
    assert (code["x_AcceptedDraftTokens"], code["x_RejectedDraftTokens"]) == ("12", "3")
    assert (code["x_DrafterCost"], code["x_WastedCost"], code["x_CounterfactualCost"]) == ("0.25", "0.1", "1.5")
    assert (code["x_EnergyJoules"], idle["x_EnergyJoules"]) == ("7", "")
    assert idle["BilledCost"] == "1E-09"


def test_times_are_utc_and_the_billing_period_holds_whole_months() -> None:
    row = rows()[0]
    assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == ("2026-01-31T22:30:00Z", "2026-02-01T06:00:00Z")
    assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == ("2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z")
    abroad = timezone(timedelta(hours=2))
    december = rows(datetime(2026, 12, 5, tzinfo=abroad), datetime(2027, 1, 1, 2, tzinfo=abroad))[0]
    assert december["ChargePeriodStart"] == "2026-12-04T22:00:00Z"
    assert (december["BillingPeriodStart"], december["BillingPeriodEnd"]) == (
        "2026-12-01T00:00:00Z",
        "2027-01-01T00:00:00Z",
    )


def test_an_account_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="account"):
        write_focus(io.StringIO(), LINES, begin=BEGIN, end=END, account=" ")
