"""The prices of a catalogue or overlay as a flat table, and differences between two of them."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gangway.components.catalog.loader import load_bundled_tpus
from gangway.components.catalog.prices import (
    OVERLAYS_VARIABLE,
    is_overlaid,
    lay_over,
    newest_overlay,
    overlay_folder,
    read_overlay,
)
from gangway.components.catalog.schema import Fact, MachinePrice, ServicePrice, TpuPrice
from gangway.components.catalog.validators import PRICE_FIELDS, SERVICE_FIELD, PriceField
from gangway.components.core.findings import InputError
from gangway.stacks.base.registry import sellers

FIELD_NAMES: Mapping[PriceField, str] = {
    "on_demand": "on demand",
    "spot_low": "spot, low",
    "spot_typical": "spot, typical",
    "spot_high": "spot, high",
    "reserved_1y": "reserved, 1 year",
    "reserved_3y": "reserved, 3 years",
    "block": "capacity block",
    "usd": "price",
}
TPU_FIELDS: Mapping[PriceField, str] = {"on_demand": "on_demand", "spot_high": "spot"}
"""Fields that a chip has, with their names there; one spot price per region."""

SAME = 1e-4
"""Prices nearer than this share are equal: a list rounds, a sum or a term's share does not."""

Key: TypeAlias = tuple[str, str, PriceField]
CATALOGUE = "catalogue"
NEWEST = "overlay"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Price:
    """`fact.value`: US dollars per `unit`, or None."""

    provider: str
    item: str
    region: str
    field: PriceField
    unit: str
    fact: Fact[float | None]

    @property
    def key(self) -> Key:
        """Unique within a provider."""
        return self.item, self.region, self.field

    @property
    def origin(self) -> str:
        """`overlay` or `catalogue`."""
        return "overlay" if is_overlaid(self.fact) else "catalogue"


def is_same(before: float | None, now: float | None) -> bool:
    """Whether the price is unchanged; unknown equals only unknown."""
    if before is None or now is None:
        return before is now
    return math.isclose(before, now, rel_tol=SAME)


def flatten(
    provider: str,
    machines: Iterable[MachinePrice],
    tpus: Sequence[TpuPrice] = (),
    services: Iterable[ServicePrice] = (),
) -> Iterator[Price]:
    """Every price of the rows, unknown ones too."""
    for row in machines:
        for field in PRICE_FIELDS:
            yield Price(provider, row.machine_type, row.region, field, "hour", getattr(row, field))
    for chip in tpus:
        for field, own in TPU_FIELDS.items():
            yield Price(provider, chip.generation, chip.region, field, "chip-hour", getattr(chip, own))
    for service in services:
        yield Price(provider, service.service, service.region, SERVICE_FIELD, service.unit, service.usd)


def price_json(price: Price) -> dict[str, Any]:
    """Plain JSON data."""
    return {
        "provider": price.provider,
        "item": price.item,
        "region": price.region,
        "kind": price.field,
        "unit": f"USD/{price.unit}",
        "origin": price.origin,
        **price.fact.model_dump(mode="json"),
    }


@dataclass(frozen=True)
class Difference:
    """A price that differs; None where unknown."""

    item: str
    region: str
    field: PriceField
    before: float | None
    now: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def get_prices(state: str, place: str) -> dict[Key, Price]:
    """Known prices of a state: `catalogue`, `overlay` (the newest), a date, or a path. InputError: no such state."""
    overlays = [] if state == CATALOGUE else [read_overlay(path) for path in _files(state, place)]
    prices: dict[Key, Price] = {}
    for provider in sellers():
        assert provider.catalog is not None, "a seller has one"
        bundled = provider.catalog.bundled()
        own = [row for overlay in overlays for row in overlay.machines if row.provider == provider.name]
        machines = lay_over(bundled.prices, own, "machine_type")
        chips = [row for overlay in overlays for row in overlay.tpus]
        tpus = lay_over(load_bundled_tpus().prices, chips, "generation") if provider.has_tpus else ()
        around = [row for overlay in overlays for row in overlay.services if row.provider == provider.name]
        services = lay_over(bundled.services, around, "service")
        every = flatten(provider.name, machines, tpus, services)
        prices |= {price.key: price for price in every if price.fact.value is not None}
    return prices


