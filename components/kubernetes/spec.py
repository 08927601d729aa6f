"""What a cluster's queues are made of: teams with their share of nodes, what one node has, where nodes come from."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from components.core.findings import InputError

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
"""What a pod asks for to have the fabric on AWS; without it NCCL goes over TCP and says nothing."""
FABRIC, FABRIC_KEY = "gangway-fabric", "fabric.json"
"""ConfigMap of a team's namespace, and its key: what pods take to use the network between the nodes' GPUs; and a volume
claim with the plug-in.
"""
INFINIBAND = "rdma/infiniband"
TPU = "google.com/tpu"
"""Of a node whose adapters are handed to pods: so many pods may have all of them. Nodes of two rungs do not reach each
other by them.
"""
SIZE = "gangway.dev/size"
"""Annotation of a ClusterQueue, as JSON: what one `node` leaves to pods, and how many `nodes` of a flavor there are."""
HOST = "kubernetes.io/hostname"
"""Label of a node, by which Kueue chooses nodes one by one where it knows the network's blocks."""
POOL_LABEL, RUNG_LABEL = "gangway.dev/pool", "gangway.dev/rung"
"""Of a node: the pool of machines of one kind that it is from, and the rung of the ladder."""
UNCOUNTED = ("hugepages-",)
"""What names of resources begin with of which a pod may ask for some, and nobody has a quota."""
JOBS_POOL = "jobs"
JOBS: Mapping[str, str] = MappingProxyType({POOL_LABEL: JOBS_POOL})
"""Label of the nodes that run jobs, whatever their rung."""
JOBS_ONLY = "gangway.dev/jobs-only"
"""Key of the taint that keeps the cluster's own pods off the machines that are paid for to run jobs."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_TAKEN = frozenset({"default", "jobset-system", "kueue-system"})


@dataclass(frozen=True)
class Team:
    """Has a namespace, a queue and so many nodes that are its own whenever it wants them. `max_nodes`: that it may have
    at once of a flavor; None for all that are free.
    """

    name: str
    nodes: int
    max_nodes: int | None = None


@dataclass(frozen=True)
class Node:
    """What one node has for jobs. `devices`: further resources of its, such as GPUs and interfaces of the fabric;
    `disk_gib`: for what pods write that is not kept; 0 where nobody knows, and no pod may ask for it.
    """

    cpus: int
    memory_gib: int
    devices: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    disk_gib: int = 0

    def quantities(self, nodes: int) -> dict[str, str]:
        """So many nodes' resources, as Kubernetes writes them."""
        counted = {name: str(count * nodes) for name, count in self.devices.items()}
        disk = {"ephemeral-storage": f"{self.disk_gib * nodes}Gi"} if self.disk_gib else {}
        return {"cpu": str(self.cpus * nodes), "memory": f"{self.memory_gib * nodes}Gi", **disk, **counted}


@dataclass(frozen=True)
class Flavor:
    """Nodes that a job may have instead of others: all of a job's are of one.

    Attributes:
        labels: that its nodes carry.
        levels: labels from the widest block of the network to the narrowest, along which a job's nodes are chosen.
            Kueue counts the nodes that stand: of none that scales from zero.
    """

    name: str
    labels: Mapping[str, str]
    levels: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClusterSpec:
    """A cluster's queues.

    Attributes:
        teams: each with its own queue; one `main` with all nodes where there are none.
        max_nodes: of each flavor.
        flavors: in the order they are tried. Quotas count for each by itself.
        fair_sharing: whether what nobody has a claim to is shared evenly instead of to whoever came first.
    """

    teams: tuple[Team, ...]
    node: Node
    max_nodes: int
    flavors: tuple[Flavor, ...]
    fair_sharing: bool = False

    @property
    def queues(self) -> tuple[Team, ...]:
        """Those of the teams, or the one of all."""
        return self.teams or (Team("main", self.max_nodes),)

    @property
    def size(self) -> str:
        """Of SIZE."""
        return json.dumps({"node": self.node.quantities(1), "nodes": self.max_nodes})

    @property
    def shared_nodes(self) -> int:
        """Which are no team's own."""
        return self.max_nodes - sum(team.nodes for team in self.queues)


def check_teams(teams: tuple[Team, ...], max_nodes: int, place: str) -> None:
    """InputError: a name that no namespace may have, twice the same, more nodes than there are."""
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
