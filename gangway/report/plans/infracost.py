"""A plan as Infracost's JSON (version 0.2 of `infracost breakdown --format json`).

Figures are decimal strings, a month has 730 hours, unknown prices are null with `priceNotFound`; another region's
price is named in the component. A standby rung has a quantity of 0, usage-based resources have none. Infracost has no
fields for the run and its energy.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gangway.components.estimate.cost import HOURS_PER_MONTH, load_billing
from gangway.stacks.estimates.provider_findings import Coverage, find_coverage, is_billable

VERSION = "0.2"
_DIGITS = 10
"""After the point: a 730th of a monthly price does not terminate."""
_PASSING = ("GiB", "purchase", "10k-operations")
"""Units of one-time purchases and transfers, which have no rate."""
_NO_COMMIT = {
    **dict.fromkeys(("vcsBranch", "vcsCommitSha", "vcsCommitAuthorName", "vcsCommitAuthorEmail"), ""),
    # Infracost is written in Go: this is the zero value of its time.
    "vcsCommitTimestamp": "0001-01-01T00:00:00Z",
    "vcsCommitMessage": "",
}
_COSTS = ("totalHourlyCost", "totalMonthlyCost", "totalMonthlyUsageCost")


def infracost(plan: Mapping[str, Any], past: Mapping[str, Any] | None = None, *, now: datetime | None = None) -> Any:
    """The plan as JSON data. `past`: an earlier one of the stack; `now`: for `timeGenerated`."""
    nothing = {**plan, "resources": [], "cost": {"components": []}}
    new, old = _breakdown(plan), _breakdown(past or nothing)
    difference, summary = _difference(old, new), _summary(plan, new)
    totals = [("total", new), ("pastTotal", old), ("diffTotal", difference)]
    return {
        "version": VERSION,
        "metadata": {"infracostCommand": "breakdown", **_NO_COMMIT},
        "currency": plan["cost"]["currency"],
        "projects": [
            {
                "name": plan["stack"],
                "displayName": plan["stack"],
                "metadata": {"path": f"stacks/Pulumi.{plan['stack']}.yaml", "type": "gangway_stack"},
                "pastBreakdown": old,
                "breakdown": new,
                "diff": difference,
                "summary": summary,
            }
        ],
        **{f"{word}{key.removeprefix('total')}": breakdown[key] for word, breakdown in totals for key in _COSTS},
        "timeGenerated": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
        "summary": summary,
    }


def _sorted(plan: Mapping[str, Any]) -> dict[Coverage, list[Mapping[str, Any]]]:
    priced = {key for line in plan["cost"]["components"] for key in line.get("of", ())}
    found: dict[Coverage, list[Mapping[str, Any]]] = {how: [] for how in Coverage}
    for one in plan["resources"]:
        if is_billable(one["type"]):
            found[find_coverage(one["type"], one["name"], one["inputs"], priced)].append(one)
    return found


def _breakdown(plan: Mapping[str, Any]) -> dict[str, Any]:
    by_resource: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for line in plan["cost"]["components"]:
        by_resource.setdefault(_subject(line), []).append(line)
    rest = _sorted(plan)
    resources = [
        *(_resource(name, kind, lines) for (name, kind), lines in by_resource.items()),
        *map(_usage_resource, rest[Coverage.BY_USE]),
    ]
    return {
        "resources": resources,
        "freeResources": [
            {"name": one["name"], "resourceType": one["type"], "metadata": {}} for one in rest[Coverage.FREE]
        ],
        "totalHourlyCost": _total(resources, "hourlyCost"),
        "totalMonthlyCost": _total(resources, "monthlyCost"),
        "totalMonthlyUsageCost": _total(resources, "monthlyUsageCost"),
    }


def _subject(line: Mapping[str, Any]) -> tuple[str, str]:
    of = [key.split("::", 1) for key in line.get("of", ())]
    kinds = {kind for kind, _ in of}
    name = of[0][1] if len(of) == 1 else line["name"].partition(":")[0]
    return name, kinds.pop() if len(kinds) == 1 else ""


def _resource(name: str, kind: str, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    components = [_component(name, line) for line in lines]
    return {
        "name": name,
        **({"resourceType": kind} if kind else {}),
        "metadata": {},
        "hourlyCost": _total(components, "hourlyCost"),
        "monthlyCost": _total(components, "monthlyCost"),
        "monthlyUsageCost": _total([one for one in components if one.get("usageBased")], "monthlyCost"),
        "costComponents": components,
    }


def _component(name: str, line: Mapping[str, Any]) -> dict[str, Any]:
    unit = line["unit"]
    quantity = Decimal() if line["standby"] else _decimal(line["quantity"])
    price = None if line["price"] is None else _decimal(line["price"])
    cost = None if price is None else price * quantity
    # One-time items have no rate; the rest is priced per month, or else per hour.
    passing, by_month = unit in _PASSING, unit.endswith("months")
    factor = 1 if passing or by_month else HOURS_PER_MONTH
    foreign = f" (price of {line['priced_in']})" if line.get("priced_in") else ""
    return {
        "name": line["name"].removeprefix(f"{name}: ") + (" (standby)" if line["standby"] else "") + foreign,
        "unit": unit,
        "hourlyQuantity": None if passing else _text(quantity * factor / HOURS_PER_MONTH),
        "monthlyQuantity": _text(quantity * factor),
        "price": _text(price or Decimal()),
        "hourlyCost": None if cost is None or passing else _text(cost * factor / HOURS_PER_MONTH),
        "monthlyCost": None if cost is None else _text(cost * factor),
        **({"usageBased": True} if passing and unit != "purchase" else {}),
        "priceNotFound": price is None,
    }


def _usage_resource(resource: Mapping[str, Any]) -> dict[str, Any]:
    """A usage-based resource whose usage the stack file does not give."""
    usage = load_billing().by_use_of(resource["type"])
    assert usage is not None, "sorted by that"
    empty = dict.fromkeys(("hourlyQuantity", "monthlyQuantity", "price", "hourlyCost", "monthlyCost"))
    component = {"name": usage.per.value, "unit": "use", **empty, "usageBased": True, "priceNotFound": False}
    costs = dict.fromkeys(("hourlyCost", "monthlyCost", "monthlyUsageCost"))
    name, kind = resource["name"], resource["type"]
    return {"name": name, "resourceType": kind, "metadata": {}, **costs, "costComponents": [component]}


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Changes by resource, without unchanged ones, as Infracost does."""
    before, after = ({(r["name"], r.get("resourceType", "")): r for r in each["resources"]} for each in (old, new))
    changed = []
    for key in [*after, *(key for key in before if key not in after)]:
        was, now = before.get(key), after.get(key)
        if was == now:
            continue
        changed.append(
            {
                **{name: value for name, value in (now or was or {}).items() if name != "costComponents"},
                **{
                    name: _minus(now and now[name], was and was[name])
                    for name in ("hourlyCost", "monthlyCost", "monthlyUsageCost")
                },
            }
        )
    return {"resources": changed, **{key: _minus(new[key], old[key]) for key in _COSTS}}


