"""Rows of AWS's Cost and Usage Report 2.0 (Data Exports) as FOCUS charges: unblended costs, before negotiated discounts
(the `net_` columns). Amortised costs follow the user guide's query in "Understanding your amortized cost": prepayments
are spread over the hours that used them, the unused part stays with the fee.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gangway.finops.bill.charge import Charge, amount, get_tags, get_value, moment, optional_amount

MARK = "line_item_unblended_cost"
OLD_MARK = "lineItem/UnblendedCost"
"""Of reports before 2.0, whose columns vary by month."""

NEEDED: tuple[tuple[str, ...], ...] = (
    ("line_item_unblended_cost",),
    ("line_item_currency_code",),
    ("line_item_line_item_type",),
    ("line_item_usage_start_date",),
    ("line_item_usage_end_date",),
    ("line_item_product_code",),
    ("resource_tags", "tags"),
)

# Usage types: the region's short name and the usage, `USE2-SpotUsage:p5.48xlarge`. Disks and gateways are EC2 too.
_MACHINES = re.compile(r"(^|-)(BoxUsage|SpotUsage|DedicatedUsage|HostBoxUsage)\b")
_COVERED = ("SavingsPlanCoveredUsage", "SavingsPlanNegation")
_PURCHASES = ("Fee", "RIFee", "SavingsPlanRecurringFee", "SavingsPlanUpfrontFee")
_USAGE = ("DiscountedUsage", "Refund", "Usage", *_COVERED)


def charges(row: Mapping[str, Any]) -> Iterator[Charge]:
    """Yield the row's one charge. InputError: an invalid value; its place is the column."""
    kind = str(row.get("line_item_line_item_type") or "")
    period = row.get("bill_billing_period_start_date")
    yield Charge(
        service_provider_name="aws",
        billing_account_id=str(row.get("bill_payer_account_id") or ""),
        sub_account_id=str(row.get("line_item_usage_account_id") or ""),
        billing_period=get_value(row, "bill_billing_period_start_date", moment).date().isoformat() if period else "",
        service_category="Compute" if _MACHINES.search(str(row.get("line_item_usage_type") or "")) else "Other",
        service_name=str(row.get("line_item_product_code") or ""),
        region_id=str(row.get("product_region_code") or ""),
        resource_id=str(row.get("line_item_resource_id") or ""),
        charge_category=_category(kind),
        # FOCUS has no category for refunds: they correct a charge of the original category.
        charge_class="Correction" if kind == "Refund" else "",
        charge_period_start=get_value(row, "line_item_usage_start_date", moment),
        charge_period_end=get_value(row, "line_item_usage_end_date", moment),
        # Savings plan usage appears at the public price, and a second row subtracts it.
        billed_cost=0.0 if kind in _COVERED else get_value(row, "line_item_unblended_cost", amount),
        effective_cost=_effective(kind, row),
        billing_currency=str(row.get("line_item_currency_code") or ""),
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
