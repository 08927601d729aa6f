"""Helm charts (JobSet, Kueue, device plugins, an exporter of GPU counters, an autoscaler) and Kueue's objects; pure.

Versions are pinned to the projects' sources of November 2026; JobSet's is the one that Kueue's go.mod requires. Other
values are the charts' defaults.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gangway.components.core.hardware_alerts import GPU_JOB, NODE_JOB, POD, alert_rules
from gangway.components.kubernetes.manifest import OURS, Manifest, manifest
from gangway.components.kubernetes.spec import GPU, JOBS_ONLY, SIZE, UNCOUNTED, ClusterSpec, Flavor, Team

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
    """Kueue's own configuration, which replaces the chart's. `rungs`: tried in turn before the job is requeued."""
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


def prometheus(stack: str) -> Chart:
    """Scrape GPU counters and its own node_exporter, with alerts. It has no disk: history ends with the pod."""
    left_out = ("alertmanager", "kube-state-metrics", "prometheus-pushgateway")
    values = {
        **{name: {"enabled": False} for name in left_out},
        "prometheus-node-exporter": {"extraArgs": ["--collector.mountstats"]},
        "server": {"global": {"scrape_interval": "15s"}, "persistentVolume": {"enabled": False}},
        "serverFiles": {"alerting_rules.yml": alert_rules(POD)},
        "scrapeConfigs": {
            **{name: {"enabled": False} for name in _DEFAULT_JOBS},
            GPU_JOB: _scrape_pods("dcgm-exporter", stack),
            NODE_JOB: _scrape_pods("prometheus-node-exporter", stack),
        },
    }
    repository = "https://prometheus-community.github.io/helm-charts"
    return Chart("prometheus", "prometheus", "29.27.0", repository, SYSTEM, values)


# The chart's own, which scrape everything with certain annotations.
_DEFAULT_JOBS = (
    "prometheus",
    "prometheus-pushgateway",
    *("kubernetes-api-servers", "kubernetes-nodes", "kubernetes-nodes-cadvisor", "kubernetes-services"),
    *("kubernetes-service-endpoints", "kubernetes-service-endpoints-slow"),
    *("kubernetes-pods", "kubernetes-pods-slow"),
)


def _scrape_pods(application: str, stack: str) -> dict[str, Any]:
    pods = {"role": "pod", "label": f"app.kubernetes.io/name={application}"}
    return {
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [SYSTEM]}, "selectors": [pods]}],
        "relabel_configs": [
            {"source_labels": ["__meta_kubernetes_pod_node_name"], "target_label": "instance"},
            {"target_label": "stack", "replacement": stack},
        ],
    }


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


# Kueue's objects: flavors, a cohort, a queue per team, priorities; pure.
#
# Teams share one cohort. A team can always reclaim its own nodes: a borrowing job is stopped and requeued. Unclaimed
# nodes belong to the cohort, and any queue may borrow them.

KUEUE = "kueue.x-k8s.io/v1beta2"
COHORT = "gangway"
QUEUE = "main"
"""The LocalQueue in the team's namespace."""
PRIORITIES: Mapping[str, int] = {"gangway-high": 1000, "gangway-low": -1000}
"""The WorkloadPriorityClasses; a job without a class has 0."""


def queue_manifests(spec: ClusterSpec) -> tuple[Manifest, ...]:
    """All manifests of a cluster, in order of reference."""
    return (
        *(
            _kueue("Topology", flavor.name, {"levels": [{"nodeLabel": label} for label in flavor.levels]})
            for flavor in spec.flavors
            if flavor.levels
        ),
        *(_flavor(flavor) for flavor in spec.flavors),
        *(_priority(name, value) for name, value in PRIORITIES.items()),
        _cohort(spec),
        *(_cluster_queue(spec, team) for team in spec.queues),
        *(_kueue("LocalQueue", QUEUE, {"clusterQueue": team.name}, team.name) for team in spec.queues),
    )


def tolerations() -> list[dict[str, str]]:
    """Tolerations for all taints of the jobs' machines."""
    return [{"key": JOBS_ONLY, "operator": "Exists"}]


def _kueue(kind: str, name: str, spec: Mapping[str, Any], namespace: str | None = None) -> Manifest:
    return manifest(KUEUE, kind, name, {"spec": dict(spec)}, namespace)


def _flavor(flavor: Flavor) -> Manifest:
    topology = {"topologyName": flavor.name} if flavor.levels else {}
    return _kueue(
        "ResourceFlavor",
        flavor.name,
        {
            "nodeLabels": dict(flavor.labels),
            "nodeTaints": [{"key": JOBS_ONLY, "value": "true", "effect": "NoSchedule"}],
            # Kueue adds these to admitted pods only.
            "tolerations": tolerations(),
            **topology,
        },
    )


def _priority(name: str, value: int) -> Manifest:
    return {
        "apiVersion": KUEUE,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name, "labels": dict(OURS)},
        "value": value,
    }


def _cohort(spec: ClusterSpec) -> Manifest:
    # An empty list, not an omitted field: omitting it in an update would drop `spec`, which is refused.
    groups = [_group(spec, spec.shared_nodes, None)] if spec.shared_nodes else []
    return _kueue("Cohort", COHORT, {"resourceGroups": groups})


def _cluster_queue(spec: ClusterSpec, team: Team) -> Manifest:
    fair = {"fairSharing": {"weight": str(max(team.nodes, 1))}} if spec.fair_sharing else {}
    found = _kueue(
        "ClusterQueue",
        team.name,
        {
            "cohortName": COHORT,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team.name}},
            # Smaller jobs may pass a large one that waits at the head.
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": [_group(spec, team.nodes, team.max_nodes)],
            "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
            **fair,
        },
    )
    found["metadata"]["annotations"] = {SIZE: spec.size}
    return found


def _group(spec: ClusterSpec, nodes: int, most: int | None) -> Manifest:
    """Nodes of each flavor; without a `borrowingLimit` a queue may borrow everything in the cohort."""
    quantities = spec.node.quantities(nodes)
    borrowed = {} if most is None else spec.node.quantities(most - nodes)
    quotas = [
        {"name": name, "nominalQuota": quantity, **({"borrowingLimit": borrowed[name]} if borrowed else {})}
        for name, quantity in quantities.items()
    ]
    return {
        "coveredResources": list(quantities),
        "flavors": [{"name": flavor.name, "resources": quotas} for flavor in spec.flavors],
    }
