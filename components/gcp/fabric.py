"""Network interfaces of Google Cloud's GPU machines, and NCCL's requirements, by machine type."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from gangway.components.catalog.schema import GcpMachineType, GpuDirectFabric, RoceFabric
from gangway.components.core.findings import Finding
from gangway.components.core.job import Volume

NicType = Literal["GVNIC", "MRDMA"]

MAIN = "main"  # the stack's own network, with the first NIC of every machine
# The VPC maximum (VPC documentation, "Maximum transmission unit"); Google advises it for Managed Lustre.
JUMBO_MTU_BYTES = 8896
_REGISTRY = "us-docker.pkg.dev/gce-ai-infra"
_CLUSTER_TOOLKIT = "https://github.com/GoogleCloudPlatform/cluster-toolkit/tree/main/examples/machine-learning"
_ACCELERATORS = "https://github.com/GoogleCloudPlatform/container-engine-accelerators/tree/master"
_VAR_LIB = (Volume(source="/var/lib", target="/var/lib"),)
_TCPXO_NICS = "enp6s0,enp7s0,enp13s0,enp14s0,enp134s0,enp135s0,enp141s0,enp142s0"
_TCPX_SOCKETS = "/run/tcpx"
# The plug-in's release notes of 2026-01-09; later ones name no other.
_TCPXO_NCCL = "2.28.7"
# In the version of the plug-in's image.
_TCPX_NCCL = "2.19.4"


@dataclass(frozen=True)
class InterfacePlan:
    """One network interface. `network` is `main` or a FabricNetwork's name, `subnet` its index there."""

    index: int
    nic_type: NicType
    network: str
    subnet: int


@dataclass(frozen=True)
class FabricNetwork:
    """A VPC network besides the stack's own. `name`: `host-1`, `gpu-1` ... or `rdma`; `num_subnets`: one per NIC;
    `profile`: makes it an RDMA network in one zone; None for an ordinary one.
    """

    name: str
    num_subnets: int
    mtu_bytes: int
    profile: str | None = None

    @property
    def takes_firewall_rules(self) -> bool:
        """RoCE networks refuse VPC firewall rules, and allow everything between their NICs."""
        return self.profile is None


def plan_interfaces(machine: GcpMachineType) -> tuple[InterfacePlan, ...]:
    """The interfaces of an instance template for `machine`, in order."""
    fabric = machine.gpu_fabric
    names: list[tuple[NicType, str, int]] = [("GVNIC", MAIN, 0)]
    if isinstance(fabric, GpuDirectFabric):
        names += [("GVNIC", f"gpu-{number}", 0) for number in range(1, fabric.num_gpu_nics.value + 1)]
    elif isinstance(fabric, RoceFabric):
        names += [("GVNIC", f"host-{number}", 0) for number in range(1, fabric.num_host_nics.value)]
        names += [("MRDMA", "rdma", subnet) for subnet in range(fabric.num_gpu_nics.value)]
    return tuple(InterfacePlan(index, *named) for index, named in enumerate(names))


def plan_fabric_networks(machine: GcpMachineType, zone: str) -> tuple[FabricNetwork, ...]:
    """The networks of `plan_interfaces` except the main one, in order. An ordinary one holds one NIC of a machine (VPC
    documentation, "Multiple network interfaces"), an RDMA network several in separate subnets.
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


@dataclass(frozen=True)
class HostNeeds:
    """Host requirements of a plug-in that an image may lack. `kernel`: patched; empty for the image's own; `unsigned`:
    whether Secure Boot would refuse any of it; `aperture_device`: PCI vendor:device; empty for none.
    """

    kernel_modules: tuple[str, ...] = ()
    kernel: str = ""
    unsigned: bool = False
    aperture_device: str = ""


@dataclass(frozen=True)
class SideContainer:
    """A daemon beside the job on each node, with the host's network and all GPUs. `ready_text`: in its log, if any."""

    name: str
    image: str
    entrypoint: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    volumes: tuple[Volume, ...]
    devices: tuple[str, ...]
    ready_text: str = ""


