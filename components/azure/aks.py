"""AksCluster: an AKS cluster of private nodes with a small system pool, its API private or open to named ranges,
without local accounts; its identities; AksNodePools, one per rung, scaled from zero by AKS's autoscaler.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict, cast

import pulumi
from pulumi_azure_native import containerservice, managedidentity, monitor

from gangway.components.azure.capacity import ScaleSetFields, check_infiniband, check_ladder, plan_scale_set, rung_zones
from gangway.components.azure.common import CommonArgs, common_inputs, declare_identity, heeded, replacing
from gangway.components.azure.identity import Grantee
from gangway.components.azure.node_pool import CapacityRungArgs
from gangway.components.azure.policies import ACR_PULL
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import AzureMachineType
from gangway.components.core.capacity import plan_ladder, rung_from_args
from gangway.components.core.outputs import after, register_outputs
from gangway.components.core.tags import shortened
from gangway.components.kubernetes.charts import SYSTEM, Chart
from gangway.components.kubernetes.manifest import Manifest, manifest, node_daemon
from gangway.components.kubernetes.spec import GPU, INFINIBAND, JOBS, JOBS_POOL, POOL_LABEL, RUNG_LABEL

SYSTEM_MACHINE_TYPE = "Standard_D4s_v5"
SYSTEM_NODES = (1, 3)  # minimum and maximum nodes of the system pool
SYSTEM_DISK_GIB = 128
# A range (RFC 6598) outside all our virtual networks, with a /24 per node ("Azure CNI Overlay": IP address planning);
# services beside it.
PODS_CIDR, SERVICES_CIDR, DNS_ADDRESS = "100.64.0.0/13", "100.127.240.0/20", "100.127.240.10"
# AKS documentation, "Resource naming"; dns_prefix begins the API's host name.
MAX_NAME, MAX_DNS_PREFIX = 63, 54
# Useful control plane logs, without one line per request ("Monitor AKS: resource logs").
LOGS = ("kube-audit-admin", "guard", "cluster-autoscaler", "kube-controller-manager")
CREATE_TIMEOUT, DELETE_TIMEOUT = "45m", "60m"


class AksClusterArgs(CommonArgs):
    """Inputs of AksCluster. `tenant_id` is the directory of the users; `admin_group_ids` have full access, others
    Azure's roles. `version` such as 1.36 defaults to AKS's. `idle_minutes`: an idle node is removed after this.
    `identity_id` is the cluster's: it may join `subnet_id` and assign nodes the identity of `kubelet_identity_id`,
    `kubelet_client_id` and `kubelet_object_id` (AksIdentity). `api_cidrs`: ranges that may call a public API, such as
    203.0.113.0/24; empty (default) makes it private, so that `up` must run inside the network. `workspace_id` gets the
    control plane's log.
    """

    zone: str
    tenant_id: pulumi.Input[str]
    admin_group_ids: NotRequired[list[str]]
    version: NotRequired[str]
    idle_minutes: int
    subnet_id: pulumi.Input[str]
    identity_id: pulumi.Input[str]
    kubelet_identity_id: pulumi.Input[str]
    kubelet_client_id: pulumi.Input[str]
    kubelet_object_id: pulumi.Input[str]
    disk_encryption_set_id: NotRequired[pulumi.Input[str] | None]
    encryption_at_host: NotRequired[bool]
    api_cidrs: NotRequired[list[str]]
    workspace_id: NotRequired[pulumi.Input[str] | None]


class AksCluster(pulumi.ComponentResource):
    """A cluster with its system pool; AksNodePools adds job nodes. `oidc_issuer_url`: identifies pods to Entra ID."""

    cluster_name: pulumi.Output[str]
    cluster_id: pulumi.Output[str]
    oidc_issuer_url: pulumi.Output[str]

    def __init__(self, name: str, args: AksClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:AksCluster", name, None, replacing(opts))
        self._name, self._args = name, args
        cluster = self._cluster()
        self._logs(cluster)
        self.cluster_name = cluster.name
        self.cluster_id = cluster.id
        self.oidc_issuer_url = cluster.oidc_issuer_profile.apply(lambda known: (known and known.issuer_url) or "")
        register_outputs(self)

    def _cluster(self) -> containerservice.ManagedCluster:
        args = self._args
        return containerservice.ManagedCluster(
            f"{self._name}-cluster",
            resource_name_=shortened(self._name, MAX_NAME),
            **common_inputs(args),
            dns_prefix=shortened(self._name, MAX_DNS_PREFIX),
            kubernetes_version=args.get("version"),
            # With an uptime SLA, and for thousands of nodes; the free tier has neither.
            sku=containerservice.ManagedClusterSKUArgs(
                name=containerservice.ManagedClusterSKUName.BASE, tier=containerservice.ManagedClusterSKUTier.STANDARD
            ),
            identity=containerservice.ManagedClusterIdentityArgs(
                type=containerservice.ResourceIdentityType.USER_ASSIGNED, user_assigned_identities=[args["identity_id"]]
            ),
            identity_profile={
                "kubeletidentity": containerservice.UserAssignedIdentityArgs(
                    resource_id=args["kubelet_identity_id"],
                    client_id=args["kubelet_client_id"],
                    object_id=args["kubelet_object_id"],
                )
            },
            disk_encryption_set_id=args.get("disk_encryption_set_id"),
            agent_pool_profiles=[self._system_pool()],
            **self._network(),
            **self._people(),
            **self._upkeep(),
            opts=pulumi.ResourceOptions(
                parent=self,
                # AKS's autoscaler owns the size of the system pool.
                ignore_changes=["agentPoolProfiles[0].count"],
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create=CREATE_TIMEOUT, delete=DELETE_TIMEOUT),
            ),
        )

    def _system_pool(self) -> containerservice.ManagedClusterAgentPoolProfileArgs:
        args, (least, most) = self._args, SYSTEM_NODES
        return containerservice.ManagedClusterAgentPoolProfileArgs(
            name="system",
            mode=containerservice.AgentPoolMode.SYSTEM,
            type=containerservice.AgentPoolType.VIRTUAL_MACHINE_SCALE_SETS,
            vm_size=SYSTEM_MACHINE_TYPE,
            os_type=containerservice.OSType.LINUX,
            os_sku=containerservice.OSSKU.UBUNTU,
            os_disk_type=containerservice.OSDiskType.MANAGED,
            os_disk_size_gb=SYSTEM_DISK_GIB,
            enable_encryption_at_host=args.get("encryption_at_host", True),
            enable_node_public_ip=False,
            security_profile=containerservice.AgentPoolSecurityProfileArgs(
                ssh_access=containerservice.AgentPoolSSHAccess.DISABLED
            ),
            vnet_subnet_id=args["subnet_id"],
            availability_zones=[args["zone"]] if args["zone"] else None,
            count=least,
            enable_auto_scaling=True,
            min_count=least,
            max_count=most,
            tags=args["tags"],
        )

    def _network(self) -> dict[str, Any]:
        """Pods have a separate range behind the nodes' addresses; egress is by the subnet's NAT gateway."""
        ranges = self._args.get("api_cidrs", [])
        private = {"enable_private_cluster": True, "enable_private_cluster_public_fqdn": False}
        return {
            "network_profile": containerservice.ContainerServiceNetworkProfileArgs(
                network_plugin=containerservice.NetworkPlugin.AZURE,
                network_plugin_mode=containerservice.NetworkPluginMode.OVERLAY,
                network_dataplane=containerservice.NetworkDataplane.CILIUM,
                network_policy=containerservice.NetworkPolicy.CILIUM,
                pod_cidr=PODS_CIDR,
                service_cidr=SERVICES_CIDR,
                dns_service_ip=DNS_ADDRESS,
                load_balancer_sku=containerservice.LoadBalancerSku.STANDARD,
                outbound_type=containerservice.OutboundType.USER_ASSIGNED_NAT_GATEWAY,
            ),
            "api_server_access_profile": containerservice.ManagedClusterAPIServerAccessProfileArgs(
                # It would let Azure's API run commands as another identity.
                disable_run_command=True,
                **({"authorized_ip_ranges": ranges} if ranges else private),
            ),
        }

    def _people(self) -> dict[str, Any]:
        args = self._args
        return {
            "disable_local_accounts": True,
            "enable_rbac": True,
            "aad_profile": containerservice.ManagedClusterAADProfileArgs(
                managed=True,
                enable_azure_rbac=True,
                tenant_id=args["tenant_id"],
                admin_group_object_ids=args.get("admin_group_ids", []),
            ),
            "oidc_issuer_profile": containerservice.ManagedClusterOIDCIssuerProfileArgs(enabled=True),
            "security_profile": containerservice.ManagedClusterSecurityProfileArgs(
                workload_identity=containerservice.ManagedClusterSecurityProfileWorkloadIdentityArgs(enabled=True)
            ),
        }

    def _upkeep(self) -> dict[str, Any]:
        """Autoscaling and upgrades: nothing is upgraded under a running job."""
        minutes = f"{self._args['idle_minutes']}m"
        return {
            "auto_scaler_profile": containerservice.ManagedClusterPropertiesAutoScalerProfileArgs(
                scale_down_unneeded_time=minutes,
                scale_down_unready_time=minutes,
                # The ladder's order, from a ConfigMap in the cluster.
                expander=containerservice.Expander.PRIORITY,
                skip_nodes_with_local_storage="false",
                skip_nodes_with_system_pods="false",
            ),
            # Only `up` changes the version; new nodes use the newest image of it.
            "auto_upgrade_profile": containerservice.ManagedClusterAutoUpgradeProfileArgs(
                upgrade_channel=containerservice.UpgradeChannel.NONE,
                node_os_upgrade_channel=containerservice.NodeOSUpgradeChannel.NONE,
            ),
            # Costs per namespace in the bill.
            "metrics_profile": containerservice.ManagedClusterMetricsProfileArgs(
                cost_analysis=containerservice.ManagedClusterCostAnalysisArgs(enabled=True)
            ),
        }

    def _logs(self, cluster: containerservice.ManagedCluster) -> None:
        workspace = self._args.get("workspace_id")
        if workspace is None:
            return
        monitor.DiagnosticSetting(
            f"{self._name}-cluster",
            name="gangway",
            resource_uri=cluster.id,
            workspace_id=workspace,
            # A table per log category, each with its own retention and price.
            log_analytics_destination_type="Dedicated",
            logs=[monitor.DiagnosticsLogSettingsArgs(category=category, enabled=True) for category in LOGS],
            opts=pulumi.ResourceOptions(parent=self),
        )


# Azure documentation, "Azure built-in roles": the same GUIDs in every tenant.
NETWORK_CONTRIBUTOR = "4d97b98b-1d4f-4787-a291-c67834d212e7"
IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"


class AksIdentityArgs(CommonArgs):
    """Inputs of AksIdentity. The cluster may join `subnet_id` and read `disk_encryption_set_id`; its nodes pull from
    the registry `repository_id`. `role_wait_sec` (0): wait for Azure to apply the grants, only in Python programs
    (`gangway.components.core.settling`).
    """

    subscription_id: str
    stack: str
    subnet_id: pulumi.Input[str]
    disk_encryption_set_id: NotRequired[pulumi.Input[str] | None]
    repository_id: NotRequired[pulumi.Input[str] | None]
    role_wait_sec: NotRequired[float]


class AksIdentity(pulumi.ComponentResource):
    """Identities of the cluster and its nodes. `identity_id` and `kubelet_identity_id` wait for their grants."""

    identity_id: pulumi.Output[str]
    kubelet_identity_id: pulumi.Output[str]
    kubelet_client_id: pulumi.Output[str]
    kubelet_object_id: pulumi.Output[str]

    def __init__(self, name: str, args: AksIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:AksIdentity", name, None, replacing(opts))
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        cluster, nodes = (declare_identity(f"{name}-{kind}", args, self._child) for kind in ("cluster", "node"))
        control, kubelet = self._grantee("cluster", cluster), self._grantee("node", nodes)
        granted = [
            # Joins nodes and the API's address to the subnet ("Bring your own virtual network": permissions).
            control.may("subnet", NETWORK_CONTRIBUTOR, args["subnet_id"]),
            # Assigns this identity to nodes.
            control.may("nodes", IDENTITY_OPERATOR, nodes.id),
        ]
        if (disks := args.get("disk_encryption_set_id")) is not None:
            granted.append(control.may("disks", READER, disks))
        pulls = [] if (registry := args.get("repository_id")) is None else [kubelet.may("image", ACR_PULL, registry)]
        wait_sec = args.get("role_wait_sec", 0)
        self.identity_id = after(
            cluster.id, *heeded(f"{name}-cluster-heeded", "the cluster's identity", granted, wait_sec, self._child)
        )
        self.kubelet_identity_id = after(nodes.id, *pulls)
        self.kubelet_client_id = nodes.client_id
        self.kubelet_object_id = nodes.principal_id
        register_outputs(self)

    def _grantee(self, kind: str, identity: managedidentity.UserAssignedIdentity) -> Grantee:
        args = self._args
        return Grantee(self._name, kind, identity.principal_id, args["subscription_id"], args["stack"], self._child)


SPOT_TAINT = "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"  # AKS's ("Add an Azure Spot node pool")
# AKS documentation, "Resource naming": lowercase letters and digits, at most twelve for Linux.
MAX_POOL_NAME = 12
MAX_PODS = 64
# Draining a node waits for its pods' grace period.


class AksNodePoolsArgs(TypedDict):
    """Inputs of AksNodePools. `num_nodes_min` are always up, in the first rung; each rung grows to `num_nodes_max`.
    `version` such as 1.36 is the cluster's. `node_labels` are by rung, besides `gangway.dev/rung`; `node_taints` of
    all, as `key=value:Effect`; `node_devices`: devices per node, for the autoscaler. `gpu_driver`: Install (default:
    AKS's) or None, for NVIDIA's GPU operator. `encryption_at_host` defaults to what the machine type supports.
    """

    resource_group_name: pulumi.Input[str]
    cluster_name: pulumi.Input[str]
    zone: str
    version: NotRequired[str]
    machine_type: str
    num_nodes_min: int
    num_nodes_max: int
    capacity: list[CapacityRungArgs]
    subnet_id: pulumi.Input[str]
    root_volume_gib: int
    gpu_driver: NotRequired[str]
    encryption_at_host: NotRequired[bool]
    node_labels: NotRequired[list[dict[str, str]]]
    node_taints: NotRequired[list[str]]
    node_devices: NotRequired[dict[str, int]]
    tags: dict[str, str]


@dataclass(frozen=True)
class PoolPlan:
    """One agent pool. `suffix`: of its logical name, as `0-spot`; `zones`: empty for any; `least`: always up."""

    name: str
    suffix: str
    zones: tuple[str, ...]
    least: int
    most: int
    fields: ScaleSetFields

    @property
    def spot(self) -> bool:
        """Whether Azure may take nodes back."""
        return self.fields.priority == "Spot"


def pool_name(position: int, kind: str) -> str:
    """A pool's name.

    >>> pool_name(1, "on-demand")
    'r1ondemand'
    """
    return f"r{position}{re.sub(r'[^a-z0-9]', '', kind)}"[:MAX_POOL_NAME]


def plan_node_pools(args: AksNodePoolsArgs) -> tuple[AzureMachineType, tuple[PoolPlan, ...]]:
    """Compile the arguments. InputError: unsupported machine type, rung or number of nodes."""
    machine = cast("AzureMachineType", load_provider("azure").machine(args["machine_type"], "machine_type"))
    rungs = tuple(rung_from_args(rung) for rung in args["capacity"])
    check_infiniband(machine, rungs, args["num_nodes_max"])
    check_ladder(rungs, "capacity")
    pools = (
        PoolPlan(
            name=pool_name(position, rung.kind),
            suffix=f"{position}-{rung.kind}",
            zones=rung_zones(rung, args["zone"]),
            least=args["num_nodes_min"] if position == 0 else 0,
            most=args["num_nodes_max"],
            fields=plan_scale_set(plan, machine),
        )
        for position, (rung, plan) in enumerate(zip(rungs, plan_ladder(rungs), strict=True))
    )
    return machine, tuple(pools)


class AksNodePools(pulumi.ComponentResource):
    """An agent pool per rung. Only nodes of one pool share an InfiniBand partition, and only if the subscription has
    the feature Microsoft.ContainerService/AKSInfinibandSupport, which puts a pool into one placement group.
    """

    pool_names: pulumi.Output[list[str]]

    def __init__(self, name: str, args: AksNodePoolsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:AksNodePools", name, None, replacing(opts))
        self._name, self._args = name, args
        self._machine, plans = plan_node_pools(args)
        pools: list[containerservice.AgentPool] = []
        for position, plan in enumerate(plans):
            # A cluster accepts one change at a time ("Manage node pools": limitations).
            pools.append(self._pool(position, plan, pools[-1:]))
        self.pool_names = pulumi.Output.all(*[pool.name for pool in pools]).apply(list)
        register_outputs(self)

    def _pool(
        self, position: int, plan: PoolPlan, before: Sequence[containerservice.AgentPool]
    ) -> containerservice.AgentPool:
        args, fields = self._args, plan.fields
        labels = args.get("node_labels")
        return containerservice.AgentPool(
            f"{self._name}-{plan.suffix}",
            agent_pool_name=plan.name,
            resource_group_name=args["resource_group_name"],
            resource_name_=args["cluster_name"],
            orchestrator_version=args.get("version"),
            mode=containerservice.AgentPoolMode.USER,
            type=containerservice.AgentPoolType.VIRTUAL_MACHINE_SCALE_SETS,
            vm_size=self._machine.name,
            os_type=containerservice.OSType.LINUX,
            os_sku=containerservice.OSSKU.UBUNTU,
            os_disk_type=containerservice.OSDiskType.MANAGED,
            os_disk_size_gb=args["root_volume_gib"],
            enable_encryption_at_host=args.get("encryption_at_host", self._machine.encryption_at_host.value),
            enable_node_public_ip=False,
            security_profile=containerservice.AgentPoolSecurityProfileArgs(
                ssh_access=containerservice.AgentPoolSSHAccess.DISABLED
            ),
            vnet_subnet_id=args["subnet_id"],
            availability_zones=list(plan.zones) or None,
            count=plan.least,
            enable_auto_scaling=True,
            min_count=plan.least,
            max_count=plan.most,
            max_pods=MAX_PODS,
            scale_down_mode=containerservice.ScaleDownMode.DELETE,
            scale_set_priority=fields.priority,
            scale_set_eviction_policy=fields.eviction_policy,
            spot_max_price=fields.max_price,
            capacity_reservation_group_id=fields.capacity_reservation_group,
            gpu_profile=containerservice.GPUProfileArgs(driver=args.get("gpu_driver", "Install")),
            # There is no spare machine for upgrades; spot pools refuse the setting.
            upgrade_settings=None
            if plan.spot
            else containerservice.AgentPoolUpgradeSettingsArgs(max_surge="0", max_unavailable="1"),
            node_labels={RUNG_LABEL: plan.suffix, **(labels[position] if labels else {})},
            node_taints=[*args.get("node_taints", []), *([SPOT_TAINT] if plan.spot else [])] or None,
            tags={**args["tags"], **autoscaler_tags(args.get("node_devices", {}))},
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(before),
                # AKS's autoscaler owns the size.
                ignore_changes=["count"],
                # The old pool holds the name and the GPU quota.
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(delete=DELETE_TIMEOUT),
            ),
        )


# InfiniBand in AKS pods: NVIDIA's network operator with drivers and device plugin, and settings of each node; pure.
# Follows Microsoft (github.com/Azure/aks-rdma-infiniband, July 2026) except where noted.

# NVIDIA network operator 26.4.0, `hack/release.yaml`: the images released with it.
OPERATOR, DRIVER, PLUGIN = "26.4.0", "doca3.4.0-26.04-0.8.6.0-0", "network-operator-v26.4.0"
_REPOSITORY = "nvcr.io/nvidia/mellanox"
_MELLANOX, _INFINIBAND_CLASS = "15b3", "0207"
_FOUND = "feature.node.kubernetes.io/pci-15b3.present"  # the label that the operator selects by
# Microsoft's copy of Ubuntu; it runs the node's own programs.
_SHELL_IMAGE = "mcr.microsoft.com/mirror/docker/library/ubuntu:24.04"
_BLACKLIST = "/host/etc/modprobe.d/blacklist-ofed-modules.conf"
_RESOURCES_TAG = "k8s.io_cluster-autoscaler_node-template_resources_"
_NODE_SCRIPT = """set -u
on_node() { nsenter --target 1 --mount -- "$@"; }
on_node mkdir -p /etc/systemd/system/containerd.service.d
printf '[Service]\\nLimitMEMLOCK=infinity\\n' |
    on_node tee /etc/systemd/system/containerd.service.d/90-gangway-memlock.conf >/dev/null
on_node systemctl daemon-reload
while :; do
    # Containers inherit it from what begins them; a user without rights could pin 8 MiB.
    pid=$(on_node systemctl show --property=MainPID --value containerd) &&
        on_node prlimit --pid "$pid" --memlock=unlimited
    # By which adapters reach GPUs' memory; there is nothing to load before both drivers are.
    on_node modprobe nvidia-peermem 2>/dev/null
    sleep 15
done
"""


def network_operator(tolerations: Sequence[Mapping[str, str]]) -> Chart:
    """The operator and node feature discovery. `tolerations`: for the job nodes."""
    values = {
        # Its own rule also matches Ethernet adapters, which every Azure machine has.
        "nfd": {"enabled": True, "deployNodeFeatureRules": False},
        "node-feature-discovery": {"worker": {"nodeSelector": dict(JOBS), "tolerations": list(tolerations)}},
    }
    repository = "https://helm.ngc.nvidia.com/nvidia"
    return Chart("network-operator", "network-operator", OPERATOR, repository, "network-operator", values)


def fabric_manifests(pods_a_node: int, tolerations: Sequence[Mapping[str, str]]) -> tuple[Manifest, ...]:
    """The operator's policy, and a pod per job node. `pods_a_node`: how many may share the adapters."""
    # IPC_LOCK, as Microsoft's pods request, does not help unprivileged users.
    limits = node_daemon(
        "gangway-infiniband", SYSTEM, _SHELL_IMAGE, _NODE_SCRIPT, node_selector=JOBS, tolerations=tolerations
    )
    return _rule(), _policy(pods_a_node, tolerations), limits


def autoscaler_tags(devices: Mapping[str, int]) -> dict[str, str]:
    """Pool tags by which the autoscaler knows the devices of nodes that do not exist yet, except GPUs (kubernetes/
    autoscaler, `azure_template.go`: a tag has _ for /).

    >>> autoscaler_tags({"nvidia.com/gpu": 8, "rdma/infiniband": 8})
    {'k8s.io_cluster-autoscaler_node-template_resources_rdma_infiniband': '8'}
    """
    return {f"{_RESOURCES_TAG}{name.replace('/', '_')}": str(number) for name, number in devices.items() if name != GPU}


def _rule() -> Manifest:
    found = {
        "vendor": {"op": "In", "value": [_MELLANOX]},
        "class": {"op": "In", "value": [_INFINIBAND_CLASS]},
    }
    rule = {
        "name": "infiniband",
        "labels": {_FOUND: "true"},
        "matchFeatures": [{"feature": "pci.device", "matchExpressions": found}],
    }
    return manifest("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureRule", "gangway-infiniband", {"spec": {"rules": [rule]}})


def _policy(pods_a_node: int, tolerations: Sequence[Mapping[str, str]]) -> Manifest:
    own = [{"key": POOL_LABEL, "operator": "In", "values": [JOBS_POOL]}]
    shared = {
        "resourceName": INFINIBAND.partition("/")[2],
        "resourcePrefix": INFINIBAND.partition("/")[0],
        "rdmaHcaMax": pods_a_node,
        "selectors": {"vendors": [_MELLANOX], "linkTypes": ["infiniband"]},
    }
    spec = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": own}]}
        },
        "tolerations": list(tolerations),
        "ofedDriver": {
            "repository": _REPOSITORY,
            "image": "doca-driver",
            "version": DRIVER,
            # Microsoft's: otherwise a loaded module may block the driver.
            "env": [{"name": "OFED_BLACKLIST_MODULES_FILE", "value": _BLACKLIST}],
            # Never drain a node with a job for a newer driver: new nodes have it.
            "upgradePolicy": {"autoUpgrade": False},
        },
        "rdmaSharedDevicePlugin": {
            "repository": _REPOSITORY,
            "image": "k8s-rdma-shared-dev-plugin",
            "version": PLUGIN,
            "config": json.dumps({"configList": [shared]}),
        },
    }
    return manifest("mellanox.com/v1alpha1", "NicClusterPolicy", "nic-cluster-policy", {"spec": spec})
