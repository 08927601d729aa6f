"""The resources of a Slurm cluster on AWS: a controller on the head node and one group per rung."""

from collections.abc import Mapping
from typing import Any

import pulumi

from gangway.components.aws.identity import SecretParameter
from gangway.components.aws.launch import HeadNode
from gangway.components.aws.monitoring import NodeLogs
from gangway.components.aws.slurm import SlurmIdentity
from gangway.components.aws.storage import LustreFileSystem
from gangway.components.core.network import SlurmPortsArgs
from gangway.images.slurm.conf import SRUN_PORTS
from gangway.stacks.base.shared import head_host
from gangway.stacks.config.engine_settings import SlurmConfig
from gangway.stacks.providers.aws.component_factory import ComponentFactory, Key
from gangway.stacks.providers.aws.plan import head_type
from gangway.stacks.providers.aws.slurm import (
    SlurmNames,
    head_user_data,
    node_user_data,
    partitions,
    slurm_spec,
    submit_target,
)

NODE_IMAGE = "resolve:ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
HEAD_IMAGE = "resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
"""Amazon Linux has no Slurm."""
ROOT_DEVICE = "/dev/sda1"
"""Ubuntu's root device."""


def build_slurm(stack: ComponentFactory, engine: SlurmConfig) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports."""
    config, planned = stack.config, stack.planned
    key = stack.key()
    runs, logs = stack.runs(key), stack.logs(key)
    network = stack.network(runs, None, key, _ports(stack, engine))
    lustre = stack.lustre(network, runs, key)
    munge = stack.munge_key(key)
    names = _get_names(munge.name, lustre, logs.log_group_name)
    images = stack.machine_images()
    node = _identity(stack, "node", munge, key, logs)
    user_data = names.apply(lambda known: node_user_data(config, engine, planned, known))
    pool = stack.pool(network, node, images, user_data, key)
    control = _identity(stack, "head", munge, key)
    inputs = pulumi.Output.all(names, pool.group_names)
    head = HeadNode(
        config.stack,
        {
            "subnet_id": network.private_subnet_ids[0],
            "security_group_ids": [network.head_security_group_id],
            "instance_profile_arn": control.instance_profile_arn,
            "user_data": inputs.apply(
                lambda known: head_user_data(config, engine, planned, SlurmNames(*known[0]), known[1])
            ),
            "host_name": head_host(config),
            "zone_id": network.private_zone_id,
            "machine_type": head_type(config),
            "image_id": images["head"],
            "root_device_name": ROOT_DEVICE,
            "kms_key_arn": key,
            # Two controllers would write the same state, and the old one saves its accounting at shutdown.
            "delete_before_replace": True,
            "tags": planned.tags,
        },
        stack.opts,
    )
    budget = stack.budget(key)
    observed = stack.observe(pool, key)
    return {
        "machine_images": images,
        "run_bucket": runs.bucket_name,
        "group_names": pool.group_names,
        "head_instance_id": head.instance_id,
        "partitions": partitions(config),
        "submit_on": submit_target(config),
        "lustre_dns_name": lustre.dns_name if lustre else None,
        "log_group": logs.log_group_name,
        "dashboard": observed.dashboard_name,
        "alarm_topic_arn": observed.topic_arn,
        "budget_topic_arn": budget.topic_arn,
    }


def _identity(
    stack: ComponentFactory, role: str, munge: SecretParameter, key: Key, logs: NodeLogs | None = None
) -> SlurmIdentity:
    return SlurmIdentity(
        f"{stack.config.stack}-{role}",
        {
            "role": role,
            "stack": stack.config.stack,
            "munge_key_arn": munge.arn,
            "kms_key_arn": key,
            "log_group_arn": None if logs is None else logs.log_group_arn,
            "tags": stack.planned.tags,
        },
        stack.opts,
    )


def _ports(stack: ComponentFactory, engine: SlurmConfig) -> SlurmPortsArgs:
    spec = slurm_spec(stack.config, engine, stack.planned)
    return {
        "controller_port": spec.controller_port,
        "node_port": spec.node_port,
        "client_ports": list(SRUN_PORTS),
        "lustre": stack.config.storage is not None,
    }


def _get_names(
    munge_key: pulumi.Output[str], lustre: LustreFileSystem | None, log_group: pulumi.Output[str]
) -> pulumi.Output[SlurmNames]:
    source = pulumi.Output.concat(lustre.dns_name, "@tcp:/", lustre.mount_name) if lustre else None
    return pulumi.Output.all(munge_key, source, log_group).apply(lambda known: SlurmNames(*known))
