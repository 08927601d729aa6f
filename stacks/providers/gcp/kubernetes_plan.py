"""The plan of a stack with `engine: kubernetes` on Google Cloud: queues, labels of nodes, and checks of what GKE and
the queue support.
"""

from collections.abc import Mapping
from types import MappingProxyType

from gangway.components.catalog.loader import load_tpus
from gangway.components.catalog.schema import MachineType
from gangway.components.core.capacity import LADDER, FlexStart
from gangway.components.core.findings import InputError
from gangway.components.gcp.gke_plan import gpu_nodes, network_levels, plan_pools, tpu_nodes
from gangway.components.gcp.slices import SlicePlan
from gangway.components.kubernetes.spec import JOBS, JOBS_ONLY, TPU, ClusterSpec, Flavor, Node, gke_allocatable
from gangway.stacks.base.cluster_queues import check_way_out, get_spec, get_version, gpu_node, is_static
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.settings import GcpConfig

# Values of the label that selects slices for pods (GKE documentation, "Deploy TPU workloads").
_TPU_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "v4": "tpu-v4-podslice",
        "v5e": "tpu-v5-lite-podslice",
        "v5p": "tpu-v5p-slice",
        "v6e": "tpu-v6e-slice",
        "tpu7x": "tpu7x",
    }
)


def taint() -> dict[str, str]:
    """The taint that keeps system pods off nodes for jobs, in GKE's spelling."""
    return {"key": JOBS_ONLY, "value": "true", "effect": "NO_SCHEDULE"}


def node_labels(config: StackConfig) -> list[dict[str, str]]:
    """Labels of the nodes of each rung."""
    return [dict(JOBS) for _ in config.cluster.capacity]


def get_hosts(tpu: SlicePlan | None) -> int:
    """The number of machines per node of the stack file: the hosts of a slice."""
    return 1 if tpu is None else tpu.hosts


def cluster_spec(config: StackConfig, machine: MachineType, tpu: SlicePlan | None) -> ClusterSpec:
    """The queues. All rungs are one flavor: Kueue counts quotas, not Google's capacity; GKE's autoscaler tries the
    pools. For slices the quota counts hosts.
    """
    boot_gib = config.cluster.root_volume_gib
    if tpu is None:
        ssds = gpu_nodes(machine.name).local_ssds
        node = gpu_node(machine, gke_allocatable(machine.vcpus.value, machine.memory_gib.value, boot_gib, ssds))
    else:
        node = tpu_host(tpu, boot_gib)
    levels = network_levels(machine.name, config.cluster.capacity[0]) if tpu is None and is_static(config) else ()
    return get_spec(config, node, Flavor(machine.name, flavor_labels(tpu), levels), get_hosts(tpu))


def flavor_labels(tpu: SlicePlan | None) -> dict[str, str]:
    """Labels of the nodes that jobs run on."""
    if tpu is None:
        return dict(JOBS)
    names = {"cloud.google.com/gke-tpu-accelerator": _TPU_NAMES[tpu.generation]}
    return {**JOBS, **names, "cloud.google.com/gke-tpu-topology": tpu.topology}


def tpu_host(tpu: SlicePlan, boot_gib: int) -> Node:
    """The resources of a slice's host that jobs can use."""
    generation = load_tpus().generations[tpu.generation]
    left = gke_allocatable(int(generation.host_vcpus.value), generation.host_memory_gib.value, boot_gib)
    return Node(left.cpus, left.memory_gib, {TPU: tpu.chips_per_host}, left.disk_gib)


def check_cluster(config: StackConfig, machine: MachineType, tpu: SlicePlan | None, zone: str) -> None:
    """Checks the settings. InputError: a version, teams, a rung, an egress, a file system or a number of slices that
    GKE or the queue does not support.
    """
    get_version(config)
    check_way_out(config)
    cluster_spec(config, machine, tpu)
    for index, rung in enumerate(config.cluster.capacity):
        if isinstance(rung, FlexStart):
            raise InputError(
                f"{LADDER}[{index}].kind",
                "GKE starts such nodes only for a ProvisioningRequest, which the stack's queue does not create",
                value=rung.kind,
                allowed="reservation, spot, on-demand with engine: kubernetes",
                fix=f"set {LADDER}[{index}]: {{kind: on-demand}}",
            )
    _check_storage(config)
    _check_slices(config, tpu)
    if config.section(GcpConfig).service_perimeter is not None:
        raise InputError(
            "gangway:gcp.service_perimeter",
            "the perimeter does not cover Kubernetes' control plane",
            allowed="left out with engine: kubernetes",
            fix="leave service_perimeter out",
        )
    nodes = config.cluster.nodes
    kind = gpu_nodes(machine.name) if tpu is None else tpu_nodes(tpu.accelerator_type, tpu.topology)
    plan_pools(config.cluster.capacity, kind, zone, config.section(GcpConfig).project, nodes.min, nodes.max, LADDER)


def _check_storage(config: StackConfig) -> None:
    storage = config.storage
    if storage is not None and storage.kind != "filestore":
        raise InputError(
            "gangway:storage.kind",
            "run folders must be on a file system that any node of the cluster mounts without additional modules",
            value=storage.kind,
            allowed="filestore with engine: kubernetes",
            fix="write kind: filestore, with its capacity_gib",
        )
    if storage is not None and storage.source is not None:
        raise InputError(
            "gangway:storage.source",
            "a queue's stack does not copy data",
            value=storage.source,
            allowed="left out with engine: kubernetes",
            fix="leave source out, and have a job copy the data into the volume",
        )


def _check_slices(config: StackConfig, tpu: SlicePlan | None) -> None:
    if tpu is not None and tpu.hosts > 1 and config.cluster.nodes.max > 1:
        raise InputError(
            "gangway:cluster.nodes.max",
            "the pods of a job might run on several slices, whose chips are not connected",
            value=config.cluster.nodes.max,
            allowed=(
                f"1 with slices of several hosts and engine: kubernetes ({tpu.accelerator_type} has {tpu.hosts} hosts)"
            ),
            fix="write max: 1, with the accelerator type of a larger slice",
        )
