"""Facts about machines, prices, storage and regions, each with its source, date and confidence.

The YAML files beside this module are the data; this is the typed way in. A value nobody knows is null, and whoever
needs it says what is missing. Not a price client: refreshing is a command of its own.

    >>> catalog = load()
    >>> catalog.machine("p5.48xlarge").efa_interfaces.value
    32
"""

from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict

from components.findings import InputError, nearest_hint

__all__ = [
    "Catalog",
    "Confidence",
    "Fact",
    "LustreOffer",
    "MachinePrice",
    "MachineType",
    "Region",
    "ServicePrices",
    "load",
]

T = TypeVar("T")
Confidence = Literal["documented", "list-price", "recalled", "assumed"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fact(_Frozen, Generic[T]):
    """A value and where it comes from: documented by the vendor, a public list price, recalled, or assumed."""

    value: T
    source: str
    as_of: date
    confidence: Confidence


class MachineType(_Frozen):
    """A machine with accelerators. Watts are per GPU (board power) and per host without its GPUs."""

    name: str
    provider: str
    accelerator: str
    gpus: Fact[int]
    gpu_memory_gib: Fact[int]
    gpu_watts: Fact[float]
    host_watts: Fact[float]
    vcpus: Fact[int]
    memory_gib: Fact[int]
    efa_interfaces: Fact[int]
    network_cards: Fact[int]
    efa_on_card_0: Fact[bool]
    network_gbps: Fact[float]
    instance_store_gib: Fact[int]


class MachinePrice(_Frozen):
    """US dollars per node and hour in one region; spot is the span seen over zones."""

    machine_type: str
    region: str
    on_demand: Fact[float | None]
    spot_low: Fact[float | None]
    spot_high: Fact[float | None]


class ServicePrices(_Frozen):
    """US dollars for what surrounds the machines, in one region of one provider."""

    region: str
    lustre_persistent_2_usd_per_gib_month: Mapping[str, Fact[float | None]]
    s3_usd_per_gib_month: Fact[float | None]
    ebs_gp3_usd_per_gib_month: Fact[float | None]
    nat_gateway_usd_per_hour: Fact[float | None]
    interface_endpoint_usd_per_hour: Fact[float | None]


class LustreOffer(_Frozen):
    """Sizes and tiers of a managed Lustre file system."""

    deployment_type: Fact[str]
    smallest_gib: Fact[int]
    step_gib: Fact[int]
    throughput_mbps_per_tib: Fact[tuple[int, ...]]


class Region(_Frozen):
    """A region's grid intensity (location-based) and PUE."""

    name: str
    provider: str
    zones: tuple[str, ...]
    intensity_g_per_kwh: Fact[float]
    pue: Fact[float]


class Catalog(_Frozen):
    """Everything the planners know. Look-ups raise InputError naming the nearest known name."""

    machines: Mapping[str, MachineType]
    prices: tuple[MachinePrice, ...]
    services: Mapping[str, ServicePrices]
    lustre: Mapping[str, LustreOffer]
    regions: Mapping[str, Region]

    def machine(self, name: str, place: str = "machine_type") -> MachineType:
        """The machine type called `name`."""
        return _look_up(self.machines, name, place, "machine type")

    def machine_for(self, accelerator: str, provider: str, place: str = "accelerator") -> MachineType:
        """The machine type of `provider` that carries `accelerator`, such as `H100x8`."""
        offers: dict[str, list[MachineType]] = {}
        for machine in self.machines.values():
            if machine.provider == provider:
                offers.setdefault(machine.accelerator, []).append(machine)
        carriers = _look_up(offers, accelerator, place, f"accelerator on {provider}")
        if len(carriers) > 1:
            names = ", ".join(machine.name for machine in carriers)
            raise InputError(
                place,
                "several machine types carry this accelerator",
                value=accelerator,
                allowed=names,
                fix=f"write machine_type: {carriers[0].name} in place of accelerator",
            )
        return carriers[0]

    def region(self, name: str, provider: str, place: str = "region") -> Region:
        """The region called `name` of `provider`."""
        return _look_up(
            {k: r for k, r in self.regions.items() if r.provider == provider}, name, place, f"{provider} region"
        )

    def price(self, machine_type: str, region: str) -> MachinePrice | None:
        """The price in `region`, or of the first listed region where that one is not listed: look at `.region`."""
        offers = [p for p in self.prices if p.machine_type == machine_type]
        return next((p for p in offers if p.region == region), offers[0] if offers else None)


def _look_up(table: Mapping[str, T], name: str, place: str, what: str) -> T:
    if name not in table:
        raise InputError(
            place, f"no such {what}", value=name, allowed=", ".join(sorted(table)), fix=nearest_hint(name, table)
        )
    return table[name]


def _read(name: str) -> dict[str, Any]:
    """One YAML file with each `source:` replaced by what the file's `sources` say of it."""
    data: dict[str, Any] = yaml.load((Path(__file__).parent / name).read_text("utf-8"), Loader=yaml.CSafeLoader)
    sources = data.pop("sources")

    def resolve(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve(item) for item in node]
        if isinstance(node, dict) and "source" in node:
            about = sources[node["source"]]
            return {**node, "source": about["title"], "as_of": about["as_of"], "confidence": about["confidence"]}
        return {key: resolve(item) for key, item in node.items()} if isinstance(node, dict) else node

    resolved: dict[str, Any] = resolve(data)
    return resolved


def _named(table: Mapping[str, dict[str, Any]]) -> Iterable[tuple[str, dict[str, Any]]]:
    return ((name, {"name": name, **row}) for name, row in table.items())


@cache
def load() -> Catalog:
    """The catalogue that ships with Gangway, read once a process."""
    prices = _read("prices.yaml")
    return Catalog.model_validate(
        {
            "machines": dict(_named(_read("accelerators.yaml")["machine_types"])),
            "prices": prices["machines"],
            "services": prices["services"],
            "lustre": _read("storage.yaml")["lustre"],
            "regions": dict(_named(_read("regions.yaml")["regions"])),
        }
    )
