"""Turns a source's answers into a new overlay. A refused price keeps the known one; regions fail independently."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.markup import escape

from gangway.components.catalog.loader import Catalog, load_tpus
from gangway.components.catalog.prices import Overlay, lay_over, newest_overlay, overlay_text, read_overlay
from gangway.components.catalog.schema import (
    EVERYWHERE,
    Fact,
    GcpMachineType,
    MachinePrice,
    ServicePrice,
    TpuCatalog,
    TpuPrice,
)
from gangway.components.catalog.validators import PRICE_FIELDS, SERVICE_FIELD, Observed, PriceField, Refusal, judge
from gangway.components.core.whole_files import whole_file
from gangway.finops.prices.difference import FIELD_NAMES, TPU_FIELDS, Difference, difference_table, flatten, is_same
from gangway.finops.prices.source import Answer, Gap, PriceSource, Query, SourceError, UnreachableError
from gangway.stacks.base.registry import get_provider

DIGITS = 6
MOST_ROWS = 40
"""Changes listed one by one; the rest is counted."""
OnRegion: TypeAlias = Callable[[str], None]
_Known: TypeAlias = dict[tuple[str, str], dict[PriceField, float]]


@dataclass(frozen=True)
class Change:
    """An accepted price; `before` is None if it was unknown."""

    observed: Observed
    before: float | None

    @property
    def confirms(self) -> bool:
        """Whether nothing changed."""
        return is_same(self.before, self.observed.value)


@dataclass(frozen=True)
class Report:
    """`how`: what was read, with which credentials; `changes`, `confirmed`: accepted prices that differ or do not."""

    provider: str
    how: str
    regions: tuple[str, ...]
    failed: Mapping[str, str]
    changes: tuple[Change, ...]
    confirmed: int
    refused: tuple[Refusal, ...]
    gaps: tuple[Gap, ...]
    overlay: Overlay


def get_queries(catalog: Catalog, tpus: TpuCatalog | None, region: str) -> list[Query]:
    """Every item to query in `region`; Google's only where the catalogue says they are offered."""
    machines = [
        machine.name
        for machine in catalog.machines.values()
        if not isinstance(machine, GcpMachineType) or machine.offered is None or region in machine.offered.regions
    ]
    chips = [] if tpus is None else [tpu.name for tpu in tpus.generations.values() if region in tpu.offered.regions]
    services = [Query(service, region, is_service=True) for service in _units(catalog)]
    return [*(Query(item, region) for item in (*machines, *chips)), *services]


def _units(catalog: Catalog) -> dict[str, str]:
    return {price.service: price.unit for price in catalog.services}


def refresh(source: PriceSource, provider: str, regions: Sequence[str], today: date, on_region: OnRegion) -> Report:
    """Query `source` and check its answers against catalogue and overlay. `on_region`: called before each region."""
    facts = get_provider(provider)
    catalog, tpus = facts.catalog_here(), load_tpus() if facts.has_tpus else None
    known, units = _known(catalog, tpus), _units(catalog)
    everywhere = frozenset(price.service for price in catalog.services if price.region == EVERYWHERE)
    failed: dict[str, str] = {}
    reached: list[str] = []
    answers: list[Answer] = []
    for region in regions:
        on_region(region)
        try:
            # All or nothing: half a region might lack the very price that others are checked against.
            read = list(source.fetch(get_queries(catalog, tpus, region)))
            answers += [
                # The catalogue has these prices for all regions.
                replace(each, region=EVERYWHERE) if isinstance(each, Observed) and each.item in everywhere else each
                for each in read
            ]
        except UnreachableError as problem:
            failed |= dict.fromkeys((name for name in regions if name not in reached), str(problem))
            break
        except SourceError as problem:
            failed[region] = str(problem)
        reached.append(region)
    units |= dict.fromkeys(() if tpus is None else tpus.generations, "chip-hour")
    accepted, refused = _check_answers(answers, known, (*regions, EVERYWHERE), units, today)
    changes = [Change(each, known.get((each.item, each.region), {}).get(each.field)) for each in accepted]
    different = tuple(change for change in changes if not change.confirms)
    return Report(
        provider=provider,
        how=source.how,
        regions=tuple(region for region in regions if region not in failed),
        failed=failed,
        changes=different,
        confirmed=len(changes) - len(different),
        refused=tuple(refused),
        gaps=tuple(dict.fromkeys(answer for answer in answers if isinstance(answer, Gap))),
        overlay=_new_overlay(provider, accepted, tpus, _units(catalog), everywhere, today),
    )


def _known(catalog: Catalog, tpus: TpuCatalog | None) -> _Known:
    known: _Known = {}
    for price in flatten("", catalog.prices, () if tpus is None else tpus.prices, catalog.services):
        if price.fact.value is not None:
            known.setdefault((price.item, price.region), {})[price.field] = price.fact.value
    return known


def _check_answers(
    answers: Iterable[Answer], known: _Known, regions: Sequence[str], units: Mapping[str, str], today: date
) -> tuple[list[Observed], list[Refusal]]:
    """`units`: of what is not priced by the hour."""
    batches: dict[tuple[str, str], list[Observed]] = {}
    for each in answers:
        if isinstance(each, Observed):
            batches.setdefault((each.item, each.region), []).append(each)
    accepted: list[Observed] = []
    refused: list[Refusal] = []
    for (item, region), batch in batches.items():
        unit = units.get(item, "hour")
        verdict = judge(
            batch,
            known.get((item, region), {}),
            _prices_by_field(item, known),
            regions=regions,
            unit=unit,
            today=today,
        )
        accepted += [each for each in verdict.accepted if unit != "chip-hour" or each.field in TPU_FIELDS]
        refused += verdict.refused
    return accepted, refused


