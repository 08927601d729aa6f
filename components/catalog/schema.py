"""What the catalogue can say of a machine, price, file system and region, typed and frozen; clouds' own at the end."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Generic, Literal, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "EVERYWHERE",
    "AmlfsTier",
    "Architecture",
    "AzureCapacityKind",
    "AzureMachineType",
    "CapacityKind",
    "CardRun",
    "Confidence",
    "Device",
    "EfaFabric",
    "Fabric",
    "Fact",
    "FilestoreTier",
    "GcpMachineType",
    "GpuDirectFabric",
    "GpuFabric",
    "InfinibandFabric",
    "Interconnect",
    "LustreOffer",
    "LustreTier",
    "MachinePrice",
    "MachineType",
    "Offered",
    "Region",
    "RoceFabric",
    "ServicePrice",
    "SizeRange",
    "SubnetRule",
    "TpuCatalog",
    "TpuGeneration",
    "TpuPrice",
    "dated",
]


T = TypeVar("T")
Confidence = Literal["documented", "list-price", "modelled", "secondary", "recalled", "assumed", "stated"]
Architecture = Literal["x86_64", "arm64"]
Interconnect = Literal["nvswitch", "nvlink", "pcie", "neuronlink", "roce", "ici", "xgmi", "none"]
Device = Literal["ena", "efa-only"]
# Signalling rate of a four-lane port, in Gbit/s: what `ibstat` shows as the port's rate.
RATE_GBPS: Mapping[str, int] = {"EDR": 100, "HDR": 200, "NDR": 400, "XDR": 800}


class Frozen(BaseModel):
    """Read-only, and nothing in it that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Fact(Frozen, Generic[T]):
    """A value and where it comes from. One of the two days is always known, but of what a stack file states.

    Attributes:
        value: None where nobody knows.
        source: title of the page or list.
        url: its public address; empty for what was recalled or assumed.
        as_of: the day the source itself is of; None where it bears no date. What is old is judged by it alone.
        read_on: the day it was read or recalled; may be left out beside `as_of`.
        confidence: documented by the vendor or a paper, a public list price, modelled (what a public model computes),
            secondary (as others quote a source that was not read), recalled, assumed, or stated by the stack file.
    """

    value: T
    source: str
    url: str = ""
    as_of: date | None = None
    read_on: date | None = None
    confidence: Confidence

    @property
    def seen_on(self) -> date:
        """The last day on which this was known to be so: what is read later wins over it."""
        seen = self.read_on or self.as_of
        assert seen is not None, "a test holds every source against this"
        return seen

    @property
    def as_of_text(self) -> str:
        """ISO 8601; empty where the source bears no date."""
        return "" if self.as_of is None else self.as_of.isoformat()

    @property
    def read_text(self) -> str:
        """The day on which it was read, ISO 8601; empty where a stack file states it without a day."""
        return "" if self.read_on is None and self.as_of is None else self.seen_on.isoformat()

    @property
    def dated(self) -> str:
        """The source's own date, or that it has none, as people read it."""
        return dated(self.as_of_text, self.read_text, self.confidence)


def dated(as_of: str, read_on: str, confidence: str) -> str:
    """Days of a source for people: `2026-07-20`, `undated, read 2026-11-21`; what was recalled was `noted`.

    >>> dated("", "2026-11-21", "list-price")
    'undated, read 2026-11-21'
    """
    if as_of or not read_on:
        return as_of
    return f"noted {read_on}" if confidence == "recalled" else f"undated, read {read_on}"


class CardRun(Frozen):
    """Network cards `first` to `last` (inclusive), all laid out alike. `devices`: what the layout puts at device 0, 1,
    ... of each card; empty leaves the card unused; `max_interfaces`: how many interfaces one card takes; None where
    nobody knows.
    """

    first: int
    last: int
    devices: tuple[Device, ...]
    max_interfaces: int | None


