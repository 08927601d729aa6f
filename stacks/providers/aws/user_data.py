"""User data of the machines of a stack on AWS: cloud-init of workers and head node."""

import string
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import pulumi

from gangway.components.aws.identity import parameter_name
from gangway.components.aws.launch import count_efa, count_lustre_efa
from gangway.components.aws.node_pool import LIFECYCLE_HOOK
from gangway.components.core.findings import InputError
from gangway.components.core.job import JobSpec
from gangway.images.aws import (
    CLOUD,
    EFA_SETUP_SHA256,
    USER_DATA_LIMIT_BYTES,
    AwsHeadSpec,
    AwsNodeSpec,
    check_user_data_size,
    render_aws_head,
    render_aws_node,
    user_data_base64gzip,
)
from gangway.images.machine_image import MachineImageSpec, render_machine_image
from gangway.images.specs import FileSystem, exporter_ports
from gangway.stacks.base.shared import has_exporters, head_settings, machine_settings, worker_settings
from gangway.stacks.base.stand_ins import stand_in, stand_in_digest
from gangway.stacks.config.engine_settings import SlurmConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.aws.plan import MOUNT, AwsPlan, job_spec


class Names(NamedTuple):
    """Names that exist only once their resources do. `member_key`: None for a single node."""

    job: JobSpec
    bucket: str
    log_group: str
    mount_source: str | None
    member_key: str | None
    signing_key: str


class Mountable(Protocol):
    """A file system, new or existing."""

    @property
    def dns_name(self) -> pulumi.Output[str]:
        """The address of its servers."""
        ...

    @property
    def mount_name(self) -> pulumi.Output[str]:
        """Its name on them."""
        ...


def get_mount_source(lustre: Mountable | None) -> pulumi.Output[str] | None:
    """The file system as nodes mount it."""
    return pulumi.Output.concat(lustre.dns_name, "@tcp:/", lustre.mount_name) if lustre else None


def node_user_data(config: StackConfig, planned: AwsPlan, names: pulumi.Output[Names]) -> pulumi.Output[str]:
    """A worker's user data, base64."""
    return names.apply(lambda known: user_data_base64gzip(_render_node(config, planned, known)))


def head_user_data(config: StackConfig, names: pulumi.Output[Names]) -> pulumi.Output[str]:
    """The head node's user data, base64."""
    return names.apply(lambda known: _head(config, known))


def _common(config: StackConfig, names: Names) -> dict[str, Any]:
    return {
        **machine_settings(config, names.job, f"s3://{names.bucket}", MOUNT),
        "region": config.region,
        "file_system": None if names.mount_source is None else FileSystem("lustre", names.mount_source, MOUNT),
        "log_group": names.log_group,
        "member_key": names.member_key,
        "signing_key": names.signing_key,
    }


def _render_node(config: StackConfig, planned: AwsPlan, names: Names) -> str:
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
        lifecycle_hook=LIFECYCLE_HOOK,
        **worker_settings(config, planned.machine, planned.tags),
    )
    return render_aws_node(spec)


def _head(config: StackConfig, names: Names) -> str:
    # A command leaves no record to upload.
    known = names if config.trains else names._replace(mount_source=None)
    spec = AwsHeadSpec(**_common(config, known), **head_settings(config))
    return user_data_base64gzip(render_aws_head(spec))


def image_script(config: StackConfig, planned: AwsPlan, container: str = "") -> str:
    """The script of the nodes' machine image. `container`: the job's, by digest; a queue has none."""
    exporters = exporter_ports(gpus=planned.machine.backend == "nccl") if has_exporters(config) else {}
    spec = MachineImageSpec(
        cloud=CLOUD,
        lustre=config.storage is not None,
        slurm=isinstance(config.engine, SlurmConfig),
        container=container,
        registry=container.partition("/")[0],
        exporters=tuple(exporters),
        settings={"REGION": config.region},
    )
    return render_machine_image(spec)


def longest_mount_source(config: StackConfig) -> str | None:
    """A stand-in for what `get_mount_source` returns."""
    if config.storage is None:
        return None
    return f"{stand_in('file system', 63)}@tcp:/{stand_in('mount name', 8)}"


@contextmanager
def user_data_limit(place: str, owner: str, fix: str) -> Iterator[None]:
    """InputError if the block renders user data above EC2's limit. `owner`: such as `a node`."""
    try:
        yield
    except ValueError as error:
        raise InputError(
            place,
            # The renderer's fix, after the semicolon, is for developers.
            f"{owner}'s user data exceeds EC2's limit: {str(error).partition(';')[0]}",
            allowed=f"at most {USER_DATA_LIMIT_BYTES} bytes after gzip",
            fix=fix,
        ) from None


def _shorter(config: StackConfig) -> str:
    shorter = "shorten the command, its env or the settings"
    return f"{shorter}, or leave observe.hardware out" if config.observe.hardware else shorter


def check_user_data(config: StackConfig, planned: AwsPlan) -> None:
    """Render a worker's user data with the longest names that AWS may assign. InputError: it exceeds EC2's limit."""
    account = stand_in("account", 12, string.digits)
    registry = f"{account}.dkr.ecr.{config.region}.amazonaws.com/{config.stack}-trainer-{stand_in('repository', 7)}"
    names = Names(
        job=job_spec(config, planned, config.ready_image or f"{registry}@{stand_in_digest()}"),
        bucket=stand_in("bucket", 63),
        log_group=f"/gangway/{config.stack}",
        mount_source=longest_mount_source(config),
        member_key=parameter_name(config.stack, "member-key") if planned.member_key else None,
        signing_key=parameter_name(config.stack, "signing-key"),
    )
    with user_data_limit("gangway:job", "a node", _shorter(config)):
        check_user_data_size(_render_node(config, planned, names))
