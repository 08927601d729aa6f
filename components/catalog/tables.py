"""From a YAML table to rows that name their source; spot interruptions, accelerator links."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import yaml
from pydantic import BaseModel

from components.catalog.schema import EfaFabric, Fact, Frozen, GpuDirectFabric, InfinibandFabric, RoceFabric

__all__ = [
    "BUCKETS",
    "FABRIC_FIELDS",
    "OPEN_BUCKET",
    "Bucket",
    "Ici",
    "InterruptionTable",
    "Latency",
    "LinkTable",
    "Source",
    "about_source",
    "by_model",
    "ici",
    "latency",
    "least_taken",
    "link_gbps",
    "load_interruptions",
    "load_links",
    "read_file",
    "taken_per_month",
    "with_facts",
]


Source = dict[str, Any]
FABRICS: Mapping[str, type[BaseModel]] = {
    "efa": EfaFabric,
    "gpudirect": GpuDirectFabric,
    "roce": RoceFabric,
    "infiniband": InfinibandFabric,
}
FABRIC_FIELDS = ("fabric", "gpu_fabric", "infiniband")
ABOUT = ("url", "as_of", "read_on", "confidence")
"""What a source says of itself beside its title."""


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, Source]]:
    """The tables of one file, and its sources in the shape of a fact that lacks only its value."""
    tables: dict[str, Any] = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
    sources = tables.pop("sources")
    return tables, {name: about_source(about) for name, about in sources.items()}


def about_source(about: Mapping[str, Any]) -> Source:
    """A source as a file describes it, in the shape of a fact that lacks only its value."""
    return {"source": about["title"], **{key: about[key] for key in ABOUT if key in about}}


def with_facts(model: type[BaseModel], row: Mapping[str, Any], sources: Mapping[str, Source]) -> dict[str, Any]:
    """`row` in the shape of `model`: each value that `model` wants as a fact gets its own source, else the row's."""
    facts = _fact_fields(model)
    shaped = {key: value for key, value in row.items() if key != "source" and key not in facts}
    for name in facts:
        value = row.get(name)
        own = value if isinstance(value, Mapping) and "source" in value else {"value": value, "source": row["source"]}
        shaped[name] = {"value": own["value"], **sources[own["source"]]}
    for name in FABRIC_FIELDS:
        if shaped.get(name) is not None:
            shaped[name] = with_facts(FABRICS[shaped[name]["kind"]], shaped[name], sources)
    return shaped


def by_model(
    model: type[BaseModel], rows: Iterable[Mapping[str, Any]], sources: Mapping[str, Source]
) -> dict[str, dict[str, Any]]:
    """Rows in the shape of `model`, by the accelerator's model that each of them names."""
    plain = ((row["model"], {key: value for key, value in row.items() if key != "model"}) for row in rows)
    return {name: with_facts(model, row, sources) for name, row in plain}


