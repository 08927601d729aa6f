"""Run records as rows of FOCUS 1.4: one for each session, kind of capacity and month, with energy and emissions.

They lie beside a bill and are none: BilledCost is 0, since FOCUS leaves a charge to whoever invoices it, so that the
two can be put together without counting twice. EffectiveCost is the record's: node hours at the price of their kind.
x_energy_kwh is the data centre's (IT energy x PUE) and x_gco2e its emissions on the grid; both null where unknown.
FOCUS knows no cost that is null: what has no price has no row, and the caller is told.
"""

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from stacks.bill.focus_schema import problems
from trainer.record import CapacityUse, Figure, RunRecord, SessionRecord

__all__ = ["COLUMNS", "NUMBERS", "TIMES", "focus_rows", "priced", "without_rows"]

_JOULES_PER_KWH = 3.6e6
_NAMES = MappingProxyType({"aws": "AWS", "azure": "Microsoft", "gcp": "Google Cloud"})
_SERVICES = MappingProxyType(
    {"aws": "Amazon Elastic Compute Cloud", "azure": "Virtual Machines", "gcp": "Compute Engine"}
)
_DYNAMIC = ("spot", "capacity-block")
"""Whose price the provider sets anew at any time. A block is bought at the price of that day, and is no commitment
discount, which has an id and takes something off other charges."""

