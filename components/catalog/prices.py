"""The prices of one provider by item: public lists, what `prices.yaml` adds, and overlays over both.

Public lists (`price_lists.yaml`, written by tools/price_lists.py) come first, in their order. Overlays are written by
`gangway prices refresh`: one file per provider and day, `<provider>-<date>.yaml`, shaped like `prices.yaml`, in
`$XDG_CONFIG_HOME/gangway/prices` (default `~/.config`) or the folder GANGWAY_PRICES (`none` disables overlays); the
newest counts. An overlay's price wins unless the listed one is newer; its source then begins with `overlay, <date>`.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from gangway.components.catalog.schema import Fact, Frozen, MachinePrice, ServicePrice, TpuPrice
from gangway.components.catalog.tables import Source, about_source, read_file, with_facts
from gangway.components.core.findings import InputError

OVERLAYS_VARIABLE = "GANGWAY_PRICES"
OFF = "none"
LISTED = ("list-price", "documented")
TYPICAL = "spot_typical"
TOGETHER = {"spot_low": "spot_high", TYPICAL: "spot_high"}  # from one list, so that no range is mixed of two
_MARK = "overlay, "
_NAME = re.compile(r"(?P<provider>[a-z]+)-(?P<day>\d{4}-\d{2}-\d{2})\.yaml")

Row = TypeVar("Row", bound=BaseModel)  # MachinePrice, ServicePrice or TpuPrice
KnownPrice = Fact[float | None]


class _Plain(yaml.SafeDumper):
    """Writes dates in full each time instead of YAML references."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class OverlayFile(NamedTuple):
    """An overlay file and its modification state, so that a changed file is read again."""

    path: Path
    changed_ns: int


class Overlay(Frozen):
    """The content of one overlay. A missing price is None and overrides nothing."""

    machines: tuple[MachinePrice, ...] = ()
    services: tuple[ServicePrice, ...] = ()
    tpus: tuple[TpuPrice, ...] = ()


def overlay_folder() -> Path | None:
    """The folder of overlays; None if they are disabled."""
    chosen = os.environ.get(OVERLAYS_VARIABLE)
    if chosen:
        return None if chosen == OFF else Path(chosen)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "gangway" / "prices"


def newest_overlay(provider: str) -> OverlayFile | None:
    """The newest file of `provider`, by the day in its name."""
    folder = overlay_folder()
    if folder is None or not folder.is_dir():
        return None
    named = {entry.name: _NAME.fullmatch(entry.name) for entry in folder.iterdir()}
    own = [(match["day"], name) for name, match in named.items() if match and match["provider"] == provider]
    if not own:
        return None
    path = folder / max(own)[1]
    return OverlayFile(path, path.stat().st_mtime_ns)


def read_overlay(path: Path) -> Overlay:
    """The prices of one file, with sources marked as an overlay's. InputError: the overlay is broken."""
    try:
        tables, plain_sources = read_file(path)
        _check_days(plain_sources)
        provider, sources = tables["provider"], _marked(plain_sources)
        machines = [{"provider": provider, **with_facts(MachinePrice, row, sources)} for row in tables["machines"]]
        services = [  # overlays from before November 2026 have none
            {"provider": provider, **with_facts(ServicePrice, row, sources)} for row in tables.get("services", ())
        ]
        tpus = [with_facts(TpuPrice, row, sources) for row in tables["tpus"]]
        overlay = Overlay.model_validate({"machines": machines, "services": services, "tpus": tpus})
        _check_prices(overlay)
        return overlay
    except (OSError, yaml.YAMLError, ValidationError, LookupError, TypeError, AttributeError, ValueError) as error:
        # The user may name any file; only one in the overlay folder would be read again and has to be moved.
        own = path.parent == overlay_folder()
        raise InputError(
            str(path),
            f"no overlay of prices: {type(error).__name__}",
            value=str(error).splitlines()[0],
            allowed="a file that `gangway prices refresh` wrote",
            fix=f"move it to another folder and run `gangway prices refresh`, or set {OVERLAYS_VARIABLE}={OFF}"
            if own
            else "name another",
        ) from None


