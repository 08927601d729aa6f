"""The node pools of a GKE cluster, planned: one for each rung of the capacity ladder; of TPU slices of several hosts
one for each slice, since GKE makes and takes back such a pool as a whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from components.catalog.loader import load_provider
from components.catalog.schema import GcpMachineType
from components.core.capacity import AnyRung, FlexStart, Reservation, RungPlan, Spot, plan_ladder
from components.core.findings import InputError
from components.core.tags import shortened
from components.gcp.capacity import check_ladder, rung_zone
from components.gcp.fabric import InterfacePlan, plan_interfaces
from components.gcp.launch import boot_disk_type
from components.gcp.slices import SlicePlan, plan_slice
from components.kubernetes.spec import HOST

__all__ = [
    "MAX_NAME",
    "MAX_NODES",
    "Gpus",
    "NodeKind",
    "PoolPlan",
    "gpu_nodes",
    "network_levels",
    "plan_pools",
    "pods_cidr",
    "pool_name",
    "tpu_chips",
    "tpu_nodes",
]

MAX_NAME = 40
"""Of clusters and node pools (GKE API, `Cluster.name` and `NodePool.name`)."""

# What GKE calls the accelerators of a series (GKE documentation, "About GPUs in GKE"; Google's xpk of 2026-06-25 has
# the same names).
_GPUS: Mapping[str, str] = MappingProxyType(
    {
        "a2-highgpu": "nvidia-tesla-a100",
        "a2-ultragpu": "nvidia-a100-80gb",
        "a3-highgpu": "nvidia-h100-80gb",
        "a3-megagpu": "nvidia-h100-mega-80gb",
        "a3-ultragpu": "nvidia-h200-141gb",
        "a4-highgpu": "nvidia-b200",
        "g2-standard": "nvidia-l4",
    }
)
# AI Hypercomputer documentation, "Schedule GKE workloads with Topology Aware Scheduling": of these series GKE's nodes
# carry the labels; on spot where they are placed compactly, as the pools here are. Seen in November 2026.
_PLACED = ("a3-highgpu-8g", "a3-megagpu-8g", "a3-ultragpu-8g", "a4-highgpu-8g")
_BLOCKS = tuple(f"cloud.google.com/gce-topology-{name}" for name in ("block", "subblock", "host"))
# Machine types of hosts by generation, with the number of chips (GKE documentation, "Plan TPUs in GKE").
_TPU_HOSTS: Mapping[str, str] = MappingProxyType(
    {
        "v4": "ct4p-hightpu-{}t",
        "v5e": "ct5lp-hightpu-{}t",
        "v5p": "ct5p-hightpu-{}t",
        "v6e": "ct6e-standard-{}t",
        "tpu7x": "tpu7x-standard-{}t",
    }
)
# Compute Engine documentation, "Local SSD": a disk has 375 GB; the machines with GPUs come with a fixed number.
_LOCAL_SSD_GIB = 375
# GKE documentation, "About CIDR ranges": so many addresses a node for 32 pods, twice their number.
MAX_PODS, _ADDRESSES_BITS = 32, 6
# The range that no VPC of ours, and none of its GPU NICs, can have (RFC 6598); a pod there is known by its own address.
_PODS_FROM = "100.64.0.0"
_LEAST_PODS_PREFIX, _MOST_PODS_PREFIX = 17, 12
MAX_NODES = 2 ** (32 - _MOST_PODS_PREFIX - _ADDRESSES_BITS) - 8
"""What has room for its pods; some of it for nodes of the system and for those that an upgrade puts in between."""


@dataclass(frozen=True)
class Gpus:
    """The accelerators of a node, in GKE's words."""

    accelerator: str
    number: int


