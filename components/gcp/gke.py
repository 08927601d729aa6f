"""GkeCluster: a regional GKE cluster of private nodes with a small system pool, and its nodes' service account."""

from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_gcp import artifactregistry, container, projects, serviceaccount

from gangway.components.core.outputs import after, register_outputs
from gangway.components.core.tags import shortened
from gangway.components.gcp.gke_plan import MAX_NAME, MAX_PODS, SYSTEM_NODES, pods_cidr, pool_name
from gangway.components.gcp.gke_pools import usual_node
from gangway.components.gcp.identity import IMAGE_READER, account_id
from gangway.components.gcp.launch import SCOPES
from gangway.components.kubernetes.manifest import kubeconfig_text

SYSTEM_MACHINE_TYPE = "e2-standard-4"
SYSTEM_DISK_GIB = 100
# Beside pods (`gke_plan`), in the same range of RFC 6598: 4,096 services.
SERVICES_CIDR = "100.127.240.0/20"
# GKE documentation, "Minimal service account": a cluster cannot be deleted while a pool is created.
CREATE_TIMEOUT, DELETE_TIMEOUT = "45m", "60m"


class GkeClusterArgs(TypedDict):
    """Inputs of GkeCluster. `version` such as 1.36 is the control plane's minimum; by default its release
    channel's. `num_nodes_max`: maximum of the cluster, for the pods' addresses. `multi_networking`: nodes have
    further NICs. `gpus`: collect their metrics (DCGM). `lustre` and `filestore` add file system drivers.
    `pods_range` and `services_range`: existing secondary ranges of the subnet; otherwise GKE makes them.
    `api_cidrs`: external ranges, which give the control plane a public address; without any `up` must run inside
    the network. `kms_key_name` encrypts secrets and disks. `tags` are labels.
    """

    project: str
    region: str
    zone: str
    version: NotRequired[str]
    vpc_id: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    num_nodes_max: int
    multi_networking: bool
    gpus: bool
    lustre: NotRequired[bool]
    filestore: NotRequired[bool]
    pods_range: NotRequired[str | None]
    services_range: NotRequired[str | None]
    api_cidrs: NotRequired[list[str]]
    security_group_ids: list[pulumi.Input[str]]
    service_account_email: pulumi.Input[str]
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