@cache
def _fact_fields(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(name for name, field in model.model_fields.items() if _is_fact(field.annotation))


def _is_fact(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Fact)


Bucket = Literal["<5%", "5-10%", "10-15%", "15-20%", ">20%"]
_MONTH_HOURS = 720
"""As AWS's Spot Instance Advisor counts."""
OPEN_BUCKET: Bucket = ">20%"
"""The one without an upper end."""
BUCKETS: Mapping[Bucket, float] = MappingProxyType(
    {"<5%": 0.05, "5-10%": 0.10, "10-15%": 0.15, "15-20%": 0.20, OPEN_BUCKET: 0.40}
)
"""What each counts as: its upper end; the open one as twice its lower end, which is assumed."""
_LOWER_END: Mapping[float, float] = MappingProxyType({0.05: 0.0, 0.10: 0.05, 0.15: 0.10, 0.20: 0.15, 0.40: 0.20})
"""Of the bucket that counts as so much."""


class InterruptionRow(Frozen):
    """The buckets of one machine type by region."""

    machine_type: str
    by_region: Fact[Mapping[str, Bucket]]


class InterruptionTable(Frozen):
    """What one provider publishes; `unpublished` is the fact that stands for every pair that is not in `rows`, and
    `assumed` the share of a month that may be counted with there, by who says so.
    """

    rows: Mapping[str, InterruptionRow]
    unpublished: Fact[float | None]
    assumed: Fact[float]


@cache
def load_interruptions(provider: str) -> InterruptionTable:
    """The table of one provider, read once a process."""
    tables, sources = read_file(Path(__file__).parent / provider / "spot.yaml")
    unpublished: dict[str, Any] = tables["unpublished"]
    about = {"source": unpublished["title"], **{key: unpublished[key] for key in unpublished if key != "title"}}
    return InterruptionTable.model_validate(
        {
            "rows": {row["machine_type"]: with_facts(InterruptionRow, row, sources) for row in tables["buckets"]},
            "unpublished": {"value": None, **about},
            "assumed": _assumed(tables["assumed"]),
        }
    )


def _assumed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A share within some hours as that of a month."""
    taken = 1 - (1 - row["share"]) ** (_MONTH_HOURS / row["within_hours"])
    about = {"source": row["title"], "url": row["url"], "as_of": row["as_of"], "confidence": "assumed"}
    return {"value": taken, **about}


def taken_per_month(provider: str, machine_type: str, region: str) -> Fact[float | None]:
    """The share of such nodes that is taken within 720 hours, 0 up to 1; None where nobody says. The source names the
    bucket. Another region's bucket never stands in: a price travels, a shortage does not. The list speaks of the rate
    at which capacity was reclaimed during the trailing month, and not of nodes that ran all of it: reading one as the
    other is an assumption, whatever the list's own confidence.
    """
    table = load_interruptions(provider)
    row = table.rows.get(machine_type)
    bucket = None if row is None else row.by_region.value.get(region)
    if row is None or bucket is None:
        return table.unpublished
    fact, share = row.by_region, BUCKETS[bucket]
    counted = f"{bucket} in the trailing month, counted as {share:.0%} of nodes in 720 h"
    return Fact[float | None](
        value=share,
        source=f"{fact.source}: {counted}",
        url=fact.url,
        as_of=fact.as_of,
        read_on=fact.read_on,
        confidence="assumed",
    )


def least_taken(taken: Fact[float | None]) -> float:
    """The share that is taken at least, where `taken_per_month` counts the upper end of a bucket; what the stack file
    states is exact; 0 where nobody knows.
    """
    share = taken.value or 0.0
    return share if taken.confidence == "stated" else _LOWER_END.get(share, share)


class Link(Frozen):
    """Of one accelerator, in one direction, as the vendor states it."""

    gbps: Fact[float | None]


class Ici(Frozen):
    """How the links of a TPU chip are laid out. `ports`: links of one chip, to its neighbours, which its bandwidth is
    shared out to; `wraps_every`: a slice whose sides are all multiples of this has links between its ends: it is a
    torus; `dcn_gbps`: of the network between slices, for each chip, in one direction; None where nobody says.
    """

    ports: Fact[int]
    wraps_every: Fact[int]
    dcn_gbps: Fact[float | None]


class Latency(Frozen):
    """Of one message, in microseconds: inside a machine, between TPU chips, and between machines by kind of fabric."""

    inside_usec: Fact[float]
    ici_usec: Fact[float]
    efa_usec: Fact[float]
    infiniband_usec: Fact[float]
    roce_usec: Fact[float]
    gpudirect_usec: Fact[float]
    ethernet_usec: Fact[float]

    def between(self, fabric: str) -> Fact[float]:
        """Between machines; `ethernet` for those without a fabric that bypasses the kernel."""
        found: Fact[float] = getattr(self, f"{fabric}_usec")
        return found


class LinkTable(Frozen):
    """Links by the accelerator's model; `unknown` stands for every other. `ici` is of TPU generations."""

    links: Mapping[str, Link]
    ici: Mapping[str, Ici]
    unknown: Link
    latency: Latency


@cache
def load_links() -> LinkTable:
    """The table, read once a process."""
    tables, sources = read_file(Path(__file__).parent / "links.yaml")
    return LinkTable.model_validate(
        {
            "links": by_model(Link, tables["links"], sources),
            "ici": by_model(Ici, tables["ici"], sources),
            "unknown": with_facts(Link, tables["unknown"], sources),
            "latency": with_facts(Latency, tables["latency"], sources),
        }
    )


def link_gbps(accelerator: str) -> Fact[float | None]:
    """Of one accelerator of `accelerator`, such as `H100x8`, in Gbit/s; None where nobody says."""
    table = load_links()
    return table.links.get(accelerator.rpartition("x")[0], table.unknown).gbps


def ici(generation: str) -> Ici:
    """The links of a TPU generation, which is in the catalogue."""
    return load_links().ici[generation]


def latency() -> Latency:
    """Of one message."""
    return load_links().latency
