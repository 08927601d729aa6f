"""Compares our facts with other public catalogues; an unexplained difference fails the check.

A provider's `crosscheck.yaml` holds their claims and the reasons. A reason names both values, so it explains only the
difference that it was written for.

>>> check("aws").unexplained
()
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import isclose
from pathlib import Path
from typing import Any

from gangway.components.catalog.loader import Provider, load_bundled, load_bundled_tpus
from gangway.components.catalog.schema import Frozen
from gangway.components.catalog.tables import Source, load_interruptions, read_file

Value = float | tuple[str, ...] | None
FACTS = ("vcpus", "memory_gib", "num_accelerators", "accelerator_memory_gib")
SAME = 1e-3  # relative difference that rounding of published prices explains


class Claims(Frozen):
    """The claims of one catalogue. `on_demand`: US dollars an hour, per chip for TPUs; `zones`: may be incomplete."""

    vcpus: int | None = None
    memory_gib: float | None = None
    num_accelerators: int | None = None
    accelerator_memory_gib: float | None = None
    on_demand: Mapping[str, float] = {}
    zones: Mapping[str, tuple[str, ...]] = {}

    @property
    def num_facts(self) -> int:
        """Facts that the catalogue states."""
        return sum(getattr(self, name) is not None for name in FACTS) + len(self.on_demand) + len(self.zones)


class Explained(Frozen):
    """Why a catalogue differs. `items`: our value and theirs for each difference that this explains."""

    source: str
    field: str
    why: str
    items: Mapping[str, "Pair"]


class Pair(Frozen):
    """One difference; for zones, those that ours lacks."""

    ours: Value = None
    theirs: Value


@dataclass(frozen=True)
class Difference:
    """`field`: with its region, if any; `ours`: None if unknown, and for zones; `why`: given in the data, or empty."""

    source: str
    item: str
    field: str
    ours: Value
    theirs: Value
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """The difference as plain JSON data."""
        return {**vars(self), "theirs": list(self.theirs) if isinstance(self.theirs, tuple) else self.theirs}


@dataclass(frozen=True)
class Check:
    """`compared`: facts that another catalogue has too; `idle`: reasons without a difference, which fail too."""

    sources: Mapping[str, Source]
    compared: int
    explained: tuple[Difference, ...]
    unexplained: tuple[Difference, ...]
    idle: tuple[tuple[str, str, str], ...]

    @property
    def passes(self) -> bool:
        """Whether every difference is explained and every reason is used."""
        return not self.unexplained and not self.idle

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain JSON data."""
        return {
            "sources": {name: {**about, "as_of": str(about["as_of"])} for name, about in self.sources.items()},
            "compared": self.compared,
            "explained": [difference.to_json() for difference in self.explained],
            "unexplained": [difference.to_json() for difference in self.unexplained],
            "idle": [list(key) for key in self.idle],
        }


@cache
def _read(provider: Provider) -> tuple[Mapping[str, Source], Mapping[str, Mapping[str, Claims]], tuple[Explained, ...]]:
    tables, sources = read_file(Path(__file__).parent / provider / "crosscheck.yaml")
    claims = {
        source: {item: Claims.model_validate(row) for item, row in rows.items()}
        for source, rows in tables["claims"].items()
    }
    return sources, claims, tuple(Explained.model_validate(row) for row in tables["explained"])


def check(provider: Provider, claims: Mapping[str, Mapping[str, Claims]] | None = None) -> Check:
    """Compare our bundled facts with `claims`, by default those of `crosscheck.yaml`."""
    sources, bundled, reasons = _read(provider)
    compared_claims = bundled if claims is None else claims
    known = {
        (reason.source, reason.field, item): (pair, reason.why)
        for reason in reasons
        for item, pair in reason.items.items()
    }
    explained, unexplained = [], []
    used: set[tuple[str, str, str]] = set()
    for found in (*_differences(provider, compared_claims), *_interruption_differences(provider)):
        key = (found.source, found.field, found.item)
        pair, why = known.get(key, (None, ""))
        if pair is not None and (pair.ours, pair.theirs) == (found.ours, found.theirs):
            used.add(key)
            explained.append(Difference(**{**vars(found), "why": why}))
        else:
            unexplained.append(found)
    compared = sum(each.num_facts for rows in compared_claims.values() for each in rows.values())
    idle = tuple(key for key in known if key not in used) if claims is None else ()
    return Check(sources, compared, tuple(explained), tuple(unexplained), idle)


def _differences(provider: Provider, claims: Mapping[str, Mapping[str, Claims]]) -> Iterator[Difference]:
    catalog = load_bundled(provider)
    machines, tpus = catalog.machines, load_bundled_tpus() if (catalog.folder / "tpus.yaml").exists() else None
    prices = {(price.machine_type, price.region): price.on_demand.value for price in catalog.prices}
    offered = {name: machine.offered for name, machine in machines.items()}
    if tpus is not None:
        prices |= {(price.generation, price.region): price.on_demand.value for price in tpus.prices}
        offered |= {name: tpu.offered for name, tpu in tpus.generations.items()}
    for source, rows in claims.items():
        for item, claim in rows.items():
            for name in FACTS if item in machines else ():
                ours, theirs = getattr(machines[item], name).value, getattr(claim, name)
                if theirs is not None and not _same(ours, theirs):
                    yield Difference(source, item, name, ours, theirs)
            for region, theirs in claim.on_demand.items():
                ours = prices.get((item, region))
                if not _same(ours, theirs):
                    yield Difference(source, item, f"on_demand {region}", ours, theirs)
            places = offered[item]
            listed = {} if places is None else places.zones.value or {}
            zones = [(region, zone) for region, zones in claim.zones.items() for zone in zones]
            if lacking := tuple(f"{region} {zone}" for region, zone in zones if zone not in listed.get(region, ())):
                yield Difference(source, item, "zones", None, lacking)


def _interruption_differences(provider: Provider) -> Iterator[Difference]:
    for name, row in load_interruptions(provider).rows.items():
        offered = load_bundled(provider).machines[name].offered
        regions = () if offered is None else offered.regions
        if lacking := tuple(region for region in row.by_region.value if region not in regions):
            yield Difference("interruptions", name, "regions", None, lacking)


def _same(ours: float | None, theirs: float) -> bool:
    return ours is not None and isclose(ours, theirs, rel_tol=SAME)