def _check_days(sources: Mapping[str, Source]) -> None:
    """Each source needs a date (ValueError): it decides staleness and which price wins."""
    for name, about in sources.items():
        days = [day for key in ("as_of", "read_on") if (day := about.get(key)) is not None]
        if not days or not all(isinstance(day, date) for day in days):
            given = " and ".join(map(repr, days)) or "none"
            raise ValueError(f"source {name} has no day (as_of or read_on, such as 2026-11-01): {given}")


def _check_prices(overlay: Overlay) -> None:
    """No price is zero, negative or infinite (ValueError names it), since it would distort rankings."""
    for key, rows in (("machine_type", overlay.machines), ("service", overlay.services), ("generation", overlay.tpus)):
        for row in rows:
            for name, fact in row:
                if isinstance(fact, Fact) and fact.value is not None and not 0 < fact.value < math.inf:
                    raise ValueError(f"{getattr(row, key)} {row.region} {name}: {fact.value:g} is no price")


def _marked(sources: Mapping[str, Source]) -> dict[str, Source]:
    return {
        key: {**about, "source": f"{_MARK}{about.get('read_on') or about['as_of']}: {about['source']}"}
        for key, about in sources.items()
    }


def is_overlaid(fact: KnownPrice) -> bool:
    """Whether a price comes from an overlay."""
    return fact.source.startswith(_MARK)


def lay_over(base: Iterable[Row], over: Sequence[Row], key: str) -> tuple[Row, ...]:
    """`base` updated with `over`'s prices; rows of new regions come last. `key` and `region` identify a row."""
    place = attrgetter(key, "region")
    newer = {place(row): row for row in over}
    laid = [_merged(row, newer.pop(place(row), None)) for row in base]
    return (*laid, *newer.values())


def _merged(row: Row, newer: Row | None) -> Row:
    if newer is None:
        return row
    wins: dict[str, KnownPrice] = {}
    for name in type(row).model_fields:
        fact, decides = getattr(newer, name), TOGETHER.get(name, name)
        if not isinstance(fact, Fact) or (fact.value is None and name != TYPICAL):
            continue
        # Another list's typical price may lie outside this range.
        found, known = getattr(newer, decides), getattr(row, decides)
        is_better = known.value is None or known.confidence not in LISTED or found.seen_on >= known.seen_on
        if found.value is not None and is_better:
            wins[name] = fact
    return row.model_copy(update=wins)


def overlay_text(provider: str, as_of: date, overlay: Overlay) -> str:
    """The text of an overlay file, as `read_overlay` reads it."""
    sources: dict[tuple[Any, ...], str] = {}
    tables: dict[str, Any] = {"provider": provider, "as_of": as_of}
    for name, rows in overlay:
        tables[name] = [plain for row in rows if (plain := _plain_row(row, sources))]
    shared = {
        name: {"title": title, "url": url, "as_of": day, "read_on": read_on, "confidence": confidence}
        for (title, url, day, read_on, confidence), name in sources.items()
    }
    body = yaml.dump({**tables, "sources": shared}, Dumper=_Plain, sort_keys=False, width=200, allow_unicode=True)
    back = f"{OVERLAYS_VARIABLE}={OFF} goes back to the prices that ship with Gangway."
    return f"# Written by `gangway prices refresh`. {back}\n{body}"


