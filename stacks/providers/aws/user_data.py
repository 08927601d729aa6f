"""User data of the machines of a stack on AWS: cloud-init of workers and head node."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pulumi

from gangway.components.aws.identity import parameter_name
from gangway.components.aws.launch import count_efa, count_lustre_efa
from gangway.components.aws.node_pool import LIFECYCLE_HOOK
from gangway.components.aws.storage import LustreFileSystem
from gangway.components.core.fields import Egress
from gangway.components.core.findings import InputError
from gangway.components.core.job import JobSpec
from gangway.images.aws import (
    EFA_SETUP_SHA256,
    USER_DATA_LIMIT_BYTES,
    AwsHeadSpec,
    AwsNodeSpec,
    check_user_data_size,
    render_aws_head,
    render_aws_node,
    user_data_base64gzip,
)
from gangway.images.specs import Breaker, FileSystem
from gangway.stacks.base.shared import METRICS_PORT, RENDEZVOUS_PORT, container_labels
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.aws.plan import MOUNT, AwsPlan, job_spec, run_dir


class _Names(NamedTuple):
    """The values of UserDataInputs."""

    job: JobSpec
    bucket: str
    log_group: str
    mount_source: str | None
    member_key: str | None
    signing_key: str


@dataclass(frozen=True)
class UserDataInputs:
    """Names that exist only once their resources do. `member_key`: None for a single node."""

    job: pulumi.Output[JobSpec]
    bucket: pulumi.Output[str]
    log_group: pulumi.Output[str]
    lustre: LustreFileSystem | None
    member_key: pulumi.Output[str] | None
    signing_key: pulumi.Output[str]

    def get_names(self) -> pulumi.Output[_Names]:
        """The names as one output."""
        lustre = self.lustre
        source = pulumi.Output.concat(lustre.dns_name, "@tcp:/", lustre.mount_name) if lustre else None
        named = pulumi.Output.all(self.job, self.bucket, self.log_group, source, self.member_key, self.signing_key)
        return named.apply(lambda known: _Names(*known))


def node_user_data(config: StackConfig, planned: AwsPlan, user_data_inputs: UserDataInputs) -> pulumi.Output[str]:
    """A worker's user data, base64."""
    return user_data_inputs.get_names().apply(lambda names: user_data_base64gzip(_render_node(config, planned, names)))


def head_user_data(config: StackConfig, user_data_inputs: UserDataInputs) -> pulumi.Output[str]:
    """The head node's user data, base64."""
    return user_data_inputs.get_names().apply(lambda names: _head(config, names))


def _common(config: StackConfig, names: _Names) -> dict[str, Any]:
    """The settings of every machine."""
    return {
        "stack": config.stack,
        "job": names.job,
        "region": config.region,
        "image_registry": names.job.image.partition("/")[0],
        "bucket_uri": f"s3://{names.bucket}/{config.stack}",
        "run_dir": run_dir(config),
        "file_system": None if names.mount_source is None else FileSystem("lustre", names.mount_source, MOUNT),
        "log_group": names.log_group,
        "max_hours": config.work.max_hours,
        "member_key": names.member_key,
        "signing_key": names.signing_key,
    }


def _render_node(config: StackConfig, planned: AwsPlan, names: _Names) -> str:
    num_efa = count_efa(planned.machine)
    spec = AwsNodeSpec(
        **_common(config, names),
        efa_interfaces_planned=num_efa,
        # A machine without EFA mounts such a file system over TCP.
        lustre_efa=config.storage is not None and config.storage.efa and num_efa > 0,
        lustre_efa_setup_sha256=(config.storage and config.storage.efa_setup_sha256) or EFA_SETUP_SHA256,
        # Fewer than AWS's script sets up means that one failed and the file system is slow.
        lustre_efa_interfaces=count_lustre_efa(planned.machine),
        data_dir=names.job.data_dir,
        scratch_mount_point="/scratch" if planned.machine.instance_store_gib.value else None,
        labels=container_labels(config, planned.tags),
        lifecycle_hook=LIFECYCLE_HOOK,
        terminate_when_done=config.work.terminate_when_done,
        breaker=Breaker(config.cluster.given_up_limit, config.cluster.breaker.minutes),
    )
    return render_aws_node(spec)


def _head(config: StackConfig, names: _Names) -> str:
    # A command leaves no record to upload, and its metrics are unknown.
    scrapes = config.trains and config.network.egress is Egress.NAT
    spec = AwsHeadSpec(
        **_common(config, names if config.trains else names._replace(mount_source=None)),
        port=RENDEZVOUS_PORT,
        metrics_port=METRICS_PORT,
        prometheus_image=config.head.prometheus_image if scrapes else None,
    )
    return user_data_base64gzip(render_aws_head(spec))


def check_user_data(config: StackConfig, planned: AwsPlan) -> None:
    """Renders a worker's user data with the longest names that AWS may assign. InputError: it exceeds EC2's limit; only
    the job can make it long.
    """
    registry = f"{'0' * 12}.dkr.ecr.{config.region}.amazonaws.com/{config.stack}-trainer-{'0' * 7}"
    names = _Names(
        job=job_spec(config, planned, config.ready_image or f"{registry}@sha256:{'0' * 64}"),
        bucket="b" * 63,
        log_group=f"/gangway/{config.stack}",
        mount_source=f"{'d' * 63}@tcp:/{'m' * 8}" if config.storage else None,
        member_key=parameter_name(config.stack, "member-key") if planned.member_key else None,
        signing_key=parameter_name(config.stack, "signing-key"),
    )
    try:
        check_user_data_size(_render_node(config, planned, names))
    except ValueError as error:
        raise InputError(
            "gangway:job",
            # The renderer's fix, after the semicolon, is for developers.
            f"a node's user data exceeds EC2's limit: {str(error).partition(';')[0]}",
            allowed=f"at most {USER_DATA_LIMIT_BYTES} bytes after gzip",
            fix="shorten the command, its env or the settings",
        ) from None
