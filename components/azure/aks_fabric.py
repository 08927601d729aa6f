"""InfiniBand in AKS pods: NVIDIA's network operator with drivers and device plugin, and settings of each node; pure.
Follows Microsoft (github.com/Azure/aks-rdma-infiniband, July 2026) except where noted.
"""

import json
from collections.abc import Mapping, Sequence

from gangway.components.kubernetes.charts import SYSTEM, Chart
from gangway.components.kubernetes.manifest import Manifest, manifest, node_daemon
from gangway.components.kubernetes.spec import GPU, INFINIBAND, JOBS, JOBS_POOL, POOL_LABEL

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
