"""Reads YAML tables whose rows name their source; spot interruptions; accelerator links."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel

from gangway.components.catalog.schema import EfaFabric, Fact, Frozen, GpuDirectFabric, InfinibandFabric, RoceFabric

Source = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)
FABRICS: Mapping[str, type[BaseModel]] = {
    "efa": EfaFabric,
    "gpudirect": GpuDirectFabric,
    "roce": RoceFabric,
    "infiniband": InfinibandFabric,
}
FABRIC_FIELDS = ("fabric", "gpu_fabric", "infiniband")
ABOUT = ("url", "as_of", "read_on", "confidence")  # fields of a source besides its title


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, Source]]:
    """The tables of one file, and its sources as facts without a value."""
    tables: dict[str, Any] = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
    sources = tables.pop("sources")
    return tables, {name: about_source(about) for name, about in sources.items()}


def about_source(about: Mapping[str, Any]) -> Source:
    """A source of a file as a fact without a value."""
    return {"source": about["title"], **{key: about[key] for key in ABOUT if key in about}}


def with_facts(model: type[BaseModel], row: Mapping[str, Any], sources: Mapping[str, Source]) -> dict[str, Any]:
    """`row` in the shape of `model`: each fact, also of nested models, gets its own source, or else the row's."""
    shaped = {key: value for key, value in row.items() if key != "source"}
    for name, field in _fact_fields(model).items():
        if _is_a(field, Fact):
            value = row.get(name)
            own = (
                value if isinstance(value, Mapping) and "source" in value else {"value": value, "source": row["source"]}
            )
            shaped[name] = {"value": own["value"], **sources[own["source"]]}
        elif name in row:
            shaped[name] = _nested_facts(field, row[name], sources)
    for name in FABRIC_FIELDS:
        if shaped.get(name) is not None:
            shaped[name] = with_facts(FABRICS[shaped[name]["kind"]], shaped[name], sources)
    return shaped


def _nested_facts(field: Any, value: Any, sources: Mapping[str, Source]) -> Any:
    inner = get_args(field)
    if _is_a(field, Fact):
        return {"value": value["value"], **sources[value["source"]]}
    if _is_a(field, BaseModel):
        return with_facts(field, value, sources)
    if isinstance(value, Mapping):
        return {key: _nested_facts(inner[-1], each, sources) for key, each in value.items()}
    return [_nested_facts(inner[0], each, sources) for each in value]


@cache
def _fact_fields(model: type[BaseModel]) -> Mapping[str, Any]:
    fields = {name: field.annotation for name, field in model.model_fields.items()}
    return {name: field for name, field in fields.items() if _has_facts(field)}


def _has_facts(field: Any) -> bool:
    if get_origin(field) in (Mapping, tuple):
        return _has_facts(get_args(field)[-1 if get_origin(field) is Mapping else 0])
    return _is_a(field, BaseModel)


def _is_a(field: Any, model: type[BaseModel]) -> bool:
    return isinstance(field, type) and issubclass(field, model)


def read_table(model: type[Model], name: str) -> Model:
    """A YAML file of this folder as `model`."""
    tables, sources = read_file(Path(__file__).parent / f"{name}.yaml")
    return model.model_validate(with_facts(model, tables, sources))


def table_reader(model: type[Model], name: str) -> Callable[[], Model]:
    """A function that returns a YAML file of this folder as `model`, read once per process."""
    return cache(partial(read_table, model, name))


Bucket = Literal["<5%", "5-10%", "10-15%", "15-20%", ">20%"]
OPEN_BUCKET: Bucket = ">20%"
BUCKETS: Mapping[Bucket, float] = MappingProxyType(
    {"<5%": 0.05, "5-10%": 0.10, "10-15%": 0.15, "15-20%": 0.20, OPEN_BUCKET: 0.40}
)  # the rate used for each bucket: its upper end; for the open one, twice its lower end (an assumption)
_LOWER_END = dict(zip(BUCKETS.values(), (0.0, *BUCKETS.values()), strict=False))


