"""The plan of a stack on AWS, before any resource exists: machine, zones, tags, image, job, Kubernetes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gangway.components.aws.budget import plan_budget_alarms
from gangway.components.aws.capacity import check_ladder, check_zones, ladder_zones
from gangway.components.aws.eks_nodes import VERSIONS, check_version, get_flavor, node_of, service_cidr
from gangway.components.aws.identity import partition_in
from gangway.components.aws.launch import count_efa, efa_nccl
from gangway.components.aws.monitoring import check_retention
from gangway.components.aws.network import plan_network
from gangway.components.aws.storage import plan_lustre
from gangway.components.catalog.loader import load
from gangway.components.catalog.offerings import first_zone, zone_names
from gangway.components.catalog.prices import PriceQuote, stated_price
from gangway.components.catalog.schema import MachineType, Region
from gangway.components.core.capacity import CapacityBlock, preferred_zone
from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding, InputError
from gangway.components.core.image_reference import DIGEST, REPOSITORY
from gangway.components.core.job import JobSpec
from gangway.components.core.limits import HeadPortsArgs, SlurmPortsArgs
from gangway.components.estimate.cost import CostComponent, paid_once
from gangway.components.kubernetes.spec import ClusterSpec
from gangway.images.slurm.conf import SRUN_PORTS, SlurmSpec
from gangway.images.specs import EXPORTER_PORTS, Flavour
from gangway.stacks.base import shared
from gangway.stacks.base.cluster_queues import api_finding, check_machine_types, get_spec, is_static, topology_findings
from gangway.stacks.base.shared import (
    check_head,
    find_machine,
    named_zone,
    nodes_meet,
    queue_fabric,
    tag_policy,
)
from gangway.stacks.config.engine_settings import KubernetesConfig, SlurmConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import training_job
from gangway.stacks.providers.aws.settings import EXISTING, ExistingConfig, get_existing

MOUNT = "/fsx"
NOTICE_SEC = 120  # from a spot interruption notice to termination ("Spot Instance interruption notices")
SHUTDOWN_SEC = 90  # for the checkpoint: the notice, less polling, systemd and leaving the group
ECR_REPOSITORY = rf"(\d{{12}})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com/({REPOSITORY})"
_IMAGE = re.compile(f"{ECR_REPOSITORY}@{DIGEST}")


@dataclass(frozen=True)
class EksPlan:
    """An EKS cluster. `service_cidr`: outside the network's; `idle_minutes`: until a node is released; `fabric`: EFA
    variables for pods of jobs on several whole nodes; empty without EFA.
    """

    version: str
    spec: ClusterSpec
    service_cidr: str
    api_cidrs: tuple[str, ...]
    idle_minutes: int
    fabric: Mapping[str, str]


@dataclass(frozen=True)
class AwsPlan:
    """The planned stack. `zone`: of the placement group and the file system; `zones`: that of the cluster first;
    `zone_reason`: empty if the user chose it; `repository_arn`: of the prebuilt image; None if the stack builds it;
    `member_key`: nodes authenticate, which torchrun of a custom command does not support.
    """

    machine: MachineType
    region: Region
    zone: str
    zones: tuple[str, ...]
    zone_reason: str
    repository_arn: str | None
    head: bool
    member_key: bool
    tags: dict[str, str]
    eks: EksPlan | None = None

    @property
    def flavour(self) -> Flavour:
        """The trainer's image for these nodes."""
        return "cuda-efa" if count_efa(self.machine) else "cuda"


