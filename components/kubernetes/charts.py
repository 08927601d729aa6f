"""What is installed by Helm: JobSet, Kueue, devices' plugins, an exporter of GPU counters, an autoscaler; pure.

Versions are pinned, each seen in its project's own sources in November 2026; JobSet's is the one that Kueue's go.mod
requires. Everything of a chart's that is not said here is as its maker has it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.kubernetes.queues import tolerations
from components.kubernetes.spec import GPU, UNCOUNTED, ClusterSpec

__all__ = [
    "AUTOSCALER_ACCOUNT",
    "SYSTEM",
    "Chart",
    "cluster_autoscaler",
    "dcgm_exporter",
    "job_set",
    "kueue",
    "kueue_config",
    "nvidia_plugin",
]

SYSTEM = "kube-system"
AUTOSCALER_ACCOUNT = "cluster-autoscaler"
"""The service account, in `kube-system`, that a cloud lets set the sizes of node groups."""
BOOT_MINUTES = 15
"""A large machine's, from its start until its devices are there: also how long the autoscaler waits for one."""


@dataclass(frozen=True)
class Chart:
    """One release. `repository` None: `chart` is the address of a registry. `needs`: names of what stands before it."""

    name: str
    chart: str
    version: str
    repository: str | None
    namespace: str
    values: Mapping[str, Any]
    needs: tuple[str, ...] = ()


def job_set() -> Chart:
    """The controller of JobSets."""
    address = "oci://registry.k8s.io/jobset/charts/jobset"
    return Chart("jobset", address, "0.12.0", None, "jobset-system", {})


def kueue(spec: ClusterSpec, rungs: int) -> Chart:
    """The queue."""
    address = "oci://registry.k8s.io/kueue/charts/kueue"
    config = json.dumps(kueue_config(spec, rungs), indent=2)
    values = {"managerConfig": {"controllerManagerConfigYaml": config}}
    return Chart("kueue", address, "0.19.0", None, "kueue-system", values, needs=("jobset",))


def kueue_config(spec: ClusterSpec, rungs: int) -> dict[str, Any]:
    """Kueue's own configuration; what a chart's user writes replaces the whole of it.

    `rungs`: the autoscaler gives up on one after the other, and then the job goes back into the queue: its quota is
    somebody else's for a while.
    """
    fair: dict[str, Any] = {"fairSharing": {}} if spec.fair_sharing else {}
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443", "enableClusterQueueResources": True},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "clientConnection": {"qps": 300, "burst": 500},
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
        # In teams' namespaces nothing begins that has no queue; in others Kueue looks after nothing at all.
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": {"matchLabels": {"app.kubernetes.io/managed-by": "gangway"}},
        "waitForPodsReady": {
            "timeout": f"{(rungs + 1) * BOOT_MINUTES}m",
            "blockAdmission": False,
            # A node that is taken away is made up for within the same time.
            "recoveryTimeout": f"{(rungs + 1) * BOOT_MINUTES}m",
            "requeuingStrategy": {"timestamp": "Eviction", "backoffBaseSeconds": 60, "backoffMaxSeconds": 900},
        },
        "resources": {"excludeResourcePrefixes": list(UNCOUNTED)},
        **fair,
    }


def nvidia_plugin() -> Chart:
    """Tells the kubelet of GPUs. Their driver and the container toolkit are the machine image's."""
    values = {"nodeSelector": {f"{GPU}.present": "true"}, "tolerations": tolerations()}
    return Chart(
        "nvidia-device-plugin",
        "nvidia-device-plugin",
        "0.20.0",
        "https://nvidia.github.io/k8s-device-plugin",
        SYSTEM,
        values,
    )


def dcgm_exporter() -> Chart:
    """Counters of GPUs for Prometheus, at port 9400 of each GPU node."""
    values = {
        "nodeSelector": {f"{GPU}.present": "true"},
        "tolerations": tolerations(),
        # Of the Prometheus operator's, which may not be there.
        "serviceMonitor": {"enabled": False},
    }
    repository = "https://nvidia.github.io/dcgm-exporter/helm-charts"
    return Chart("dcgm-exporter", "dcgm-exporter", "4.8.2", repository, SYSTEM, values)


def cluster_autoscaler(provider: Mapping[str, Any], groups: Sequence[str], idle_minutes: int) -> Chart:
    """Brings nodes while pods wait for one, and gives back a node that has been empty for `idle_minutes`.

    Args:
        provider: values of the chart that say where groups are found.
        groups: what the names of the ladder's groups look like, first choice first, as regular expressions. One that
            has had no capacity is left out for some minutes, and the next is tried.
        idle_minutes: of a node.
    """
    idle = f"{idle_minutes}m"
    values = {
        **provider,
        "rbac": {"serviceAccount": {"name": AUTOSCALER_ACCOUNT}},
        "expanderPriorities": {str(len(groups) - index): [name] for index, name in enumerate(groups)},
        "extraArgs": {
            "expander": "priority",
            "max-node-provision-time": f"{BOOT_MINUTES}m",
            "scale-down-unneeded-time": idle,
            "scale-down-delay-after-add": idle,
            # Below any job's share of a node: one that runs something is never emptied for another's sake.
            "scale-down-utilization-threshold": "0.0001",
            "scale-down-gpu-utilization-threshold": "0.0001",
            "ignore-daemonsets-utilization": True,
            "skip-nodes-with-local-storage": False,
            "skip-nodes-with-system-pods": False,
            "balance-similar-node-groups": False,
        },
        "resources": {"requests": {"cpu": "100m", "memory": "300Mi"}, "limits": {"memory": "1Gi"}},
    }
    repository = "https://kubernetes.github.io/autoscaler"
    return Chart("cluster-autoscaler", "cluster-autoscaler", "9.59.0", repository, SYSTEM, values)
