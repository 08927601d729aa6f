"""What the catalogue can say of a machine, a price, a file system and a region: typed, frozen, provider-neutral.

Only shapes and the rules a row must keep to make sense. Where the rows come from is `components.catalog.rows`; looking
one up is `components.catalog`.
"""

from collections.abc import Mapping
from datetime import date
from typing import Generic, Literal, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator

__all__ = [
    "Architecture",
    "CardRun",
    "Confidence",
    "Device",
    "EfaFabric",
    "Fabric",
    "Fact",
    "Interconnect",
    "LustreOffer",
    "MachinePrice",
    "MachineType",
    "Region",
    "ServicePrice",
]

T = TypeVar("T")
Confidence = Literal["documented", "list-price", "recalled", "assumed", "stated"]
Architecture = Literal["x86_64", "arm64"]
Interconnect = Literal["nvswitch", "nvlink", "pcie", "neuronlink", "roce", "ici", "xgmi", "none"]
Device = Literal["ena", "efa-only"]


class Frozen(BaseModel):
    """Read-only, and nothing in it that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Fact(Frozen, Generic[T]):
    """A value and where it comes from.

    Attributes:
        value: None where nobody knows.
        source: title of the page or list.
        url: its public address; empty for what was recalled or assumed.
        as_of: the day the source is of or, where it bears no date, was read.
        confidence: documented by the vendor, a public list price, recalled, assumed, or stated by the stack file.
    """

    value: T
    source: str
    url: str = ""
    as_of: date
    confidence: Confidence


class CardRun(Frozen):
    """Network cards `first` to `last` (inclusive), all laid out alike.

    Attributes:
        devices: what the layout puts at device 0, 1, ... of each card; empty leaves the card unused.
        max_interfaces: how many interfaces one card takes; None where nobody knows.
    """

    first: int
    last: int
    devices: tuple[Device, ...]
    max_interfaces: int | None


class EfaFabric(Frozen):
    """Elastic Fabric Adapters and the layout Amazon documents for them.

    Attributes:
        max_efa_interfaces: EfaInfo.MaximumEfaInterfaces, which is not the number of cards on every type.
        num_cards: MaximumNetworkCards.
        layout: the cards in order; the launch template declares exactly these devices.
    """

    kind: Literal["efa"]
    max_efa_interfaces: Fact[int | None]
    num_cards: Fact[int]
    layout: Fact[tuple[CardRun, ...]]

    @model_validator(mode="after")
    def _layout_is_possible(self) -> Self:
        """The rules of the EC2 user guide, so that a wrong row cannot be loaded."""
        expected = 0
        for run in self.layout.value:
            if run.first != expected or run.last < run.first:
                raise ValueError(f"cards {run.first} to {run.last}: expected to begin at {expected}")
            if run.devices.count("efa-only") > 1:
                raise ValueError(f"cards {run.first} to {run.last}: more than one EFA on a card")
            if run.max_interfaces is not None and len(run.devices) > run.max_interfaces:
                raise ValueError(f"cards {run.first} to {run.last}: more devices than {run.max_interfaces}")
            expected = run.last + 1
        if expected != self.num_cards.value:
            raise ValueError(f"the layout has {expected} cards, the machine {self.num_cards.value}")
        if self.layout.value[0].devices[:1] != ("ena",):
            raise ValueError("card 0 device 0 must be ena: it carries IP traffic")
        if self.max_efa_interfaces.value not in (None, self.num_efa_interfaces):
            raise ValueError(f"the layout has {self.num_efa_interfaces} EFAs, not {self.max_efa_interfaces.value}")
        return self

    @property
    def num_efa_interfaces(self) -> int:
        """EFAs of the layout."""
        return sum((run.last - run.first + 1) * run.devices.count("efa-only") for run in self.layout.value)


Fabric: TypeAlias = EfaFabric
"""A second kind makes this `Annotated[EfaFabric | OtherFabric, Field(discriminator="kind")]`."""


class MachineType(Frozen):
    """A machine with accelerators.

    Attributes:
        accelerator: model and number, such as `H100x8`: what a stack file asks for.
        backend: the collective library its accelerators are made for.
        accelerator_watts: board power of one accelerator; None where no figure is published.
        host_watts: everything else in the machine.
        interconnect: how the accelerators of one machine reach each other.
        network_gbps: all network cards together, at their peak.
        fabric: the network between machines that bypasses the kernel; None where there is none.
    """

    name: str
    provider: str
    accelerator: str
    architecture: Architecture
    backend: Literal["nccl", "neuron", "hccl", "xla"]
    num_accelerators: Fact[int]
    accelerator_memory_gib: Fact[float | None]
    accelerator_watts: Fact[float | None]
    host_watts: Fact[float]
    vcpus: Fact[int]
    memory_gib: Fact[float]
    interconnect: Fact[Interconnect]
    network_gbps: Fact[float | None]
    instance_store_gib: Fact[int | None]
    fabric: Fabric | None

    @property
    def vcpus_per_accelerator(self) -> float:
        """CPU threads a worker can have, data loading included."""
        return self.vcpus.value / self.num_accelerators.value


class MachinePrice(Frozen):
    """US dollars per node and hour in one region; spot is the span seen over zones.

    `reserved_1y` and `reserved_3y` are a commitment's total over its hours, paid whether used or not; `block` is a
    capacity block's price over its hours, paid at once.
    """

    provider: str
    machine_type: str
    region: str
    on_demand: Fact[float | None]
    spot_low: Fact[float | None]
    spot_high: Fact[float | None]
    reserved_1y: Fact[float | None]
    reserved_3y: Fact[float | None]
    block: Fact[float | None]


class ServicePrice(Frozen):
    """US dollars per `unit` of one of the things that surround the machines."""

    provider: str
    region: str
    service: str
    unit: Literal["hour", "month", "GiB-month", "IOPS-month", "GiB"]
    usd: Fact[float | None]


class LustreOffer(Frozen):
    """Sizes and tiers of a managed Lustre file system; from `efa_step_gib` on only where the provider has such a thing.

    `efa_step_gib` is the step of an EFA-enabled file system at each tier, `efa_excluded_families` whose machines
    have EFA and cannot reach one by it, `efa_client_interfaces` how many of a machine type's it is reached by,
    `metadata_iops` what may be provisioned.
    """

    deployment_type: Fact[str]
    smallest_gib: Fact[int]
    step_gib: Fact[int]
    throughput_mbps_per_tib: Fact[tuple[int, ...]]
    efa_step_gib: Fact[Mapping[int, int]]
    efa_excluded_families: Fact[tuple[str, ...]]
    efa_client_interfaces: Fact[Mapping[str, int]]
    metadata_iops: Fact[tuple[int, ...]]
    scratch_deployment_type: Fact[str | None]
    scratch_throughput_mbps_per_tib: Fact[int | None]


class Region(Frozen):
    """A region's grid intensity (location-based) and PUE."""

    name: str
    provider: str
    zones: tuple[str, ...]
    intensity_g_per_kwh: Fact[float]
    pue: Fact[float]
