"""The models of the catalogue's facts: machines, prices, file systems and regions; cloud-specific ones at the end."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Generic, Literal, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

T = TypeVar("T")
Confidence = Literal["documented", "list-price", "modelled", "secondary", "recalled", "assumed", "stated"]
Architecture = Literal["x86_64", "arm64"]
Interconnect = Literal["nvswitch", "nvlink", "pcie", "neuronlink", "roce", "ici", "xgmi", "none"]
Device = Literal["ena", "efa-only"]
# Signalling rate of a four-lane port, Gbit/s, as `ibstat` shows it.
RATE_GBPS: Mapping[str, int] = {"EDR": 100, "HDR": 200, "NDR": 400, "XDR": 800}


class Frozen(BaseModel):
    """Base of immutable models that reject unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Fact(Frozen, Generic[T]):
    """A value and its source. Except for stack files, at least one date is set.

    Attributes:
        value: None if unknown.
        url: public address; empty if recalled or assumed.
        as_of: the source's own date, the only one that decides staleness; None if it has none.
        read_on: the day it was read or recalled; optional beside `as_of`.
        confidence: documented by the vendor or a paper, a public list price, modelled by a public model, secondary
            (quoted from an unread source), recalled, assumed, or stated by the stack file.
    """

    value: T
    source: str
    url: str = ""
    as_of: date | None = None
    read_on: date | None = None
    confidence: Confidence

    @property
    def seen_on(self) -> date:
        """The last day on which this was known to hold; the later reading wins."""
        seen = self.read_on or self.as_of
        assert seen is not None, "a test holds every source against this"
        return seen

    @property
    def as_of_text(self) -> str:
        """The source's date, ISO 8601; empty if it has none."""
        return "" if self.as_of is None else self.as_of.isoformat()

    @property
    def read_text(self) -> str:
        """The day it was read, ISO 8601; empty if unknown."""
        return "" if self.read_on is None and self.as_of is None else self.seen_on.isoformat()

    @property
    def dated(self) -> str:
        """The source's date, or that it has none, as text."""
        return dated(self.as_of_text, self.read_text, self.confidence)


def dated(as_of: str, read_on: str, confidence: str) -> str:
    """Dates of a source as text: `2026-07-20`, `undated, read 2026-11-21`; recalled values are `noted`.

    >>> dated("", "2026-11-21", "list-price")
    'undated, read 2026-11-21'
    """
    if as_of or not read_on:
        return as_of
    return f"noted {read_on}" if confidence == "recalled" else f"undated, read {read_on}"


class CardRun(Frozen):
    """Equal cards `first` to `last`. `devices`: at device 0, 1, ... of each card; `max_interfaces`: None if unknown."""

    first: int
    last: int
    devices: tuple[Device, ...]
    max_interfaces: int | None


class EfaFabric(Frozen):
    """Elastic Fabric Adapters. `max_efa_interfaces`: EfaInfo.MaximumEfaInterfaces; `layout`: as declared."""

    kind: Literal["efa"]
    max_efa_interfaces: Fact[int | None]
    num_cards: Fact[int]
    layout: Fact[tuple[CardRun, ...]]

    @model_validator(mode="after")
    def _layout_is_possible(self) -> Self:
        """The rules of the EC2 user guide."""
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
        """Number of EFAs in the layout."""
        return sum((run.last - run.first + 1) * run.devices.count("efa-only") for run in self.layout.value)


Fabric: TypeAlias = EfaFabric
"""Turn into `Annotated[EfaFabric | OtherFabric, Field(discriminator="kind")]` for a second kind."""


class Offered(Frozen):
    """Where a machine is sold, according to one list.

    Attributes:
        zones: by region, spelled as in `Region.zones`; empty if the zones are unpublished. None if there is no list.
        complete: what absence proves. `zones`: neither the region nor the zone sells it; `regions`: the region does
            not, while zones are those that one account sees; `none`: nothing, as in a price list.
    """

    zones: Fact[Mapping[str, tuple[str, ...]] | None]
    complete: Literal["zones", "regions", "none"]

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions that sell it."""
        return tuple(self.zones.value or ())

    def excludes(self, region: str) -> bool:
        """Whether the list proves that `region` does not sell it."""
        return self.complete != "none" and region not in self.regions


class MachineType(Frozen):
    """A machine with accelerators.

    Attributes:
        accelerator: model and number, such as `H100x8`, as in a stack file.
        accelerator_watts: board power of one accelerator; None if unpublished.
        host_watts: mean draw of everything else while training.
        offered: where it is sold; None without a list, and for on-premises machines.
        accelerator_mean_watts: average draw, if its maker has measured it.
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
        """CPU threads per worker, including data loading."""
        return self.vcpus.value / self.num_accelerators.value


