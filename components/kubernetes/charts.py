"""Helm charts: JobSet, Kueue, device plugins, an exporter of GPU counters, an autoscaler; pure.

Versions are pinned to the projects' sources of November 2026; JobSet's is the one that Kueue's go.mod requires. Other
values are the charts' defaults.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gangway.components.kubernetes.queues import tolerations
from gangway.components.kubernetes.spec import GPU, UNCOUNTED, ClusterSpec

SYSTEM = "kube-system"
AUTOSCALER_ACCOUNT = "cluster-autoscaler"
"""The service account in `kube-system` that may resize node groups."""
BOOT_MINUTES = 15
"""Boot of a large machine until its devices are ready; also the autoscaler's timeout."""


@dataclass(frozen=True)
class Chart:
    """One release. `repository` None: `chart` is a registry address. `needs`: names of earlier charts."""

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
    """Kueue's own configuration, which replaces all of the chart's.

    `rungs`: the autoscaler tries one after the other before the job is requeued and releases its quota.
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
        # In team namespaces no workload starts without a queue; Kueue ignores other namespaces.
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": {"matchLabels": {"app.kubernetes.io/managed-by": "gangway"}},
        "waitForPodsReady": {
            "timeout": f"{(rungs + 1) * BOOT_MINUTES}m",
            "blockAdmission": False,
            # An interrupted node is replaced within the same time.
            "recoveryTimeout": f"{(rungs + 1) * BOOT_MINUTES}m",
            "requeuingStrategy": {"timestamp": "Eviction", "backoffBaseSeconds": 60, "backoffMaxSeconds": 900},
        },
        "resources": {"excludeResourcePrefixes": list(UNCOUNTED)},
        **fair,
    }


def nvidia_plugin() -> Chart:
    """Report GPUs to the kubelet. The machine image has the driver and the container toolkit."""
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
    """Export GPU counters for Prometheus, at port 9400 of each GPU node."""
    values = {
        "nodeSelector": {f"{GPU}.present": "true"},
        "tolerations": tolerations(),
        # The Prometheus operator may be absent.
        "serviceMonitor": {"enabled": False},
    }
    repository = "https://nvidia.github.io/dcgm-exporter/helm-charts"
    return Chart("dcgm-exporter", "dcgm-exporter", "4.8.2", repository, SYSTEM, values)


def cluster_autoscaler(provider: Mapping[str, Any], groups: Sequence[str], idle_minutes: int) -> Chart:
    """Add nodes while pods wait, and remove a node that has been empty for `idle_minutes`. `provider`: values for
    finding groups; `groups`: regular expressions by rung. A group without capacity is skipped for some minutes.
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
            # Below any job's share of a node: a node with a pod is never drained for consolidation.
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
