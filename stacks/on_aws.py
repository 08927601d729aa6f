"""A stack on AWS: the components of `components.aws`, wired together from one StackConfig.

Every value that depends on the configuration alone is computed before the first resource, so a mistake is found before
anything is declared. Other providers get a module of the same shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import pulumi
import pulumi_aws as aws

from components.aws.budget import Budget
from components.aws.fabric import plan_interfaces
from components.aws.identity import NodeIdentity
from components.aws.network import TrainingNetwork, plan_network
from components.aws.node_pool import CapacityRungArgs, EfaNodePool
from components.aws.pricing import price_resources
from components.aws.registry import ImageRegistry
from components.aws.storage import LustreFileSystem, RunBucket, plan_lustre
from components.catalog import MachineType, Region, load
from components.cost import CostEstimate
from components.findings import Finding, InputError, Severity
from components.job import JobSpec, Rendezvous, Volume
from components.tags import TagPolicy, carbon_class
from images import NodeInitSpec, render_cloud_init, user_data_base64gzip
from stacks.checks import common_findings
from stacks.config import StackConfig
from stacks.run_context import cloud_context

__all__ = ["AwsPlan", "build", "findings", "job_spec", "plan", "price_resources"]

# The Deep Learning AMI with NVIDIA's driver, EFA and Docker; EC2 resolves the parameter at launch.
NEWEST_AMI = "resolve:ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
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
        rendezvous=Rendezvous(host=_head_host(config), port=RENDEZVOUS_PORT),
        volumes=(Volume(source=_state_root(config), target=_state_root(config)),),
        env={"GANGWAY_CONTEXT": context.model_dump_json()},
        argv=(
            "train",
            "--preset",
            config.job.preset,
            "--kimg",
            f"{config.job.kimg:.10g}",
            "--run-dir",
            _run_dir(config),
            "--metrics-port",
            str(METRICS_PORT),
        ),
    )


def findings(config: StackConfig, planned: AwsPlan, cost: CostEstimate) -> tuple[Finding, ...]:
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
                f"the workers meet at {_head_host(config)}, which this stack does not create yet",
                "provide that name in a private hosted zone, as docs/deploying.md says",
            )
        )
    return tuple(found)


def build(config: StackConfig) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports."""
    planned, name = plan(config), config.stack
    tags = planned.tags
    provider = aws.Provider(name, region=config.region)
    opts = pulumi.ResourceOptions(providers={"aws": provider})
    network = TrainingNetwork(
        name,
        {
            "cidr": config.network.cidr,
            "region": config.region,
            "zones": [planned.zone],
            "egress": config.network.egress,
            "tags": tags,
        },
        opts,
    )
    runs = RunBucket(name, {"tags": tags}, opts)
    registry = ImageRegistry(name, {"tags": tags}, opts)
    identity = NodeIdentity(
        name,
        {
            "run_bucket_arn": runs.bucket_arn,
            "repository_arn": registry.repository_arn,
            "stack": name,
            "data_source": config.storage.source if config.storage else None,
            "tags": tags,
        },
        opts,
    )
    lustre = _lustre(config, network, tags, opts)
    job = registry.repository_url.apply(lambda url: job_spec(config, planned, f"{url}@{config.job.image_digest}"))
    pool = EfaNodePool(
        name,
        {
            "machine_type": planned.machine.name,
            "num_nodes_min": config.cluster.nodes.min,
            "num_nodes_max": config.cluster.nodes.max,
            "capacity": [
                cast("CapacityRungArgs", rung.model_dump(exclude_none=True)) for rung in config.cluster.capacity
            ],
            "subnet_ids": network.private_subnet_ids,
            "security_group_ids": [network.fabric_security_group_id],
            "image_id": config.cluster.image_id or NEWEST_AMI,
            "instance_profile_arn": identity.instance_profile_arn,
            "user_data": _user_data(config, planned, job, runs, lustre),
            "root_volume_gib": config.cluster.root_volume_gib,
            "tags": tags,
        },
        opts,
    )
    budget = _budget(config, tags, opts)
    return {
        "job": job.apply(lambda spec: spec.model_dump(mode="json")),
        "run_bucket": runs.bucket_name,
        "repository_url": registry.repository_url,
        "group_names": pool.group_names,
        "lustre_dns_name": lustre.dns_name if lustre else None,
        "budget_topic_arn": budget.topic_arn,
    }


def _state_root(config: StackConfig) -> str:
    """Where runs live on a node: the parallel file system, or the root volume where there is none."""
    return MOUNT if config.storage else "/var/lib/gangway"


def _run_dir(config: StackConfig) -> str:
    return f"{_state_root(config)}/runs/{config.stack}"


def _head_host(config: StackConfig) -> str:
    return f"head.{config.stack}.gangway.internal"


def _budget(config: StackConfig, tags: dict[str, str], opts: pulumi.ResourceOptions) -> Budget:
    return Budget(
        config.stack,
        {
            "monthly_usd": config.budget.monthly_usd,
            "emails": list(config.budget.emails),
            "alert_percent": list(config.budget.alert_percent),
            "tag_key": "gangway:stack",
            "tag_value": config.stack,
            "tags": tags,
        },
        opts,
    )


def _lustre(
    config: StackConfig, network: TrainingNetwork, tags: dict[str, str], opts: pulumi.ResourceOptions
) -> LustreFileSystem | None:
    if config.storage is None:
        return None
    return LustreFileSystem(
        config.stack,
        {
            "capacity_gib": config.storage.capacity_gib,
            "throughput_mbps_per_tib": config.storage.throughput_mbps_per_tib,
            "subnet_id": network.private_subnet_ids[0],
            "security_group_id": network.fabric_security_group_id,
            "source": config.storage.source,
            "tags": tags,
        },
        opts,
    )


def _user_data(
    config: StackConfig,
    planned: AwsPlan,
    job: pulumi.Output[JobSpec],
    runs: RunBucket,
    lustre: LustreFileSystem | None,
) -> pulumi.Output[str]:
    """The node's cloud-init, rendered once every name in it is known."""
    efa_interfaces = sum(i.interface_type == "efa-only" for i in plan_interfaces(planned.machine))

    def render(values: Mapping[str, Any]) -> str:
        spec = NodeInitSpec(
            job=values["job"],
            region=config.region,
            image_registry=values["job"].image.partition("/")[0],
            bucket_uri=f"s3://{values['bucket']}/{config.stack}",
            run_dir=_run_dir(config),
            efa_interfaces_planned=efa_interfaces,
            lustre_dns_name=values["dns_name"],
            lustre_mount_name=values["mount_name"],
            lustre_mount_point=MOUNT,
            scratch_mount_point="/scratch" if planned.machine.instance_store_gib.value else None,
            tags=planned.tags,
        )
        return user_data_base64gzip(render_cloud_init(spec))

    return pulumi.Output.all(
        job=job,
        bucket=runs.bucket_name,
        dns_name=lustre.dns_name if lustre else None,
        mount_name=lustre.mount_name if lustre else None,
    ).apply(render)
