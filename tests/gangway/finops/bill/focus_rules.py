"""FOCUS's specification: the columns of its dataset, and what breaks its rules."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from gangway.finops.bill.focus import PROVIDERS_SINCE_1_3, PROVIDERS_TO_1_3, Version


class Column(NamedTuple):
    """`kind`: text, number, time or json."""

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

_SINCE_1_3 = frozenset(
    {
        *(column for column in _FURTHER.split() if column.startswith("Allocated")),
        *("CommitmentProgramEligibilityDetails", "ContractApplied", "InvoiceDetailId", *PROVIDERS_SINCE_1_3),
    }
)
"""Columns that 1.2 lacks."""


def mandatory(version: Version = Version.V1_4) -> Mapping[str, Column]:
    """The columns every dataset of the version has."""
    if version is Version.V1_4:
        return MANDATORY
    older = {name: column for name, column in MANDATORY.items() if name not in PROVIDERS_SINCE_1_3}
    return {**older, **dict.fromkeys(PROVIDERS_TO_1_3, Column("text", False))}


def get_columns(version: Version = Version.V1_4) -> frozenset[str]:
    """All columns of the version."""
    return COLUMNS if version is Version.V1_4 else (COLUMNS - _SINCE_1_3) | set(PROVIDERS_TO_1_3)


def problems(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], version: Version = Version.V1_4) -> list[str]:
    """List the reasons why rows are not valid FOCUS. `rows`: values by column, None for null."""
    own = [column for column in columns if column.startswith("x_")]
    required, known = mandatory(version), get_columns(version)
    found = [f"lacks {column}" for column in required if column not in columns]
    found += [f"{column} is not a FOCUS column" for column in columns if column not in known and column not in own]
    if list(columns[len(columns) - len(own) :]) != own:
        found.append("custom columns come before others")
    not_null = [column for column in columns if column in required and not required[column].nullable]
    for number, row in enumerate(rows, 1):
        found += [f"row {number}: {column} is null" for column in not_null if row.get(column) in (None, "")]
        found += [
            f"row {number}: {column} is {row[column]!r}"
            for column, allowed in ALLOWED.items()
            if row.get(column) is not None and row[column] not in allowed
        ]
    return found