class EfaFabric(Frozen):
    """Elastic Fabric Adapters and the layout Amazon documents for them. `max_efa_interfaces`:
    EfaInfo.MaximumEfaInterfaces, which is not the number of cards on every type; `layout`: the cards in order; the
    launch template declares exactly these devices.
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


class Offered(Frozen):
    """Where a machine is sold, as one list has it.

    Attributes:
        zones: of each region that has it, in the words of `Region.zones`; a region without any has it, and its zones
            are not published. None where nobody publishes a list.
        complete: what a place's absence proves. `zones`: that neither the region nor the zone sells it; `regions`: that
            the region does not, while its zones are those that one account sees; `none`: nothing, as in a price list.
    """

    zones: Fact[Mapping[str, tuple[str, ...]] | None]
    complete: Literal["zones", "regions", "none"]

    @property
    def regions(self) -> tuple[str, ...]:
        """Those that have it."""
        return tuple(self.zones.value or ())

    def excludes(self, region: str) -> bool:
        """Whether the list proves that `region` does not sell it."""
        return self.complete != "none" and region not in self.regions


class MachineType(Frozen):
    """A machine with accelerators.

    Attributes:
        accelerator: model and number, such as `H100x8`: what a stack file asks for.
        backend: the collective library its accelerators are made for.
        accelerator_watts: board power of one accelerator; None where no figure is published.
        host_watts: everything else in the machine, mean while training.
        interconnect: how the accelerators of one machine reach each other.
        network_gbps: all network cards together, at their peak.
        fabric: the network between machines that bypasses the kernel; None where there is none.
        offered: where it is sold; None where no list is at hand, and for a site's own.
        accelerator_mean_watts: what one draws on average, where its maker has measured it.
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
    offered: Offered | None = None
    accelerator_mean_watts: Fact[float] | None = None

    @property
    def vcpus_per_accelerator(self) -> float:
        """CPU threads a worker can have, data loading included."""
        return self.vcpus.value / self.num_accelerators.value


class MachinePrice(Frozen):
    """US dollars per node and hour in one region. Spot is the lowest and the highest price seen over zones and days,
    and the typical one, the median over zones on the newest day. `reserved_1y` and `reserved_3y` are a commitment's
    total over its hours, paid whether used or not; `block` is a capacity block's price over its hours, paid at once.
    """

    provider: str
    machine_type: str
    region: str
    on_demand: Fact[float | None]
    spot_low: Fact[float | None]
    spot_typical: Fact[float | None]
    spot_high: Fact[float | None]
    reserved_1y: Fact[float | None]
    reserved_3y: Fact[float | None]
    block: Fact[float | None]


EVERYWHERE = "*"
"""The region of a price that is the same in all of them."""


class ServicePrice(Frozen):
    """US dollars per `unit` of one of the things that surround the machines."""

    provider: str
    region: str
    service: str
    unit: Literal["hour", "month", "GiB-month", "IOPS-month", "MiBps-month", "GiB", "10k-operations"]
    usd: Fact[float | None]


