"""A cluster's queues: teams with their nodes, the resources of one node, flavors."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gangway.components.core.findings import InputError

__all__ = [
    "EFA",
    "FABRIC",
    "FABRIC_KEY",
    "GPU",
    "HOST",
    "INFINIBAND",
    "JOBS",
    "JOBS_ONLY",
    "JOBS_POOL",
    "POOL_LABEL",
    "RUNG_LABEL",
    "SIZE",
    "TPU",
    "UNCOUNTED",
    "ClusterSpec",
    "Flavor",
    "Node",
    "Team",
    "check_teams",
]

GPU = "nvidia.com/gpu"
EFA = "vpc.amazonaws.com/efa"
"""Pods request it to use the fabric on AWS; without it NCCL silently uses TCP."""
FABRIC, FABRIC_KEY = "gangway-fabric", "fabric.json"
"""ConfigMap of a team's namespace and its key with settings for the network between GPUs; and a volume claim with the
plug-in.
"""
INFINIBAND = "rdma/infiniband"
TPU = "google.com/tpu"
"""Resource of a node whose adapters are passed to pods: this many pods can have all of them. Nodes of different rungs
are not connected by them.
"""
SIZE = "gangway.dev/size"
"""Annotation of a ClusterQueue, JSON: what one `node` leaves to pods, and the number of `nodes` of a flavor."""
HOST = "kubernetes.io/hostname"
"""Node label by which Kueue chooses single nodes if it knows the network's blocks."""
POOL_LABEL, RUNG_LABEL = "gangway.dev/pool", "gangway.dev/rung"
"""Node labels: the pool of equal machines, and the rung of the ladder."""
UNCOUNTED = ("hugepages-",)
"""Prefixes of resources that a pod may request without a quota."""
JOBS_POOL = "jobs"
JOBS: Mapping[str, str] = MappingProxyType({POOL_LABEL: JOBS_POOL})
"""Label of the nodes that run jobs, whatever their rung."""
JOBS_ONLY = "gangway.dev/jobs-only"
"""Taint that keeps the cluster's own pods off job nodes."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_TAKEN = frozenset({"default", "jobset-system", "kueue-system"})


@dataclass(frozen=True)
class Team:
    """Has a namespace, a queue and guaranteed nodes. `max_nodes`: limit per flavor; None for all that are free."""

    name: str
    nodes: int
    max_nodes: int | None = None


@dataclass(frozen=True)
class Node:
    """Resources for jobs. `devices`: GPUs, fabric interfaces; `disk_gib`: temporary; 0 if unknown."""

    cpus: int
    memory_gib: int
    devices: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    disk_gib: int = 0

    def quantities(self, nodes: int) -> dict[str, str]:
        """The resources of several nodes as Kubernetes quantities."""
        counted = {name: str(count * nodes) for name, count in self.devices.items()}
        disk = {"ephemeral-storage": f"{self.disk_gib * nodes}Gi"} if self.disk_gib else {}
        return {"cpu": str(self.cpus * nodes), "memory": f"{self.memory_gib * nodes}Gi", **disk, **counted}


@dataclass(frozen=True)
class Flavor:
    """Interchangeable nodes: a job uses one flavor only. `labels`: of its nodes; `levels`: labels from the widest block
    of the network to the narrowest, for topology-aware scheduling. Kueue counts existing nodes: empty for a flavor that
    scales from zero.
    """

    name: str
    labels: Mapping[str, str]
    levels: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClusterSpec:
    """A cluster's queues. `teams`: each with its own queue; empty for one `main` queue with all nodes; `max_nodes`: per
    flavor; `flavors`: in the order they are tried, with separate quotas; `fair_sharing`: share unclaimed nodes evenly
    instead of first come, first served.
    """

    teams: tuple[Team, ...]
    node: Node
    max_nodes: int
    flavors: tuple[Flavor, ...]
    fair_sharing: bool = False

    @property
    def queues(self) -> tuple[Team, ...]:
        """The teams, or one for all."""
        return self.teams or (Team("main", self.max_nodes),)

    @property
    def size(self) -> str:
        """The JSON value of SIZE."""
        return json.dumps({"node": self.node.quantities(1), "nodes": self.max_nodes})

    @property
    def shared_nodes(self) -> int:
        """Nodes that no team owns."""
        return self.max_nodes - sum(team.nodes for team in self.queues)


def check_teams(teams: tuple[Team, ...], max_nodes: int, place: str) -> None:
    """Check teams. InputError: a name invalid for namespaces, a duplicate, more nodes than there are."""
    for index, team in enumerate(teams):
        here = f"{place}[{index}]"
        if not _NAME.fullmatch(team.name) or team.name.startswith("kube-") or team.name in _TAKEN:
            raise InputError(
                f"{here}.name",
                "no namespace of a team's can be called so",
                value=team.name,
                allowed="1 to 63 of a-z, 0-9 and -, not kube-..., not " + ", ".join(sorted(_TAKEN)),
                fix="give the team another name",
            )
        if team.name in [other.name for other in teams[:index]]:
            raise InputError(f"{here}.name", "two teams of one name", value=team.name, fix="leave one of them out")
    if (wanted := sum(team.nodes for team in teams)) > max_nodes:
        raise InputError(
            place,
            "the teams' own nodes are more than there ever are",
            value=wanted,
            allowed=f"at most {max_nodes} together, as cluster.nodes.max says",
            fix="give teams fewer: a queue borrows what others do not use",
        )
