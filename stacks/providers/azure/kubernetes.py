"""The resources of a stack with `engine: kubernetes` on Azure: an AKS cluster with a queue."""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pulumi
import pulumi_azure_native as azure
import pulumi_kubernetes as kubernetes
import yaml

from gangway.components.azure.aks import (
    AksCluster,
    AksIdentity,
    AksNodePools,
    fabric_manifests,
    network_operator,
)
from gangway.components.core.lookup import Lookup, look_up, look_up_later
from gangway.components.kubernetes.charts import (
    SYSTEM,
    dcgm_exporter,
    job_set,
    kueue,
    nvidia_plugin,
    prometheus,
    tolerations,
)
from gangway.components.kubernetes.manifest import kubeconfig_text
from gangway.components.kubernetes.namespaces import fabric_config, namespace_manifests
from gangway.components.kubernetes.resources import ClusterCharts, ClusterManifests
from gangway.components.kubernetes.spec import INFINIBAND
from gangway.stacks.base.cluster_queues import get_engine, get_version
from gangway.stacks.base.shared import queue_fabric
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.component_factory import ComponentFactory, Key, Registry
from gangway.stacks.providers.azure.lookups import LOGIN
from gangway.stacks.providers.azure.plan import (
    PRIORITIES,
    AzurePlan,
    add_spot_tolerations,
    cluster_spec,
    node_labels,
    priorities,
    queues,
    spot_tolerations,
    taint,
)

# The id of AKS's server application, the same in every directory ("Use kubelogin").
AKS_SERVER = "6dae42f8-4368-4678-94ff-3960e28e3630"


def build_cluster(stack: ComponentFactory, provider: azure.Provider) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports."""
    key = stack.key()
    runs = stack.runs(key)
    network = stack.network(stack.flow_logs(key))
    logs = stack.logs()
    registry = stack.registry()
    subnet = network.private_subnet_ids[0]
    identity = _identity(stack, subnet, key, registry)
    cluster = _cluster(stack, subnet, key, identity, logs.workspace_id)
    pools = _pools(stack, cluster, subnet)
    kubeconfig = _kubeconfig(stack, cluster, provider)
    inside = _install(stack.config, stack.planned, kubeconfig)
    stopped = {"cluster_ids": pulumi.Output.all(cluster.cluster_id), "subscription_wide": True}
    budget = stack.get_budget(stopped)
    return {
        "cluster_name": cluster.cluster_name,
        "kubeconfig": kubeconfig,
        "queues": inside,
        "node_pools": pools.pool_names,
        "run_bucket": runs.bucket_name,
        "registry": registry.repository_url,
        "resource_group": stack.group.resource_group_name,
        "zone": stack.planned.zone,
        "log_group": logs.workspace_id,
        "budget_topic_id": budget.topic_id,
    }


def _identity(stack: ComponentFactory, subnet: pulumi.Output[str], key: Key, registry: Registry) -> AksIdentity:
    args = {
        **stack.place("subscription_id", "stack"),
        "subnet_id": subnet,
        "disk_encryption_set_id": key.disk_encryption_set_id if key else None,
        "repository_id": registry.repository_id,
        **stack.role_wait,
    }
    return stack.declare(AksIdentity, args)


def _cluster(
    stack: ComponentFactory,
    subnet: pulumi.Output[str],
    key: Key,
    identity: AksIdentity,
    workspace_id: pulumi.Output[str],
) -> AksCluster:
    config = stack.config
    args = {
        **stack.place("zone"),
        "tenant_id": stack.found.tenant_id,
        "admin_group_ids": list(stack.own.admin_group_ids),
        "version": get_version(config),
        "idle_minutes": get_engine(config).idle_minutes,
        "subnet_id": subnet,
        "identity_id": identity.identity_id,
        "kubelet_identity_id": identity.kubelet_identity_id,
        "kubelet_client_id": identity.kubelet_client_id,
        "kubelet_object_id": identity.kubelet_object_id,
        "disk_encryption_set_id": key.disk_encryption_set_id if key else None,
        "encryption_at_host": stack.own.encryption_at_host,
        "api_cidrs": list(get_engine(config).api_cidrs),
        "workspace_id": workspace_id,
    }
    return stack.declare(AksCluster, args)


def _pools(stack: ComponentFactory, cluster: AksCluster, subnet: pulumi.Output[str]) -> AksNodePools:
    config, planned = stack.config, stack.planned
    place = {key: value for key, value in stack.place().items() if key != "location"}
    args = {
        **place,
        "cluster_name": cluster.cluster_name,
        "zone": planned.nodes_zone,
        "version": get_version(config),
        "machine_type": planned.machine.name,
        **stack.node_args,
        "subnet_id": subnet,
        "root_volume_gib": planned.root_volume_gib,
        "encryption_at_host": planned.security.encryption_at_host,
        "node_labels": node_labels(config),
        "node_taints": [taint()],
        "node_devices": dict(cluster_spec(config, planned.machine).node.devices),
    }
    return stack.declare(AksNodePools, args)


def _kubeconfig(stack: ComponentFactory, cluster: AksCluster, provider: azure.Provider) -> pulumi.Output[str]:
    fix = f"{LOGIN}, with the role Azure Kubernetes Service Cluster User; then run `up` again"
    lookup = Lookup("the address of the AKS cluster", stack.config.region, "gangway:engine", fix)

    def ask(place: list[str]) -> str:
        function = azure.containerservice.list_managed_cluster_user_credentials
        group, name, _ = place
        opts = pulumi.InvokeOptions(provider=provider)
        found = look_up(lookup, function, resource_group_name=group, resource_name=name, opts=opts)
        return get_kubeconfig(found.kubeconfigs[0].value)

    return pulumi.Output.all(stack.group.resource_group_name, cluster.cluster_name, cluster.cluster_id).apply(
        lambda place: look_up_later(lambda: ask(place))
    )


def get_kubeconfig(credentials: str) -> str:
    """AKS's answer, base64, as JSON without secrets: kubelogin logs in with the account of `az login`."""
    # A plan has a placeholder instead of the answer.
    found = {} if credentials.startswith("$") else yaml.safe_load(b64decode(credentials))
    clusters = found.get("clusters", [])
    name = clusters[0]["name"] if clusters else "cluster"
    login = {"command": "kubelogin", "args": ["get-token", "--login", "azurecli", "--server-id", AKS_SERVER]}
    return kubeconfig_text(name, clusters, login)


