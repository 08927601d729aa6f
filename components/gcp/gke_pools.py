"""GkeNodePools: job nodes of a GKE cluster, scaled from zero by GKE's own autoscaler."""

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_gcp import compute, container

from gangway.components.core.capacity import rung_from_args
from gangway.components.core.outputs import register_outputs
from gangway.components.gcp.gke_plan import NodeKind, PoolPlan, gpu_nodes, plan_pools, pool_name, tpu_nodes
from gangway.components.gcp.launch import SCOPES
from gangway.components.gcp.node_pool import CapacityRungArgs
from gangway.components.kubernetes.spec import RUNG_LABEL

# A node is deleted after its pods end; a pool of accelerators waits for capacity.
CREATE_TIMEOUT, DELETE_TIMEOUT = "45m", "60m"
RESERVATION_KEY = "compute.googleapis.com/reservation-name"


class NodeTaintArgs(TypedDict):
    """A taint of nodes; `effect` is NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE."""

    key: str
    value: str
    effect: str


class GkeNodePoolsArgs(TypedDict):
    """Inputs of GkeNodePools. Nodes are of `machine_type`, with GPUs, or slices of `accelerator_type` (and `topology`).
    `num_nodes_min` are always up, in the first rung; each rung grows to `num_nodes_max`. `fabric_network_ids` and
    `fabric_subnet_ids` are of the further NICs, in the machine's order. `node_labels` are by rung, besides
    `gangway.dev/rung`; `node_taints` of all, besides GKE's for accelerators. `driver_version`: DEFAULT or LATEST (the
    default), installed by GKE. `tags` are labels of machines.
    """

    project: str
    region: str
    zone: str
    cluster: pulumi.Input[str]
    machine_type: NotRequired[str]
    accelerator_type: NotRequired[str]
    topology: NotRequired[str | None]
    num_nodes_min: int
    num_nodes_max: int
    capacity: list[CapacityRungArgs]
    fabric_network_ids: NotRequired[pulumi.Input[list[str]]]
    fabric_subnet_ids: NotRequired[pulumi.Input[list[str]]]
    security_group_ids: list[pulumi.Input[str]]
    service_account_email: pulumi.Input[str]
    root_volume_gib: int
    driver_version: NotRequired[str]
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    node_labels: NotRequired[list[dict[str, str]]]
    node_taints: NotRequired[list[NodeTaintArgs]]
    tags: dict[str, str]


class UsualNodeArgs(TypedDict):
    """Common settings of all nodes of a cluster."""

    security_group_ids: list[pulumi.Input[str]]
    service_account_email: pulumi.Input[str]
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def usual_node(args: UsualNodeArgs) -> dict[str, Any]:
    """Image, identity and protection of every node."""
    return {
        "image_type": "COS_CONTAINERD",
        "boot_disk_kms_key": args.get("kms_key_name"),
        "gvnic": container.NodePoolNodeConfigGvnicArgs(enabled=True),
        "service_account": args["service_account_email"],
        "oauth_scopes": SCOPES,
        "shielded_instance_config": container.NodePoolNodeConfigShieldedInstanceConfigArgs(
            enable_secure_boot=True, enable_integrity_monitoring=True
        ),
        # Pods cannot use the machine's account.
        "workload_metadata_config": container.NodePoolNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA"),
        "kubelet_config": container.NodePoolNodeConfigKubeletConfigArgs(insecure_kubelet_readonly_port_enabled="FALSE"),
        "metadata": {"disable-legacy-endpoints": "true"},
        "tags": args["security_group_ids"],
        "resource_labels": args["tags"],
    }


def find_nodes(args: GkeNodePoolsArgs) -> NodeKind:
    """One node of the ladder. InputError: no such machine type or slice."""
    if "accelerator_type" in args:
        return tpu_nodes(args["accelerator_type"], args.get("topology"))
    assert "machine_type" in args, "either a machine type or an accelerator type"
    return gpu_nodes(args["machine_type"])


def plan_node_pools(args: GkeNodePoolsArgs) -> tuple[NodeKind, tuple[PoolPlan, ...]]:
    """Compile the arguments. InputError: unsupported machine, slice or rung."""
    nodes = find_nodes(args)
    rungs = [rung_from_args(rung) for rung in args["capacity"]]
    counts = args["num_nodes_min"], args["num_nodes_max"]
    return nodes, plan_pools(rungs, nodes, args["zone"], args["project"], *counts)