@dataclass(frozen=True)
class NcclPlugin:
    """A NCCL plug-in. `image`: its installer; `env`: of the container, after `env_script` if there is one; `side`: the
    daemon, None for none; `qualified_nccl`: version qualified by Google; empty if none is named.
    """

    name: str
    image: str
    install_args: tuple[str, ...]
    install_volumes: tuple[Volume, ...]
    host_dir: str
    env: Mapping[str, str]
    env_script: str
    volumes: tuple[Volume, ...]
    devices: tuple[str, ...]
    side: SideContainer | None
    host: HostNeeds
    source: str
    qualified_nccl: str = ""


GIB = NcclPlugin(
    name="gib",
    image=f"{_REGISTRY}/gpudirect-gib/nccl-plugin-gib:v1.1.1",
    install_args=("install",),
    install_volumes=_VAR_LIB,
    host_dir="/var/lib/gib",
    # NCCL_NET makes NCCL fail without the plug-in instead of using TCP. The two gVNICs are named, as in Google's
    # examples for A4 and A3 Ultra: NCCL's bootstrap and gloo could choose one of the eight isolated RDMA interfaces.
    env=MappingProxyType(
        {
            "LD_LIBRARY_PATH": "/usr/local/gib/lib64",
            "NCCL_NET": "gIB",
            "NCCL_SOCKET_IFNAME": "enp0s19,enp192s20",
            "GLOO_SOCKET_IFNAME": "enp0s19",
        }
    ),
    # Chooses the other NCCL variables by machine; Google advises to set no more by hand.
    env_script="/usr/local/gib/scripts/set_nccl_env.sh",
    volumes=(Volume(source="/var/lib/gib", target="/usr/local/gib", read_only=True),),
    devices=("/dev/infiniband",),
    side=None,
    host=HostNeeds(),
    source=f"{_ACCELERATORS}/gpudirect-rdma",
)

TCPXO = NcclPlugin(
    name="tcpxo",
    # The pair of slurm-gcp (2026-08-06): daemon and plug-in must match.
    image=f"{_REGISTRY}/gpudirect-tcpxo/nccl-plugin-gpudirecttcpx-dev:v1.0.17",
    install_args=("install", "--install-nccl"),
    install_volumes=_VAR_LIB,
    host_dir="/var/lib/tcpxo",
    env=MappingProxyType(
        {
            "LD_LIBRARY_PATH": "/var/lib/tcpxo/lib64",
            # The qualified NCCL from the plug-in's image: libtorch_cuda.so finds its own by DT_RPATH, before
            # LD_LIBRARY_PATH. The loader only warns about a missing file.
            "LD_PRELOAD": "/var/lib/tcpxo/lib64/libnccl.so.2",
            "GANGWAY_NCCL_QUALIFIED": _TCPXO_NCCL,
            "NCCL_LIB_DIR": "/var/lib/tcpxo/lib64",
            "NCCL_NET": "FasTrak",
            "NCCL_SOCKET_IFNAME": "enp0s12",
            "GLOO_SOCKET_IFNAME": "enp0s12",
            "NCCL_FASTRAK_CTRL_DEV": "enp0s12",
            "NCCL_FASTRAK_IFNAME": _TCPXO_NICS,
            "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY": "/dev/aperture_devices",
        }
    ),
    # Sets the tuner, chunk sizes and the rest; the interface names above follow it.
    env_script="/var/lib/tcpxo/lib64/nccl-env-profile.sh",
    volumes=(
        Volume(source="/var/lib/tcpxo/lib64", target="/var/lib/tcpxo/lib64", read_only=True),
        Volume(source="/dev/aperture_devices", target="/dev/aperture_devices"),
    ),
    devices=(),
    side=SideContainer(
        name="gangway-rxdm",
        image=f"{_REGISTRY}/gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.23",
        entrypoint="",
        args=("--num_hops=2", "--num_nics=8", "--uid=", "--alsologtostderr"),
        env=MappingProxyType({"LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu"}),
        volumes=(),
        devices=("/dev/dmabuf_import_helper",),
        ready_text="Buffer manager initialization complete",
    ),
    host=HostNeeds(kernel_modules=("import-helper",), unsigned=True, aperture_device="1ae0:0084"),
    source=f"{_ACCELERATORS}/gpudirect-tcpxo",
    qualified_nccl=_TCPXO_NCCL,
)

