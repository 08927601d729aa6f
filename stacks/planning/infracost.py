"""A plan in the shape of Infracost's JSON (version 0.2 of `infracost breakdown --format json`), for tools that read
that.

Figures are decimal strings, a month has 730 hours, and what nobody knows the price of has costs of null and says
`priceNotFound`. What Infracost has no word for (the run, energy, standby rungs) is not in it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from components.estimate.cost import HOURS_PER_MONTH

VERSION = "0.2"
# By the last word of its type, the resource that a line of the bill is about: others may have the same name.
_PRICED = (
    *("Group", "InstanceGroupManager", "VirtualMachineScaleSet", "QueuedTpuRequest", "V2Vm"),
    *("Instance", "VirtualMachine", "LustreFileSystem", "AmlFilesystem", "NatGateway", "RouterNat", "Key", "CryptoKey"),
    *("Registry", "PublicIPAddress", "PrivateEndpoint", "BastionHost", "PrivateZone"),
)
_DIGITS = 10
"""After the point: a 730th of a month's price has no end."""


def infracost(plan: Mapping[str, Any], past: Mapping[str, Any] | None = None, *, now: datetime | None = None) -> Any:
    """The plan as JSON data. `past`: an earlier one of the same stack, to be compared with; `now`: for `timeGenerated`;
    this moment when left out.
    """
    new, old = _breakdown(plan), _breakdown(past) if past else _breakdown({**plan, "cost": {"components": []}})
    difference = _difference(old, new)
    summary = _summary(plan, new["resources"])
    totals = [("total", new), ("pastTotal", old), ("diffTotal", difference)]
    return {
        "version": VERSION,
        "currency": plan["cost"]["currency"],
        "projects": [
            {
                "name": plan["stack"],
                "metadata": {"path": f"stacks/Pulumi.{plan['stack']}.yaml", "type": "gangway_stack"},
                "pastBreakdown": old,
                "breakdown": new,
                "diff": difference,
                "summary": summary,
            }
        ],
        **{f"{word}HourlyCost": breakdown["totalHourlyCost"] for word, breakdown in totals},
        **{f"{word}MonthlyCost": breakdown["totalMonthlyCost"] for word, breakdown in totals},
        "timeGenerated": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
        "summary": summary,
    }


def _breakdown(plan: Mapping[str, Any]) -> dict[str, Any]:
    types = _types(plan["resources"])
    by_resource: dict[str, list[Mapping[str, Any]]] = {}
    for line in plan["cost"]["components"]:
        if not line["standby"]:
            by_resource.setdefault(line["name"].partition(":")[0], []).append(line)
    resources = [_resource(name, types.get(name), lines) for name, lines in by_resource.items()]
    return {
        "resources": resources,
        "totalHourlyCost": _total(resources, "hourlyCost"),
        "totalMonthlyCost": _total(resources, "monthlyCost"),
    }


def _types(resources: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The type of the resource that a name means."""
    priced = [(_PRICED.index(word), r) for r in resources if (word := r["type"].rpartition(":")[2]) in _PRICED]
    found: dict[str, str] = {}
    for _, resource in sorted(priced, key=lambda ranked: ranked[0]):
        found.setdefault(resource["name"], resource["type"])
    return found


def _resource(name: str, kind: str | None, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    components = [_component(name, line) for line in lines]
    return {
        "name": name,
        **({} if kind is None else {"resourceType": kind}),
        "metadata": {},
        "hourlyCost": _total(components, "hourlyCost"),
        "monthlyCost": _total(components, "monthlyCost"),
        "costComponents": components,
    }


def _component(name: str, line: Mapping[str, Any]) -> dict[str, Any]:
    unit, quantity = line["unit"], _decimal(line["quantity"])
    price = None if line["price"] is None else _decimal(line["price"])
    cost = None if price is None else price * quantity
    # What is bought or passes once has no rate; the rest is priced by the month, or else by the hour.
    passing, by_month = unit in ("GiB", "purchase"), unit.endswith("months")
    factor = 1 if passing or by_month else HOURS_PER_MONTH
    return {
        "name": line["name"].removeprefix(f"{name}: "),
        "unit": unit,
        "hourlyQuantity": None if passing else _text(quantity * factor / HOURS_PER_MONTH),
        "monthlyQuantity": _text(quantity * factor),
        "price": _text(price or Decimal()),
        "hourlyCost": None if cost is None or passing else _text(cost * factor / HOURS_PER_MONTH),
        "monthlyCost": None if cost is None else _text(cost * factor),
        **({"usageBased": True} if unit == "GiB" else {}),
        "priceNotFound": price is None,
    }


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What changed, resource by resource; Infracost leaves out what did not."""
    before, after = ({r["name"]: r for r in each["resources"]} for each in (old, new))
    changed = []
    for name in [*after, *(name for name in before if name not in after)]:
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        changed.append(
            {
                **{key: value for key, value in (now or was or {}).items() if key != "costComponents"},
                **{key: _minus(now and now[key], was and was[key]) for key in ("hourlyCost", "monthlyCost")},
            }
        )
    return {
        "resources": changed,
        **{key: _minus(new[key], old[key]) for key in ("totalHourlyCost", "totalMonthlyCost")},
    }


def _summary(plan: Mapping[str, Any], priced: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    kinds = Counter(resource["resourceType"] for resource in priced if "resourceType" in resource)
    declared = Counter(r["type"] for r in plan["resources"] if not r["type"].startswith(("gangway:", "pulumi:")))
    free = declared - kinds
    return {
        "totalDetectedResources": declared.total(),
        "totalSupportedResources": kinds.total(),
        "totalUnsupportedResources": 0,
        "totalUsageBasedResources": sum(
            any(component.get("usageBased") for component in resource["costComponents"]) for resource in priced
        ),
        "totalNoPriceResources": free.total(),
        "supportedResourceCounts": dict(sorted(kinds.items())),
        "unsupportedResourceCounts": {},
        "noPriceResourceCounts": dict(sorted(free.items())),
    }


def _decimal(value: float) -> Decimal:
    """As a person would write it: 0.1 and not what a float makes of it."""
    return Decimal(repr(float(value)))


def _total(rows: Sequence[Mapping[str, Any]], key: str) -> str | None:
    """The sum of what is known; null where nothing is."""
    known = [Decimal(row[key]) for row in rows if row[key] is not None]
    return _text(sum(known, Decimal())) if known or not rows else None


def _minus(new: str | None, old: str | None) -> str | None:
    return None if new is None and old is None else _text(Decimal(new or 0) - Decimal(old or 0))


def _text(value: Decimal) -> str:
    """Without an exponent and without zeros at the end."""
    rounded = round(value, _DIGITS).normalize()
    return f"{rounded + 0:f}"