class GkeCluster(pulumi.ComponentResource):
    """A cluster without job nodes, which GkeNodePools adds. `cluster_id`: full name, for pools; `endpoint`: of the
    control plane; `kubeconfig`: JSON that uses Google's login helper, without a secret; `system_pool`: a name that
    waits for the system pool.
    """

    cluster_id: pulumi.Output[str]
    cluster_name: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    system_pool: pulumi.Output[str]

    def __init__(self, name: str, args: GkeClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:GkeCluster", name, None, opts)
        self._name, self._args = name, args
        cluster = self._cluster()
        system = self._system_pool(cluster)
        self.cluster_id = cluster.id
        self.cluster_name = cluster.name
        if args.get("api_cidrs"):
            self.endpoint = cluster.endpoint.apply(lambda address: address or "")
            authority = cluster.master_auth.apply(lambda known: known.cluster_ca_certificate or "")
        else:
            # A Google name with a public certificate, which resolves inside the network.
            self.endpoint = cluster.control_plane_endpoints_config.apply(_dns_name)
            authority = pulumi.Output.from_input("")
        # Its consumers find nodes to install on.
        known = pulumi.Output.all(cluster.name, self.endpoint, authority)
        self.kubeconfig = after(known.apply(lambda all_: get_kubeconfig(*all_)), system)
        self.system_pool = system.name
        register_outputs(self)

    def _cluster(self) -> container.Cluster:
        args = self._args
        version = args.get("version")
        return container.Cluster(
            f"{self._name}-cluster",
            name=shortened(self._name, MAX_NAME),
            project=args["project"],
            location=args["region"],
            node_locations=[args["zone"]],
            description="Gangway's queue and the nodes that work it off",
            min_master_version=version,
            release_channel=container.ClusterReleaseChannelArgs(channel="REGULAR"),
            # A cluster is created with a pool: it is removed, and ours are separate.
            remove_default_node_pool=True,
            initial_node_count=1,
            node_config=container.ClusterNodeConfigArgs(
                machine_type=SYSTEM_MACHINE_TYPE,
                service_account=args["service_account_email"],
                oauth_scopes=SCOPES,
                boot_disk_kms_key=args.get("kms_key_name"),
                shielded_instance_config=container.ClusterNodeConfigShieldedInstanceConfigArgs(
                    enable_secure_boot=True, enable_integrity_monitoring=True
                ),
            ),
            resource_labels=args["tags"],
            # What must be kept is in buckets.
            deletion_protection=False,
            **self._network(),
            **self._security(),
            **self._observed(),
            opts=pulumi.ResourceOptions(
                parent=self,
                # Of the removed pool.
                ignore_changes=["node_config", "initial_node_count"],
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create=CREATE_TIMEOUT, delete=DELETE_TIMEOUT),
            ),
        )

    def _network(self) -> dict[str, Any]:
        args = self._args
        ranges = args.get("api_cidrs", [])
        return {
            "network": args["vpc_id"],
            "subnetwork": args["subnet_id"],
            "networking_mode": "VPC_NATIVE",
            "ip_allocation_policy": self._addresses(),
            "default_max_pods_per_node": MAX_PODS,
            "private_cluster_config": container.ClusterPrivateClusterConfigArgs(
                enable_private_nodes=True, enable_private_endpoint=not ranges
            ),
            # Besides nodes and pods of the cluster's network.
            "master_authorized_networks_config": container.ClusterMasterAuthorizedNetworksConfigArgs(
                cidr_blocks=[
                    container.ClusterMasterAuthorizedNetworksConfigCidrBlockArgs(cidr_block=one) for one in ranges
                ],
                gcp_public_cidrs_access_enabled=False,
            ),
            "control_plane_endpoints_config": container.ClusterControlPlaneEndpointsConfigArgs(
                dns_endpoint_config=container.ClusterControlPlaneEndpointsConfigDnsEndpointConfigArgs(
                    allow_external_traffic=False
                )
            ),
            # Dataplane V2 enforces NetworkPolicies, and further networks need it.
            "datapath_provider": "ADVANCED_DATAPATH",
            "enable_multi_networking": args["multi_networking"],
            "addons_config": container.ClusterAddonsConfigArgs(
                # A queue serves no websites.
                http_load_balancing=container.ClusterAddonsConfigHttpLoadBalancingArgs(disabled=True),
                gcs_fuse_csi_driver_config=container.ClusterAddonsConfigGcsFuseCsiDriverConfigArgs(enabled=True),
                lustre_csi_driver_config=container.ClusterAddonsConfigLustreCsiDriverConfigArgs(
                    enabled=args.get("lustre", False)
                ),
                gcp_filestore_csi_driver_config=container.ClusterAddonsConfigGcpFilestoreCsiDriverConfigArgs(
                    enabled=args.get("filestore", False)
                ),
            ),
        }

    def _addresses(self) -> container.ClusterIpAllocationPolicyArgs:
        if (pods := self._args.get("pods_range")) is not None:
            return container.ClusterIpAllocationPolicyArgs(
                cluster_secondary_range_name=pods, services_secondary_range_name=self._args.get("services_range")
            )
        return container.ClusterIpAllocationPolicyArgs(
            cluster_ipv4_cidr_block=pods_cidr(self._args["num_nodes_max"] + SYSTEM_NODES[1]),
            services_ipv4_cidr_block=SERVICES_CIDR,
        )

    def _security(self) -> dict[str, Any]:
        args = self._args
        key = args.get("kms_key_name")
        return {
            "workload_identity_config": container.ClusterWorkloadIdentityConfigArgs(
                workload_pool=f"{args['project']}.svc.id.goog"
            ),
            "enable_shielded_nodes": True,
            "database_encryption": None
            if key is None
            else container.ClusterDatabaseEncryptionArgs(state="ENCRYPTED", key_name=key),
            "master_auth": container.ClusterMasterAuthArgs(
                client_certificate_config=container.ClusterMasterAuthClientCertificateConfigArgs(
                    issue_client_certificate=False
                )
            ),
            "enable_legacy_abac": False,
            # Only health checks are anonymous, and no rule can name all Google accounts.
            "anonymous_authentication_config": container.ClusterAnonymousAuthenticationConfigArgs(mode="LIMITED"),
            "rbac_binding_config": container.ClusterRbacBindingConfigArgs(
                enable_insecure_binding_system_authenticated=False,
                enable_insecure_binding_system_unauthenticated=False,
            ),
            "security_posture_config": container.ClusterSecurityPostureConfigArgs(mode="BASIC"),
        }

    def _observed(self) -> dict[str, Any]:
        gpus = ["DCGM"] if self._args["gpus"] else []
        return {
            "logging_config": container.ClusterLoggingConfigArgs(
                enable_components=["SYSTEM_COMPONENTS", "WORKLOADS", "APISERVER"]
            ),
            "monitoring_config": container.ClusterMonitoringConfigArgs(
                enable_components=["SYSTEM_COMPONENTS", "JOBSET", *gpus],
                managed_prometheus=container.ClusterMonitoringConfigManagedPrometheusArgs(enabled=True),
            ),
            "cost_management_config": container.ClusterCostManagementConfigArgs(enabled=True),
            "cluster_autoscaling": container.ClusterClusterAutoscalingArgs(
                # Only the ladder's pools; an idle node is removed as early as GKE allows.
                enabled=False,
                autoscaling_profile="OPTIMIZE_UTILIZATION",
            ),
        }

    def _system_pool(self, cluster: container.Cluster) -> container.NodePool:
        args, (least, most) = self._args, SYSTEM_NODES
        return container.NodePool(
            f"{self._name}-system",
            name=pool_name(self._name, "system"),
            project=args["project"],
            location=args["region"],
            cluster=cluster.id,
            node_locations=[args["zone"]],
            initial_node_count=least,
            autoscaling=container.NodePoolAutoscalingArgs(min_node_count=least, max_node_count=most),
            management=container.NodePoolManagementArgs(auto_repair=True, auto_upgrade=True),
            upgrade_settings=container.NodePoolUpgradeSettingsArgs(max_surge=1, max_unavailable=0),
            network_config=container.NodePoolNetworkConfigArgs(enable_private_nodes=True),
            node_config=container.NodePoolNodeConfigArgs(
                machine_type=SYSTEM_MACHINE_TYPE,
                disk_type="pd-balanced",
                disk_size_gb=SYSTEM_DISK_GIB,
                **usual_node(args),
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                ignore_changes=["initial_node_count", "node_count"],
                delete_before_replace=True,
            ),
        )