def _install(config: StackConfig, planned: AzurePlan, kubeconfig: pulumi.Output[str]) -> pulumi.Output[list[str]]:
    name, spec = config.stack, cluster_spec(config, planned.machine)
    provider = kubernetes.Provider(name, kubeconfig=kubeconfig)
    opts = pulumi.ResourceOptions(providers={"kubernetes": provider})
    gpu_charts = [
        replace(chart, values=add_spot_tolerations(chart.values)) for chart in (nvidia_plugin(), dcgm_exporter())
    ]
    charts = [job_set(), kueue(spec, len(config.cluster.capacity)), *gpu_charts]
    charts += [prometheus(name)] if config.observe.hardware else []
    manifests = [*namespace_manifests(spec, None), *queues(spec)]
    if pods_a_node := spec.node.devices.get(INFINIBAND):
        let_in = [*tolerations(), *spot_tolerations()]
        charts.append(network_operator(let_in))
        manifests += fabric_manifests(pods_a_node, let_in)
        env = queue_fabric(config, planned.machine, {"NCCL_NET": "IB"}, planned.fabric.gbps)
        manifests += [fabric_config(team.name, pods_a_node, env, needs=[INFINIBAND]) for team in spec.queues]
    installed = ClusterCharts(name, {"charts": charts}, opts)
    kubernetes.core.v1.ConfigMap(
        f"{name}-ladder",
        metadata={"name": PRIORITIES, "namespace": SYSTEM},
        data=priorities(config),
        opts=pulumi.ResourceOptions(provider=provider),
    )
    made = ClusterManifests(name, {"manifests": manifests, "after": installed.releases}, opts)
    return made.names.apply(lambda _: get_engine(config).queues)
