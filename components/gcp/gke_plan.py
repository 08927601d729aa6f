"""Plans the node pools of a GKE cluster: one per rung, or per slice of several hosts, which GKE makes as a whole."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.core.capacity import AnyRung, FlexStart, Reservation, RungPlan, Spot, plan_ladder
from gangway.components.core.findings import InputError
from gangway.components.core.tags import shortened
from gangway.components.gcp.capacity import check_ladder, rung_zone
from gangway.components.gcp.fabric import InterfacePlan, plan_interfaces
from gangway.components.gcp.launch import boot_disk_type
from gangway.components.gcp.slices import SlicePlan, plan_slice
from gangway.components.kubernetes.spec import HOST

MAX_NAME = 40  # of clusters and node pools (GKE API, `Cluster.name` and `NodePool.name`)

# GKE's names of accelerators by series (GKE documentation, "About GPUs in GKE"; Google's xpk of 2026-06-25 has the same
# names).
_GPUS: Mapping[str, str] = {
    "a2-highgpu": "nvidia-tesla-a100",
    "a2-ultragpu": "nvidia-a100-80gb",
    "a3-highgpu": "nvidia-h100-80gb",
    "a3-megagpu": "nvidia-h100-mega-80gb",
    "a3-ultragpu": "nvidia-h200-141gb",
    "a4-highgpu": "nvidia-b200",
    "g2-standard": "nvidia-l4",
}
# AI Hypercomputer documentation, "Schedule GKE workloads with Topology Aware Scheduling": GKE labels nodes of these
# series; on spot only if placed compactly, as here. Seen in November 2026.
_PLACED = ("a3-highgpu-8g", "a3-megagpu-8g", "a3-ultragpu-8g", "a4-highgpu-8g")
_BLOCKS = tuple(f"cloud.google.com/gce-topology-{name}" for name in ("block", "subblock", "host"))
# Machine types of hosts by generation, with the number of chips (GKE documentation, "Plan TPUs in GKE").
_TPU_HOSTS: Mapping[str, str] = {
    "v4": "ct4p-hightpu-{}t",
    "v5e": "ct5lp-hightpu-{}t",
    "v5p": "ct5p-hightpu-{}t",
    "v6e": "ct6e-standard-{}t",
    "tpu7x": "tpu7x-standard-{}t",
}
# Compute Engine documentation, "Local SSD": a disk has 375 GB; GPU machines have a fixed number.
_LOCAL_SSD_GIB = 375
# GKE documentation, "About CIDR ranges": addresses per node are twice the 32 pods.
MAX_PODS, _ADDRESSES_BITS = 32, 6
POD_ADDRESSES = 2**_ADDRESSES_BITS  # of a node
SYSTEM_NODES = (1, 3)  # minimum and maximum nodes of the system pool
# Outside all our VPCs and GPU NICs (RFC 6598); pods have addresses of their own.
_PODS_FROM = "100.64.0.0"
_LEAST_PODS_PREFIX, _MOST_PODS_PREFIX = 17, 12
MAX_NODES = 2 ** (32 - _MOST_PODS_PREFIX - _ADDRESSES_BITS) - 8  # by pods' addresses; 8: system, upgrades


@dataclass(frozen=True)
class Gpus:
    """The accelerators of a node, in GKE's words."""

    accelerator: str
    number: int


@dataclass(frozen=True)
class NodeKind:
    """One node of a cluster's ladder, or a whole slice. `gpus`: None on TPU hosts; `interfaces`: the main one first;
    `topology`: of a multi-host slice, whose pool is created as a whole; else None; `local_ssds`: for pods' local files.
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
        """Set if the pool names a workload policy instead (GKE documentation, "About Ironwood (TPU7x) in GKE")."""
        return self.topology if self.tpu is not None and self.tpu.generation == "tpu7x" else None


@dataclass(frozen=True)
class PoolPlan:
    """One node pool. `suffix`: of its name: `0-spot`, or `0-spot-2` for the third slice; `run_duration_sec`: until a
    node is deleted; `queued`: whether nodes come all at once, only by a ProvisioningRequest.
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
    """Topology labels of such nodes, widest first; empty if GKE sets none."""
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
        # v6e and later boot only from Hyperdisk (Compute Engine documentation, "TPU machine types").
        boot_disk="hyperdisk-balanced" if tpu.generation in ("v6e", "tpu7x") else "pd-balanced",
        tpu=tpu,
    )


def tpu_chips(machine_type: str) -> tuple[str, int] | None:
    """The generation and the number of chips of a TPU host; None for other machines.

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
    """The pools of a ladder, in order; the first rung keeps `least` up. InputError at `place`: unsupported rung."""
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
    # One policy for nodes with GPU NICs; the topology places a multi-host slice. Never with a ProvisioningRequest,
    # which places nodes itself (cluster-toolkit of 2026-06, `modules/compute/gke-node-pool`).
    fabric = nodes.machine is not None and nodes.machine.gpu_fabric is not None
    compact = nodes.topology is not None or (fabric and plan.placement_group)
    for suffix, number, up in _sizes(f"{position}-{rung.kind}", nodes, least, most):
        yield PoolPlan(
            suffix=suffix,
            rung=position,
            kind=rung.kind,
            zone=rung_zone(rung, zone),
            # Flex-start nodes come when there is capacity, so none can be kept up.
            least=0 if flexible else up,
            most=number,
            spot=isinstance(rung, Spot),
            run_duration_sec=run_sec,
            reservation=reservation,
            compact=compact,
            queued=flexible,
        )


def _sizes(suffix: str, nodes: NodeKind, least: int, most: int) -> Iterator[tuple[str, int, int]]:
    """The pools of a rung: (name, maximum nodes, minimum nodes)."""
    if nodes.topology is None:
        yield suffix, most, least
        return
    for number in range(most):
        yield f"{suffix}-{number}", nodes.hosts, nodes.hosts if number < least else 0


def _full_reservation(rung: AnyRung, project: str, place: str) -> str | None:
    """The reservation as GKE takes it. InputError: a block of another project's shared reservation (cluster-toolkit of
    2026-06, `modules/compute/gke-node-pool`).
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
    """The pods' range for this many nodes: at least a /17, so that a cluster can grow without being replaced.

    >>> pods_cidr(64), pods_cidr(1000)
    ('100.64.0.0/17', '100.64.0.0/16')
    """
    bits = (max(num_nodes, 1) - 1).bit_length() + _ADDRESSES_BITS
    return f"{_PODS_FROM}/{min(_LEAST_PODS_PREFIX, 32 - bits)}"


def pool_name(stack: str, suffix: str) -> str:
    """A node pool's name in GKE.

    >>> pool_name("demo", "0-spot")
    'demo-0-spot'
    """
    return f"{shortened(stack, MAX_NAME - len(suffix) - 1)}-{suffix}"
