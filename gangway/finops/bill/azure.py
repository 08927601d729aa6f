"""Rows of Azure's "cost and usage details (actual)", of an Enterprise Agreement or a Microsoft Customer Agreement, as
FOCUS charges. The two spell columns and case differently
(learn.microsoft.com/azure/cost-management-billing/dataset-schema, cost-usage-details-ea and -mca, read in November
2026). Categories follow Microsoft's conversion (finops-toolkit, docs/focus/convert).
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from gangway.components.core.findings import InputError
from gangway.finops.bill.charge import Charge, amount, get_tags, get_value, moment

NAME = "Azure actual cost export"
MARK = "costinbillingcurrency"

NEEDED: tuple[tuple[str, ...], ...] = (
    ("costinbillingcurrency",),
    ("billingcurrency", "billingcurrencycode"),
    ("date",),
    ("chargetype",),
    ("metercategory",),
    ("tags",),
)
"""In lower case, as `charges` looks them up."""

_UNUSED = ("UnusedReservation", "UnusedSavingsPlan")
_COMMITTED = ("reservation", "savingsplan")
_CATEGORIES = {"Usage": "Usage", "Purchase": "Purchase", "Credit": "Credit", "Tax": "Tax", "Refund": "Purchase"}
_DAY = timedelta(days=1)


def charges(row: Mapping[str, Any]) -> Iterator[Charge]:
    """Yield the row's one charge, a day long. InputError: an invalid value, or amortized cost (counts prepayments
    twice).
    """
    low = {column.lower(): value for column, value in row.items()}
    cost, kind = get_value(low, MARK, amount), str(low.get("chargetype") or "")
    committed = str(low.get("pricingmodel") or "").lower().replace(" ", "") in _COMMITTED
    if kind in _UNUSED or (kind == "Usage" and committed and cost):
        raise InputError(
            "chargeType",
            "is amortized cost, which spreads purchases over their use",
            value=kind,
            allowed="Azure's export of actual cost, or of FOCUS, which has both",
            fix="make such an export in Cost Management",
        )
    start, period = get_value(low, "date", _day), low.get("billingperiodstartdate")
    if low.get("billingperiodenddate"):
        get_value(low, "billingperiodenddate", _day)  # with the day first, the end of a month would be no date
    yield Charge(
        service_provider_name="azure",
        billing_account_id=str(low.get("billingprofileid") or low.get("billingaccountid") or ""),
        sub_account_id=str(low.get("subscriptionid") or ""),
        billing_period=get_value(low, "billingperiodstartdate", _day).date().isoformat() if period else "",
        service_category="Compute" if str(low.get("metercategory") or "").startswith("Virtual Machines") else "Other",
        service_name=str(low.get("metercategory") or ""),
        region_id=str(low.get("resourcelocation") or ""),
        resource_id=str(low.get("resourceid") or ""),
        charge_category=_CATEGORIES.get(kind, "Adjustment"),
        charge_class="Correction" if kind == "Refund" else "",
        charge_period_start=start,
        charge_period_end=start + _DAY,
        billed_cost=cost,
        effective_cost=cost,
        billing_currency=str(low.get("billingcurrency") or low.get("billingcurrencycode") or ""),
        tags=get_value(low, "tags", get_tags),
    )


def _day(value: Any) -> datetime:
    """CSV has 10/05/2026, month first."""
    if isinstance(value, str) and value[2:3] == value[5:6] == "/":
        value = f"{value[6:10]}-{value[:2]}-{value[3:5]}"
    return moment(value)
