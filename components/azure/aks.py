"""AksCluster: an AKS cluster whose nodes have no public address, with a small pool for what keeps the queue. Its API is
private, or answers named address ranges alone; people and pods are known by Entra ID, and there is no other account.
"""

from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_azure_native import containerservice, monitor

from components.azure.immutable import replacing
from components.core.tags import shortened

__all__ = ["PODS_CIDR", "SERVICES_CIDR", "SYSTEM_MACHINE_TYPE", "SYSTEM_NODES", "AksCluster", "AksClusterArgs"]

SYSTEM_MACHINE_TYPE = "Standard_D4s_v5"
SYSTEM_NODES = (1, 3)
"""Least and most nodes of the system's pool."""
SYSTEM_DISK_GIB = 128
# The range that no virtual network of ours can have (RFC 6598), with a /24 for each node ("Azure CNI Overlay": IP
# address planning); services beside it.
PODS_CIDR, SERVICES_CIDR, DNS_ADDRESS = "100.64.0.0/13", "100.127.240.0/20", "100.127.240.10"
# AKS documentation, "Resource naming"; the name of the API's host begins with dns_prefix.
MAX_NAME, MAX_DNS_PREFIX = 63, 54
# What the control plane writes that somebody will ask about; not every request ("Monitor AKS: resource logs").
LOGS = ("kube-audit-admin", "guard", "cluster-autoscaler", "kube-controller-manager")
CREATE_TIMEOUT, DELETE_TIMEOUT = "45m", "60m"


class AksClusterArgs(TypedDict):
    """Inputs of AksCluster. `tenant_id` is the directory whose people come in, `admin_group_ids` those of it who may do
    everything there; others by Azure's roles. `version` such as 1.36; AKS's own when left out. `idle_minutes`: a node
    without work for so long is given back. `identity_id` is the cluster's, which may join `subnet_id` and give nodes
    the other one, of `kubelet_identity_id`, `kubelet_client_id` and `kubelet_object_id` (AksIdentity). `api_cidrs`:
    the API answers these ranges, such as 203.0.113.0/24, at a public name; empty (which is the default) it is private,
    and `up` has to run where the network is reached. `workspace_id` takes the control plane's log.
    """

    resource_group_name: pulumi.Input[str]
    location: str
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
    tags: dict[str, str]


class AksCluster(pulumi.ComponentResource):
    """A cluster with its system's pool: those for work are AksNodePools'. `cluster_name`; `cluster_id`;
    `oidc_issuer_url`: by which pods are known to Entra ID.
    """

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
        self.register_outputs(
            {
                "cluster_name": self.cluster_name,
                "cluster_id": self.cluster_id,
                "oidc_issuer_url": self.oidc_issuer_url,
            }
        )

    def _cluster(self) -> containerservice.ManagedCluster:
        args = self._args
        return containerservice.ManagedCluster(
            f"{self._name}-cluster",
            resource_name_=shortened(self._name, MAX_NAME),
            resource_group_name=args["resource_group_name"],
            location=args["location"],
            dns_prefix=shortened(self._name, MAX_DNS_PREFIX),
            kubernetes_version=args.get("version"),
            # With an agreed availability, and room for a queue of thousands of nodes; the free tier has neither.
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
            tags=args["tags"],
            opts=pulumi.ResourceOptions(
                parent=self,
                # AKS's autoscaler owns the size of the system's pool.
                ignore_changes=["agent_pool_profiles[0].count"],
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
        """Pods in a range of their own behind the nodes' addresses; the way out is the subnet's NAT gateway."""
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
                # By it Azure's API would run commands as somebody else; people use their own access.
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
        """What AKS does by itself: nodes come and go with the work, and nothing is upgraded under a job that runs."""
        minutes = f"{self._args['idle_minutes']}m"
        return {
            "auto_scaler_profile": containerservice.ManagedClusterPropertiesAutoScalerProfileArgs(
                scale_down_unneeded_time=minutes,
                scale_down_unready_time=minutes,
                # The ladder's order, which a ConfigMap in the cluster says.
                expander=containerservice.Expander.PRIORITY,
                skip_nodes_with_local_storage="false",
                skip_nodes_with_system_pods="false",
            ),
            # Another version is for `up` to bring, when its user says so; nodes that are made anew have the newest
            # image of theirs.
            "auto_upgrade_profile": containerservice.ManagedClusterAutoUpgradeProfileArgs(
                upgrade_channel=containerservice.UpgradeChannel.NONE,
                node_os_upgrade_channel=containerservice.NodeOSUpgradeChannel.NONE,
            ),
            # What each namespace costs, in the bill.
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
            # A table for each kind of line, which can be kept and paid for apart.
            log_analytics_destination_type="Dedicated",
            logs=[monitor.DiagnosticsLogSettingsArgs(category=category, enabled=True) for category in LOGS],
            opts=pulumi.ResourceOptions(parent=self),
        )
