"""User data of the machines of a stack on OpenStack: workers and head node."""

from typing import Any, NamedTuple

import pulumi

from gangway.components.core.job import JobSpec
from gangway.components.openstack import launch
from gangway.images.openstack import (
    SECRETS_FILE,
    OpenstackHeadSpec,
    OpenstackNodeSpec,
    OpenstackSecrets,
    render_openstack_head,
    render_openstack_node,
)
from gangway.images.render import base64gzip
from gangway.images.specs import FileSystem, RdmaSetup
from gangway.stacks.base.shared import container_labels, head_settings, machine_settings
from gangway.stacks.base.stand_ins import stand_in
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.openstack.plan import MOUNT, OpenstackPlan, data_dir, get_section, job_spec


class Names(NamedTuple):
    """Names that exist only once their resources do; those of the share are empty without one."""

    job: JobSpec
    bucket_url: str
    mount_source: str
    mount_user: str


def node_user_data(config: StackConfig, planned: OpenstackPlan, names: pulumi.Output[Names]) -> pulumi.Output[str]:
    """A worker's cloud-init file, base64 of gzip."""
    return names.apply(lambda known: base64gzip(render_openstack_node(_node(config, planned, known))))


def head_user_data(config: StackConfig, planned: OpenstackPlan, names: pulumi.Output[Names]) -> pulumi.Output[str]:
    """The head node's cloud-init file, base64 of gzip."""
    return names.apply(lambda known: base64gzip(render_openstack_head(_head(config, planned, known))))


def check_user_data(config: StackConfig, planned: OpenstackPlan) -> None:
    """Render a worker's user data with the longest names that the cloud may assign. InputError: above Nova's limit."""
    image = config.ready_image
    assert image is not None, "gangway.stacks.loading.unsupported_settings checks it"
    names = Names(
        job=job_spec(config, planned, image),
        bucket_url=f"swift://{stand_in('bucket', 63)}",
        mount_source=stand_in("share", 255) if config.storage else "",
        mount_user=f"gangway-{config.stack}"
        if config.storage and get_section(config).share_protocol == "CEPHFS"
        else "",
    )
    launch.check_user_data(base64gzip(render_openstack_node(_node(config, planned, names))), "gangway:job")


def secrets_content(
    config: StackConfig,
    credential: tuple[pulumi.Output[str], pulumi.Output[str]],
    member_key: pulumi.Output[str] | None,
    signing_key: pulumi.Output[str],
    mount_key: pulumi.Input[str],
) -> pulumi.Output[str]:
    """The secrets of every machine; `credential`: id and secret."""
    known = pulumi.Output.all(*credential, member_key, signing_key, mount_key)
    auth_url = get_section(config).auth_url.rstrip("/")
    return known.apply(lambda values: OpenstackSecrets(auth_url, config.region, *values).text())


def _common(config: StackConfig, planned: OpenstackPlan, names: Names) -> dict[str, Any]:
    return {
        **machine_settings(config, names.job, names.bucket_url, MOUNT),
        "member_key": SECRETS_FILE if planned.member_key else None,
        "signing_key": SECRETS_FILE,
        "file_system": _file_system(config, names.mount_source),
        "mount_user": names.mount_user,
        "terminate_when_done": config.work.terminate_when_done,
    }


def _file_system(config: StackConfig, source: str) -> FileSystem | None:
    if config.storage is None:
        return None
    return FileSystem("ceph" if get_section(config).share_protocol == "CEPHFS" else "nfs", source, MOUNT)


def _node(config: StackConfig, planned: OpenstackPlan, names: Names) -> OpenstackNodeSpec:
    fabric = planned.fabric
    setup = RdmaSetup(
        link_layer="InfiniBand" if fabric.link_layer == "InfiniBand" else "Ethernet",
        num_devices=fabric.num_devices,
        gbps_each=fabric.gbps_each,
        hcas=fabric.hcas,
        devices=fabric.devices,
    )
    return OpenstackNodeSpec(
        **_common(config, planned, names),
        # A command on one node does not use RDMA.
        fabric=setup if fabric.num_devices and (config.trains or names.job.command_meets) else None,
        data_dir=data_dir(config),
        labels=container_labels(config, planned.tags),
    )


def _head(config: StackConfig, planned: OpenstackPlan, names: Names) -> OpenstackHeadSpec:
    # A command leaves no record to upload.
    known = names if config.trains else names._replace(mount_user="")
    common = _common(config, planned, known) | ({} if config.trains else {"file_system": None})
    workers = tuple(planned.network.worker(index) for index in range(planned.num_machines))
    return OpenstackHeadSpec(**common, workers=workers, **head_settings(config))
