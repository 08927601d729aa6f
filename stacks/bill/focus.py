"""Rows of a FOCUS export, 1.0 to 1.4, as AWS, Microsoft, Google and others write it. Only reading.

Two of the columns changed their names on the way: ProviderName became ServiceProviderName in 1.3.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from components.findings import InputError
from stacks.bill.charge import CATEGORIES, Charge, amount, moment, provider_key, tags_of, value_of

__all__ = ["MARK", "NEEDED", "charges"]

MARK = "BilledCost"
"""A column that FOCUS alone has."""

NEEDED: tuple[tuple[str, ...], ...] = (
    ("BilledCost",),
    ("EffectiveCost",),
    ("BillingCurrency",),
    ("ChargeCategory",),
    ("ChargePeriodStart",),
    ("ChargePeriodEnd",),
    ("ServiceProviderName", "ProviderName"),
    ("ServiceName",),
    ("Tags",),
)
"""Columns that a bill must have, each under one of these names."""


def charges(row: Mapping[str, Any]) -> Iterator[Charge]:
    """The one charge of a row.

    Raises:
        InputError: a value that is none; its place is the column.
    """
    category = row.get("ChargeCategory")
    if category not in CATEGORIES:
        raise InputError("ChargeCategory", "no category of FOCUS", value=category, allowed=", ".join(CATEGORIES))
    provider = row.get("ServiceProviderName") or row.get("ProviderName") or ""
    period = row.get("BillingPeriodStart")
    yield Charge(
        service_provider_name=provider_key(str(provider)),
        billing_account_id=str(row.get("BillingAccountId") or ""),
        billing_period=value_of(row, "BillingPeriodStart", moment).date().isoformat() if period else "",
        service_category=str(row.get("ServiceCategory") or ""),
        service_name=str(row.get("ServiceName") or ""),
        region_id=str(row.get("RegionId") or ""),
        resource_id=str(row.get("ResourceId") or ""),
        charge_category=category,
        charge_class=str(row.get("ChargeClass") or ""),
        charge_period_start=value_of(row, "ChargePeriodStart", moment),
        charge_period_end=value_of(row, "ChargePeriodEnd", moment),
        billed_cost=value_of(row, "BilledCost", amount),
        effective_cost=value_of(row, "EffectiveCost", amount),
        billing_currency=str(row.get("BillingCurrency") or ""),
        tags=value_of(row, "Tags", tags_of),
    )