class LustreOffer(Frozen):
    """Sizes and tiers of a managed Lustre file system; from `efa_step_gib` on only where the provider has such a thing.
    `efa_step_gib` is the step of an EFA-enabled file system at each tier, `efa_excluded_families` whose machines have
    EFA and cannot reach one by it, `efa_client_interfaces` how many of a machine type's it is reached by,
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
    """A region, its grid and its PUE. Estimates and rankings use the average intensity, and no other.

    Attributes:
        zones: of the region, in the provider's spelling.
        grid: Electricity Maps' zone, whose regions all have one intensity; empty where a stack file states its own.
        intensity_g_per_kwh: average of the grid's consumption, location-based; None where nobody publishes it.
        marginal_g_per_kwh: what one more kWh makes the grid emit; None where nobody says.
        market_g_per_kwh: market-based, after the provider's certificates and contracts; None where it publishes none.
        pue: power usage effectiveness.
    """

    name: str
    provider: str
    zones: tuple[str, ...]
    grid: str = ""
    intensity_g_per_kwh: Fact[float | None]
    marginal_g_per_kwh: Fact[float | None]
    market_g_per_kwh: Fact[float | None]
    pue: Fact[float]


AzureCapacityKind = Literal["reservation", "spot", "on-demand"]


class InfinibandFabric(Frozen):
    """Virtual functions of the hosts' InfiniBand adapters, one for each accelerator.

    Attributes:
        num_hcas: adapters that a machine shows, all of them, or it is unhealthy.
        gbps_each: rate of each, as `ibstat` shows it.
        generation: HDR, NDR or XDR.
        partition_key: who shares a partition key, and so can talk at all.
        largest_group: machines of one single-placement-group scale set, as every subscription has it.
        largest_group_on_request: the same once Microsoft's support has raised it.
    """

    kind: Literal["infiniband"]
    num_hcas: Fact[int]
    gbps_each: Fact[int]
    generation: Fact[Literal["HDR", "NDR", "XDR"]]
    partition_key: Fact[Literal["scale-set"]]
    largest_group: Fact[int]
    largest_group_on_request: Fact[int]

    @model_validator(mode="after")
    def _rate_is_of_its_generation(self) -> Self:
        if RATE_GBPS[self.generation.value] != self.gbps_each.value:
            raise ValueError(f"{self.generation.value} is {RATE_GBPS[self.generation.value]} Gbit/s")
        return self


class AzureMachineType(MachineType):
    """A size of virtual machine with GPUs. Its fabric is `infiniband`; `fabric`, which means EFA, stays None.

    Attributes:
        infiniband: the network between machines for the GPUs; None where they share the machine's Ethernet.
        ethernet_gbps: of the machine's own network.
        runtime: the accelerators' software, which the trainer's image must be made for.
        image: `publisher:offer:sku` of the marketplace image that fits; None where there is none.
        topology_file: what NCCL_TOPO_FILE names on that image; None where the image has none for the size.
        nccl_conf: what that image writes to /etc/nccl.conf for the size.
        capacity: how it can be bought at all.
        quota_family: whose vCPU quota it counts against, except on spot.
        trusted_launch: whether the size takes it; None where nobody knows.
        encryption_at_host: whether the size takes it; None where nobody knows.
        temporary_disk: whether its instance store is Azure's temporary disk, which the image mounts, and no NVMe.
        no_new_capacity: whether Microsoft says that its data centres get no more of them.
    """

    infiniband: InfinibandFabric | None
    ethernet_gbps: Fact[float]
    runtime: Literal["cuda", "rocm"]
    image: Fact[str | None]
    topology_file: Fact[str | None]
    nccl_conf: Fact[Mapping[str, str]]
    capacity: Fact[tuple[AzureCapacityKind, ...]]
    quota_family: Fact[str]
    trusted_launch: Fact[bool | None]
    encryption_at_host: Fact[bool | None]
    temporary_disk: bool = False
    no_new_capacity: bool = False

    @model_validator(mode="after")
    def _conf_names_the_topology(self) -> Self:
        if self.nccl_conf.value.get("NCCL_TOPO_FILE") != self.topology_file.value:
            raise ValueError("nccl_conf and topology_file name different files")
        if self.infiniband is not None and "reservation" in self.capacity.value:
            raise ValueError("a capacity reservation takes no scale set with a single placement group")
        return self


class AmlfsTier(Frozen):
    """Sizes of one SKU of Azure Managed Lustre, in TiB: multiples of the step up to and including the largest."""

    sku: str
    throughput_mbps_per_tib: int
    step_tib: Fact[int]
    largest_tib: Fact[int]


class SubnetRule(Frozen):
    """The subnet that a file system of up to `up_to_tib` needs, alone in it, by its prefix length."""

    up_to_tib: int
    prefix_length: Fact[int]


CapacityKind = Literal["on-demand", "spot", "flex-start", "reservation"]


class GpuDirectFabric(Frozen):
    """GPUDirect-TCPX(O): extra gVNICs beside the machine's own, each alone in a VPC of its own. `protocol`: tcpx or
    tcpxo, which decides the NCCL plug-in; `num_gpu_nics`: extra NICs, and so as many extra VPC networks, each with
    one subnet; `mtu_bytes`: of those networks.
    """

    kind: Literal["gpudirect"]
    protocol: Fact[Literal["tcpx", "tcpxo"]]
    num_gpu_nics: Fact[int]
    mtu_bytes: Fact[int]
    nic_type: Fact[Literal["GVNIC"]]


class RoceFabric(Frozen):
    """GPUDirect RDMA over converged Ethernet: MRDMA NICs, each in a subnet of one VPC with the RoCE profile.

    Attributes:
        num_gpu_nics: MRDMA NICs, and so as many subnets of the one RDMA network.
        num_host_nics: gVNICs for everything else, each in a VPC of its own.
        mtu_bytes: of the RDMA network.
        profile_suffix: the network profile is called `{zone}{profile_suffix}` and ties the network to its zone.
    """

    kind: Literal["roce"]
    num_gpu_nics: Fact[int]
    num_host_nics: Fact[int]
    mtu_bytes: Fact[int]
    nic_type: Fact[Literal["MRDMA"]]
    profile_suffix: Fact[str]


GpuFabric: TypeAlias = Annotated[GpuDirectFabric | RoceFabric, Field(discriminator="kind")]


class GcpMachineType(MachineType):
    """A Compute Engine machine type with GPUs. Its fabric is `gpu_fabric`; `fabric`, which means EFA, stays None.
    `gpu_fabric`: the network between machines for the GPUs; None where they share the machine's own NIC; `capacity`:
    how it can be bought at all.
    """

    gpu_fabric: GpuFabric | None
    capacity: Fact[tuple[CapacityKind, ...]]


class SizeRange(Frozen):
    """Sizes of a managed file system: multiples of a step that grows once. `step_gib`: the step up to and including
    `step_until_gib`; `large_step_gib` beyond it.
    """

    smallest_gib: Fact[int]
    step_gib: Fact[int]
    step_until_gib: Fact[int]
    large_step_gib: Fact[int]
    largest_gib: Fact[int]


class LustreTier(SizeRange):
    """Sizes of one performance tier of Google Cloud Managed Lustre."""

    throughput_mbps_per_tib: int


class FilestoreTier(SizeRange):
    """Sizes of one service tier of Filestore; `api_tier` is the API's word for it."""

    tier: str
    api_tier: Literal["BASIC_HDD", "BASIC_SSD", "ZONAL"]