TCPX = NcclPlugin(
    name="tcpx",
    image=f"{_REGISTRY}/gpudirect-tcpx/nccl-plugin-gpudirecttcpx-dev:v3.1.9-2.19.4-12.0",
    install_args=("install",),
    install_volumes=_VAR_LIB,
    host_dir="/var/lib/tcpx",
    env=MappingProxyType(
        {
            "LD_LIBRARY_PATH": "/var/lib/tcpx/lib64",
            "GANGWAY_NCCL_QUALIFIED": _TCPX_NCCL,
            "NCCL_NET": "GPUDirectTCPX_v7",
            "NCCL_SOCKET_IFNAME": "enp0s12",
            "GLOO_SOCKET_IFNAME": "enp0s12",
            "NCCL_GPUDIRECTTCPX_CTRL_DEV": "enp0s12",
            "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "enp6s0,enp12s0,enp134s0,enp140s0",
            "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX": _TCPX_SOCKETS,
            "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS": "500000",
            # CPUs that send and receive for each NIC: those of its socket.
            "NCCL_GPUDIRECTTCPX_TX_BINDINGS": (
                "enp6s0:8-21,112-125;enp12s0:8-21,112-125;enp134s0:60-73,164-177;enp140s0:60-73,164-177"
            ),
            "NCCL_GPUDIRECTTCPX_RX_BINDINGS": (
                "enp6s0:22-35,126-139;enp12s0:22-35,126-139;enp134s0:74-87,178-191;enp140s0:74-87,178-191"
            ),
            "NCCL_CROSS_NIC": "0",
            "NCCL_ALGO": "Ring",
            "NCCL_PROTO": "Simple",
            "NCCL_NSOCKS_PERTHREAD": "4",
            "NCCL_SOCKET_NTHREADS": "1",
            "NCCL_DYNAMIC_CHUNK_SIZE": "524288",
            "NCCL_P2P_NET_CHUNKSIZE": "524288",
            "NCCL_P2P_PCI_CHUNKSIZE": "524288",
            "NCCL_P2P_NVL_CHUNKSIZE": "1048576",
            "NCCL_BUFFSIZE": "4194304",
            "NCCL_NET_GDR_LEVEL": "PIX",
            "NCCL_P2P_PXN_LEVEL": "0",
        }
    ),
    env_script="",
    volumes=(
        Volume(source="/var/lib/tcpx/lib64", target="/var/lib/tcpx/lib64", read_only=True),
        Volume(source=_TCPX_SOCKETS, target=_TCPX_SOCKETS),
    ),
    devices=(),
    side=SideContainer(
        name="gangway-rxdm",
        image=f"{_REGISTRY}/gpudirect-tcpx/tcpgpudmarxd-dev:v2.0.12",
        entrypoint="/tcpgpudmarxd/build/app/tcpgpudmarxd",
        args=("--gpu_nic_preset", "a3vm", "--gpu_shmem_type", "fd", "--uds_path", _TCPX_SOCKETS),
        env=MappingProxyType({"LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu"}),
        volumes=(Volume(source=_TCPX_SOCKETS, target=_TCPX_SOCKETS),),
        devices=(),
    ),
    host=HostNeeds(kernel="linux-gcp-tcpx", unsigned=True),
    source=f"{_CLUSTER_TOOLKIT}/a3-highgpu-8g",
    qualified_nccl=_TCPX_NCCL,
)


