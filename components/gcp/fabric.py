"""The network interfaces of a GPU machine on Google Cloud: which NIC lies in which network, in the machine's order.

Pure. Which fabric a machine has is data (`catalog/gcp/machines.yaml`); nothing is derived from its name. The order
matters: Compute Engine places GPU NICs by their position (nic1, nic2, ...), and `gcloud` examples of Google's
cluster-toolkit of 2026-06-25 give the host NICs first. What NCCL needs to use them is `components.gcp.nccl`.
"""

from dataclasses import dataclass
from typing import Literal

from components.catalog import GcpMachineType, GpuDirectFabric, RoceFabric

__all__ = ["JUMBO_MTU_BYTES", "MAIN", "FabricNetwork", "InterfacePlan", "plan_fabric_networks", "plan_interfaces"]

NicType = Literal["GVNIC", "MRDMA"]

MAIN = "main"
"""The stack's own network, in which the first NIC of every machine lies."""
# The largest that a VPC takes (VPC documentation, "Maximum transmission unit"); what Google advises for Managed Lustre.
JUMBO_MTU_BYTES = 8896


@dataclass(frozen=True)
class InterfacePlan:
    """One network interface.

    Attributes:
        index: its position on the machine.
        nic_type: as the API spells it.
        network: `main` or the name of a FabricNetwork.
        subnet: the subnet's number within that network.
    """

    index: int
    nic_type: NicType
    network: str
    subnet: int


@dataclass(frozen=True)
class FabricNetwork:
    """A VPC network that a machine needs beside the stack's own.

    Attributes:
        name: `host-1` (a second host NIC), `gpu-1` ... (one GPU NIC each) or `rdma`.
        num_subnets: one for each of the NICs that lie in it.
        mtu_bytes: of the network.
        profile: the network profile that makes it an RDMA network in one zone; None for an ordinary one.
    """

    name: str
    num_subnets: int
    mtu_bytes: int
    profile: str | None = None

    @property
    def takes_firewall_rules(self) -> bool:
        """RoCE networks refuse VPC firewall rules, and let everything pass among their own NICs."""
        return self.profile is None


def plan_interfaces(machine: GcpMachineType) -> tuple[InterfacePlan, ...]:
    """The interfaces an instance template must declare for `machine`, in their order."""
    fabric = machine.gpu_fabric
    names: list[tuple[NicType, str, int]] = [("GVNIC", MAIN, 0)]
    if isinstance(fabric, GpuDirectFabric):
        names += [("GVNIC", f"gpu-{number}", 0) for number in range(1, fabric.num_gpu_nics.value + 1)]
    elif isinstance(fabric, RoceFabric):
        names += [("GVNIC", f"host-{number}", 0) for number in range(1, fabric.num_host_nics.value)]
        names += [("MRDMA", "rdma", subnet) for subnet in range(fabric.num_gpu_nics.value)]
    return tuple(InterfacePlan(index, *named) for index, named in enumerate(names))


def plan_fabric_networks(machine: GcpMachineType, zone: str) -> tuple[FabricNetwork, ...]:
    """The networks of `plan_interfaces` but the main one, in the order of the interfaces.

    Each ordinary network holds one NIC of a machine: Compute Engine refuses two in one (VPC documentation, "Multiple
    network interfaces"); only RDMA networks take several, each in a subnet of its own.
    """
    fabric = machine.gpu_fabric
    subnets: dict[str, int] = {}
    for interface in plan_interfaces(machine)[1:]:
        subnets[interface.network] = subnets.get(interface.network, 0) + 1
    if isinstance(fabric, RoceFabric):
        profile = f"{zone}{fabric.profile_suffix.value}"
        return tuple(
            FabricNetwork(name, count, fabric.mtu_bytes.value, profile)
            if name == "rdma"
            else FabricNetwork(name, count, JUMBO_MTU_BYTES)
            for name, count in subnets.items()
        )
    if isinstance(fabric, GpuDirectFabric):
        return tuple(FabricNetwork(name, count, fabric.mtu_bytes.value) for name, count in subnets.items())
    return ()