@dataclass(frozen=True)
class NodeKind:
    """One node of a cluster's ladder, or a whole slice.

    Attributes:
        machine_type: of one virtual machine.
        gpus: None on hosts of TPUs.
        interfaces: of the machine, the main one first.
        topology: of a slice of several hosts, whose pool is made as a whole; None where nodes come one by one.
        hosts: virtual machines of a slice; 1 for GPU nodes.
        local_ssds: that hold what pods write to their own disk.
        boot_disk: its type.
        machine: as Compute Engine sells it; None for TPUs.
        tpu: the slice; None for GPUs.
    """

    machine_type: str
    gpus: Gpus | None
    interfaces: tuple[InterfacePlan, ...]
    topology: str | None
    hosts: int
    local_ssds: int
    boot_disk: str
    machine: GcpMachineType | None = None
    tpu: SlicePlan | None = None

    @property
    def policy_topology(self) -> str | None:
        """Of a slice whose pool names a workload policy in place of its topology (GKE documentation, "About Ironwood
        (TPU7x) in GKE").
        """
        return self.topology if self.tpu is not None and self.tpu.generation == "tpu7x" else None


@dataclass(frozen=True)
class PoolPlan:
    """One node pool.

    Attributes:
        suffix: of its name: `0-spot`, or `0-spot-2` for the third slice.
        rung: the ladder's position.
        kind: of the rung.
        zone: where its nodes are.
        least: nodes that are always up.
        most: nodes it grows to.
        spot: whether Google may take nodes back.
        run_duration_sec: after which a node is deleted; None for no such end.
        reservation: full name of the one that is used; None to use none.
        compact: whether GKE places the nodes together.
        queued: whether nodes come all at once, by a ProvisioningRequest alone.
    """

    suffix: str
    rung: int
    kind: str
    zone: str
    least: int
    most: int
    spot: bool
    run_duration_sec: int | None
    reservation: str | None
    compact: bool
    queued: bool


def gpu_nodes(machine_type: str) -> NodeKind:
    """A GPU machine as a node. InputError: no such machine type."""
    machine = cast("GcpMachineType", load_provider("gcp").machine(machine_type, "machine_type"))
    series = machine.name.rpartition("-")[0]
    return NodeKind(
        machine_type=machine.name,
        gpus=Gpus(_GPUS[series], machine.num_accelerators.value),
        interfaces=plan_interfaces(machine),
        topology=None,
        hosts=1,
        local_ssds=round((machine.instance_store_gib.value or 0) / _LOCAL_SSD_GIB),
        boot_disk=boot_disk_type(machine),
        machine=machine,
    )


def network_levels(machine_type: str, rung: AnyRung) -> tuple[str, ...]:
    """Labels of such nodes, from the widest block of the network to the node itself; none where GKE gives none."""
    compact = not isinstance(rung, Spot) or plan_ladder((rung,))[0].placement_group
    return (*_BLOCKS, HOST) if machine_type in _PLACED and compact else ()


def tpu_nodes(accelerator_type: str, topology: str | None = None) -> NodeKind:
    """A slice as one host or several. InputError: no such slice."""
    tpu = plan_slice(accelerator_type=accelerator_type, topology=topology)
    return NodeKind(
        machine_type=_TPU_HOSTS[tpu.generation].format(tpu.chips_per_host),
        gpus=None,
        interfaces=(),
        # Slices of one host take no topology (GKE documentation, "Deploy TPU workloads": single-host node pools).
        topology=tpu.topology if tpu.hosts > 1 else None,
        hosts=tpu.hosts,
        local_ssds=0,
        # v6e and later boot from Hyperdisk alone (Compute Engine documentation, "TPU machine types").
        boot_disk="hyperdisk-balanced" if tpu.generation in ("v6e", "tpu7x") else "pd-balanced",
        tpu=tpu,
    )


def tpu_chips(machine_type: str) -> tuple[str, int] | None:
    """The generation and the number of chips of a host; None for what is no host of TPUs.

    >>> tpu_chips("ct5lp-hightpu-4t"), tpu_chips("g2-standard-4")
    (('v5e', 4), None)
    """
    for generation, form in _TPU_HOSTS.items():
        before, after = form.split("{}")
        number = machine_type.removeprefix(before).removesuffix(after)
        if machine_type == form.format(number) and number.isdigit():
            return generation, int(number)
    return None


