"""The queues of a managed Kubernetes cluster, for all providers. Pure."""

from collections.abc import Iterable, Sequence

from gangway.components.catalog.schema import MachineType
from gangway.components.core.capacity import LADDER, OnDemand, Spot
from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding, InputError
from gangway.components.kubernetes.spec import (
    GPU,
    INFINIBAND,
    Allocatable,
    ClusterSpec,
    Flavor,
    Node,
    Team,
    check_teams,
)
from gangway.stacks.config.engine_settings import KubernetesConfig
from gangway.stacks.config.stack_config import StackConfig

VERSIONS = ("1.35", "1.36")
"""Kubernetes versions that this release was tested with."""


def get_engine(config: StackConfig) -> KubernetesConfig:
    """The section gangway:engine of a Kubernetes stack."""
    assert isinstance(config.engine, KubernetesConfig), "only for engine: kubernetes"
    return config.engine


def get_version(config: StackConfig) -> str:
    """The Kubernetes version. InputError: one that this release was not tested with."""
    version = get_engine(config).version or VERSIONS[-1]
    if version not in VERSIONS:
        raise InputError.not_among(
            "gangway:engine.version", "not a version that this release was tested with", version, VERSIONS
        )
    return version


def api_finding(version: str, ranges: Sequence[str], needs: str = "") -> Finding:
    """Who reaches the cluster's API. `needs`: what `up` needs besides."""
    outside = f"and from {', '.join(ranges)}" if ranges else "only: `up` and `gangway job` need access to it"
    return Finding.info(
        "kubernetes.api",
        "gangway:engine.api_cidrs",
        f"Kubernetes {version} answers inside the network {outside}{needs}",
        "" if ranges else "use a VPN, a machine inside, or api_cidrs with the addresses of your network",
    )


def check_machine_types(config: StackConfig, engine: str, why: str) -> None:
    """InputError: a rung with several machine types, which this engine does not support, for the reason `why`."""
    for index, rung in enumerate(config.cluster.capacity):
        if isinstance(rung, Spot | OnDemand) and rung.machine_types:
            raise InputError(
                f"{LADDER}[{index}].machine_types",
                why,
                value=list(rung.machine_types),
                allowed=f"left out with engine: {engine}",
                fix="leave machine_types out",
            )


def check_way_out(config: StackConfig) -> None:
    """InputError: the network does not reach the registry of the queue's images."""
    if config.network.egress is not Egress.NAT:
        raise InputError(
            "gangway:network.egress",
            "the queue's images come from registry.k8s.io, but endpoints only reach the provider's APIs",
            value=config.network.egress.value,
            allowed="nat with engine: kubernetes",
            fix="set egress: nat",
        )


def gpu_node(machine: MachineType, left: Allocatable, *, infiniband: bool = False) -> Node:
    """What jobs may use of one GPU machine. `infiniband`: whether pods share its adapters, as many as GPUs."""
    gpus = machine.num_accelerators.value
    devices = {GPU: gpus, **({INFINIBAND: gpus} if infiniband else {})}
    return Node(left.cpus, left.memory_gib, devices, left.disk_gib)


def is_static(config: StackConfig) -> bool:
    """Whether all nodes are always up and from one rung. Kueue's topology-aware scheduling selects among existing nodes
    and admits no job that needs more, so an autoscaler would never be asked for them.
    """
    nodes = config.cluster.nodes
    return 1 < nodes.min == nodes.max and len(config.cluster.capacity) == 1


def topology_findings(flavor: Flavor) -> Iterable[Finding]:
    """Which node labels decide that a job's nodes are close to each other."""
    if flavor.levels:
        yield Finding.info(
            "kubernetes.topology",
            "gangway:cluster.nodes",
            f"all nodes are always up, so jobs get nodes that are close to each other, by {flavor.levels[-2]} and the "
            "levels above; a node without these labels gets no jobs of the queue",
            f"kubectl get nodes -L {','.join(flavor.levels[:-1])}",
        )


def get_spec(config: StackConfig, node: Node, flavor: Flavor, hosts: int = 1) -> ClusterSpec:
    """The queues. `hosts`: machines per node of the stack file. InputError: impossible teams."""
    teams = tuple(
        Team(team.name, team.nodes * hosts, None if team.max_nodes is None else team.max_nodes * hosts)
        for team in get_engine(config).teams
    )
    most = config.cluster.nodes.max * hosts
    check_teams(teams, most, "gangway:engine.teams")
    return ClusterSpec(teams, node, most, (flavor,))