class MachinePrice(Frozen):
    """US dollars per node-hour in one region. Spot has the lowest and highest price over zones and days, and the median
    over zones on the newest day. `reserved_1y` and `reserved_3y` are a commitment's total per hour, used or not;
    `block` is a capacity block's upfront price per hour.
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
"""The region of a price that is the same in all regions."""


class ServicePrice(Frozen):
    """US dollars per `unit` of a service beside the machines."""

    provider: str
    region: str
    service: str
    unit: Literal["hour", "month", "GiB-month", "IOPS-month", "MiBps-month", "GiB", "10k-operations"]
    usd: Fact[float | None]


class LustreOffer(Frozen):
    """`efa_step_gib`: size step by tier, with EFA; `efa_excluded_families`: their EFA is of no use here."""

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
    """A region, its grid (Electricity Maps' zone) and its PUE. Estimates and rankings use only the average, location-
    based intensity; None if unpublished. `market_g_per_kwh`: after the provider's certificates and contracts.
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
    """One adapter per accelerator. `partition_key`: who shares one; `largest_group`: machines of one scale set."""

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
        runtime: the accelerators' software, which the trainer's image must match.
        topology_file: NCCL_TOPO_FILE on that image; None if it has none for the size.
        nccl_conf: what that image writes to /etc/nccl.conf for the size.
        temporary_disk: whether its instance store is Azure's temporary disk, which the image mounts, and not NVMe.
        no_new_capacity: whether Microsoft has stopped adding this size to its data centres.
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
    """Sizes of one SKU of Azure Managed Lustre, in TiB: multiples of the step, up to the largest."""

    sku: str
    throughput_mbps_per_tib: int
    step_tib: Fact[int]
    largest_tib: Fact[int]


class SubnetRule(Frozen):
    """The prefix length of the dedicated subnet for a file system of up to `up_to_tib`."""

    up_to_tib: int
    prefix_length: Fact[int]


CapacityKind = Literal["on-demand", "spot", "flex-start", "reservation"]


class GpuDirectFabric(Frozen):
    """GPUDirect-TCPX(O): extra gVNICs, each in its own VPC. `protocol` selects the NCCL plug-in."""

    kind: Literal["gpudirect"]
    protocol: Fact[Literal["tcpx", "tcpxo"]]
    num_gpu_nics: Fact[int]
    mtu_bytes: Fact[int]
    nic_type: Fact[Literal["GVNIC"]]


class RoceFabric(Frozen):
    """GPUDirect RDMA: MRDMA NICs in subnets of one VPC. `profile_suffix`: of its profile, `{zone}{profile_suffix}`."""

    kind: Literal["roce"]
    num_gpu_nics: Fact[int]
    num_host_nics: Fact[int]
    mtu_bytes: Fact[int]
    nic_type: Fact[Literal["MRDMA"]]
    profile_suffix: Fact[str]


GpuFabric: TypeAlias = Annotated[GpuDirectFabric | RoceFabric, Field(discriminator="kind")]


class GcpMachineType(MachineType):
    """A Compute Engine machine type. Its fabric is `gpu_fabric` (None: the GPUs share the NIC); `fabric` stays None."""

    gpu_fabric: GpuFabric | None
    capacity: Fact[tuple[CapacityKind, ...]]


class SizeRange(Frozen):
    """Sizes: multiples of `step_gib` up to and including `step_until_gib`, of `large_step_gib` beyond it."""

    smallest_gib: Fact[int]
    step_gib: Fact[int]
    step_until_gib: Fact[int]
    large_step_gib: Fact[int]
    largest_gib: Fact[int]


class LustreTier(SizeRange):
    """Sizes of one performance tier of Google Cloud Managed Lustre."""

    throughput_mbps_per_tib: int


class FilestoreTier(SizeRange):
    """Sizes of one service tier of Filestore; `api_tier` is its name in the API."""

    tier: str
    api_tier: Literal["BASIC_HDD", "BASIC_SSD", "ZONAL"]


class TpuGeneration(Frozen):
    """The available slices of one TPU generation.

    Attributes:
        prefix: the word before the number in an accelerator type, such as `v5litepod`.
        suffix_counts: what that number counts.
        devices_per_chip: PyTorch/XLA devices; 1 if the two TensorCores act as one.
        chip_mean_watts: mean measured by Google; None if unpublished.
        host_watts: a VM of a multi-host slice, without its chips.
        topologies: all of a 2-D torus; of a 3-D torus, those smaller than a cube of 4x4x4.
        max_cubes: 3-D: larger topologies are AxBxC with A <= B <= C, multiples of 4, up to this many cubes; else 0.
        api_type: AcceleratorConfig.type of the Cloud TPU API; None if that API does not create such slices.
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
    """US dollars per chip-hour in one region."""

    generation: str
    region: str
    on_demand: Fact[float | None]
    spot: Fact[float | None]


class TpuCatalog(Frozen):
    """Generations and prices of TPUs."""

    generations: Mapping[str, TpuGeneration]
    prices: tuple[TpuPrice, ...]

    def get_prices(self, generation: str) -> list[TpuPrice]:
        """The prices of a generation's chips by region."""
        return [price for price in self.prices if price.generation == generation]
