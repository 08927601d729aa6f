"""What a stack with `engine: kubernetes` means on AKS: its queues, its nodes' labels and taints, the ladder's order as
the autoscaler reads it, and what AKS or the queue has no way to do. Pure.
"""

from typing import Any

import yaml

from components.azure.aks_pools import MAX_PODS, SPOT_TAINT, pool_name
from components.catalog.schema import AzureMachineType
from components.core.findings import InputError
from components.kubernetes.allocatable import aks_allocatable
from components.kubernetes.manifest import Manifest
from components.kubernetes.queues import queue_manifests
from components.kubernetes.spec import GPU, JOBS, JOBS_ONLY, ClusterSpec, Flavor
from stacks.base.cluster_queues import check_way_out, get_spec, get_version, gpu_node
from stacks.config.stack_config import StackConfig
from stacks.providers.azure.settings import AzureConfig

SPOT_KEY = SPOT_TAINT.partition("=")[0]
PRIORITIES = "cluster-autoscaler-priority-expander"
"""The ConfigMap that the autoscaler reads; the name is its own."""


def taint() -> str:
    """That keeps the cluster's own pods off nodes for jobs, as AKS writes it."""
    return f"{JOBS_ONLY}=true:NoSchedule"


def node_labels(config: StackConfig) -> list[dict[str, str]]:
    """Of nodes, by rung, beside the rung's own. The second is how the plugin for GPUs finds them."""
    return [{**JOBS, f"{GPU}.present": "true"} for _ in config.cluster.capacity]


def cluster_spec(config: StackConfig, machine: AzureMachineType) -> ClusterSpec:
    """The queues. All rungs are one flavor: Kueue knows quotas, and nothing of what Azure has; AKS's autoscaler goes
    down the ladder.
    """
    left = aks_allocatable(machine.vcpus.value, machine.memory_gib.value, config.cluster.root_volume_gib, MAX_PODS)
    node = gpu_node(machine, left, infiniband=has_infiniband(config, machine))
    return get_spec(config, node, Flavor(flavor_name(machine), dict(JOBS)))


def has_infiniband(config: StackConfig, machine: AzureMachineType) -> bool:
    """Whether pods are given adapters: one node alone has nobody to reach by them."""
    return machine.infiniband is not None and config.cluster.nodes.max > 1


def flavor_name(machine: AzureMachineType) -> str:
    """A size as Kubernetes may call a thing."""
    return machine.name.lower().replace("_", "-")


def queues(spec: ClusterSpec) -> list[Manifest]:
    """The queues' manifests. Pods of jobs are let onto spot nodes, too, which AKS taints by itself."""
    found = []
    for manifest in queue_manifests(spec):
        if manifest["kind"] == "ResourceFlavor":
            own = manifest["spec"]
            manifest = {**manifest, "spec": {**own, "tolerations": [*own["tolerations"], *spot_tolerations()]}}
        found.append(manifest)
    return found


def spot_tolerations() -> list[dict[str, str]]:
    """Of what AKS keeps off spot nodes."""
    return [{"key": SPOT_KEY, "operator": "Exists"}]


def on_spot_too(values: Any) -> dict[str, Any]:
    """A chart's values, whose pods are on spot nodes as well."""
    return {**values, "tolerations": [*values["tolerations"], *spot_tolerations()]}


def priorities(config: StackConfig) -> dict[str, str]:
    """The data of PRIORITIES: the highest number first, each with what the names of its nodes look like. In YAML, since
    the autoscaler reads no number between quotes, as JSON's keys are, and then keeps to no order.
    """
    kinds = [rung.kind for rung in config.cluster.capacity]
    ladder = {len(kinds) - at: [f".*-{pool_name(at, kind)}-.*"] for at, kind in enumerate(kinds)}
    return {"priorities": yaml.safe_dump(ladder)}


def check_cluster(config: StackConfig, machine: AzureMachineType) -> None:
    """Refuses what AKS, or the queue in front of it, cannot do. InputError: a version, teams, a way out, a file system,
    an image or a placement.
    """
    get_version(config)
    check_way_out(config)
    cluster_spec(config, machine)
    own = config.section(AzureConfig)
    refused = {
        "gangway:storage": (config.storage is not None, "AKS has no driver for Managed Lustre"),
        "gangway:cluster.image_id": (config.cluster.image_id is not None, "AKS brings its nodes' image"),
        "gangway:azure.proximity": (own.proximity, "AKS's pools are placed by AKS"),
        "gangway:azure.private_endpoints": (own.private_endpoints, "the queue's images come from elsewhere"),
        "gangway:azure.head_image": (own.head_image is not None, "there is no head node"),
    }
    for place, (written, why) in refused.items():
        if written:
            raise InputError(
                place, why, allowed="left out with engine: kubernetes", fix=f"leave {place.rpartition('.')[2]} out"
            )