def plan(config: StackConfig) -> AwsPlan:
    """Plans and checks the stack without declaring a resource. InputError: an unknown machine, accelerator, region or
    zone; a size that AWS does not offer; a tag that it refuses.
    """
    cluster = config.cluster
    region = load().region(config.region, "aws", "gangway:region")
    machine = find_machine(config, load())
    check_head("aws", head_type(config))
    check_ladder(cluster.capacity, machine)
    check_zones(cluster.capacity, _get_zones(region))
    existing = get_existing(config)
    zone, reason = _zone(config, existing, region, machine)
    zones = ladder_zones(cluster.capacity, zone)
    eks = plan_eks(config, config.engine, machine) if isinstance(config.engine, KubernetesConfig) else None
    if eks is not None:
        zones = add_second_zone(zones, _get_zones(region))
    if existing.vpc_id is None:
        plan_network(config.network.cidr, len(zones))
    else:
        _check_subnets(existing, zones)
    _check_machine_image(config)
    if config.storage:
        plan_lustre(**shared.lustre_args(config))
    plan_budget_alarms(list(config.budget.alert_percent), config.budget.stop_at_percent)
    check_retention(config.observe.log_days, "gangway:observe.log_days")
    meets = eks is None and nodes_meet(config)
    has_head = isinstance(config.engine, SlurmConfig) or meets
    _check_head_group(existing, has_head=has_head)
    return AwsPlan(
        machine=machine,
        region=region,
        zone=zone,
        zones=zones,
        zone_reason=reason,
        repository_arn=_repository_arn(config),
        head=has_head,
        member_key=config.trains and meets,
        tags=tag_policy(config, machine, region).aws(),
        eks=eks,
    )


def head_type(config: StackConfig) -> str:
    """The head node's machine type."""
    return config.head.machine_type or "t3.medium"


class HeadPorts(NamedTuple):
    """The ports of a head with a job's rendezvous, or of a Slurm controller."""

    job: HeadPortsArgs | None = None
    slurm: SlurmPortsArgs | None = None


def get_head_ports(config: StackConfig, planned: AwsPlan) -> HeadPorts:
    """What the security groups must admit; nothing without a head."""
    if isinstance(config.engine, SlurmConfig):
        slurm: SlurmPortsArgs = {
            "controller_port": SlurmSpec.controller_port,
            "node_port": SlurmSpec.node_port,
            "client_ports": list(SRUN_PORTS),
            "metrics_ports": list(EXPORTER_PORTS.values()) if shared.has_exporters(config) else [],
            "lustre": config.storage is not None,
        }
        return HeadPorts(slurm=slurm)
    # It mounts the file system to upload the run record; a command leaves none.
    mounts = config.storage is not None and config.trains
    return HeadPorts(shared.head_ports(config, lustre=mounts) if planned.head else None)


def _get_zones(region: Region) -> list[str]:
    return zone_names("aws", region.name, region.zones)


def _zone(config: StackConfig, existing: ExistingConfig, region: Region, machine: MachineType) -> tuple[str, str]:
    if config.cluster.zone is not None:
        return named_zone(config.cluster.zone, _get_zones(region), region.name), ""
    if preferred := preferred_zone(config.cluster.capacity):
        return preferred
    zone, reason = first_zone(machine, region)
    if existing.subnets and zone not in existing.subnets:
        return next(iter(existing.subnets)), f"the first zone of {EXISTING}.subnets"
    return zone, reason


def _check_subnets(existing: ExistingConfig, zones: Iterable[str]) -> None:
    """InputError: nodes have a zone without a subnet."""
    if missing := [zone for zone in zones if zone not in existing.subnets]:
        raise InputError(
            f"{EXISTING}.subnets",
            f"no subnet in {', '.join(missing)}, where nodes start",
            value=", ".join(existing.subnets),
            allowed="a subnet for each zone of the nodes: gangway:cluster.zone and the zones of its capacity",
            fix=f"add {missing[0]}: SUBNET, or set gangway:cluster.zone: {next(iter(existing.subnets))}",
        )


def _check_head_group(existing: ExistingConfig, *, has_head: bool) -> None:
    """InputError: the rules of the nodes' group name that of the head, so the stack creates both or none."""
    groups = existing.security_groups
    if groups is not None and groups.head is None and has_head:
        raise InputError(
            f"{EXISTING}.security_groups.head",
            "missing: the stack has a head node, and adds no rules to the group of the nodes",
            allowed="both groups, or none",
            fix="add head: the security group of the head node, or remove security_groups",
        )


