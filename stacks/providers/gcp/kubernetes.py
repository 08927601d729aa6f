"""The resources of a stack with `engine: kubernetes` on Google Cloud: a GKE cluster with a queue."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from gangway.components.gcp.gke import GkeCluster
from gangway.components.gcp.gke_pools import GkeNodePools, fabric_manifests, has_rdma, node_limits, team_fabric
from gangway.components.kubernetes.charts import job_set, kueue, queue_manifests
from gangway.components.kubernetes.namespaces import RunVolume, namespace_manifests
from gangway.components.kubernetes.resources import ClusterCharts, ClusterManifests
from gangway.stacks.base.cluster_queues import get_engine, get_version
from gangway.stacks.base.shared import least_bus_gbps
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.component_factory import ComponentFactory, FileSystem, Key, Network, Nodes, Registry
from gangway.stacks.providers.gcp.existing import get_existing
from gangway.stacks.providers.gcp.plan import GcpPlan, cluster_spec, get_hosts, node_labels, taint

FILESTORE_DRIVER = "filestore.csi.storage.gke.io"
NODES_FOLDER = "nodePools"


def build_cluster(stack: ComponentFactory) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports."""
    planned = stack.planned
    key = stack.key()
    network = stack.network()
    runs = stack.runs(key)
    registry = stack.registry(key)
    storage = stack.storage(network, key)
    shared_args = _shared_args(stack, network, registry, key)
    cluster = _cluster(stack, network, shared_args, filestore=storage is not None)
    pools = _pools(stack, network, shared_args, cluster)
    queues = _queues(stack, network, cluster, storage)
    nothing: pulumi.Output[list[str]] = pulumi.Output.from_input([])
    ids = pulumi.Output.all(cluster.cluster_id, pools.pool_names).apply(
        lambda known: [f"{known[0]}/{NODES_FOLDER}/{name}" for name in known[1]]
    )
    budget = stack.budget(key, Nodes(nothing, nothing, None, None, node_pool_ids=ids), None, None)
    return {
        "cluster_name": cluster.cluster_name,
        "endpoint": cluster.endpoint,
        "kubeconfig": cluster.kubeconfig,
        "queues": queues,
        "node_pools": pools.pool_names,
        "run_bucket": runs.bucket_name,
        "registry": registry.repository_url,
        "project": planned.project,
        "zone": planned.zone,
        "budget_topic_id": budget.topic_id,
    }


def _shared_args(stack: ComponentFactory, network: Network, registry: Registry, key: Key) -> dict[str, Any]:
    email = stack.cluster_account(registry)
    return {
        **stack.place,
        "zone": stack.planned.zone,
        "security_group_ids": [network.fabric_security_group_id],
        "service_account_email": email,
        "kms_key_name": key,
        "tags": stack.planned.tags,
    }


def _cluster(
    stack: ComponentFactory, network: Network, shared_args: Mapping[str, Any], *, filestore: bool
) -> GkeCluster:
    config, planned = stack.config, stack.planned
    gpus, cluster = planned.tpu is None, config.cluster
    args = {
        **shared_args,
        "version": get_version(config),
        "vpc_id": network.vpc_id,
        "subnet_id": network.private_subnet_ids[0],
        "num_nodes_max": cluster.nodes.max * get_hosts(planned.tpu) * len(cluster.capacity),
        "multi_networking": gpus and planned.gpu_machine.gpu_fabric is not None,
        "gpus": gpus,
        "filestore": filestore,
        "pods_range": get_existing(config).pods_range,
        "services_range": get_existing(config).services_range,
        "api_cidrs": list(get_engine(config).api_cidrs),
    }
    return stack.declare(GkeCluster, args)


def _pools(
    stack: ComponentFactory, network: Network, shared_args: Mapping[str, Any], cluster: GkeCluster
) -> GkeNodePools:
    args = {
        **shared_args,
        **stack.node_args,
        **_machines(stack.config, stack.planned),
        "cluster": cluster.cluster_id,
        "fabric_network_ids": network.fabric_network_ids,
        "fabric_subnet_ids": network.fabric_subnet_ids,
    }
    return stack.declare(GkeNodePools, args)


def _machines(config: StackConfig, planned: GcpPlan) -> dict[str, Any]:
    tpu = planned.tpu
    kind = (
        {"machine_type": planned.machine.name}
        if tpu is None
        else {"accelerator_type": tpu.accelerator_type, "topology": tpu.topology}
    )
    return {
        **kind,
        "root_volume_gib": config.cluster.root_volume_gib,
        "node_labels": node_labels(config),
        "node_taints": [taint()],
    }


def _queues(
    stack: ComponentFactory, network: Network, cluster: GkeCluster, storage: FileSystem | None
) -> pulumi.Output[list[str]]:
    config, planned = stack.config, stack.planned
    spec, name = cluster_spec(config, planned.machine, planned.tpu), config.stack
    provider = kubernetes.Provider(name, kubeconfig=cluster.kubeconfig)
    inside = pulumi.ResourceOptions(providers={"kubernetes": provider})
    installed = ClusterCharts(name, {"charts": [job_set(), kueue(spec, len(config.cluster.capacity))]}, inside)
    size = config.storage.capacity_gib if config.storage is not None else 0
    volume = None if storage is None else filestore_volume(storage.dns_name, storage.mount_name)
    manifests = [*namespace_manifests(spec, volume, size), *queue_manifests(spec)]
    has_nics = planned.tpu is None and has_rdma(planned.gpu_machine, config.cluster.nodes.max)
    if has_nics or planned.tpu is not None:
        manifests.append(node_limits())
    if has_nics:
        machine, ids = planned.gpu_machine, (network.fabric_network_ids, network.fabric_subnet_ids)
        manifests += fabric_manifests(machine, *ids)
        gbps = machine.network_gbps.value
        least = None if gbps is None else least_bus_gbps(config, machine, gbps)
        manifests += [each for team in spec.queues for each in team_fabric(team.name, machine, least)]
    made = ClusterManifests(name, {"manifests": manifests, "after": installed.releases}, inside)
    return made.names.apply(lambda _: get_engine(config).queues)


def filestore_volume(address: pulumi.Input[str], share: pulumi.Input[str]) -> RunVolume:
    """A Filestore share as the source of a volume; the driver sets the group of a folder to that of its pods."""
    return {"csi": {"driver": FILESTORE_DRIVER, "volumeAttributes": {"ip": address, "volume": share}}}
