"""What the catalogue can say of Azure alone: InfiniBand, images and NCCL files by size, tiers of Managed Lustre.

Only shapes and the rules a row must keep to make sense, typed and frozen, on top of those all providers share
(`components.catalog.schema`). Where the rows come from is `components.catalog.rows`; looking one up is
`components.catalog`.
"""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import model_validator

from components.catalog.schema import Fact, Frozen, MachineType

__all__ = ["AmlfsTier", "AzureCapacityKind", "AzureMachineType", "InfinibandFabric", "SubnetRule"]

AzureCapacityKind = Literal["reservation", "spot", "on-demand"]
# Signalling rate of a four-lane port, in Gbit/s: what `ibstat` shows as the port's rate.
RATE_GBPS: Mapping[str, int] = {"EDR": 100, "HDR": 200, "NDR": 400, "XDR": 800}


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
        zones: the zones of each region that offer it; None where nobody publishes that.
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
    zones: Fact[Mapping[str, tuple[str, ...]] | None]
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