def _prices_by_field(item: str, known: _Known) -> dict[PriceField, float]:
    """By field, the price of the first region that has one."""
    found: dict[PriceField, float] = {}
    for (other, _), prices in known.items():
        if other == item:
            found = {**prices, **found}
    return found


def _new_overlay(
    provider: str,
    accepted: Iterable[Observed],
    tpus: TpuCatalog | None,
    units: Mapping[str, str],
    everywhere: Collection[str],
    today: date,
) -> Overlay:
    """The last overlay's prices updated with the accepted ones: an overlay is complete in itself."""
    last = newest_overlay(provider)
    former = Overlay() if last is None else read_overlay(last.path)
    # A region's own price would override that of all regions.
    unchanged = [row for row in former.services if row.region == EVERYWHERE or row.service not in everywhere]
    rows: dict[tuple[str, str], dict[PriceField, Observed]] = {}
    for each in accepted:
        rows.setdefault((each.item, each.region), {})[each.field] = each
    chips = {} if tpus is None else tpus.generations
    own = {key: row for key, row in rows.items() if key[0] not in chips and key[0] not in units}
    machines = [_machine_row(provider, *key, row, today) for key, row in own.items()]
    services = [_service_row(provider, *key, units[key[0]], row, today) for key, row in rows.items() if key[0] in units]
    of_tpus = [_chip_row(*key, row, today) for key, row in rows.items() if key[0] in chips]
    return Overlay(
        machines=lay_over(former.machines, machines, "machine_type"),
        services=lay_over(unchanged, services, "service"),
        tpus=lay_over(former.tpus, of_tpus, "generation"),
    )


def _machine_row(
    provider: str, item: str, region: str, row: Mapping[PriceField, Observed], today: date
) -> MachinePrice:
    facts = {field: _fact(row.get(field), today) for field in PRICE_FIELDS}
    return MachinePrice.model_validate({"provider": provider, "machine_type": item, "region": region, **facts})


def _service_row(
    provider: str, item: str, region: str, unit: str, row: Mapping[PriceField, Observed], today: date
) -> ServicePrice:
    usd = _fact(row.get(SERVICE_FIELD), today)
    return ServicePrice.model_validate(
        {"provider": provider, "service": item, "region": region, "unit": unit, "usd": usd}
    )


def _chip_row(item: str, region: str, row: Mapping[PriceField, Observed], today: date) -> TpuPrice:
    on_demand, spot = _fact(row.get("on_demand"), today), _fact(row.get("spot_high"), today)
    return TpuPrice(generation=item, region=region, on_demand=on_demand, spot=spot)


def _fact(observed: Observed | None, today: date) -> Fact[float | None]:
    """A price dated by its list, read today."""
    if observed is None:
        return Fact[float | None](value=None, source="not observed", read_on=today, confidence="list-price")
    return Fact[float | None](
        # Sums of parts and shares of terms have more digits than any list.
        value=round(observed.value, DIGITS),
        source=observed.source,
        url=observed.url,
        as_of=observed.as_of,
        read_on=today,
        confidence="list-price",
    )


def write_overlay(folder: Path, report: Report, today: date) -> Path:
    """Write the overlay into `folder` atomically, replacing one of the same day. OSError: it cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{report.provider}-{today.isoformat()}.yaml"
    with whole_file(path) as file:
        file.write(overlay_text(report.provider, today, report.overlay).encode())
    return path


def show_report(report: Report, console: Console, written: Path | None) -> None:
    """Print changes, refusals, gaps, failed regions, and where the overlay was written."""
    if report.changes:
        changes = [(change.observed, change.before) for change in report.changes]
        rows = [Difference(one.item, one.region, one.field, before, one.value) for one, before in changes]
        console.print(difference_table(rows[:MOST_ROWS], "changed"))
        if len(rows) > MOST_ROWS:
            console.print(f"{len(rows) - MOST_ROWS} more: gangway prices diff")
    for refusal in report.refused:
        each = refusal.observed
        line = f"{each.item} {each.region} {FIELD_NAMES[each.field]}: {each.value:g} refused: {refusal.reason}"
        console.print(f"[yellow]{escape(line)}[/]", highlight=False)
    for gap in report.gaps:
        line = f"{gap.region} {gap.what} unknown: {gap.reason}".strip()
        console.print(f"[yellow]{escape(line)}[/]", highlight=False)
    for region, reason in report.failed.items():
        console.print(f"[red]{escape(f'{region} not read, prices unchanged: {reason}')}[/]", highlight=False)
    counted = f"{len(report.changes)} changed, {report.confirmed} confirmed, {len(report.refused)} refused"
    # In one piece, to be copied.
    console.print(f"{counted}; {f'wrote {written}' if written else 'nothing written'}", highlight=False, soft_wrap=True)


def report_json(report: Report, written: Path | None) -> dict[str, Any]:
    """Plain JSON data."""
    return {
        "provider": report.provider,
        "read": report.how,
        "regions": list(report.regions),
        "failed": dict(report.failed),
        "changes": [{**_observed(change.observed), "before": change.before} for change in report.changes],
        "confirmed": report.confirmed,
        "refused": [{**_observed(refusal.observed), "reason": refusal.reason} for refusal in report.refused],
        "gaps": [{"region": gap.region, "what": gap.what, "reason": gap.reason} for gap in report.gaps],
        "written": None if written is None else str(written),
    }


def _observed(each: Observed) -> dict[str, Any]:
    return {
        "item": each.item,
        "region": each.region,
        "kind": each.field,
        "value": each.value,
        "unit": f"{each.currency}/{each.unit}",
        "source": each.source,
        "url": each.url,
        "as_of": each.as_of.isoformat(),
    }
