"""AksCluster: an AKS cluster whose nodes have no public address, with a small system pool. Its API is private, or open
to named address ranges; people and pods authenticate by Entra ID, without local accounts.
"""

from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_azure_native import containerservice, monitor

from gangway.components.azure.immutable import replacing
from gangway.components.core.tags import shortened

__all__ = ["PODS_CIDR", "SERVICES_CIDR", "SYSTEM_MACHINE_TYPE", "SYSTEM_NODES", "AksCluster", "AksClusterArgs"]

SYSTEM_MACHINE_TYPE = "Standard_D4s_v5"
SYSTEM_NODES = (1, 3)
"""Minimum and maximum nodes of the system pool."""
SYSTEM_DISK_GIB = 128
# A range (RFC 6598) outside all our virtual networks, with a /24 per node ("Azure CNI Overlay": IP address planning);
# services beside it.
PODS_CIDR, SERVICES_CIDR, DNS_ADDRESS = "100.64.0.0/13", "100.127.240.0/20", "100.127.240.10"
# AKS documentation, "Resource naming"; dns_prefix begins the API's host name.
MAX_NAME, MAX_DNS_PREFIX = 63, 54
# Useful control plane logs, without one line per request ("Monitor AKS: resource logs").
LOGS = ("kube-audit-admin", "guard", "cluster-autoscaler", "kube-controller-manager")
CREATE_TIMEOUT, DELETE_TIMEOUT = "45m", "60m"


class AksClusterArgs(TypedDict):
    """Inputs of AksCluster. `tenant_id` is the directory of the users; `admin_group_ids` have full access, others
    Azure's roles. `version` such as 1.36 defaults to AKS's. `idle_minutes`: an idle node is removed after this.
    `identity_id` is the cluster's: it may join `subnet_id` and assign nodes the identity of `kubelet_identity_id`,
    `kubelet_client_id` and `kubelet_object_id` (AksIdentity). `api_cidrs`: ranges that may call a public API, such as
    203.0.113.0/24; empty (default) makes it private, so that `up` must run inside the network. `workspace_id` gets the
    control plane's log.
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
            tags=args["tags"],
            opts=pulumi.ResourceOptions(
                parent=self,
                # AKS's autoscaler owns the size of the system pool.
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
