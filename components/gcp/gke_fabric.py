"""RDMA in GKE pods on A3 Ultra and A4: network objects, Google's NCCL plug-in on each node, pod settings; limits of
unprivileged pods; pure. Follows Google's cluster-toolkit (June 2026, `examples/gke-a3-ultragpu`), except that pods use
a claim in the team's namespace instead of mounting a node's folder.
"""

import json

import pulumi

from gangway.components.catalog.schema import GcpMachineType, RoceFabric
from gangway.components.core.job import fabric_variables
from gangway.components.gcp.fabric import GIB, InterfacePlan, plan_interfaces
from gangway.components.kubernetes.charts import SYSTEM
from gangway.components.kubernetes.manifest import Manifest, daemon_set, manifest, node_daemon
from gangway.components.kubernetes.namespaces import fabric_config
from gangway.components.kubernetes.spec import FABRIC, JOBS

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
