"""GkeNodePools: job nodes of a GKE cluster, scaled from zero by GKE's own autoscaler."""

import json
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_gcp import compute, container

from gangway.components.catalog.schema import GcpMachineType, RoceFabric
from gangway.components.core.capacity import rung_from_args
from gangway.components.core.job import fabric_variables
from gangway.components.core.outputs import register_outputs
from gangway.components.gcp.fabric import GIB, InterfacePlan, plan_interfaces
from gangway.components.gcp.gke_plan import NodeKind, PoolPlan, gpu_nodes, plan_pools, pool_name, tpu_nodes
from gangway.components.gcp.launch import SCOPES
from gangway.components.gcp.node_pool import CapacityRungArgs
from gangway.components.kubernetes.charts import SYSTEM
from gangway.components.kubernetes.manifest import Manifest, daemon_set, manifest, node_daemon
from gangway.components.kubernetes.namespaces import fabric_config
from gangway.components.kubernetes.spec import FABRIC, JOBS, RUNG_LABEL

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


# RDMA in GKE pods on A3 Ultra and A4: network objects, Google's NCCL plug-in on each node, pod settings; limits of
# unprivileged pods; pure. Follows Google's cluster-toolkit (June 2026, `examples/gke-a3-ultragpu`), except that pods
# use a claim in the team's namespace instead of mounting a node's folder.

_NETWORKS = "networking.gke.io/v1"
_NODE_FOLDER, _NODE_LIBRARIES = "/home/kubernetes/bin/gib", "/home/kubernetes/bin/nvidia/lib64"
"""Kept by the node's system; GKE mounts the second into every GPU pod as /usr/local/nvidia."""
_POD_FOLDER = "/usr/local/gib"
_PAUSE_IMAGE = "gke.gcr.io/pause:3.8@sha256:880e63f94b145e46f1b1082bb71b85e21f16b99b180b9996407d61240ceb9830"
_INSTALL = """set -eu
for number in $(seq 0 {last}); do
    # The kernel would write a line for each packet of a network that it does not know.
    echo 0 >"/proc/sys/net/ipv4/conf/gpu${{number}}rdma0/log_martians" || true
done
/scripts/container_entry.sh install
cp -r /var/lib/gib/lib64/. {libraries}
# Pods wait for the scripts, which come when all else is there.
rm -rf {folder}/scripts {folder}/.new
cp -r /var/lib/gib/. {folder}/.new
mv {folder}/.new/scripts {folder}/.scripts
cp -r {folder}/.new/. {folder}
rm -rf {folder}/.new
mv {folder}/.scripts {folder}/scripts
"""


def has_rdma(machine: GcpMachineType, num_nodes_max: int) -> bool:
    """Whether pods get NICs: only clusters of several nodes need them."""
    return isinstance(machine.gpu_fabric, RoceFabric) and num_nodes_max > 1


def network_names(machine: GcpMachineType) -> tuple[str, ...]:
    """Name of the machine's further NICs, in order, for a pod's annotation."""
    return tuple(f"rdma-{nic.subnet}" if _is_rdma(nic) else nic.network for nic in plan_interfaces(machine)[1:])


def fabric_manifests(
    machine: GcpMachineType, network_ids: pulumi.Input[list[str]], subnet_ids: pulumi.Input[list[str]]
) -> list[Manifest]:
    """The networks, and the pod that installs the plug-in on each node; ids are of the further NICs, in order."""
    nics, found = plan_interfaces(machine)[1:], list[Manifest]()
    for index, (nic, name) in enumerate(zip(nics, network_names(machine), strict=True)):
        spec = {
            "vpc": _name_at(network_ids, index),
            "vpcSubnet": _name_at(subnet_ids, index),
            "deviceMode": "RDMA" if _is_rdma(nic) else "NetDevice",
        }
        refers = {"group": "networking.gke.io", "kind": "GKENetworkParamSet", "name": name}
        found += [
            manifest(_NETWORKS, "GKENetworkParamSet", name, {"spec": spec}),
            manifest(_NETWORKS, "Network", name, {"spec": {"parametersRef": refers, "type": "Device"}}),
        ]
    return [*found, _installer(sum(_is_rdma(nic) for nic in nics))]


