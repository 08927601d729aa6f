"""The plan of a stack with `engine: kubernetes` on Azure: queues, labels, taints, the autoscaler's priorities, and
checks of what AKS and the queue support.
"""

from typing import Any

import yaml

from gangway.components.azure.aks import MAX_PODS, SPOT_TAINT, pool_name
from gangway.components.catalog.schema import AzureMachineType
from gangway.components.core.findings import InputError
from gangway.components.kubernetes.manifest import Manifest
from gangway.components.kubernetes.queues import queue_manifests
from gangway.components.kubernetes.spec import GPU, JOBS, JOBS_ONLY, ClusterSpec, Flavor, aks_allocatable
from gangway.stacks.base.cluster_queues import check_way_out, get_spec, get_version, gpu_node
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.settings import AzureConfig

SPOT_KEY = SPOT_TAINT.partition("=")[0]
PRIORITIES = "cluster-autoscaler-priority-expander"
"""The name of the ConfigMap that the autoscaler reads."""


def taint() -> str:
    """The taint that keeps system pods off nodes for jobs, in AKS's spelling."""
    return f"{JOBS_ONLY}=true:NoSchedule"


def node_labels(config: StackConfig) -> list[dict[str, str]]:
    """Labels of the nodes of each rung. The GPU plugin selects nodes by the second one."""
    return [{**JOBS, f"{GPU}.present": "true"} for _ in config.cluster.capacity]


def cluster_spec(config: StackConfig, machine: AzureMachineType) -> ClusterSpec:
    """The queues. All rungs are one flavor: Kueue counts quotas, not Azure's capacity; AKS's autoscaler goes down the
    ladder.
    """
    left = aks_allocatable(machine.vcpus.value, machine.memory_gib.value, config.cluster.root_volume_gib, MAX_PODS)
    node = gpu_node(machine, left, infiniband=has_infiniband(config, machine))
    return get_spec(config, node, Flavor(flavor_name(machine), dict(JOBS)))


def has_infiniband(config: StackConfig, machine: AzureMachineType) -> bool:
    """Whether pods get InfiniBand adapters, which a single node does not need."""
    return machine.infiniband is not None and config.cluster.nodes.max > 1


def flavor_name(machine: AzureMachineType) -> str:
    """The machine type as a Kubernetes name."""
    return machine.name.lower().replace("_", "-")


def queues(spec: ClusterSpec) -> list[Manifest]:
    """The queues' manifests, with tolerations for spot nodes, which AKS taints."""
    found = []
    for manifest in queue_manifests(spec):
        if manifest["kind"] == "ResourceFlavor":
            own = manifest["spec"]
            manifest = {**manifest, "spec": {**own, "tolerations": [*own["tolerations"], *spot_tolerations()]}}
        found.append(manifest)
    return found


def spot_tolerations() -> list[dict[str, str]]:
    """Tolerations of the taint of spot nodes."""
    return [{"key": SPOT_KEY, "operator": "Exists"}]


def add_spot_tolerations(values: Any) -> dict[str, Any]:
    """The values of a chart, with tolerations for spot nodes."""
    return {**values, "tolerations": [*values["tolerations"], *spot_tolerations()]}


def priorities(config: StackConfig) -> dict[str, str]:
    """The data of PRIORITIES: patterns of node names by priority. YAML, since the autoscaler ignores quoted numbers, as
    JSON's keys are.
    """
    kinds = [rung.kind for rung in config.cluster.capacity]
    ladder = {len(kinds) - at: [f".*-{pool_name(at, kind)}-.*"] for at, kind in enumerate(kinds)}
    return {"priorities": yaml.safe_dump(ladder)}


def check_cluster(config: StackConfig, machine: AzureMachineType) -> None:
    """Checks the settings. InputError: a version, teams, an egress, a file system, an image or a placement that AKS or
    the queue does not support.
    """
    get_version(config)
    check_way_out(config)
    cluster_spec(config, machine)
    own = config.section(AzureConfig)
    refused = {
        "gangway:storage": (config.storage is not None, "AKS has no driver for Managed Lustre"),
        "gangway:cluster.image_id": (config.cluster.image_id is not None, "AKS chooses the nodes' image"),
        "gangway:azure.proximity": (own.proximity, "AKS places its pools"),
        "gangway:azure.private_endpoints": (own.private_endpoints, "the queue's images come from other registries"),
        "gangway:azure.head_image": (own.head_image is not None, "there is no head node"),
    }
    for place, (written, why) in refused.items():
        if written:
            raise InputError(
                place, why, allowed="left out with engine: kubernetes", fix=f"leave {place.rpartition('.')[2]} out"
            )
