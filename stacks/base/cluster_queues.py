"""What the queues of a managed Kubernetes are made of, whatever its provider. Pure."""

from collections.abc import Iterable

from components.catalog.schema import MachineType
from components.core.fields import Egress
from components.core.findings import Finding, InputError
from components.kubernetes.allocatable import Allocatable
from components.kubernetes.spec import GPU, INFINIBAND, ClusterSpec, Flavor, Node, Team, check_teams
from stacks.config.engine_settings import KubernetesConfig
from stacks.config.stack_config import StackConfig

VERSIONS = ("1.35", "1.36")
"""Of Kubernetes, that this release was checked against."""


def get_engine(config: StackConfig) -> KubernetesConfig:
    """The section gangway:engine, where it asks for Kubernetes."""
    assert isinstance(config.engine, KubernetesConfig), "asked of a stack with engine: kubernetes"
    return config.engine


def get_version(config: StackConfig) -> str:
    """Of Kubernetes. InputError: one that this release was not checked against."""
    version = get_engine(config).version or VERSIONS[-1]
    if version not in VERSIONS:
        raise InputError.not_among(
            "gangway:engine.version", "not a version that this release was checked against", version, VERSIONS
        )
    return version


def check_way_out(config: StackConfig) -> None:
    """Refuses (InputError) a network without a way to the queue's own images."""
    if config.network.egress is not Egress.NAT:
        raise InputError(
            "gangway:network.egress",
            "the queue's own images come from registry.k8s.io, and endpoints lead to the provider's APIs alone",
            value=config.network.egress.value,
            allowed="nat with engine: kubernetes",
            fix="set egress: nat",
        )


def gpu_node(machine: MachineType, left: Allocatable, *, infiniband: bool = False) -> Node:
    """What jobs may have of one GPU machine. `left`: by its provider's rule; `infiniband`: whether its adapters are
    handed to pods, which share them: as many as there are GPUs.
    """
    gpus = machine.num_accelerators.value
    devices = {GPU: gpus, **({INFINIBAND: gpus} if infiniband else {})}
    return Node(left.cpus, left.memory_gib, devices, left.disk_gib)


def stands(config: StackConfig) -> bool:
    """Whether all nodes are always up, and from one rung. Kueue chooses by the network among nodes that are there, and
    lets no job begin for which there are too few: none would ever come that has to be asked for.
    """
    nodes = config.cluster.nodes
    return 1 < nodes.min == nodes.max and len(config.cluster.capacity) == 1


def topology_findings(flavor: Flavor) -> Iterable[Finding]:
    """What it takes that a job's nodes are chosen by the network."""
    if flavor.levels:
        yield Finding.info(
            "kubernetes.topology",
            "gangway:cluster.nodes",
            f"all nodes are always up, so a job's are chosen close to each other, by {flavor.levels[-2]} and what is "
            "above it; a node without these labels gets no job of the queue",
            f"kubectl get nodes -L {','.join(flavor.levels[:-1])}",
        )


def get_spec(config: StackConfig, node: Node, flavor: Flavor, hosts: int = 1) -> ClusterSpec:
    """The queues; `hosts`: machines of what the stack file calls a node. InputError: teams that cannot be."""
    teams = tuple(
        Team(team.name, team.nodes * hosts, None if team.max_nodes is None else team.max_nodes * hosts)
        for team in get_engine(config).teams
    )
    most = config.cluster.nodes.max * hosts
    check_teams(teams, most, "gangway:engine.teams")
    return ClusterSpec(teams, node, most, (flavor,))
