"""Node settings for GPU traffic over InfiniBand. Facts by size are in `catalog/azure/machines.yaml` (Azure's
documentation and its HPC images' scripts), never derived from names. The scale set alone decides the partition key.
`NCCL_NET=IB` ends a job without working adapters instead of using TCP.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network

from gangway.components.catalog.schema import AzureMachineType, MachineType
from gangway.components.core.findings import Finding
from gangway.components.core.job import Volume

DEVICE_PREFIX = "mlx5_ib"  # mlx5_ib0, ... by the image's azure_persistent_rdma_naming
ETHERNET_PREFIX = "mlx5_an"  # prefix of accelerated networking's devices, which are Ethernet
RDMA_RANGE = IPv4Network("172.16.0.0/16")  # reserved for Azure's RDMA network ("Set up InfiniBand")

# /opt/microsoft/ndv5/topo.xml links to a file beside that folder, so mounting only the folder would leave a dead link.
TOPOLOGY_DIR = "/opt/microsoft"
NCCL_CONF = "/etc/nccl.conf"


@dataclass(frozen=True)
class ImageReference:
    """A marketplace image for a scale set, without its version."""

    publisher: str
    offer: str
    sku: str


@dataclass(frozen=True)
class FabricPlan:
    """Requirements of a node and settings of its job; numbers are 0 and names empty without InfiniBand.
    `device_prefix`: in `/sys/class/infiniband`; `topology_file`: required non-empty; `volumes`: read-only;
    `devices`: need unlimited locked memory in the container; `kernel_modules`: for adapter access to GPU memory.
    """

    num_hcas: int = 0
    gbps_each: int = 0
    generation: str | None = None
    device_prefix: str = ""
    image: ImageReference | None = None
    topology_file: str | None = None
    nccl_conf: Mapping[str, str] = field(default_factory=dict)
    nccl_env: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    devices: tuple[str, ...] = ()
    single_placement_group: bool = False
    kernel_modules: tuple[str, ...] = ()

    @property
    def gbps(self) -> int:
        """Rate of all adapters."""
        return self.num_hcas * self.gbps_each


def plan_fabric(machine: AzureMachineType, *, own_image: bool = False) -> FabricPlan:
    """The fabric settings of `machine`. `own_image`: a user's image needs the same files, or the node is unhealthy."""
    fabric, conf = machine.infiniband, machine.nccl_conf.value
    plain = FabricPlan(
        image=None if own_image or machine.image.value is None else ImageReference(*machine.image.value.split(":")),
        topology_file=machine.topology_file.value,
        nccl_conf=conf,
        # By default NCCL could choose ib0 for its bootstrap, whose addresses only this node knows, and gloo the
        # interface of the host name.
        nccl_env={"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"},
        volumes=tuple(Volume(source=path, target=path, read_only=True) for path in (NCCL_CONF, TOPOLOGY_DIR) if conf),
    )
    if fabric is None:
        return plain
    return replace(
        plain,
        num_hcas=fabric.num_hcas.value,
        gbps_each=fabric.gbps_each.value,
        generation=fabric.generation.value,
        device_prefix=DEVICE_PREFIX,
        # By prefix and exclusion: a node whose renaming was late still has its adapters.
        nccl_env={**plain.nccl_env, "NCCL_NET": "IB", "NCCL_IB_HCA": f"^{ETHERNET_PREFIX}"},
        devices=("/dev/infiniband",),
        single_placement_group=True,
        kernel_modules=("nvidia-peermem",) if machine.runtime == "cuda" else (),
    )


def is_isolated_rung(machine: MachineType) -> bool:
    """Whether nodes of different rungs cannot train together: only nodes of one scale set share InfiniBand ("Set up
    InfiniBand"). The head then fills one rung at a time.
    """
    return isinstance(machine, AzureMachineType) and machine.infiniband is not None


def fabric_findings(
    machine: AzureMachineType,
    *,
    num_nodes_max: int,
    own_image: bool,
    network_cidr: str,
    path: str = "gangway:cluster.machine_type",
    network_path: str = "gangway:network.cidr",
) -> list[Finding]:
    """Limits of a size's fabric, and the user's part. `path`, `network_path`: of machine type and `network_cidr`."""
    found = _software(machine, path) + _image(machine, own_image, path)
    if machine.infiniband is None:
        return found + _ethernet_only(machine, num_nodes_max, path)
    if num_nodes_max > 1 and machine.architecture == "arm64":
        found.append(_rack(machine, path))
    if IPv4Network(network_cidr).overlaps(RDMA_RANGE):
        found.append(
            Finding.error(
                "fabric.rdma-range",
                network_path,
                f"{network_cidr} overlaps {RDMA_RANGE}, the addresses of Azure's RDMA network",
                "set cidr: 10.42.0.0/16, or another network outside of it",
            )
        )
    return found


def _software(machine: AzureMachineType, path: str) -> list[Finding]:
    if machine.runtime == "cuda":
        return []
    return [
        Finding.error(
            "fabric.rocm",
            path,
            f"{machine.name}: its {machine.accelerator} need ROCm, and the trainer's container is made for CUDA",
            "take a machine type with NVIDIA GPUs",
        )
    ]


def _image(machine: AzureMachineType, own_image: bool, path: str) -> list[Finding]:
    if own_image and (needs := _needs(machine)):
        return [
            Finding.info(
                "fabric.own-image",
                path,
                f"{machine.name}: your image must hold {needs}, as Azure's HPC image does; a node without is unhealthy",
            )
        ]
    if not own_image and machine.image.value is None:
        return [
            Finding.error(
                "fabric.no-image",
                path,
                f"no public HPC image fits {machine.name} ({machine.image.source}, {machine.image.dated})",
                "name an image of yours, or take another machine type",
            )
        ]
    return []


def _needs(machine: AzureMachineType) -> str:
    needs = [NCCL_CONF] if machine.nccl_conf.value else []
    needs += [machine.topology_file.value] if machine.topology_file.value is not None else []
    needs += ["InfiniBand drivers"] if machine.infiniband is not None else []
    return ", ".join(needs)


def _ethernet_only(machine: AzureMachineType, num_nodes_max: int, path: str) -> list[Finding]:
    if num_nodes_max < 2:
        return []
    return [
        Finding.warning(
            "fabric.none",
            path,
            f"{machine.name} has no InfiniBand: {num_nodes_max} nodes talk over TCP at "
            f"{machine.ethernet_gbps.value:g} Gbit/s each, on which training in several nodes mostly waits",
            "set nodes: {min: 1, max: 1}, or take a machine type of the ND family with an r in its name",
        )
    ]


def _rack(machine: AzureMachineType, path: str) -> Finding:
    return Finding.info(
        "fabric.nvlink-domain",
        path,
        f"{machine.name}: nodes of one rack could share NVLink, which takes NVIDIA's IMEX service on each of them; "
        "it is not set up here, so nodes talk over InfiniBand",
    )
