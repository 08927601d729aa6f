"""Kueue's objects: flavors, a cohort, a queue per team, priorities; pure.

Teams share one cohort. A team can always reclaim its own nodes: a borrowing job is stopped and requeued. Unclaimed
nodes belong to the cohort, and any queue may borrow them.
"""

from collections.abc import Mapping
from typing import Any

from gangway.components.kubernetes.manifest import OURS, Manifest, manifest
from gangway.components.kubernetes.spec import JOBS_ONLY, SIZE, ClusterSpec, Flavor, Team

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