def team_fabric(team: str, machine: GcpMachineType, min_gbps: float | None) -> tuple[Manifest, ...]:
    """A namespace's read-only claim on the plug-in, and engine settings. `min_gbps`: see `fabric_variables`."""
    volume = {"accessModes": ["ReadOnlyMany"], "storageClassName": "", "volumeMode": "Filesystem"}
    size, name = "1Gi", f"{FABRIC}-{team}"
    bound = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": FABRIC, "namespace": team}
    held = {
        **volume,
        "capacity": {"storage": size},
        "claimRef": bound,
        "hostPath": {"path": _NODE_FOLDER},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    claimed = {**volume, "resources": {"requests": {"storage": size}}, "volumeName": name}
    return (
        manifest("v1", "PersistentVolume", name, {"spec": held}),
        manifest("v1", "PersistentVolumeClaim", FABRIC, {"spec": claimed}, team),
        _pods(team, machine, min_gbps),
    )


def _pods(team: str, machine: GcpMachineType, min_gbps: float | None) -> Manifest:
    interfaces = [{"interfaceName": "eth0", "network": "default"}]
    for position, name in enumerate(network_names(machine), 1):
        if name.startswith("rdma-"):
            interfaces.append({"interfaceName": f"eth{position}", "network": name})
    sockets = {f"{library}_SOCKET_IFNAME": "eth0" for library in ("NCCL", "GLOO")}
    # NCCL fails without the plug-in instead of using TCP.
    env = fabric_variables({"NCCL_NET": GIB.env["NCCL_NET"]}, min_gbps)
    return fabric_config(
        team,
        machine.num_accelerators.value,
        {**env, "LD_LIBRARY_PATH": f"{_POD_FOLDER}/lib64:/usr/local/nvidia/lib64", **sockets},
        annotations={
            "networking.gke.io/default-interface": "eth0",
            "networking.gke.io/interfaces": json.dumps(interfaces),
        },
        script=GIB.env_script,
        mount={"claim": FABRIC, "path": _POD_FOLDER},
    )


def _installer(num_nics: int) -> Manifest:
    """Privileged: it writes files for every pod of the node."""
    own = "/usr/local"
    mounts = {"libraries": _NODE_LIBRARIES, "folder": _NODE_FOLDER}
    script = _INSTALL.format(last=num_nics - 1, **{key: f"{own}{at}" for key, at in mounts.items()})
    install = {
        "name": "install",
        "image": GIB.image,
        "command": ["/bin/sh", "-c", script],
        "securityContext": {"privileged": True},
        "resources": {"requests": {"cpu": "150m"}},
        "volumeMounts": [{"name": key, "mountPath": f"{own}{at}"} for key, at in mounts.items()],
    }
    pod = {
        "nodeSelector": dict(JOBS),
        "tolerations": [{"operator": "Exists"}],
        "hostNetwork": True,
        "initContainers": [install],
        "containers": [{"name": "pause", "image": _PAUSE_IMAGE}],
        "volumes": [{"name": key, "hostPath": {"path": at, "type": "DirectoryOrCreate"}} for key, at in mounts.items()],
    }
    return daemon_set("gangway-gib", SYSTEM, pod)


def _is_rdma(nic: InterfacePlan) -> bool:
    return nic.nic_type == "MRDMA"


def _name_at(ids: pulumi.Input[list[str]], index: int) -> pulumi.Output[str]:
    """The last part of `projects/P/global/networks/NAME`."""
    return pulumi.Output.from_input(ids).apply(lambda known: known[index].rpartition("/")[2])


# Google's copy of Debian, whose essential util-linux has prlimit.
_IMAGE = "mirror.gcr.io/library/debian:12-slim"
# GKE has no setting for either. Google's own examples run such pods privileged (cluster-toolkit of 2026-06,
# `examples/gke-tpu-7x`; ray-project/kuberay#2466 for v6e), and request 64 GiB of locked memory for TPUs.
_SCRIPT = """set -u
while :; do
    for each in /proc/[0-9]*; do
        # Containers inherit it from what begins them.
        [ "$(cat "$each/comm" 2>/dev/null)" != containerd ] || prlimit --pid "${each#/proc/}" --memlock=unlimited
    done
    # A container's devices have the modes of its node's: chips of v4 to v5p, and of v6e and later.
    chmod a+rw /proc/1/root/dev/accel* /proc/1/root/dev/vfio/* 2>/dev/null
    sleep 15
done
"""


def node_limits() -> Manifest:
    """A privileged pod on each job node."""
    anywhere = [{"operator": "Exists"}]
    return node_daemon("gangway-node-limits", SYSTEM, _IMAGE, _SCRIPT, node_selector=JOBS, tolerations=anywhere)
