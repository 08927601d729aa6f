"""FOCUS, the FinOps Foundation's bill format: its columns, and run records as rows that add 0 to the bill."""

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from gangway.components.core.findings import InputError
from gangway.finops.bill.charge import CATEGORIES, Charge, amount, get_tags, get_text, get_value, moment, provider_key
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import CapacityUse, RunRecord, SessionRecord

MARK = "BilledCost"
"""A column only FOCUS has."""

NEEDED: tuple[tuple[str, ...], ...] = (
    ("BilledCost",),
    ("EffectiveCost",),
    ("BillingCurrency",),
    ("ChargeCategory",),
    ("ChargePeriodStart",),
    ("ChargePeriodEnd",),
    ("ServiceProviderName", "ProviderName"),
    ("ServiceName",),
    ("Tags", "x_Labels"),
)
"""Required columns, each under one of these names."""
_JOULES_PER_KWH = 3.6e6
_NAMES = MappingProxyType({"aws": "AWS", "azure": "Microsoft", "gcp": "Google Cloud"})
_SERVICES = MappingProxyType(
    {"aws": "Amazon Elastic Compute Cloud", "azure": "Virtual Machines", "gcp": "Compute Engine"}
)
_DYNAMIC = ("spot", "capacity-block")
"""Prices that the provider may change at any time. A block is bought at the day's price and is not a commitment
discount, which has an id and reduces other charges.
"""
TIMES = ("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart")
COSTS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
QUANTITIES = ("ConsumedQuantity", "PricingQuantity")
NUMBERS = (
    *(*COSTS, *QUANTITIES),
    *("x_cost_usd", "x_embodied_gco2e", "x_energy_kwh", "x_gco2e", "x_node_hours", "x_usd_per_node_hour"),
)


def charges(row: Mapping[str, Any]) -> Iterator[Charge]:
    """Yield the row's one charge. InputError: an invalid value; its place is the column."""
    # Google's view of FOCUS 1.0 has its words in lower case, and labels apart from tags.
    category = get_text(row, "ChargeCategory").capitalize()
    if category not in CATEGORIES:
        raise InputError(
            "ChargeCategory", "not a FOCUS category", value=row.get("ChargeCategory"), allowed=", ".join(CATEGORIES)
        )
    period = row.get("BillingPeriodStart")
    yield Charge(
        service_provider_name=provider_key(get_text(row, "ServiceProviderName", "ProviderName")),
        billing_account_id=get_text(row, "BillingAccountId"),
        sub_account_id=get_text(row, "SubAccountId"),
        billing_period=get_value(row, "BillingPeriodStart", moment).date().isoformat() if period else "",
        service_category=get_text(row, "ServiceCategory"),
        service_name=get_text(row, "ServiceName"),
        region_id=get_text(row, "RegionId"),
        resource_id=get_text(row, "ResourceId"),
        charge_category=category,
        charge_class=get_text(row, "ChargeClass").capitalize(),
        charge_period_start=get_value(row, "ChargePeriodStart", moment),
        charge_period_end=get_value(row, "ChargePeriodEnd", moment),
        billed_cost=get_value(row, "BilledCost", amount),
        effective_cost=get_value(row, "EffectiveCost", amount),
        billing_currency=get_text(row, "BillingCurrency"),
        tags=get_value(row, "Tags" if "Tags" in row else "x_Labels", get_tags),
    )


class Version(StrEnum):
    """The FOCUS version of written rows. 1.3 has both the new and the deprecated provider columns."""

    V1_2 = "1.2"
    V1_4 = "1.4"


PROVIDERS_SINCE_1_3 = ("HostProviderName", "ServiceProviderName")
PROVIDERS_TO_1_3 = ("ProviderName", "PublisherName")


