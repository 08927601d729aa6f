"""The prices of a catalogue or an overlay as one flat table: item, region, kind of price, and the value. Pure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from components.catalog import Fact, MachinePrice, TpuPrice
from components.catalog.overlay import is_overlaid
from components.catalog.validators import PRICE_FIELDS, PriceField

__all__ = ["TPU_FIELDS", "WORDS", "Key", "Price", "flatten", "is_same", "price_json"]

WORDS: Mapping[PriceField, str] = {
    "on_demand": "on demand",
    "spot_low": "spot, low",
    "spot_high": "spot, high",
    "reserved_1y": "reserved, 1 year",
    "reserved_3y": "reserved, 3 years",
    "block": "capacity block",
}
TPU_FIELDS: Mapping[PriceField, str] = {"on_demand": "on_demand", "spot_high": "spot"}
"""Of the fields here, those that a chip has, and what they are called there: it has one spot price a region."""

SAME = 1e-4
"""Prices nearer than this share are one price: a list rounds, and a sum or a term's share of it does not."""

Key: TypeAlias = tuple[str, str, PriceField]
"""Item, region, field."""


@dataclass(frozen=True)
class Price:
    """One price, known or not: `fact.value` US dollars a `unit`."""

    provider: str
    item: str
    region: str
    field: PriceField
    unit: str
    fact: Fact[float | None]

    @property
    def key(self) -> Key:
        """What tells it apart within a provider."""
        return self.item, self.region, self.field

    @property
    def origin(self) -> str:
        """`overlay` or `catalogue`."""
        return "overlay" if is_overlaid(self.fact) else "catalogue"


def is_same(before: float | None, now: float | None) -> bool:
    """Whether nothing has changed; what nobody knows is the same as itself alone."""
    if before is None or now is None:
        return before is now
    return math.isclose(before, now, rel_tol=SAME)


def flatten(provider: str, machines: Iterable[MachinePrice], tpus: Sequence[TpuPrice] = ()) -> Iterator[Price]:
    """Every price of the rows, those that nobody knows as well."""
    for row in machines:
        for field in PRICE_FIELDS:
            yield Price(provider, row.machine_type, row.region, field, "hour", getattr(row, field))
    for chip in tpus:
        for field, own in TPU_FIELDS.items():
            yield Price(provider, chip.generation, chip.region, field, "chip-hour", getattr(chip, own))


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
