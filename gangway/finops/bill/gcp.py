"""Rows of Google Cloud's billing export to BigQuery, standard or detailed, as FOCUS charges. JSON rows are nested
(`service: {description}`), CSV rows flat (`service_description`) with labels and credits as JSON
(`TO_JSON_STRING(labels) AS labels`). Credits in a row become separate charges. Times are in UTC; invoices follow the
months of US Pacific time.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gangway.components.core.findings import InputError
from gangway.finops.bill.charge import Charge, amount, get_tags, get_value, moment

MARK = "usage_start_time"

NEEDED: tuple[tuple[str, ...], ...] = (
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
_MACHINES = re.compile(r"\b(Instance (Core|Ram)|GPU|TPU)\b", re.IGNORECASE)
_CATEGORIES = {"regular": "Usage", "tax": "Tax"}


def charges(row: Mapping[str, Any]) -> Iterator[Charge]:
    """Yield the row's charge, and one for all its credits. InputError: an invalid value; its place is the column."""
    cost = get_value(row, "cost", amount)
    month = str(_inner(row, "invoice", "month") or "")
    kind = str(row.get("cost_type") or "regular")
    charge = Charge(
        service_provider_name="gcp",
        billing_account_id=str(row.get("billing_account_id") or ""),
        sub_account_id=str(_inner(row, "project", "id") or ""),
        billing_period=f"{month[:4]}-{month[4:6]}-01" if len(month) == 6 else "",
        service_category="Compute" if _MACHINES.search(str(_inner(row, "sku", "description") or "")) else "Other",
        service_name=str(_inner(row, "service", "description") or ""),
        region_id=str(_inner(row, "location", "region") or ""),
        resource_id=str(_inner(row, "resource", "global_name") or _inner(row, "resource", "name") or ""),
        charge_category=_CATEGORIES.get(kind, "Adjustment"),
        charge_class="Correction" if _inner(row, "adjustment_info", "type") else "",
        charge_period_start=get_value(row, "usage_start_time", moment),
        charge_period_end=get_value(row, "usage_end_time", moment),
        billed_cost=cost,
        effective_cost=cost,
        billing_currency=str(row.get("currency") or ""),
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
