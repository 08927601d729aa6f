"""Two states of the prices side by side: the catalogue, or the catalogue with an overlay over it."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from components.catalog import PROVIDERS, load_bundled, load_bundled_tpus
from components.catalog.overlay import lay_over, newest_overlay, overlay_folder, read_overlay
from components.catalog.validators import PriceField
from components.findings import InputError
from stacks.prices.values import Key, Price, flatten, is_same

__all__ = ["CATALOGUE", "NEWEST", "Difference", "difference", "prices_of"]

CATALOGUE = "catalogue"
NEWEST = "overlay"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Difference:
    """A price that is not the same on both sides; None where a side does not know it."""

    item: str
    region: str
    field: PriceField
    before: float | None
    now: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def prices_of(state: str, place: str) -> dict[Key, Price]:
    """The known prices of a state.

    Args:
        state: `catalogue`, `overlay` (the newest of each provider), a day, or the path of an overlay.
        place: the argument that names it.

    Raises:
        InputError: there is no such state.
    """
    overlays = [] if state == CATALOGUE else [read_overlay(path) for path in _files(state, place)]
    prices: dict[Key, Price] = {}
    for provider in PROVIDERS:
        own = [row for overlay in overlays for row in overlay.machines if row.provider == provider]
        machines = lay_over(load_bundled(provider).prices, own, "machine_type")
        chips = [row for overlay in overlays for row in overlay.tpus]
        tpus = lay_over(load_bundled_tpus().prices, chips, "generation") if provider == "gcp" else ()
        prices |= {price.key: price for price in flatten(provider, machines, tpus) if price.fact.value is not None}
    return prices


def difference(before: Mapping[Key, Price], now: Mapping[Key, Price]) -> list[Difference]:
    """What is not the same, in the order of the catalogue."""
    pairs = [(key, _value(before, key), _value(now, key)) for key in dict.fromkeys([*before, *now])]
    return [Difference(*key, old, new) for key, old, new in pairs if not is_same(old, new)]


def _value(prices: Mapping[Key, Price], key: Key) -> float | None:
    return prices[key].fact.value if key in prices else None


def _files(state: str, place: str) -> list[Path]:
    """The overlays that `state` names."""
    folder = overlay_folder()
    if state == NEWEST:
        newest = [newest_overlay(provider) for provider in PROVIDERS]
        found = [overlay.path for overlay in newest if overlay is not None]
    elif _DAY.fullmatch(state):
        named = [] if folder is None else [folder / f"{provider}-{state}.yaml" for provider in PROVIDERS]
        found = [path for path in named if path.is_file()]
    else:
        found = [Path(state)] if Path(state).is_file() else []
    if not found:
        days = sorted({path.stem[-10:] for path in folder.glob("*.yaml")}) if folder and folder.is_dir() else []
        raise InputError(
            place,
            "no such prices",
            value=state,
            allowed=", ".join([CATALOGUE, NEWEST, *days, "the path of an overlay"]),
            fix="name one of these" if days else "run `gangway prices refresh`, which writes the first overlay",
        )
    return found
