"""The plan of a stack with `engine: kubernetes` on AWS, before any resource exists, and its findings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gangway.components.aws.eks_nodes import VERSIONS, check_version, get_flavor, node_of, service_cidr
from gangway.components.aws.launch import efa_nccl
from gangway.components.catalog.schema import MachineType
from gangway.components.core.capacity import OnDemand, Spot
from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding, InputError
from gangway.components.kubernetes.spec import ClusterSpec
from gangway.stacks.base.cluster_queues import get_spec, is_static, topology_findings
from gangway.stacks.base.shared import queue_fabric
from gangway.stacks.config.engine_settings import KubernetesConfig
from gangway.stacks.config.stack_config import StackConfig

__all__ = ["EksPlan", "add_second_zone", "eks_findings", "plan_eks"]


@dataclass(frozen=True)
class EksPlan:
    """An EKS cluster.

    Attributes:
        spec: the queues.
        service_cidr: addresses of its services, outside the network's.
        api_cidrs: networks outside that may call its API.
        idle_minutes: idle time after which a node is released.
        fabric: EFA variables for pods of jobs on several whole nodes; empty without EFA.
    """

    version: str
    spec: ClusterSpec
    service_cidr: str
    api_cidrs: tuple[str, ...]
    idle_minutes: int
    fabric: Mapping[str, str]


def plan_eks(config: StackConfig, engine: KubernetesConfig, machine: MachineType) -> EksPlan:
    """Plans the cluster. InputError: a setting that EKS or the queue does not support."""
    flavor = get_flavor(machine, standing=is_static(config))
    spec = get_spec(config, node_of(machine, config.cluster.root_volume_gib), flavor)
    version = engine.version or VERSIONS[-1]
    check_version(version, "gangway:engine.version")
    _check_rungs(config)
    _check_network(config)
    fabric = queue_fabric(config, machine, efa_nccl(machine), machine.network_gbps.value)
    return EksPlan(version, spec, service_cidr(config.network.cidr), engine.api_cidrs, engine.idle_minutes, fabric)


def add_second_zone(zones: tuple[str, ...], of_region: Sequence[str]) -> tuple[str, ...]:
    """The zones, with a second one if there is only one: a control plane needs two."""
    if len(zones) > 1:
        return zones
    return (*zones, next(zone for zone in of_region if zone not in zones))


def eks_findings(config: StackConfig, eks: EksPlan) -> Iterable[Finding]:
    """The findings of EKS clusters only."""
    outside = f"and from {', '.join(eks.api_cidrs)}" if eks.api_cidrs else "only: `up` and `gangway job` need access"
    yield Finding.info(
        "kubernetes.api",
        "gangway:engine.api_cidrs",
        f"Kubernetes {eks.version} answers inside the network {outside}",
        "" if eks.api_cidrs else "use a VPN, a machine inside, or api_cidrs with the addresses of your network",
    )
    yield from topology_findings(eks.spec.flavors[0])
    if config.storage is None:
        yield Finding.warning(
            "kubernetes.no-run-folders",
            "gangway:storage",
            "jobs have no persistent storage: without a file system no namespace has the volume claim gangway-runs",
            "write a storage section, or make the claims yourself",
        )
    elif config.storage.efa:
        yield Finding.error(
            "kubernetes.storage-efa",
            "gangway:storage.efa",
            "pods mount the file system with its CSI driver, over TCP, which does not set up EFA",
            "set efa: false",
        )


def _check_rungs(config: StackConfig) -> None:
    for index, rung in enumerate(config.cluster.capacity):
        if isinstance(rung, Spot | OnDemand) and rung.machine_types:
            raise InputError(
                f"gangway:cluster.capacity[{index}].machine_types",
                "the autoscaler must know a group's machine type before it starts a node",
                value=list(rung.machine_types),
                allowed="left out with engine: kubernetes",
                fix="leave machine_types out",
            )


def _check_network(config: StackConfig) -> None:
    if config.network.egress is not Egress.NAT:
        raise InputError(
            "gangway:network.egress",
            "the images of Kubernetes and of the queue are in registries outside AWS",
            value=str(config.network.egress),
            allowed="nat with engine: kubernetes",
            fix="write egress: nat",
        )