def _dns_name(endpoints: container.outputs.ClusterControlPlaneEndpointsConfig) -> str:
    # A plan has no cluster, and so no name.
    found = endpoints.dns_endpoint_config
    return (found.endpoint if found is not None else None) or ""


def get_kubeconfig(cluster: str, endpoint: str, authority: str = "") -> str:
    """A kubeconfig as JSON. `authority`: base64 of the certificate authority; empty for a public one."""
    trusted = {"certificate-authority-data": authority} if authority else {}
    login = {
        "command": "gke-gcloud-auth-plugin",
        "installHint": "install it: gcloud components install gke-gcloud-auth-plugin",
        "provideClusterInfo": True,
    }
    return kubeconfig_text(cluster, [{"name": cluster, "cluster": {"server": f"https://{endpoint}", **trusted}}], login)


NODE_ROLE = "roles/container.defaultNodeServiceAccount"  # GKE documentation, "Minimum permissions for nodes"


# Pods get no grant: Google identifies a pod by project, namespace and service account, so a grant would apply to every
# cluster of the project with such a namespace.
class ClusterIdentityArgs(TypedDict):
    """Inputs of ClusterIdentity. `repository_id`, for images: `projects/P/locations/R/repositories/NAME`."""

    project: pulumi.Input[str]
    stack: str
    repository_id: NotRequired[pulumi.Input[str] | None]


class ClusterIdentity(pulumi.ComponentResource):
    """The nodes' service account. `service_account_email` waits for the grants."""

    service_account_email: pulumi.Output[str]

    def __init__(self, name: str, args: ClusterIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:ClusterIdentity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = serviceaccount.Account(
            f"{name}-node",
            project=args["project"],
            account_id=account_id(args["stack"], "node"),
            display_name=f"Gangway {args['stack']}: nodes",
            opts=child,
        )
        grants: list[pulumi.CustomResource] = [
            projects.IAMMember(
                f"{name}-node-default",
                project=args["project"],
                role=NODE_ROLE,
                member=account.member,
                opts=child,
            )
        ]
        repository = args.get("repository_id")
        if repository is not None:
            grants.append(
                artifactregistry.RepositoryIamMember(
                    f"{name}-node-image",
                    repository=repository,
                    role=IMAGE_READER,
                    member=account.member,
                    opts=child,
                )
            )
        self.service_account_email = after(account.email, *grants)
        register_outputs(self)
