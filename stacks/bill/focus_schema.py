"""FOCUS 1.4's dataset Cost and Usage: its columns, which must be there, which may be null, and what some may say.

Source: FinOps Open Cost and Usage Specification, working draft after 1.4 (dataset Cost and Usage, attributes FOCUS
Column Handling and Custom Column Handling), read 2026-11-21; columns that come with 1.5 are left out. Of columns that
depend on what a provider offers only the names are kept: whoever writes rows says which of them apply.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["ALLOWED", "COLUMNS", "CUSTOM_PREFIX", "MANDATORY", "Column", "problems"]

CUSTOM_PREFIX = "x_"


class Column(NamedTuple):
    """A column that every dataset has.

    Attributes:
        kind: text, number, time or json.
        nullable: whether a row may leave it out.
    """

    kind: str
    nullable: bool


MANDATORY: Mapping[str, Column] = MappingProxyType(
    {
        "BilledCost": Column("number", False),
        "BillingAccountId": Column("text", False),
        "BillingAccountName": Column("text", True),
        "BillingCurrency": Column("text", False),
        "BillingPeriodEnd": Column("time", False),
        "BillingPeriodStart": Column("time", False),
        "ChargeCategory": Column("text", False),
        "ChargeClass": Column("text", True),
        "ChargeDescription": Column("text", True),
        "ChargePeriodEnd": Column("time", False),
        "ChargePeriodStart": Column("time", False),
        "ContractedCost": Column("number", False),
        "EffectiveCost": Column("number", False),
        "HostProviderName": Column("text", False),
        "InvoiceIssuerName": Column("text", False),
        "ListCost": Column("number", False),
        "PricingQuantity": Column("number", True),
        "PricingUnit": Column("text", True),
        "ServiceCategory": Column("text", False),
        "ServiceName": Column("text", False),
        "ServiceProviderName": Column("text", False),
    }
)

_FURTHER = """
AllocatedMethodDetails AllocatedMethodId AllocatedResourceId AllocatedResourceName AllocatedTags AvailabilityZone
BillingAccountType CapacityReservationId CapacityReservationStatus ChargeFrequency CommitmentDiscountCategory
CommitmentDiscountId CommitmentDiscountName CommitmentDiscountQuantity CommitmentDiscountStatus CommitmentDiscountType
CommitmentDiscountUnit CommitmentProgramEligibilityDetails ConsumedQuantity ConsumedUnit ContractApplied
ContractedUnitPrice InvoiceDetailId InvoiceId ListUnitPrice PricingCategory PricingCurrency
PricingCurrencyContractedUnitPrice PricingCurrencyEffectiveCost PricingCurrencyListUnitPrice RegionId RegionName
ResourceId ResourceName ResourceType ServiceSubcategory SkuId SkuMeter SkuPriceDetails SkuPriceId SubAccountId
SubAccountName SubAccountType Tags
"""
COLUMNS = frozenset({*MANDATORY, *_FURTHER.split()})
"""All columns of the dataset."""

ALLOWED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "ChargeCategory": frozenset({"Adjustment", "Credit", "Purchase", "Tax", "Usage"}),
        "ChargeClass": frozenset({"Correction"}),
        "ChargeFrequency": frozenset({"One-Time", "Recurring", "Usage-Based"}),
        "PricingCategory": frozenset({"Committed", "Dynamic", "Other", "Standard"}),
    }
)


def problems(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What keeps rows from being FOCUS 1.4; empty when nothing does.

    Args:
        columns: in their order.
        rows: values by column, None for null.
    """
    own = [column for column in columns if column.startswith(CUSTOM_PREFIX)]
    found = [f"lacks {column}" for column in MANDATORY if column not in columns]
    found += [f"{column} is no column of FOCUS" for column in columns if column not in COLUMNS and column not in own]
    if list(columns[len(columns) - len(own) :]) != own:
        found.append("custom columns stand before others")
    for number, row in enumerate(rows, 1):
        found += [f"row {number}: {column} is null" for column in _not_null(columns) if row.get(column) in (None, "")]
        found += [
            f"row {number}: {column} is {row[column]!r}"
            for column, allowed in ALLOWED.items()
            if row.get(column) is not None and row[column] not in allowed
        ]
    return found


def _not_null(columns: Sequence[str]) -> list[str]:
    return [column for column in columns if column in MANDATORY and not MANDATORY[column].nullable]