def _summary(plan: Mapping[str, Any], breakdown: Mapping[str, Any]) -> dict[str, Any]:
    detected = Counter(one["type"] for one in plan["resources"] if is_billable(one["type"]))
    rest = _sorted(plan)
    free, unsupported = _kinds(rest[Coverage.FREE]), _kinds(rest[Coverage.NOWHERE])
    supported = detected - free - unsupported
    by_use = [
        any(component.get("usageBased") for component in resource["costComponents"])
        for resource in breakdown["resources"]
    ]
    return {
        "totalDetectedResources": detected.total(),
        "totalSupportedResources": supported.total(),
        "totalUnsupportedResources": unsupported.total(),
        "totalUsageBasedResources": sum(by_use),
        "totalNoPriceResources": free.total(),
        "supportedResourceCounts": dict(sorted(supported.items())),
        "unsupportedResourceCounts": dict(sorted(unsupported.items())),
        "noPriceResourceCounts": dict(sorted(free.items())),
    }


def _kinds(resources: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return Counter(resource["type"] for resource in resources)


def _decimal(value: float) -> Decimal:
    return Decimal(repr(float(value)))


def _total(rows: Sequence[Mapping[str, Any]], key: str) -> str | None:
    known = [Decimal(row[key]) for row in rows if row[key] is not None]
    return _text(sum(known, Decimal())) if known or not rows else None


def _minus(new: str | None, old: str | None) -> str | None:
    return None if new is None and old is None else _text(Decimal(new or 0) - Decimal(old or 0))


def _text(value: Decimal) -> str:
    rounded = round(value, _DIGITS).normalize()
    return f"{rounded + 0:f}"