def plan_pools(
    rungs: Sequence[AnyRung],
    nodes: NodeKind,
    zone: str,
    project: str,
    least: int,
    most: int,
    place: str = "capacity",
) -> tuple[PoolPlan, ...]:
    """The pools of a ladder, first choice first; `least` nodes or slices are always up, by its first rung. InputError:
    a rung that GKE does not have; `place` is the ladder's.
    """
    check_ladder(rungs, place)
    if not 0 <= least <= most <= MAX_NODES:
        raise InputError(
            "num_nodes_max",
            "the pods of so many nodes have no addresses",
            value=f"{least} to {most}",
            allowed=f"0 to {MAX_NODES:,} nodes, the least first",
            fix=f"set num_nodes_max: {MAX_NODES}",
        )
    found: list[PoolPlan] = []
    for position, (rung, plan) in enumerate(zip(rungs, plan_ladder(tuple(rungs)), strict=True)):
        if nodes.tpu is not None and isinstance(rung, FlexStart):
            raise InputError(
                f"{place}[{position}].kind",
                "slices come whole from a pool of their own, and are not asked for by a ProvisioningRequest here",
                value=rung.kind,
                allowed="reservation, spot, on-demand",
                fix=f"set {place}[{position}]: {{kind: on-demand}}",
            )
        up = least if position == 0 else 0
        reservation = _full_reservation(rung, project, f"{place}[{position}].id")
        found += _get_pools(rung, plan, position, nodes, zone, reservation, up, most)
    return tuple(found)


def _get_pools(
    rung: AnyRung,
    plan: RungPlan,
    position: int,
    nodes: NodeKind,
    zone: str,
    reservation: str | None,
    least: int,
    most: int,
) -> Iterator[PoolPlan]:
    flexible = isinstance(rung, FlexStart)
    run_sec = round(rung.max_hours * 3600) if isinstance(rung, FlexStart) else None
    # One policy for nodes with NICs of their GPUs; a slice of several hosts is one by its topology. Never beside a
    # ProvisioningRequest, which places by itself (cluster-toolkit of 2026-06, `modules/compute/gke-node-pool`).
    fabric = nodes.machine is not None and nodes.machine.gpu_fabric is not None
    compact = nodes.topology is not None or (fabric and plan.placement_group)
    for suffix, number, up in _sizes(f"{position}-{rung.kind}", nodes, least, most):
        yield PoolPlan(
            suffix=suffix,
            rung=position,
            kind=rung.kind,
            zone=rung_zone(rung, zone),
            # What is asked for comes when it comes: none of it can be kept up.
            least=0 if flexible else up,
            most=number,
            spot=isinstance(rung, Spot),
            run_duration_sec=run_sec,
            reservation=reservation,
            compact=compact,
            queued=flexible,
        )


def _sizes(suffix: str, nodes: NodeKind, least: int, most: int) -> Iterator[tuple[str, int, int]]:
    """The pools of a rung: (name, nodes at most, nodes at least)."""
    if nodes.topology is None:
        yield suffix, most, least
        return
    for number in range(most):
        yield f"{suffix}-{number}", nodes.hosts, nodes.hosts if number < least else 0


def _full_reservation(rung: AnyRung, project: str, place: str) -> str | None:
    """The reservation as GKE takes it. InputError: a block of one that another project shares, which it does not take
    (cluster-toolkit of 2026-06, `modules/compute/gke-node-pool`).
    """
    if not isinstance(rung, Reservation):
        return None
    owner, name = project, rung.id
    if name.startswith("projects/"):
        _, owner, _, name = name.split("/", 3)
    if "/" in name and owner != project:
        raise InputError(
            place,
            "GKE takes no block of a reservation that another project shares",
            value=rung.id,
            allowed="a shared reservation as a whole, or a block of one of the project's own",
            fix=f"write id: projects/{owner}/reservations/{name.partition('/')[0]}",
        )
    return name if "/" in name else f"projects/{owner}/reservations/{name}"


def pods_cidr(num_nodes: int) -> str:
    """The range of the pods of so many nodes: at least a /17, so that a cluster can grow without being made anew.

    >>> pods_cidr(64), pods_cidr(1000)
    ('100.64.0.0/17', '100.64.0.0/16')
    """
    bits = (max(num_nodes, 1) - 1).bit_length() + _ADDRESSES_BITS
    return f"{_PODS_FROM}/{min(_LEAST_PODS_PREFIX, 32 - bits)}"


def pool_name(stack: str, suffix: str) -> str:
    """A node pool as GKE knows it.

    >>> pool_name("demo", "0-spot")
    'demo-0-spot'
    """
    return f"{shortened(stack, MAX_NAME - len(suffix) - 1)}-{suffix}"
