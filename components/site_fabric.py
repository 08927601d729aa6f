"""What a job and its nodes must be told for the fabric of a site: InfiniBand, RDMA over Ethernet, or none.

Pure. A fabric that is planned and does not work must stop the job: NCCL is told to take it or nothing. What the
machines have is `components.site`; what a node looks for in itself, `images`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from components.site import SiteFabric

__all__ = ["SiteFabricPlan", "plan_site_fabric"]

DEVICES = ("/dev/infiniband",)
"""Of the host, that a container needs to see the adapters."""


@dataclass(frozen=True)
class SiteFabricPlan:
    """A fabric, compiled.

    Attributes:
        link_layer: as the kernel calls it: InfiniBand or Ethernet; empty where there is no fabric.
        num_devices: adapters that must be up on every node.
        gbps_each: the rate that each must show.
        hcas: their names; empty for whichever are up.
        devices: of the host, that the job's container gets.
        nccl_env: variables of the job.
    """

    link_layer: str = ""
    num_devices: int = 0
    gbps_each: float = 0.0
    hcas: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    nccl_env: Mapping[str, str] = field(default_factory=dict)

    @property
    def gbps(self) -> float:
        """All adapters of one node together."""
        return self.num_devices * self.gbps_each


def plan_site_fabric(fabric: SiteFabric | None, interface: str | None = None) -> SiteFabricPlan:
    """The plan of a machine's fabric; next to nothing where it has none.

    NCCL_NET makes NCCL fail where the adapters do not work, instead of going on over TCP (NCCL's user guide,
    "NCCL_NET"); `=` before names has them match as a whole ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"), and gloo takes
    them as they are.

    Args:
        fabric: of the machine; None for TCP alone.
        interface: by which nodes reach each other over IP; None where NCCL and gloo choose.
    """
    env = {"NCCL_SOCKET_IFNAME": f"={interface}", "GLOO_SOCKET_IFNAME": interface} if interface else {}
    if fabric is None:
        return SiteFabricPlan(nccl_env=env)
    env["NCCL_NET"] = "IB"
    if fabric.hcas:
        env["NCCL_IB_HCA"] = "=" + ",".join(fabric.hcas)
    if fabric.gid_index is not None:
        env["NCCL_IB_GID_INDEX"] = str(fabric.gid_index)
    return SiteFabricPlan(
        link_layer="InfiniBand" if fabric.kind == "infiniband" else "Ethernet",
        num_devices=fabric.num_devices.value,
        gbps_each=fabric.gbps_each.value,
        hcas=fabric.hcas,
        devices=DEVICES,
        nccl_env=env,
    )
