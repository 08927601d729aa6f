"""The prices of one provider by item, made when somebody asks for them: a plan needs those of few machine types. Public
lists (`price_lists.yaml`, written by tools/catalog) come first, in their order; the rows of `prices.yaml` fill in what
no list states.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import yaml

from components.catalog.overlay import lay_over
from components.catalog.schema import Fact, MachinePrice, ServicePrice
from components.catalog.tables import Source, about_source, with_facts

__all__ = ["FIELDS", "LISTS", "MachinePrices", "PriceList", "ServicePrices", "read_lists"]

LISTS = "price_lists.yaml"
FIELDS = ("on_demand", "spot_low", "spot_typical", "spot_high", "reserved_1y", "reserved_3y")
"""Columns of a list of machines after the type and the region; `-` is not known."""

Price = TypeVar("Price", MachinePrice, ServicePrice)
Known = Fact[float | None]


class PriceList:
    """One public list: `source` is what a fact lacks beside its value; tables by name, a row a line."""

    def __init__(self, source: Source, tables: Mapping[str, str]) -> None:
        self.source, self._tables = source, tables

    @cached_property
    def machines(self) -> dict[str, list[list[str]]]:
        """The fields of each row, by machine type."""
        return self._by_item("machines")

    @cached_property
    def services(self) -> dict[str, list[list[str]]]:
        """Likewise, by service."""
        return self._by_item("services")

    def _by_item(self, name: str) -> dict[str, list[list[str]]]:
        found: dict[str, list[list[str]]] = {}
        for line in self._tables.get(name, "").splitlines():
            if not line.startswith("#"):
                item, *fields = line.split()
                found.setdefault(item, []).append(fields)
        return found

    def fact(self, text: str) -> Known:
        """A price as the list states it."""
        return Known.model_construct(value=float(text), **self.source)


def read_lists(path: Path) -> list[PriceList]:
    """The lists of a file; none where there is no file."""
    if not path.exists():
        return []
    tables: dict[str, list[dict[str, Any]]] = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
    return [PriceList(about_source(one), one) for one in tables["lists"]]


class _Prices(Sequence[Price], Generic[Price]):
    """Prices by item; as a sequence, all of them."""

    def __init__(self, items: Iterable[str]) -> None:
        self._items = tuple(dict.fromkeys(items))
        self._made: dict[str, tuple[Price, ...]] = {}

    def of(self, item: str) -> tuple[Price, ...]:
        """Every region's price of `item`, the home region's first; empty where there is none."""
        if item not in self._made:
            self._made[item] = tuple(self._rows(item))
        return self._made[item]

    def _rows(self, item: str) -> Iterable[Price]:
        raise NotImplementedError

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
    """Prices of machine types. `rows`: of prices.yaml; `regions`: home region first; `over`: an overlay's."""

    def __init__(
        self,
        provider: str,
        lists: Sequence[PriceList],
        rows: Sequence[Mapping[str, Any]],
        sources: Mapping[str, Source],
        regions: Sequence[str],
        over: Sequence[MachinePrice] = (),
    ) -> None:
        own = [row["machine_type"] for row in rows]
        super().__init__([*(item for one in lists for item in one.machines), *own, *(row.machine_type for row in over)])
        self._given, self._over = (provider, lists, rows, sources, regions), over

    def laid_over(self, over: Sequence[MachinePrice]) -> "MachinePrices":
        """The same with an overlay's prices over them."""
        return MachinePrices(*self._given, over)

    def _rows(self, item: str) -> Iterable[MachinePrice]:
        provider, lists, rows, sources, order = self._given
        regions: dict[str, dict[str, Any]] = {}
        for one in lists:
            for region, *texts in one.machines.get(item, ()):
                known = {name: one.fact(text) for name, text in zip(FIELDS, texts, strict=True) if text != "-"}
                regions[region] = {**known, **regions.get(region, {"source": one})}
        for row in (row for row in rows if row["machine_type"] == item):
            facts = with_facts(MachinePrice, row, sources)
            given = {name: Known.model_construct(**fact) for name, fact in facts.items() if isinstance(fact, dict)}
            stated = regions.get(row["region"], {"source": None})
            regions[row["region"]] = {**given, **stated}
        known_first = sorted(regions.items(), key=lambda row: order.index(row[0]) if row[0] in order else len(order))
        made = [self._price(provider, item, region, known) for region, known in known_first]
        return lay_over(made, [row for row in self._over if row.machine_type == item], "machine_type")

    @staticmethod
    def _price(provider: str, item: str, region: str, known: dict[str, Any]) -> MachinePrice:
        listed: PriceList | None = known.pop("source")
        # What a list leaves out is null, and null has a source, too.
        none = None if listed is None else Known.model_construct(value=None, **listed.source)
        facts: dict[str, Any] = {name: known.get(name, none) for name in (*FIELDS, "block")}
        return MachinePrice.model_construct(provider=provider, machine_type=item, region=region, **facts)


class ServicePrices(_Prices[ServicePrice]):
    """Of services. `rows`: as prices.yaml has them; one without a price states the unit of what lists have."""

    def __init__(
        self,
        provider: str,
        lists: Sequence[PriceList],
        rows: Sequence[Mapping[str, Any]],
        sources: Mapping[str, Source],
        over: Sequence[ServicePrice] = (),
    ) -> None:
        super().__init__(row["service"] for row in rows)
        self._given, self._over = (provider, lists, rows, sources), over
        self.units = {row["service"]: row["unit"] for row in rows}

    def laid_over(self, over: Sequence[ServicePrice]) -> "ServicePrices":
        """The same with an overlay's prices over them."""
        return ServicePrices(*self._given, over)

    def _rows(self, item: str) -> Iterable[ServicePrice]:
        provider, lists, rows, sources = self._given
        regions: dict[str, Known] = {}
        for one in lists:
            for region, text in one.services.get(item, ()):
                regions.setdefault(region, one.fact(text))
        for row in (row for row in rows if row["service"] == item and "usd" in row):
            known = Known.model_construct(**with_facts(ServicePrice, row, sources)["usd"])
            regions.setdefault(row["region"], known)
        fixed: dict[str, Any] = {"provider": provider, "service": item, "unit": self.units.get(item)}
        made = [ServicePrice.model_construct(**fixed, region=region, usd=usd) for region, usd in regions.items()]
        return lay_over(made, [row for row in self._over if row.service == item], "service")