class GkeNodePools(pulumi.ComponentResource):
    """One node pool per rung, or per slice of several hosts. `pool_names`: in ladder order."""

    pool_names: pulumi.Output[list[str]]

    def __init__(self, name: str, args: GkeNodePoolsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:GkeNodePools", name, None, opts)
        self._name, self._args = name, args
        self._nodes, plans = plan_node_pools(args)
        self._networks = pulumi.Output.all(args.get("fabric_network_ids", []), args.get("fabric_subnet_ids", []))
        self._policy = self._workload_policy()
        pools = [self._pool(plan) for plan in plans]
        self.pool_names = pulumi.Output.all(*[pool.name for pool in pools]).apply(list)
        register_outputs(self)

    def _pool(self, plan: PoolPlan) -> container.NodePool:
        args = self._args
        return container.NodePool(
            f"{self._name}-{plan.suffix}",
            name=pool_name(self._name, plan.suffix),
            project=args["project"],
            location=args["region"],
            cluster=args["cluster"],
            node_locations=[plan.zone],
            initial_node_count=plan.least,
            autoscaling=container.NodePoolAutoscalingArgs(
                # By zone, of which each pool has one: for a slice GKE checks the zonal maximum, which is 0 with total
                # counts (vllm-project/ci-infra#545).
                min_node_count=plan.least,
                max_node_count=plan.most,
                # ANY takes available capacity, and reservations first.
                location_policy="ANY",
            ),
            management=container.NodePoolManagementArgs(
                # Flex-start refuses it (cluster-toolkit of 2026-06, `modules/compute/gke-node-pool`).
                auto_repair=plan.run_duration_sec is None,
                auto_upgrade=True,
            ),
            # No upgrade under a running job: nodes keep their version to the end of its support, and new nodes have the
            # pool's.
            maintenance_policies=[
                container.NodePoolMaintenancePolicyArgs(
                    exclusion_until_end_of_supports=[
                        container.NodePoolMaintenancePolicyExclusionUntilEndOfSupportArgs(enabled=True)
                    ]
                )
            ],
            # There is no spare machine to upgrade onto.
            upgrade_settings=container.NodePoolUpgradeSettingsArgs(max_surge=0, max_unavailable=1),
            placement_policy=self._placement(plan),
            queued_provisioning=container.NodePoolQueuedProvisioningArgs(enabled=True) if plan.queued else None,
            network_config=container.NodePoolNetworkConfigArgs(
                enable_private_nodes=True,
                additional_node_network_configs=self._networks.apply(self._further_networks)
                if self._further_nics
                else None,
            ),
            node_config=self._node(plan),
            opts=pulumi.ResourceOptions(
                parent=self,
                # GKE's autoscaler owns the size, and another initial size would replace a pool.
                ignore_changes=["initial_node_count", "node_count"],
                # The old pool holds the name and the accelerator quota.
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create=CREATE_TIMEOUT, delete=DELETE_TIMEOUT),
            ),
        )

    @property
    def _further_nics(self) -> int:
        return max(len(self._nodes.interfaces) - 1, 0)

    def _further_networks(
        self, known: Sequence[Sequence[str]]
    ) -> list[container.NodePoolNetworkConfigAdditionalNodeNetworkConfigArgs]:
        """Networks of the NICs besides the main one, in the order that the NCCL plug-in needs."""
        return [
            container.NodePoolNetworkConfigAdditionalNodeNetworkConfigArgs(network=network, subnetwork=subnet)
            for network, subnet in zip(*known, strict=True)
        ]

    def _placement(self, plan: PoolPlan) -> container.NodePoolPlacementPolicyArgs | None:
        if not plan.compact:
            return None
        if self._policy is not None:
            return container.NodePoolPlacementPolicyArgs(type="COMPACT", policy_name=self._policy.name)
        return container.NodePoolPlacementPolicyArgs(type="COMPACT", tpu_topology=self._nodes.topology)

    def _workload_policy(self) -> compute.ResourcePolicy | None:
        """Places the hosts of a slice if the pool's topology does not."""
        topology = self._nodes.policy_topology
        if topology is None:
            return None
        return compute.ResourcePolicy(
            f"{self._name}-slices",
            # Another topology is another policy, which must exist before its pools.
            name=pool_name(self._name, topology),
            project=self._args["project"],
            region=self._args["region"],
            workload_policy=compute.ResourcePolicyWorkloadPolicyArgs(
                type="HIGH_THROUGHPUT", accelerator_topology=topology
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _node(self, plan: PoolPlan) -> container.NodePoolNodeConfigArgs:
        args, nodes = self._args, self._nodes
        labels = args.get("node_labels")
        return container.NodePoolNodeConfigArgs(
            machine_type=nodes.machine_type,
            disk_type=nodes.boot_disk,
            disk_size_gb=args["root_volume_gib"],
            ephemeral_storage_local_ssd_config=container.NodePoolNodeConfigEphemeralStorageLocalSsdConfigArgs(
                local_ssd_count=nodes.local_ssds
            )
            if nodes.local_ssds
            else None,
            spot=plan.spot,
            flex_start=True if plan.queued else None,
            max_run_duration=None if plan.run_duration_sec is None else f"{plan.run_duration_sec}s",
            reservation_affinity=_affinity(plan),
            guest_accelerators=self._accelerators(),
            labels={RUNG_LABEL: f"{plan.rung}-{plan.kind}", **(labels[plan.rung] if labels else {})},
            taints=[container.NodePoolNodeConfigTaintArgs(**taint) for taint in args.get("node_taints", [])] or None,
            **usual_node(args),
        )

    def _accelerators(self) -> list[container.NodePoolNodeConfigGuestAcceleratorArgs] | None:
        gpus = self._nodes.gpus
        if gpus is None:
            return None
        driver = container.NodePoolNodeConfigGuestAcceleratorGpuDriverInstallationConfigArgs(
            # CUDA 13 needs driver 580, which is not the default of all versions.
            gpu_driver_version=self._args.get("driver_version", "LATEST")
        )
        return [
            container.NodePoolNodeConfigGuestAcceleratorArgs(
                type=gpus.accelerator, count=gpus.number, gpu_driver_installation_config=driver
            )
        ]


def _affinity(plan: PoolPlan) -> container.NodePoolNodeConfigReservationAffinityArgs:
    """Only the named reservation, and no open one that others rely on."""
    if plan.reservation is None:
        return container.NodePoolNodeConfigReservationAffinityArgs(consume_reservation_type="NO_RESERVATION")
    return container.NodePoolNodeConfigReservationAffinityArgs(
        consume_reservation_type="SPECIFIC_RESERVATION", key=RESERVATION_KEY, values=[plan.reservation]
    )