def nccl_plugin(machine: GcpMachineType, *, own_image: bool = False) -> NcclPlugin | None:
    """The plug-in for a machine's GPU NICs; None for TCP. `own_image`: may have the patched kernel that one needs."""
    plugin = _find_plugin(machine)
    return None if plugin is None or (plugin.host.kernel and not own_image) else plugin


def _find_plugin(machine: GcpMachineType) -> NcclPlugin | None:
    fabric = machine.gpu_fabric
    if isinstance(fabric, RoceFabric):
        return GIB
    if isinstance(fabric, GpuDirectFabric):
        return {"tcpx": TCPX, "tcpxo": TCPXO}[fabric.protocol.value]
    return None


def nccl_env(machine: GcpMachineType, *, own_image: bool = False) -> Mapping[str, str]:
    """The container's environment besides the plug-in's script. Empty without a plug-in."""
    plugin = nccl_plugin(machine, own_image=own_image)
    return {} if plugin is None else plugin.env


def lacking_kernel(machine: GcpMachineType) -> str:
    """Why NCCL uses TCP between such machines without a custom image; empty if it does not."""
    plugin = _find_plugin(machine)
    if plugin is None or not plugin.host.kernel:
        return ""
    return f"{plugin.name} needs the kernel {plugin.host.kernel}, which no public Ubuntu image has"


def nccl_findings(
    machine: GcpMachineType, own_image: bool, num_nodes_max: int, path: str, image_nccl: str
) -> list[Finding]:
    """Report unused GPU NICs and untested uses. `path`: of the nodes' image; `image_nccl`: the trainer's."""
    plugin = _find_plugin(machine)
    if num_nodes_max < 2 or plugin is None:
        return []
    if nccl_plugin(machine, own_image=own_image) is None:
        return [_needs_kernel(machine, path)]
    if plugin.qualified_nccl and plugin.qualified_nccl != image_nccl:
        return [_nccl_finding(machine, plugin, image_nccl)]
    return []


def _needs_kernel(machine: GcpMachineType, path: str) -> Finding:
    return Finding.warning(
        "fabric.kernel",
        path,
        f"{machine.name}: {lacking_kernel(machine)}; with the default image NCCL uses plain TCP, several times slower",
        "name an image of yours with that kernel, or take a3-megagpu-8g",
    )


def _nccl_finding(machine: GcpMachineType, plugin: NcclPlugin, image_nccl: str) -> Finding:
    """Several A3 Mega with torch 2.11 and NCCL 2.28.9 saw corrupted memory handles; both are untested here."""
    proven = f"nor that {plugin.name} works in a container that is neither root nor privileged. Where they do not,"
    if preloaded := plugin.env.get("LD_PRELOAD"):
        message = (
            f"{machine.name}: Google has qualified {plugin.name} for NCCL {plugin.qualified_nccl}, which is preloaded "
            f"({preloaded}) before the {image_nccl} that torch was built with: nobody has shown that this torch works "
            f"with it, {proven} the job does not start; the run record has the version that was loaded"
        )
        fix = f"try two nodes first; or build an image whose torch was built with NCCL {plugin.qualified_nccl}"
    else:
        message = (
            f"{machine.name}: Google has qualified {plugin.name} for NCCL {plugin.qualified_nccl}, and torch in the "
            f"trainer's image brings {image_nccl}: nobody has shown that they work together, {proven} NCCL fails and "
            "the job does not start"
        )
        library = f"{plugin.env['LD_LIBRARY_PATH']}/libnccl.so.2"
        works = f"an image whose torch works with {plugin.qualified_nccl}"
        fix = f"try two nodes first; or build {works}, and preload {library}"
    return Finding.warning("fabric.nccl-unproven", "gangway:image", message, fix)


def secure_boot_allowed(machine: GcpMachineType, *, own_image: bool) -> bool:
    """Whether the NCCL plug-in works under Secure Boot: not if it needs an unsigned kernel or module."""
    plugin = nccl_plugin(machine, own_image=own_image)
    return plugin is None or not plugin.host.unsigned
