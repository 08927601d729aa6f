"""What the catalogue can say of Google Cloud alone: GPU fabrics, TPU generations, tiers of Managed Lustre.

Only shapes, typed and frozen, on top of those all providers share (`components.catalog.schema`). Where the rows come
from is `components.catalog.rows`; looking one up is `components.catalog`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from components.catalog.schema import Fact, Frozen, MachineType

__all__ = [
    "CapacityKind",
    "FilestoreTier",
    "GcpMachineType",
    "GpuDirectFabric",
    "GpuFabric",
    "LustreTier",
    "RoceFabric",
    "SizeRange",
    "TpuCatalog",
    "TpuGeneration",
    "TpuPrice",
]

CapacityKind = Literal["on-demand", "spot", "flex-start", "reservation"]


class GpuDirectFabric(Frozen):
    """GPUDirect-TCPX(O): extra gVNICs beside the machine's own, each alone in a VPC of its own.

    Attributes:
        protocol: tcpx or tcpxo, which decides the NCCL plug-in.
        num_gpu_nics: extra NICs, and so as many extra VPC networks, each with one subnet.
        mtu_bytes: of those networks.
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

    Attributes:
        gpu_fabric: the network between machines for the GPUs; None where they share the machine's own NIC.
        capacity: how it can be bought at all.
        zones: where it is offered, as public lists of that day have it.
    """

    gpu_fabric: GpuFabric | None
    capacity: Fact[tuple[CapacityKind, ...]]
    zones: Fact[tuple[str, ...]]


class SizeRange(Frozen):
    """Sizes of a managed file system: multiples of a step that grows once.

    Attributes:
        step_gib: the step up to and including `step_until_gib`; `large_step_gib` beyond it.
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
        chip_watts: None where no figure is published.
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
    zones: Fact[tuple[str, ...]]


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

    def price(self, generation: str, region: str) -> TpuPrice | None:
        """The price in `region`, or of the first listed region where that one is not listed: look at `.region`."""
        offers = [p for p in self.prices if p.generation == generation]
        return next((p for p in offers if p.region == region), offers[0] if offers else None)