_EXPORTED = (
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd"),
    *("BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency"),
    *("ChargePeriodEnd", "ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "EffectiveCost"),
    *("InvoiceIssuerName", "ListCost", "PricingCategory", "PricingQuantity", "PricingUnit", "RegionId", "RegionName"),
    *("ServiceCategory", "ServiceName", "ServiceSubcategory", "Tags"),
)
_OWN = (
    *("x_capacity", "x_cost_provenance", "x_cost_source", "x_cost_usd", "x_embodied_gco2e", "x_energy_kwh"),
    *("x_energy_provenance", "x_gco2e", "x_machine_type", "x_node_hours", "x_run_id", "x_session"),
    "x_usd_per_node_hour",
)


def exported_columns(version: Version = Version.V1_4) -> tuple[str, ...]:
    """The columns of our rows, sorted; custom ones last."""
    providers = PROVIDERS_SINCE_1_3 if version is Version.V1_4 else PROVIDERS_TO_1_3
    return (*sorted((*_EXPORTED, *providers)), *_OWN)


def missing_rows_reason(record: RunRecord) -> str:
    """Why a record has no rows; empty if it has some."""
    if not record.cost.uses:
        return "recorded by an older version: `python -m gangway.trainer record --run-dir DIR` rebuilds it"
    if record.cost.total_usd.value is None:
        return f"no dollars recorded ({record.cost.total_usd.source}), and FOCUS allows no null cost"
    of_sessions = len({use.session for use in record.cost.uses})
    if of_sessions > len(record.sessions) or any(session.num_nodes < 1 for session in record.sessions):
        return "damaged: machines of unknown sessions, or a session without machines"
    if any(use.usd.value is None or use.node_hours.value is None for use in record.cost.uses):
        return "damaged: a total in dollars with an unknown part"
    return ""


def priced(record: RunRecord, usd_per_hour: float) -> RunRecord:
    """Return the record with the user's price if it has none."""
    price = Quantity(value=usd_per_hour, unit="USD/h", provenance="assumed", source="--usd-per-hour")
    uses = tuple(use if use.usd.value is not None else _add_price(use, price) for use in record.cost.uses)
    usd = math.fsum(use.usd.value or 0.0 for use in uses)
    total = Quantity(value=usd, unit="USD", provenance="estimated", source="node hours x price of a node")
    return record.model_copy(update={"cost": record.cost.model_copy(update={"uses": uses, "total_usd": total})})


def _add_price(use: CapacityUse, price: Quantity) -> CapacityUse:
    assert use.node_hours.value is not None
    assert price.value is not None
    usd = Quantity(value=use.node_hours.value * price.value, unit="USD", provenance="estimated", source=price.source)
    return use.model_copy(update={"usd_per_hour": price, "usd": usd})


def focus_rows(record: RunRecord, billing_account: str, version: Version = Version.V1_4) -> list[dict[str, Any]]:
    """Rows of a record; their costs are 0, since the bill has these node hours, and figures are in custom columns."""
    return [row for use in record.cost.uses for row in _rows(record, use, billing_account, version)]


def _rows(record: RunRecord, use: CapacityUse, billing_account: str, version: Version) -> Iterator[dict[str, Any]]:
    session, price = _session(record, use), use.usd_per_hour
    assert use.usd.value is not None
    assert use.node_hours.value is not None
    nodes = use.num_nodes / session.num_nodes
    joules, grams = _energy(record, session.it_joules)
    embodied = record.carbon.embodied_gco2e.value
    hours = math.fsum(other.node_hours.value or 0.0 for other in record.cost.uses)
    common = _common(record, use, billing_account, version)
    for start, end, share in _months(datetime.fromisoformat(use.start), datetime.fromisoformat(use.end)):
        usd, node_hours = use.usd.value * share, use.node_hours.value * share
        yield {
            **common,
            "BillingPeriodStart": _time(_month(start)),
            "BillingPeriodEnd": _time(_next_month(start)),
            "ChargePeriodStart": _time(start),
            "ChargePeriodEnd": _time(end),
            "x_cost_usd": usd,
            "x_node_hours": node_hours,
            "x_usd_per_node_hour": price.value,
            "x_energy_kwh": None if joules is None else joules / _JOULES_PER_KWH * nodes * share,
            "x_gco2e": None if grams is None else grams * nodes * share,
            "x_embodied_gco2e": None if embodied is None or not hours else embodied * node_hours / hours,
        }


def _common(record: RunRecord, use: CapacityUse, billing_account: str, version: Version) -> dict[str, Any]:
    provider, price = _NAMES.get(record.provider, record.provider or "unknown"), use.usd_per_hour
    kind = use.capacity or "unknown capacity"
    providers = PROVIDERS_SINCE_1_3 if version is Version.V1_4 else PROVIDERS_TO_1_3
    return {
        **dict.fromkeys((*COSTS, *QUANTITIES), 0.0),
        **dict.fromkeys(providers, provider),
        "BillingAccountId": billing_account,
        "BillingAccountName": None,
        "BillingCurrency": "USD",
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeDescription": f"run {record.id}, session {use.session}: {use.num_nodes} x {record.machine_type}, {kind}",
        "ChargeFrequency": "Usage-Based",
        "ConsumedUnit": "Hours",
        "InvoiceIssuerName": provider,
        "PricingCategory": "Dynamic" if use.capacity in _DYNAMIC else "Standard",
        "PricingUnit": "Hours",
        "RegionId": record.region or None,
        "RegionName": record.region or None,
        "ServiceCategory": "Compute",
        "ServiceName": _SERVICES.get(record.provider, "Machines"),
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
    """Session numbers have gaps if stats.jsonl lost a session; every remaining one has uses."""
    numbers = sorted({each.session for each in record.cost.uses})
    return record.sessions[numbers.index(use.session)]


def _energy(record: RunRecord, it_joules: Quantity) -> tuple[float | None, float | None]:
    pue, intensity = record.energy.pue.value, record.carbon.intensity_g_per_kwh.value
    joules = None if it_joules.value is None or pue is None else it_joules.value * pue
    return joules, None if joules is None or intensity is None else joules / _JOULES_PER_KWH * intensity


def _months(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime, float]]:
    """The months (UTC) of a period with their shares of it; an empty period counts as one second."""
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
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