def _check_machine_image(config: StackConfig) -> None:
    if config.cluster.machine_image is not None and config.network.egress is Egress.ENDPOINTS:
        raise InputError(
            "gangway:cluster.machine_image",
            "its builder reaches Image Builder and the archives of packages over the internet",
            allowed="with network: {egress: nat}",
            fix="set egress: nat, or leave machine_image out",
        )


def _repository_arn(config: StackConfig) -> str | None:
    image = config.ready_image
    if image is None:
        return None
    match = _IMAGE.fullmatch(image)
    if match is None or match[2] != config.region:
        allowed = f"<account>.dkr.ecr.{config.region}.amazonaws.com/<repository>@sha256:<digest>"
        raise shared.refused_image(config, allowed, f"ECR in {config.region}")
    return f"arn:{partition_in(match[2])}:ecr:{match[2]}:{match[1]}:repository/{match[3]}"


def purchases(config: StackConfig) -> list[CostComponent]:
    """What `up` buys immediately: capacity blocks with an upfront price in the stack file."""
    return [
        paid_once(f"capacity block {rung.offering_id}", rung.upfront_usd, f"gangway:cluster.capacity[{position}]")
        for position, rung in enumerate(config.cluster.capacity)
        if isinstance(rung, CapacityBlock) and rung.upfront_usd is not None
    ]


def paid_blocks(config: StackConfig) -> dict[str, PriceQuote]:
    """The price per node hour paid for each capacity block, by the name of its group."""
    return {
        f"{config.stack}-{position}-{rung.kind}": stated_price(
            rung.paid_usd_per_hour, config.region, f"gangway:cluster.capacity[{position}].paid_usd_per_hour"
        )
        for position, rung in enumerate(config.cluster.capacity)
        if isinstance(rung, CapacityBlock) and rung.paid_usd_per_hour is not None
    }


def job_spec(config: StackConfig, planned: AwsPlan, image: str) -> JobSpec:
    """The job the nodes run."""
    processes = planned.machine.num_accelerators.value
    state = shared.state_root(config, MOUNT)
    if config.own_command is not None:
        return shared.command_job(
            config,
            config.own_command,
            image,
            run_dir=shared.run_dir(config, MOUNT),
            state=state,
            accelerators=processes,
            shutdown_timeout_sec=SHUTDOWN_SEC,
            at=shared.rendezvous(config, at_head=True) if planned.head else None,
        )
    return training_job(
        config,
        planned.machine,
        planned.region,
        load().get_prices(planned.machine.name),
        image,
        state=state,
        run_dir=shared.run_dir(config, MOUNT),
        data_dir=f"{MOUNT}/data" if shared.has_source(config) else "",
        fabric_min_gbps=fabric_min_gbps(config, planned),
        at=shared.rendezvous(config, at_head=planned.head),
        shutdown_timeout_sec=SHUTDOWN_SEC,
    )


def fabric_min_gbps(config: StackConfig, planned: AwsPlan) -> float | None:
    """The minimum bus bandwidth for the job to start; None if there is no fabric to test."""
    gbps = planned.machine.network_gbps.value
    if not planned.head or not count_efa(planned.machine) or gbps is None:
        return None
    return shared.least_bus_gbps(config, planned.machine, gbps)


def plan_eks(config: StackConfig, engine: KubernetesConfig, machine: MachineType) -> EksPlan:
    """Plans the cluster. InputError: a setting that EKS or the queue does not support."""
    flavor = get_flavor(machine, standing=is_static(config))
    spec = get_spec(config, node_of(machine, config.cluster.root_volume_gib), flavor)
    version = engine.version or VERSIONS[-1]
    check_version(version, "gangway:engine.version")
    check_machine_types(config, "kubernetes", "the autoscaler must know a group's machine type before it starts a node")
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
    yield api_finding(eks.version, eks.api_cidrs)
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


def _check_network(config: StackConfig) -> None:
    if config.network.egress is not Egress.NAT:
        raise InputError(
            "gangway:network.egress",
            "the images of Kubernetes and of the queue are in registries outside AWS",
            value=str(config.network.egress),
            allowed="nat with engine: kubernetes",
            fix="write egress: nat",
        )
