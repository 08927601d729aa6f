"""The prices of one provider by item, built on request: a plan needs few machine types.

Public lists (`price_lists.yaml`, written by tools/catalog) come first, in their order; the rows of `prices.yaml` add
what no list states.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, overload

import yaml

from gangway.components.catalog.overlay import lay_over
from gangway.components.catalog.schema import Fact, MachinePrice, ServicePrice
from gangway.components.catalog.tables import Source, about_source, with_facts

__all__ = ["FIELDS", "LISTS", "MachinePrices", "PriceList", "ServicePrices", "read_lists"]

LISTS = "price_lists.yaml"
FIELDS = ("on_demand", "spot_low", "spot_typical", "spot_high", "reserved_1y", "reserved_3y")
"""Columns of a list of machines after the type and the region; `-` is unknown."""

Price = TypeVar("Price", MachinePrice, ServicePrice)
Known = Fact[float | None]


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

    def fact(self, text: str) -> Known:
        """A price as the list states it."""
        return Known.model_construct(value=float(text), **self.source)


def read_lists(path: Path) -> list[PriceList]:
    """The lists of a file; empty if it does not exist."""
    if not path.exists():
        return []
    tables: dict[str, list[dict[str, Any]]] = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
    return [PriceList(about_source(one), one) for one in tables["lists"]]


class _Prices(Sequence[Price], Generic[Price]):
    """Prices by item; as a sequence, all of them.

    `rows`: of prices.yaml; `regions`: the catalogue's, the home region first; `over`: an overlay's prices.
    """

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
        base = [self._model.model_construct(**fixed, region=region, **self._fill(known)) for region, known in ordered]
        return lay_over(base, [row for row in self._over if getattr(row, self._key) == item], self._key)

    def _get_facts(self, row: Mapping[str, Any]) -> dict[str, Known]:
        facts = with_facts(self._model, row, self._args[3])
        return {name: Known.model_construct(**fact) for name, fact in facts.items() if isinstance(fact, dict)}

    def _get_constants(self, item: str) -> dict[str, Any]:
        return {}

    def _fill(self, known: dict[str, Any]) -> dict[str, Any]:
        source: PriceList | None = known["source"]
        # An omitted price is null, which needs a source too.
        null = None if source is None else Known.model_construct(value=None, **source.source)
        return {name: known.get(name, null) for name in self._fields}

    def __iter__(self) -> Iterator[Price]:
        return (row for item in self._items for row in self.of(item))

    def __len__(self) -> int:
        return sum(len(self.of(item)) for item in self._items)

    @overload
    def __getitem__(self, index: int) -> Price: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Price]: ...
    def __getitem__(self, index: int | slice) -> Price | Sequence[Price]:
        return tuple(self)[index]


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

    def _get_facts(self, row: Mapping[str, Any]) -> dict[str, Known]:
        return super()._get_facts(row) if "usd" in row else {}

    def _get_constants(self, item: str) -> dict[str, Any]:
        return {"unit": self.units.get(item)}
