"""From a StackConfig to resources and to the outputs of `pulumi up`; engine, offline plan and sandbox use it."""

from collections.abc import Mapping
from typing import Any

import pulumi

from gangway.components.kubernetes.charts import QUEUE
from gangway.stacks.base.extras import missing_extra
from gangway.stacks.base.provider import Program
from gangway.stacks.base.registry import get_provider
from gangway.stacks.base.sdk_imports import import_by_name
from gangway.stacks.config.engine_settings import KubernetesConfig, SystemdConfig
from gangway.stacks.config.stack_config import StackConfig


def get_program(provider: str) -> Program[Any]:
    """The provider's `program`, imported on demand with its cloud's SDK. InputError: its extra is not installed."""
    import_by_name()
    try:
        return get_provider(provider).program()
    except ModuleNotFoundError as error:
        raise missing_extra(error, provider) or error from None


def build(config: StackConfig, planned: Any = None) -> Mapping[str, pulumi.Input[Any]]:
    """Declares all resources of the stack and returns its exports. `planned`: the provider's plan, if it exists."""
    program = get_program(config.provider)
    return program.build(config, planned or program.plan(config))


HIDDEN = frozenset({"job", "kubeconfig"})
"""Outputs of many lines. They are not secrets, but marking them so is the only way to keep them out of the engine's
summary; `pulumi stack output NAME --show-secrets` prints them.
"""
OUTPUTS: Mapping[str, str] = {
    "next_command": "the command to run after `up`",
    "job": "the job specification as JSON; hidden, `--show-secrets` prints it",
    "image": "container image of the nodes",
    "machine_images": "machine images of the nodes and the head",
    "run_bucket": "name of the bucket for checkpoints and records; with hosts, `hosts.run_store`",
    "run_bucket_url": "the same as a URL",
    "group_names": "the node groups, one per rung; with hosts, the machines",
    "node_pools": "the node pools of the cluster",
    "queued_resource": "the queued resource of the TPU slices",
    "host_addresses": "addresses of the machines",
    "head_instance_id": "the head node",
    "cluster_name": "the Kubernetes cluster",
    "endpoint": "address of the Kubernetes API",
    "kubeconfig": "the kubeconfig of the cluster; hidden, `--show-secrets` prints it",
    "queues": "queues of `gangway job submit`",
    "partitions": "the Slurm partitions, one per rung",
    "submit_on": "`--on` of `gangway job submit`; none without a shared folder",
    "registry": "container registry of the stack",
    "lustre_dns_name": "address of the file system, of Filestore too",
    "mount_point": "what the nodes mount, or the shared folder of hosts",
    "log_group": "CloudWatch log group, Google Cloud log or Azure Log Analytics workspace",
    "dashboard": "the dashboard",
    "alarm_topic_arn": "SNS topic of the alarms",
    "alarm_topic_id": "Azure Monitor action group of the alarms",
    "budget_topic_arn": "SNS topic of the budget",
    "budget_topic_id": "Pub/Sub topic of the budget, or its Azure Monitor action group",
    "signing_public_key": "public key for the signatures of run records, PEM",
    "service_perimeter": "the VPC Service Controls perimeter",
    "project": "the Google Cloud project",
    "resource_group": "the Azure resource group",
    "zone": "the zone of the nodes",
}
"""All outputs of all providers. A stack leaves out those that it does not have."""


def stack_exports(config: StackConfig, exports: Mapping[str, Any]) -> dict[str, pulumi.Input[Any]]:
    """The provider's `exports` without empty ones, with long ones hidden, and `next_command`."""
    present = {name: value for name, value in exports.items() if value is not None}
    outputs = {name: pulumi.Output.secret(value) if name in HIDDEN else value for name, value in present.items()}
    return {**outputs, "next_command": next_command(config, present.get("submit_on"))}


def next_command(config: StackConfig, submit_on: str | None = None) -> str:
    """The command to run after `up`. `submit_on`: the value of `--on` for a Slurm head, if known."""
    if isinstance(config.engine, SystemdConfig):
        return f"gangway job {config.stack_name}"
    if isinstance(config.engine, KubernetesConfig):
        submit_on = f"kubernetes:@{config.engine.queues[0]}/{QUEUE}"
    return f"gangway job submit FILE --on {submit_on or 'slurm:SHARED_FOLDER'}"
