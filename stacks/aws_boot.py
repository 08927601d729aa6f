"""What the machines of an AWS stack read at boot: cloud-init of workers and head node, rendered once all names exist.

The templates and their limits are `images`; here a StackConfig and the names of its resources become their inputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.aws.fabric import count_efa
from components.aws.node_pool import LIFECYCLE_HOOK
from components.aws.storage import LustreFileSystem
from components.choices import Egress
from components.findings import InputError
from components.job import JobSpec
from images import (
    USER_DATA_LIMIT_BYTES,
    HeadInitSpec,
    NodeInitSpec,
    render_cloud_init,
    render_head_init,
    user_data_base64gzip,
)
from stacks.aws_plan import METRICS_PORT, MOUNT, RENDEZVOUS_PORT, AwsPlan, job_spec, run_dir
from stacks.config import StackConfig

__all__ = ["Boot", "check_user_data", "head_user_data", "node_user_data"]


@dataclass(frozen=True)
class Boot:
    """Names that only resources have: the job with its image, the run bucket, the log group, the file system."""

    job: pulumi.Output[JobSpec]
    bucket: pulumi.Output[str]
    log_group: pulumi.Output[str]
    lustre: LustreFileSystem | None

    def known(self) -> pulumi.Output[Any]:
        """The names, once there are any."""
        return pulumi.Output.all(
            job=self.job,
            bucket=self.bucket,
            log_group=self.log_group,
            dns_name=self.lustre.dns_name if self.lustre else None,
            mount_name=self.lustre.mount_name if self.lustre else None,
        )


def node_user_data(config: StackConfig, planned: AwsPlan, boot: Boot) -> pulumi.Output[str]:
    """A worker's user data, base64."""
    return boot.known().apply(lambda names: _node(config, planned, names))


def head_user_data(config: StackConfig, boot: Boot) -> pulumi.Output[str]:
    """The head node's user data, base64."""
    return boot.known().apply(lambda names: _head(config, names))


def _node(config: StackConfig, planned: AwsPlan, names: Mapping[str, Any]) -> str:
    job: JobSpec = names["job"]
    spec = NodeInitSpec(
        job=job,
        region=config.region,
        image_registry=job.image.partition("/")[0],
        bucket_uri=f"s3://{names['bucket']}/{config.stack}",
        run_dir=run_dir(config),
        efa_interfaces_planned=count_efa(planned.machine),
        lustre_dns_name=names["dns_name"],
        lustre_mount_name=names["mount_name"],
        lustre_mount_point=MOUNT,
        scratch_mount_point="/scratch" if planned.machine.instance_store_gib.value else None,
        tags=planned.tags,
        stack=config.stack,
        log_group=names["log_group"],
        lifecycle_hook=LIFECYCLE_HOOK,
        max_hours=config.job.max_hours,
        terminate_when_done=config.job.terminate_when_done,
    )
    return user_data_base64gzip(render_cloud_init(spec))


def _head(config: StackConfig, names: Mapping[str, Any]) -> str:
    job: JobSpec = names["job"]
    spec = HeadInitSpec(
        image=job.image,
        region=config.region,
        image_registry=job.image.partition("/")[0],
        stack=config.stack,
        job_name=job.name,
        bucket_uri=f"s3://{names['bucket']}/{config.stack}",
        run_dir=run_dir(config),
        port=RENDEZVOUS_PORT,
        metrics_port=METRICS_PORT,
        lustre_dns_name=names["dns_name"],
        lustre_mount_name=names["mount_name"],
        lustre_mount_point=MOUNT,
        prometheus_image=config.head.prometheus_image if config.network.egress is Egress.NAT else None,
    )
    return user_data_base64gzip(render_head_init(spec))


def check_user_data(config: StackConfig, planned: AwsPlan) -> None:
    """Renders a worker's file once with the longest names AWS may give, before anything is declared.

    Raises:
        InputError: it does not fit EC2's limit; tags are the only part a user can make long.
    """
    registry = f"{'0' * 12}.dkr.ecr.{config.region}.amazonaws.com/{config.stack}-trainer-{'0' * 7}"
    names = {
        "job": job_spec(config, planned, config.image.prebuilt or f"{registry}@sha256:{'0' * 64}"),
        "bucket": "b" * 63,
        "log_group": f"/gangway/{config.stack}",
        "dns_name": "d" * 63 if config.storage else None,
        "mount_name": "m" * 8 if config.storage else None,
    }
    try:
        _node(config, planned, names)
    except ValueError as error:
        raise InputError(
            "gangway:tags",
            # The renderer tells its own way out, which is not the user's.
            f"a node's file does not fit EC2: {str(error).partition(';')[0]}",
            allowed=f"at most {USER_DATA_LIMIT_BYTES} bytes after gzip",
            fix="shorten or drop some tags",
        ) from None
