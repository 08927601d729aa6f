"""What a StackConfig means on AWS, before any resource exists: machine, zone, tags, job and findings.

Pure: looks up, checks and says. `stacks.on_aws` declares the resources.
"""

from dataclasses import dataclass

from components.aws.names import Egress
from components.aws.network import plan_network
from components.aws.storage import plan_lustre
from components.capacity import CapacityBlock
from components.catalog import MachineType, Region, load
from components.cost import CostEstimate
from components.findings import Finding, InputError, Severity
from components.job import JobSpec, Rendezvous, Volume
from components.tags import TagPolicy, carbon_class
from stacks.checks import common_findings
from stacks.config import StackConfig
from stacks.run_context import cloud_context

__all__ = ["MOUNT", "AwsPlan", "findings", "job_spec", "plan", "run_dir"]

RENDEZVOUS_PORT = 29400
METRICS_PORT = 9400
MOUNT = "/fsx"


@dataclass(frozen=True)
class AwsPlan:
    """What the configuration means on AWS: machine, region, zone and tags."""

    machine: MachineType
    region: Region
    zone: str
    tags: dict[str, str]


def plan(config: StackConfig) -> AwsPlan:
    """Looks everything up and checks it, without declaring a resource.

    Raises:
        InputError: unknown machine, accelerator, region or zone; a size AWS does not offer; a tag it refuses.
    """
    catalog = load()
    cluster = config.cluster
    region = catalog.region(config.region, "aws", "gangway:region")
    if cluster.machine_type is not None:
        machine = catalog.machine(cluster.machine_type, "gangway:cluster.machine_type")
    else:
        assert cluster.accelerator is not None, "StackConfig holds one of the two"
        machine = catalog.machine_for(cluster.accelerator, "aws", "gangway:cluster.accelerator")
    plan_network(config.network.cidr, 1)
    if config.storage:
        plan_lustre(config.storage.capacity_gib, config.storage.throughput_mbps_per_tib)
    return AwsPlan(machine, region, _zone(config, region), _tags(config, machine, region))


def _zone(config: StackConfig, region: Region) -> str:
    """The zone of the nodes: one, because a cluster placement group and a Lustre file system live in one."""
    zones = [f"{region.name}{letter}" for letter in region.zones]
    zone = config.cluster.zone or zones[0]
    if zone not in zones:
        raise InputError(
            "gangway:cluster.zone",
            f"no such zone in {region.name}",
            value=zone,
            allowed=", ".join(zones),
            fix=f"set zone: {zones[0]}, or leave it out",
        )
    return zone


def _tags(config: StackConfig, machine: MachineType, region: Region) -> dict[str, str]:
    extra = {k: v for k, v in config.tags.items() if k not in ("team", "cost_center")}
    return TagPolicy(
        stack=config.stack,
        team=config.tags["team"],
        cost_center=config.tags["cost_center"],
        run="shared",
        energy_class=machine.accelerator,
        carbon_class=carbon_class(region.intensity_g_per_kwh.value),
        extra=extra,
    ).aws()


def job_spec(config: StackConfig, planned: AwsPlan, image: str) -> JobSpec:
    """The job the nodes run. State lives on the parallel file system, so that any node can take it up again."""
    context = cloud_context(config, planned.machine, planned.region, load().price(planned.machine.name, config.region))
    return JobSpec(
        name=config.stack,
        image=image,
        backend="nccl",
        num_nodes_min=config.cluster.nodes.min,
        num_nodes_max=config.cluster.nodes.max,
        processes_per_node=planned.machine.gpus.value,
        rendezvous=Rendezvous(standalone=True)
        if config.cluster.nodes.max == 1
        else Rendezvous(host=head_host(config), port=RENDEZVOUS_PORT),
        volumes=(Volume(source=_state_root(config), target=_state_root(config)),),
        env={"GANGWAY_CONTEXT": context.model_dump_json()},
        argv=(
            "train",
            "--preset",
            config.job.preset,
            "--kimg",
            f"{config.job.kimg:.10g}",
            "--run-dir",
            run_dir(config),
            *(("--data", f"{MOUNT}/data") if config.storage and config.storage.source else ()),
            "--metrics-port",
            str(METRICS_PORT),
        ),
    )


def findings(config: StackConfig, planned: AwsPlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """What a person should know before `up`. Every automatic choice says why it was made."""
    found = common_findings(config, planned.machine, cost)
    machine, efa = planned.machine, planned.machine.efa_interfaces.value
    if efa:
        layout = f"{machine.name}: 1 ENA and {efa} EFA interfaces a node, {machine.network_gbps.value:g} Gbit/s"
        found.append(Finding(Severity.INFO, "fabric.efa", "gangway:cluster", layout))
    if config.cluster.zone is None:
        found.append(
            Finding(
                Severity.INFO,
                "placement.zone",
                "gangway:cluster.zone",
                f"{planned.zone} chosen: the first zone of {planned.region.name}; nodes and file system share one zone",
                "set zone where your quota or capacity is elsewhere",
            )
        )
    if config.cluster.nodes.max > 1:
        found.append(
            Finding(
                Severity.WARNING,
                "rendezvous.no-head-node",
                "gangway:cluster.nodes",
                f"the workers meet at {head_host(config)}, which this stack does not create yet",
                "run a rendezvous store under that name yourself, as docs/deploying.md says, or use one node",
            )
        )
    if config.storage and config.network.egress is Egress.ENDPOINTS and config.cluster.image_id is None:
        found.append(
            Finding(
                Severity.WARNING,
                "storage.lustre-client",
                "gangway:network.egress",
                "nodes fetch the Lustre client from outside AWS, and endpoints do not lead there",
                "set egress: nat, or pin an image_id that holds the client",
            )
        )
    if any(isinstance(rung, CapacityBlock) for rung in config.cluster.capacity):
        found.append(
            Finding(
                Severity.WARNING,
                "capacity.block-end",
                "gangway:cluster.capacity",
                "EC2 ends the nodes of a capacity block 30 minutes before its end, and this stack does not stop first",
                "scale the group to zero before then",
            )
        )
    return tuple(found)


def _state_root(config: StackConfig) -> str:
    """Where runs live on a node: the parallel file system, or the root volume where there is none."""
    return MOUNT if config.storage else "/var/lib/gangway"


def run_dir(config: StackConfig) -> str:
    """The run's directory, the same on every node."""
    return f"{_state_root(config)}/runs/{config.stack}"


def head_host(config: StackConfig) -> str:
    return f"head.{config.stack}.gangway.internal"
