"""Rows of the clouds' own bill exports as FOCUS charges."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from gangway.components.core.findings import InputError
from gangway.finops.bill.charge import Charge, amount, get_tags, get_text, get_value, moment, optional_amount

AWS_MARK = "line_item_unblended_cost"
OLD_AWS_MARK = "lineItem/UnblendedCost"
"""Of reports before 2.0, whose columns vary by month."""

AWS_NEEDED: tuple[tuple[str, ...], ...] = (
    ("line_item_unblended_cost",),
    ("line_item_currency_code",),
    ("line_item_line_item_type",),
    ("line_item_usage_start_date",),
    ("line_item_usage_end_date",),
    ("line_item_product_code",),
    ("resource_tags", "tags"),
)

# Usage types: the region's short name and the usage, `USE2-SpotUsage:p5.48xlarge`. Disks and gateways are EC2 too.
_AWS_MACHINES = re.compile(r"(^|-)(BoxUsage|SpotUsage|DedicatedUsage|HostBoxUsage)\b")
_COVERED = ("SavingsPlanCoveredUsage", "SavingsPlanNegation")
_PURCHASES = ("Fee", "RIFee", "SavingsPlanRecurringFee", "SavingsPlanUpfrontFee")
_USAGE = ("DiscountedUsage", "Refund", "Usage", *_COVERED)


def aws_charges(row: Mapping[str, Any]) -> Iterator[Charge]:
    """Rows of AWS's Cost and Usage Report 2.0 (Data Exports): unblended costs, before negotiated discounts (the `net_`
    columns). Amortised costs follow the user guide's query in "Understanding your amortized cost": prepayments are
    spread over the hours that used them, the unused part stays with the fee.

    Yields one charge. InputError: an invalid value; its place is the column.
    """
    kind = get_text(row, "line_item_line_item_type")
    period = row.get("bill_billing_period_start_date")
    yield Charge(
        service_provider_name="aws",
        billing_account_id=get_text(row, "bill_payer_account_id"),
        sub_account_id=get_text(row, "line_item_usage_account_id"),
        billing_period=get_value(row, "bill_billing_period_start_date", moment).date().isoformat() if period else "",
        service_category="Compute" if _AWS_MACHINES.search(get_text(row, "line_item_usage_type")) else "Other",
        service_name=get_text(row, "line_item_product_code"),
        region_id=get_text(row, "product_region_code"),
        resource_id=get_text(row, "line_item_resource_id"),
        charge_category=_category(kind),
        # FOCUS has no category for refunds: they correct a charge of the original category.
        charge_class="Correction" if kind == "Refund" else "",
        charge_period_start=get_value(row, "line_item_usage_start_date", moment),
        charge_period_end=get_value(row, "line_item_usage_end_date", moment),
        # Savings plan usage appears at the public price, and a second row subtracts it.
        billed_cost=0.0 if kind in _COVERED else get_value(row, "line_item_unblended_cost", amount),
        effective_cost=_effective(kind, row),
        billing_currency=get_text(row, "line_item_currency_code"),
        tags=get_value(row, "resource_tags" if "resource_tags" in row else "tags", get_tags),
    )


def _category(kind: str) -> str:
    if kind in _USAGE:
        return "Usage"
    return "Purchase" if kind in _PURCHASES else kind if kind in ("Tax", "Credit") else "Adjustment"


def _effective(kind: str, row: Mapping[str, Any]) -> float:
    match kind:
        case "SavingsPlanCoveredUsage":
            return get_value(row, "savings_plan_savings_plan_effective_cost", optional_amount)
        case "SavingsPlanNegation" | "SavingsPlanUpfrontFee":
            return 0.0
        case "SavingsPlanRecurringFee":
            committed = get_value(row, "savings_plan_total_commitment_to_date", optional_amount)
            return committed - get_value(row, "savings_plan_used_commitment", optional_amount)
        case "DiscountedUsage":
            return get_value(row, "reservation_effective_cost", optional_amount)
        case "RIFee":
            upfront = get_value(row, "reservation_unused_amortized_upfront_fee_for_billing_period", optional_amount)
            return upfront + get_value(row, "reservation_unused_recurring_fee", optional_amount)
        case "Fee" if row.get("reservation_reservation_a_r_n"):
            return 0.0
    return get_value(row, "line_item_unblended_cost", amount)


AZURE_NAME = "Azure actual cost export"
AZURE_MARK = "costinbillingcurrency"

AZURE_NEEDED: tuple[tuple[str, ...], ...] = (
    ("costinbillingcurrency",),
    ("billingcurrency", "billingcurrencycode"),
    ("date",),
    ("chargetype",),
    ("metercategory",),
    ("tags",),
)
"""In lower case, as `azure_charges` looks them up."""

_AZURE_CATEGORIES = {"Usage": "Usage", "Purchase": "Purchase", "Credit": "Credit", "Tax": "Tax", "Refund": "Purchase"}
_DAY = timedelta(days=1)


def azure_charges(row: Mapping[str, Any]) -> Iterator[Charge]:
    """Rows of Azure's "cost and usage details (actual)", of an Enterprise Agreement or a Microsoft Customer Agreement.
    The two spell columns and case differently (learn.microsoft.com/azure/cost-management-billing/dataset-schema,
    cost-usage-details-ea and -mca, read in November 2026). Categories follow Microsoft's conversion (finops-toolkit,
    docs/focus/convert).

    Yields one charge, a day long. InputError: an invalid value, or amortized cost (counts prepayments twice).
    """
    low = {column.lower(): value for column, value in row.items()}
    cost, kind = get_value(low, AZURE_MARK, amount), get_text(low, "chargetype")
    committed = get_text(low, "pricingmodel").lower().replace(" ", "") in ("reservation", "savingsplan")
    if kind in ("UnusedReservation", "UnusedSavingsPlan") or (kind == "Usage" and committed and cost):
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
        billing_account_id=get_text(low, "billingprofileid", "billingaccountid"),
        sub_account_id=get_text(low, "subscriptionid"),
        billing_period=get_value(low, "billingperiodstartdate", _day).date().isoformat() if period else "",
        service_category="Compute" if get_text(low, "metercategory").startswith("Virtual Machines") else "Other",
        service_name=get_text(low, "metercategory"),
        region_id=get_text(low, "resourcelocation"),
        resource_id=get_text(low, "resourceid"),
        charge_category=_AZURE_CATEGORIES.get(kind, "Adjustment"),
        charge_class="Correction" if kind == "Refund" else "",
        charge_period_start=start,
        charge_period_end=start + _DAY,
        billed_cost=cost,
        effective_cost=cost,
        billing_currency=get_text(low, "billingcurrency", "billingcurrencycode"),
        tags=get_value(low, "tags", get_tags),
    )


def _day(value: Any) -> datetime:
    """CSV has 10/05/2026, month first."""
    if isinstance(value, str) and value[2:3] == value[5:6] == "/":
        value = f"{value[6:10]}-{value[:2]}-{value[3:5]}"
    return moment(value)


GCP_MARK = "usage_start_time"

GCP_NEEDED: tuple[tuple[str, ...], ...] = (
    ("usage_start_time",),
    ("usage_end_time",),
    ("cost",),
    ("currency",),
    ("service", "service_description", "service.description"),
    ("labels",),
    ("credits",),
)
"""JSON rows omit empty fields, so labels and credits are optional there."""

# Machines are billed by part: `Spot Preemptible A3 Instance Core running in Americas`. Disks are in Compute Engine too.
_GCP_MACHINES = re.compile(r"\b(Instance (Core|Ram)|GPU|TPU)\b", re.IGNORECASE)


def gcp_charges(row: Mapping[str, Any]) -> Iterator[Charge]:
    """Rows of Google Cloud's billing export to BigQuery, standard or detailed. JSON rows are nested
    (`service: {description}`), CSV rows flat (`service_description`) with labels and credits as JSON
    (`TO_JSON_STRING(labels) AS labels`). Credits in a row become separate charges. Times are in UTC; invoices follow
    the months of US Pacific time.

    Yields the row's charge, and one for all its credits. InputError: an invalid value; its place is the column.
    """
    cost = get_value(row, "cost", amount)
    month = str(_inner(row, "invoice", "month") or "")
    kind = str(row.get("cost_type") or "regular")
    charge = Charge(
        service_provider_name="gcp",
        billing_account_id=get_text(row, "billing_account_id"),
        sub_account_id=str(_inner(row, "project", "id") or ""),
        billing_period=f"{month[:4]}-{month[4:6]}-01" if len(month) == 6 else "",
        service_category="Compute" if _GCP_MACHINES.search(str(_inner(row, "sku", "description") or "")) else "Other",
        service_name=str(_inner(row, "service", "description") or ""),
        region_id=str(_inner(row, "location", "region") or ""),
        resource_id=str(_inner(row, "resource", "global_name") or _inner(row, "resource", "name") or ""),
        charge_category={"regular": "Usage", "tax": "Tax"}.get(kind, "Adjustment"),
        charge_class="Correction" if _inner(row, "adjustment_info", "type") else "",
        charge_period_start=get_value(row, "usage_start_time", moment),
        charge_period_end=get_value(row, "usage_end_time", moment),
        billed_cost=cost,
        effective_cost=cost,
        billing_currency=get_text(row, "currency"),
        tags=get_value(row, "labels", get_tags),
    )
    yield charge
    credit = get_value(row, "credits", _credits)
    if credit:
        yield charge._replace(charge_category="Credit", billed_cost=credit, effective_cost=credit)


def _inner(row: Mapping[str, Any], column: str, field: str) -> Any:
    value = row.get(column)
    if isinstance(value, Mapping):
        return value.get(field)
    if value:
        raise InputError(column, "not a record", value=value, fix=f"export {column}.{field}")
    return row.get(f"{column}_{field}", row.get(f"{column}.{field}"))


def _credits(value: Any) -> float:
    items = json.loads(value) if isinstance(value, str) and value else value or []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise ValueError("not a list of credits")
    return math.fsum(amount(item.get("amount")) for item in items)