class TpuGeneration(Frozen):
    """What may be ordered of one TPU generation.

    Attributes:
        prefix: the word before the number in an accelerator type, such as `v5litepod`.
        suffix_counts: what that number counts.
        devices_per_chip: what one process of PyTorch/XLA drives: 1 where the two TensorCores act as one device.
        chip_watts: the most that one draws; None where no figure is published.
        chip_mean_watts: the mean that Google measured; None where no figure is published.
        host_watts: the virtual machine of a slice of several hosts, without its chips.
        chips_per_host: chips of each virtual machine in a slice of several hosts.
        single_host_chips: sizes that one virtual machine holds.
        topologies: those listed one by one: all of a 2-D torus, and of a 3-D one those smaller than a cube of 4x4x4.
        max_cubes: 3-D: larger topologies are AxBxC with A <= B <= C, multiples of 4, up to this many cubes; else 0.
        max_side: the longest side of such a topology; 0 where there are none.
        runtime_version: the TPU VM image for PyTorch/XLA.
        api_type: AcceleratorConfig.type of the Cloud TPU API; None where that API does not make such slices.
    """

    name: str
    prefix: str
    suffix_counts: Literal["tensorcores", "chips"]
    tensorcores_per_chip: Fact[int]
    devices_per_chip: Fact[int]
    hbm_gib: Fact[float]
    peak_bf16_tflops: Fact[float]
    chip_watts: Fact[float | None]
    chip_mean_watts: Fact[float | None]
    host_watts: Fact[float]
    host_vcpus: Fact[int]
    host_memory_gib: Fact[float]
    chips_per_host: Fact[int]
    single_host_chips: Fact[tuple[int, ...]]
    topologies: Fact[tuple[str, ...]]
    max_cubes: Fact[int]
    max_side: Fact[int]
    runtime_version: Fact[str | None]
    api_type: Fact[str | None]
    offered: Offered


class TpuPrice(Frozen):
    """US dollars per chip and hour in one region."""

    generation: str
    region: str
    on_demand: Fact[float | None]
    spot: Fact[float | None]


class TpuCatalog(Frozen):
    """Generations and prices of TPUs."""

    generations: Mapping[str, TpuGeneration]
    prices: tuple[TpuPrice, ...]

    def get_prices(self, generation: str) -> list[TpuPrice]:
        """The prices of a generation's chips in every region that has one."""
        return [price for price in self.prices if price.generation == generation]