def difference(before: Mapping[Key, Price], now: Mapping[Key, Price]) -> list[Difference]:
    """What changed, in the catalogue's order."""
    pairs = [(key, _value(before, key), _value(now, key)) for key in dict.fromkeys([*before, *now])]
    return [Difference(*key, old, new) for key, old, new in pairs if not is_same(old, new)]


def _value(prices: Mapping[Key, Price], key: Key) -> float | None:
    return prices[key].fact.value if key in prices else None


def _files(state: str, place: str) -> list[Path]:
    folder = overlay_folder()
    if state == NEWEST:
        newest = [newest_overlay(provider.name) for provider in sellers()]
        found = [overlay.path for overlay in newest if overlay is not None]
    elif _DAY.fullmatch(state):
        paths = [] if folder is None else [folder / f"{provider.name}-{state}.yaml" for provider in sellers()]
        found = [path for path in paths if path.is_file()]
    else:
        found = [Path(state)] if Path(state).is_file() else []
    if not found:
        raise _not_found_error(state, place, folder)
    return found


def _not_found_error(state: str, place: str, folder: Path | None) -> InputError:
    """A machine without overlays yet gets a hint, not a spelling error."""
    days = sorted({path.stem[-10:] for path in folder.glob("*.yaml")}) if folder and folder.is_dir() else []
    allowed = ", ".join([CATALOGUE, *([NEWEST] if days else []), *days, "the path of an overlay"])
    if folder is None and (state == NEWEST or _DAY.fullmatch(state)):
        problem, fix = "overlays are turned off", f"unset {OVERLAYS_VARIABLE}"
    elif state == NEWEST:
        problem = "no prices have been refreshed yet: there is only the catalogue"
        fix = f"run `gangway prices refresh`, which writes the first overlay in {folder}"
    else:
        problem = "no such prices"
        fix = "name one of these" if days else "run `gangway prices refresh`, which writes the first overlay"
    return InputError(place, problem, value=state, allowed=allowed, fix=fix)


def show_prices(prices: Sequence[Price], title: str, console: Console) -> None:
    """Print the value and date of each price; the few long sources below, with their confidence."""
    names = [name for price in prices for name in (price.item, price.region)]
    table = _table(title, names, "price", "USD", "of", "from")
    sources: dict[str, int] = {}
    for price in prices:
        fact = price.fact
        about = ", ".join(part for part in (fact.source, fact.confidence, fact.url) if part)
        number = sources.setdefault(about, len(sources) + 1)
        is_node_hour = price.unit == "hour" and price.field != SERVICE_FIELD
        kind = FIELD_NAMES[price.field] + ("" if is_node_hour else f", per {price.unit}")
        origin = f"{price.origin} {number}"
        table.add_row(f"{price.item} {price.region}", kind, _usd(fact.value), fact.as_of_text or "undated", origin)
    console.print(table)
    for about, number in sources.items():
        console.print(f"{number} {escape(about)}", highlight=False, soft_wrap=True)


def _table(title: str, names: Sequence[str], *headings: str) -> Table:
    """Item and region share a column: at 80 columns both stay whole, to be copied."""
    table = Table(title=title, title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("what, where", min_width=max(map(len, names), default=None))
    for heading in headings:
        number = heading in ("USD", "before", "now", "change")
        table.add_column(heading, justify="right" if number else "left", no_wrap=number or heading == "of")
    return table


def difference_table(differences: Sequence[Difference], title: str) -> Table:
    """Before, now, change, each with its date."""
    names = [name for each in differences for name in (each.item, each.region)]
    table = _table(title, names, "price", "before", "now", "change")
    for each in differences:
        table.add_row(
            f"{each.item} {each.region}",
            FIELD_NAMES[each.field],
            _usd(each.before),
            _usd(each.now),
            _change(each.before, each.now),
        )
    return table


def _usd(value: float | None) -> str:
    return "?" if value is None else f"{value:.4f}"


def _change(before: float | None, now: float | None) -> str:
    if before is None or now is None:
        return "new" if before is None else "gone"
    return f"{now / before - 1:+.1%}"