def _plain_row(row: BaseModel, sources: dict[tuple[Any, ...], str]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in row:
        if not isinstance(value, Fact):
            plain[name] = value
        elif value.value is not None:
            title = value.source.removeprefix(f"{_MARK}{value.seen_on}: ")
            about = (title, value.url, value.as_of, value.read_on, value.confidence)
            plain[name] = {"value": value.value, "source": sources.setdefault(about, f"s{len(sources) + 1}")}
    named = [value["source"] for value in plain.values() if isinstance(value, dict)]
    if not named:
        return {}
    # An omitted price is null, which needs a source too.
    return {"source": named[0], **{key: value for key, value in plain.items() if key != "provider"}}


LISTS = "price_lists.yaml"
FIELDS = ("on_demand", "spot_low", "spot_typical", "spot_high", "reserved_1y", "reserved_3y")  # `-` is unknown

Price = TypeVar("Price", MachinePrice, ServicePrice)


class PriceList:
    """One public list: the source of its prices, and its tables as text with one row per line."""

    def __init__(self, source: Source, tables: Mapping[str, str]) -> None:
        self.source, self._tables = source, tables
        self._rows: dict[str, dict[str, list[list[str]]]] = {}

    def get_rows(self, table: str, item: str) -> Sequence[list[str]]:
        """The fields of each row of `item`; `table` is machines or services."""
        if table not in self._rows:
            rows = self._rows[table] = {}
            for line in self._tables.get(table, "").splitlines():
                if not line.startswith("#"):
                    name, *fields = line.split()
                    rows.setdefault(name, []).append(fields)
        return self._rows[table].get(item, ())

    def get_items(self, table: str) -> Iterable[str]:
        """The items of a table."""
        self.get_rows(table, "")
        return self._rows[table]

    def fact(self, text: str) -> KnownPrice:
        """A price as the list states it."""
        return KnownPrice.model_construct(value=float(text), **self.source)


def read_lists(path: Path) -> list[PriceList]:
    """The lists of a file; empty if it does not exist."""
    if not path.exists():
        return []
    tables: dict[str, list[dict[str, Any]]] = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
    return [PriceList(about_source(one), one) for one in tables["lists"]]


class _Prices(Iterable[Price], Generic[Price]):
    _model: type[Price]
    _table: str
    _key: str
    _columns: tuple[str, ...]
    _fields: tuple[str, ...]

    def __init__(
        self,
        provider: str,
        lists: Sequence[PriceList],
        rows: Sequence[Mapping[str, Any]],
        sources: Mapping[str, Source],
        regions: Sequence[str] = (),
        over: Sequence[Price] = (),
    ) -> None:
        self._args = (provider, lists, rows, sources, regions)
        self._over: Sequence[Price] = over
        self._items = tuple(dict.fromkeys(self._find_items()))
        self._prices: dict[str, tuple[Price, ...]] = {}

    def laid_over(self, over: Sequence[Price]) -> Self:
        """The same with an overlay's prices over them."""
        return type(self)(*self._args, over)

    def of(self, item: str) -> tuple[Price, ...]:
        """Every region's price of `item`, the home region's first; empty if there is none."""
        if item not in self._prices:
            self._prices[item] = self._get_prices(item)
        return self._prices[item]

    def _find_items(self) -> Iterable[str]:
        return (row[self._key] for row in self._args[2])

    def _get_prices(self, item: str) -> tuple[Price, ...]:
        provider, lists, rows, _, order = self._args
        regions: dict[str, dict[str, Any]] = {}
        for one in lists:
            for region, *texts in one.get_rows(self._table, item):
                known = {name: one.fact(text) for name, text in zip(self._columns, texts, strict=True) if text != "-"}
                regions[region] = {**known, **regions.get(region, {"source": one})}
        for row in (row for row in rows if row[self._key] == item):
            if facts := self._get_facts(row):
                regions[row["region"]] = {**facts, **regions.get(row["region"], {"source": None})}
        ordered = sorted(regions.items(), key=lambda row: order.index(row[0]) if row[0] in order else len(order))
        fixed = {"provider": provider, self._key: item, **self._get_constants(item)}
        base = [self._fill(known, **fixed, region=region) for region, known in ordered]
        return lay_over(base, [row for row in self._over if getattr(row, self._key) == item], self._key)

    def _get_facts(self, row: Mapping[str, Any]) -> dict[str, KnownPrice]:
        facts = with_facts(self._model, row, self._args[3])
        return {name: KnownPrice.model_construct(**fact) for name, fact in facts.items() if isinstance(fact, dict)}

    def _get_constants(self, item: str) -> dict[str, Any]:
        return {}

    def _fill(self, known: dict[str, Any], **fixed: Any) -> Price:
        source: PriceList | None = known["source"]
        # An omitted price is null, which needs a source too.
        null = None if source is None else KnownPrice.model_construct(value=None, **source.source)
        facts: dict[str, Any] = {name: known.get(name, null) for name in self._fields}
        return self._model.model_construct(**fixed, **facts)

    def __iter__(self) -> Iterator[Price]:
        return (row for item in self._items for row in self.of(item))


class MachinePrices(_Prices[MachinePrice]):
    """Prices of machine types."""

    _model, _table, _key = MachinePrice, "machines", "machine_type"
    _columns, _fields = FIELDS, (*FIELDS, "block")

    def _find_items(self) -> Iterable[str]:
        yield from (item for one in self._args[1] for item in one.get_items(self._table))
        yield from super()._find_items()
        yield from (row.machine_type for row in self._over)


class ServicePrices(_Prices[ServicePrice]):
    """Prices of services. A row without a price states the unit of the lists' prices."""

    _model, _table, _key = ServicePrice, "services", "service"
    _columns = _fields = ("usd",)

    @cached_property
    def units(self) -> dict[str, str]:
        """The unit of each service."""
        return {row["service"]: row["unit"] for row in self._args[2]}

    def _get_facts(self, row: Mapping[str, Any]) -> dict[str, KnownPrice]:
        return super()._get_facts(row) if "usd" in row else {}

    def _get_constants(self, item: str) -> dict[str, Any]:
        return {"unit": self.units.get(item)}


# The one rule for the price of a machine in a region, for plans, quotes, forecasts, simulations and autoscaling.
#
# The region's own price comes first, then another region's, which is marked and bounds nothing. The expected spot price
# is the typical one; its upper bound is the highest.

Kind = Literal["on-demand", "spot", "reserved-1y", "reserved-3y", "capacity-block", "flex-start"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_NO_SPOT = "no spot price in the catalogue"
# Compute Engine documentation, "About Flex-start VMs": A4, A3 and A2 cost less than on demand.
_FLEX_START = "on-demand: flex-start costs this at most"


@dataclass(frozen=True)
class PriceQuote:
    """A price for a region, US dollars a unit. `high`: the highest seen, an upper bound unless another region's;
    `limit`: why the price is an upper limit that may not be reached, or empty.
    """

    region: str
    priced_in: str
    expected: KnownPrice
    low: float | None
    high: float | None
    limit: str = ""

    @property
    def usd(self) -> float | None:
        """The expected price."""
        return self.expected.value

    @property
    def foreign_region(self) -> str:
        """The other region whose price is used; empty if there is none."""
        return "" if self.priced_in == self.region else self.priced_in

    @property
    def is_bounded(self) -> bool:
        """Whether `high` is an upper bound: known, and this region's own."""
        return self.high is not None and not self.foreign_region

    @property
    def source(self) -> str:
        """Source, region and uncertainty of the price, as text."""
        where = f" (price of {self.foreign_region})" if self.foreign_region else ""
        return f"{self.expected.source}{f', {self.limit}' if self.limit else ''}{where}"


def resolve_price(rows: Iterable[MachinePrice], region: str, kind: Kind) -> PriceQuote | None:
    """The price of a node in `region` from its type's `rows`; None if no region has one."""
    # The region's own limit is nearer than another region's price. The sort is stable.
    for row in sorted(rows, key=lambda row: row.region != region):
        if (found := _of_row(row, region, kind)) is not None:
            return found
    return None


def stated_price(usd: float, region: str, setting: str) -> PriceQuote:
    """The price that a stack file states by `setting`; it overrides any list and has no date."""
    fact = Fact[float | None](value=usd, source=f"stated by the stack file: {setting}", confidence="stated")
    return PriceQuote(region, region, fact, usd, usd)


def _of_row(row: MachinePrice, region: str, kind: Kind) -> PriceQuote | None:
    match kind:
        case "spot" if row.spot_high.value is not None:
            typical = row.spot_typical if row.spot_typical.value is not None else row.spot_high
            # Spot never costs more than on demand, whose price may have dropped since.
            most = inf if row.on_demand.value is None else row.on_demand.value
            if typical.value is not None and typical.value > most:
                return _fixed(row.on_demand, row, region, "as a limit: spot was dearer")
            return PriceQuote(region, row.region, typical, row.spot_low.value, min(row.spot_high.value, most))
        case "spot":
            return _fixed(row.on_demand, row, region, f"as a limit: {_NO_SPOT}")
        case "flex-start":
            return _fixed(row.on_demand, row, region, _FLEX_START)
    fixed = {"reserved-1y": row.reserved_1y, "reserved-3y": row.reserved_3y, "capacity-block": row.block}
    return _fixed(fixed.get(kind, row.on_demand), row, region)


def _fixed(fact: KnownPrice, row: MachinePrice, region: str, limit: str = "") -> PriceQuote | None:
    if fact.value is None:
        return None
    return PriceQuote(region, row.region, fact, None if limit else fact.value, fact.value, limit)