TIMES = ("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart")
NUMBERS = (
    *("BilledCost", "ConsumedQuantity", "ContractedCost", "EffectiveCost", "ListCost", "ListUnitPrice"),
    *("PricingQuantity", "x_embodied_gco2e", "x_energy_kwh", "x_gco2e"),
)
COLUMNS = (
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd"),
    *("BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency"),
    *("ChargePeriodEnd", "ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "EffectiveCost"),
    *("HostProviderName", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity"),
    *("PricingUnit", "RegionId", "RegionName", "ServiceCategory", "ServiceName", "ServiceProviderName"),
    *("ServiceSubcategory", "Tags"),
    *("x_capacity", "x_cost_provenance", "x_cost_source", "x_embodied_gco2e", "x_energy_kwh", "x_energy_provenance"),
    *("x_gco2e", "x_machine_type", "x_run_id", "x_session"),
)
"""Of our rows, in alphabetical order; those of our own at the end."""


def without_rows(record: RunRecord) -> str:
    """Why a record has no rows; empty where it has."""
    if not record.cost.uses:
        return "recorded by an older version: `python -m trainer record --run-dir DIR` writes it anew"
    if record.cost.total_usd.value is None:
        return f"no dollars recorded ({record.cost.total_usd.source}), and FOCUS has no cost that is null"
    return ""


def priced(record: RunRecord, usd_per_hour: float) -> RunRecord:
    """The record with a price of somebody's word where it has none."""
    price = Figure(value=usd_per_hour, unit="USD/h", provenance="assumed", source="--usd-per-hour")
    uses = tuple(use if use.usd.value is not None else _priced(use, price) for use in record.cost.uses)
    usd = math.fsum(use.usd.value or 0.0 for use in uses)
    total = Figure(value=usd, unit="USD", provenance="estimated", source="node hours x price of a node")
    return record.model_copy(update={"cost": record.cost.model_copy(update={"uses": uses, "total_usd": total})})


def _priced(use: CapacityUse, price: Figure) -> CapacityUse:
    assert use.node_hours.value is not None
    assert price.value is not None
    usd = Figure(value=use.node_hours.value * price.value, unit="USD", provenance="estimated", source=price.source)
    return use.model_copy(update={"usd_per_hour": price, "usd": usd})


def focus_rows(record: RunRecord, billing_account: str) -> list[dict[str, Any]]:
    """The rows of a record that has some; see `without_rows`.

    Args:
        record: with dollars.
        billing_account: who pays, as the invoice's issuer knows them.
    """
    rows = [row for use in record.cost.uses for row in _rows(record, use, billing_account)]
    found = problems(COLUMNS, rows)
    assert not found, found
    return rows


def _rows(record: RunRecord, use: CapacityUse, billing_account: str) -> Iterator[dict[str, Any]]:
    session, price = _session(record, use), use.usd_per_hour
    assert use.usd.value is not None
    assert use.node_hours.value is not None
    nodes = use.num_nodes / session.num_nodes
    joules, grams = _energy(record, session.it_joules)
    embodied = record.carbon.embodied_gco2e.value
    hours = math.fsum(other.node_hours.value or 0.0 for other in record.cost.uses)
    common = _common(record, use, billing_account)
    for start, end, share in _months(datetime.fromisoformat(use.start), datetime.fromisoformat(use.end)):
        usd, node_hours = use.usd.value * share, use.node_hours.value * share
        yield {
            **common,
            "BillingPeriodStart": _time(_month(start)),
            "BillingPeriodEnd": _time(_next_month(start)),
            "ChargePeriodStart": _time(start),
            "ChargePeriodEnd": _time(end),
            "ConsumedQuantity": node_hours,
            "PricingQuantity": node_hours,
            "ContractedCost": usd,
            "EffectiveCost": usd,
            "ListCost": usd,
            "ListUnitPrice": price.value,
            "x_energy_kwh": None if joules is None else joules / _JOULES_PER_KWH * nodes * share,
            "x_gco2e": None if grams is None else grams * nodes * share,
            "x_embodied_gco2e": None if embodied is None or not hours else embodied * node_hours / hours,
        }


def _common(record: RunRecord, use: CapacityUse, billing_account: str) -> dict[str, Any]:
    provider, price = _NAMES.get(record.provider, record.provider or "unknown"), use.usd_per_hour
    kind = use.capacity or "capacity not told"
    return {
        "BilledCost": 0.0,
        "BillingAccountId": billing_account,
        "BillingAccountName": None,
        "BillingCurrency": "USD",
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeDescription": f"run {record.id}, session {use.session}: {use.num_nodes} x {record.machine_type}, {kind}",
        "ChargeFrequency": "Usage-Based",
        "ConsumedUnit": "Hours",
        "HostProviderName": provider,
        "InvoiceIssuerName": provider,
        "PricingCategory": "Dynamic" if use.capacity in _DYNAMIC else "Standard",
        "PricingUnit": "Hours",
        "RegionId": record.region or None,
        "RegionName": record.region or None,
        "ServiceCategory": "Compute",
        "ServiceName": _SERVICES.get(record.provider, "Machines"),
        "ServiceProviderName": provider,
        "ServiceSubcategory": "Virtual Machines",
        "Tags": json.dumps({"gangway-stack": record.stack, "gangway-run": record.id}),
        "x_capacity": use.capacity or None,
        "x_cost_provenance": use.usd.provenance,
        "x_cost_source": f"{price.source}{f', {price.as_of}' if price.as_of else ''}",
        "x_energy_provenance": _session(record, use).it_joules.provenance,
        "x_machine_type": record.machine_type or None,
        "x_run_id": record.id,
        "x_session": str(use.session),
    }


def _session(record: RunRecord, use: CapacityUse) -> SessionRecord:
    """The session of a use. Numbers have gaps where a diary has lost a session; each that is left has uses."""
    numbers = sorted({each.session for each in record.cost.uses})
    return record.sessions[numbers.index(use.session)]


def _energy(record: RunRecord, it_joules: Figure) -> tuple[float | None, float | None]:
    """Joules of the data centre and grams of CO2e, of a session's IT energy."""
    pue, intensity = record.energy.pue.value, record.carbon.intensity_g_per_kwh.value
    joules = None if it_joules.value is None or pue is None else it_joules.value * pue
    return joules, None if joules is None or intensity is None else joules / _JOULES_PER_KWH * intensity


def _months(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime, float]]:
    """The parts of a period by months of UTC, each with its share of the whole; one of no length is one second."""
    start, end = start.astimezone(UTC), max(end, start + timedelta(seconds=1)).astimezone(UTC)
    whole = (end - start).total_seconds()
    while start < end:
        until = min(end, _next_month(start))
        yield start, until, (until - start).total_seconds() / whole
        start = until


def _month(moment: datetime) -> datetime:
    return moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _next_month(moment: datetime) -> datetime:
    return _month(_month(moment) + timedelta(days=32))


def _time(moment: datetime) -> str:
    """FOCUS's form, which has whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
