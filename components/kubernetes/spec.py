"""A cluster's queues: teams with their nodes, the resources of one node and what it leaves to pods, flavors."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from gangway.components.core.findings import InputError

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
JOBS: Mapping[str, str] = {POOL_LABEL: JOBS_POOL}
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


_MIB, _MB_IN_GIB = 1 / 1024, 1e6 / 2**30
_EVICTION_GIB = 100 * _MIB
"""kubelet's memory.available, at all three providers."""
_EVICTION_SHARE = 0.1
"""nodefs.available, at all three providers."""
_SYSTEM_PODS_GIB, _SYSTEM_PODS_CPUS = 1.0, 0.5
"""Reserve for DaemonSets (network, plugins, metrics). Assumed; they request less than half of it."""


# A system sees less memory than is sold, by a share that was measured where stated.
class Allocatable(NamedTuple):
    """Whole units, rounded down: a job that requests all of it fits."""

    cpus: int
    memory_gib: int
    disk_gib: int


def gke_allocatable(vcpus: int, memory_gib: float, boot_gib: float, local_ssds: int = 0) -> Allocatable:
    """GKE documentation, "About GKE node sizing" (November 2026). Measured: of 64 vCPUs and 512 GiB, 503.9 GiB are
    visible and 486.9 left to pods; of 100 GiB of disk 94.2 and 43.8 (2i2c-org/infrastructure#2121). Pods write to the
    `local_ssds` of 375 GB, or else to the boot disk.
    """
    seen_gib = 0.983 * memory_gib
    steps = ((4, 0.25), (4, 0.2), (8, 0.1), (112, 0.06), (math.inf, 0.02))
    if local_ssds:
        disk_gib, kept_gib = local_ssds * 375e9 / 2**30, {1: 50.0, 2: 75.0}.get(local_ssds, 100.0)
    else:
        disk_gib, kept_gib = 0.942 * boot_gib, min(0.5 * boot_gib, 6 + 0.35 * boot_gib, 100.0)
    return _subtract(vcpus, _reserved_cpus(vcpus), seen_gib, _stepped(seen_gib, steps), disk_gib, kept_gib)


def eks_allocatable(vcpus: int, memory_gib: float, disk_gib: float) -> Allocatable:
    """Amazon EKS AMI, nodeadm's kubelet defaults (November 2026): 255 MiB, 11 MiB per possible pod, and 1 GiB of disk.
    Measured: 1,093 of 1,152 GiB are left on p4de.24xlarge, 1,957 of 2,048 on p5.48xlarge. `disk_gib`: of the local
    disks, or else the root volume.
    """
    # EKS's list of pods by type, which follows the number of addresses: 58 up to 2xlarge, 234 up to 12xlarge.
    pods = 58 if vcpus <= 8 else 234 if vcpus <= 48 else 737
    kept_gib = (255 + 11 * pods) * _MIB
    return _subtract(vcpus, _reserved_cpus(vcpus), 0.9559 * memory_gib, kept_gib, 0.98 * disk_gib, 1.0)


def aks_allocatable(vcpus: int, memory_gib: float, disk_gib: float, max_pods: int) -> Allocatable:
    """AKS documentation, "Node resource reservations", 1.29 and later (November 2026). Beyond its table's 64 cores we
    assume 10 millicores each. Visible memory and disk are of Standard_D4s_v3: 15.6 of 16 GiB, 123.9 of 128 (assumed for
    others).
    """
    kept_gib = min((20 * max_pods + 50) * _MB_IN_GIB, 0.25 * memory_gib)
    kept_cpus = _between(vcpus, ((1, 0.06), (2, 0.1), (4, 0.14), (8, 0.18), (16, 0.26), (32, 0.42), (64, 0.74)))
    return _subtract(vcpus, kept_cpus, 0.977 * memory_gib, kept_gib, 0.968 * disk_gib, 0.0)


def _subtract(
    vcpus: int, kept_cpus: float, memory_gib: float, kept_gib: float, disk_gib: float, kept_disk_gib: float
) -> Allocatable:
    return Allocatable(
        math.floor(vcpus - kept_cpus - _SYSTEM_PODS_CPUS),
        math.floor(memory_gib - kept_gib - _EVICTION_GIB - _SYSTEM_PODS_GIB),
        max(0, math.floor(disk_gib * (1 - _EVICTION_SHARE) - kept_disk_gib)),
    )


def _reserved_cpus(vcpus: int) -> float:
    """GKE's and nodeadm's rule: 6 % of the first core, 1 % of the second, 0.5 % of two more, 0.25 % of the others."""
    return _stepped(vcpus, ((1, 0.06), (1, 0.01), (2, 0.005), (math.inf, 0.0025)))


def _stepped(amount: float, steps: tuple[tuple[float, float], ...]) -> float:
    kept, rest = 0.0, amount
    for width, share in steps:
        kept += share * min(width, rest)
        rest = max(0.0, rest - width)
    return kept


def _between(amount: int, points: tuple[tuple[int, float], ...]) -> float:
    """Linear interpolation; beyond the last point the last line continues."""
    index = next((number for number, (at, _) in enumerate(points) if amount <= at), len(points) - 1)
    (low, low_value), (high, high_value) = points[max(0, index - 1)], points[max(1, index)]
    return low_value + (amount - low) * (high_value - low_value) / (high - low)