class InterruptionRow(Frozen):
    """The buckets of one machine type by region."""

    machine_type: str
    by_region: Fact[Mapping[str, Bucket]]


class InterruptionTable(Frozen):
    """Published rates. `unpublished`: for pairs not in `rows`; `assumed`: the monthly share to use for them."""

    rows: Mapping[str, InterruptionRow]
    unpublished: Fact[float | None]
    assumed: Fact[float]


def load_interruptions(provider: str) -> InterruptionTable:
    """The table of a provider whose catalogue is part of Gangway."""
    return read_interruptions(Path(__file__).parent / provider)


@cache
def read_interruptions(folder: Path) -> InterruptionTable:
    """The table of a catalogue's folder, read once per process."""
    tables, sources = read_file(folder / "spot.yaml")
    assumed = tables["assumed"]
    # A share within some hours as a share of 720, a month as AWS's Spot Instance Advisor counts.
    taken = 1 - (1 - assumed["share"]) ** (720 / assumed["within_hours"])
    return InterruptionTable.model_validate(
        {
            "rows": {row["machine_type"]: with_facts(InterruptionRow, row, sources) for row in tables["buckets"]},
            "unpublished": {"value": None, **about_source(tables["unpublished"])},
            "assumed": {"value": taken, **about_source(assumed), "confidence": "assumed"},
        }
    )


def taken_per_month(provider: str, machine_type: str, region: str) -> Fact[float | None]:
    """`share_taken` by the bundled table."""
    return share_taken(load_interruptions(provider), machine_type, region)


def share_taken(table: InterruptionTable, machine_type: str, region: str) -> Fact[float | None]:
    """The share of such nodes interrupted within 720 hours (assumed: the rate of the trailing month); None if unknown.
    Another region's bucket is never used: prices carry over, shortages do not.
    """
    row = table.rows.get(machine_type)
    bucket = None if row is None else row.by_region.value.get(region)
    if row is None or bucket is None:
        return table.unpublished
    fact, share = row.by_region, BUCKETS[bucket]
    counted = f"{bucket} in the trailing month, counted as {share:.0%} of nodes in 720 h"
    about = fact.model_dump(exclude={"value", "source", "confidence"})
    return Fact[float | None](value=share, source=f"{fact.source}: {counted}", confidence="assumed", **about)


def least_taken(taken: Fact[float | None]) -> float:
    """The lower bound of `share_taken`: the bucket's lower end; exact if the stack file states it; 0 if unknown."""
    share = taken.value or 0.0
    return share if taken.confidence == "stated" else _LOWER_END.get(share, share)


class Ici(Frozen):
    """The links of a TPU chip. `ports`: share its bandwidth; `wraps_every`: sides that are multiples close a torus."""

    ports: Fact[int]
    wraps_every: Fact[int]
    dcn_gbps: Fact[float | None]


class Latency(Frozen):
    """Microseconds per message: inside a machine, between TPU chips, and between machines by fabric."""

    inside_usec: Fact[float]
    ici_usec: Fact[float]
    efa_usec: Fact[float]
    infiniband_usec: Fact[float]
    roce_usec: Fact[float]
    gpudirect_usec: Fact[float]
    ethernet_usec: Fact[float]

    def between(self, fabric: str) -> Fact[float]:
        """Latency between machines; `ethernet` for those without a kernel-bypass fabric."""
        found: Fact[float] = getattr(self, f"{fabric}_usec")
        return found


class LinkTable(Frozen):
    """`links`: one accelerator's Gbit/s in one direction; `bus_share`: of nominal bandwidth that all-reduces reach."""

    links: Mapping[str, Fact[float | None]]
    ici: Mapping[str, Ici]
    unknown: Fact[float | None]
    latency: Latency
    bus_share: Fact[float]
    efa_bus_share: Fact[float]


load_links = table_reader(LinkTable, "links")


def link_gbps(accelerator: str) -> Fact[float | None]:
    """Gbit/s of one accelerator of `accelerator`, such as `H100x8`; None if unknown."""
    table = load_links()
    return table.links.get(accelerator.rpartition("x")[0], table.unknown)
