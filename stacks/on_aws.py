"""A stack on AWS: the components of `components.aws`, wired together from one StackConfig.

What can be known without a resource is `stacks.aws_plan`, so that a mistake is found before anything is declared.
Other providers get two modules of the same shapes.
"""

from collections.abc import Mapping
from typing import Any, cast

import pulumi
import pulumi_aws as aws

from components.aws.budget import Budget
from components.aws.identity import NodeIdentity
from components.aws.network import TrainingNetwork
from components.aws.node_pool import CapacityRungArgs, EfaNodePool
from components.aws.pricing import price_resources
from components.aws.registry import ImageRegistry
from components.aws.storage import LustreFileSystem, RunBucket
from components.findings import InputError
from components.job import JobSpec
from images import NodeInitSpec, render_cloud_init, user_data_base64gzip
from stacks.aws_plan import MOUNT, AwsPlan, findings, job_spec, plan, run_dir
from stacks.config import StackConfig

__all__ = ["AwsPlan", "build", "findings", "job_spec", "plan", "price_resources"]

# The Deep Learning AMI with NVIDIA's driver, EFA and Docker; EC2 resolves the parameter at launch.
NEWEST_AMI = "resolve:ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"


def build(config: StackConfig) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports."""
    planned, name = plan(config), config.stack
    _check_user_data(config, planned)
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
    return {
        "job": job.apply(lambda spec: spec.model_dump(mode="json")),
        "run_bucket": runs.bucket_name,
        "repository_url": registry.repository_url,
        "group_names": pool.group_names,
        "lustre_dns_name": lustre.dns_name if lustre else None,
        "budget_topic_arn": _budget(config, tags, opts).topic_arn,
    }


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

    def render(values: Mapping[str, Any]) -> str:
        return _render_user_data(config, planned, **values)

    return pulumi.Output.all(
        job=job,
        bucket=runs.bucket_name,
        dns_name=lustre.dns_name if lustre else None,
        mount_name=lustre.mount_name if lustre else None,
    ).apply(render)


def _render_user_data(
    config: StackConfig, planned: AwsPlan, job: JobSpec, bucket: str, dns_name: str | None, mount_name: str | None
) -> str:
    spec = NodeInitSpec(
        job=job,
        region=config.region,
        image_registry=job.image.partition("/")[0],
        bucket_uri=f"s3://{bucket}/{config.stack}",
        run_dir=run_dir(config),
        efa_interfaces_planned=planned.machine.efa_interfaces.value,
        lustre_dns_name=dns_name,
        lustre_mount_name=mount_name,
        lustre_mount_point=MOUNT,
        scratch_mount_point="/scratch" if planned.machine.instance_store_gib.value else None,
        tags=planned.tags,
    )
    return user_data_base64gzip(render_cloud_init(spec))


def _check_user_data(config: StackConfig, planned: AwsPlan) -> None:
    """Renders the node's file once with the longest names AWS may give, before anything is declared.

    Raises:
        InputError: it does not fit EC2's limit; tags are the only part a user can make long.
    """
    registry = f"{'0' * 12}.dkr.ecr.{config.region}.amazonaws.com/{config.stack}-trainer-{'0' * 7}"
    job = job_spec(config, planned, f"{registry}@{config.job.image_digest}")
    lustre = ("d" * 63, "m" * 8) if config.storage else (None, None)
    try:
        _render_user_data(config, planned, job, "b" * 63, *lustre)
    except ValueError as error:
        raise InputError("gangway:tags", str(error), fix="shorten or drop some tags") from None
