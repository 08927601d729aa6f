"""User data of the machines of a stack on Azure: workers and head node."""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import pulumi

from gangway.components.azure.fabric import FabricPlan
from gangway.components.core.job import JobSpec
from gangway.images.azure import AzureHeadSpec, AzureNodeSpec, FabricSetup, render_azure_head, render_azure_node
from gangway.images.render import base64gzip
from gangway.images.specs import Breaker, FileSystem
from gangway.stacks.base.shared import METRICS_PORT, RENDEZVOUS_PORT, container_labels
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.plan import MOUNT, AzurePlan, data_dir, run_dir, scrapes


class _Names(NamedTuple):
    """The values of UserDataInputs."""

    job: JobSpec
    bucket_url: str
    ingestion_url: str
    mount_source: str | None
    resource_group_name: str
    member_key: str
    signing_key: str


@dataclass(frozen=True)
class UserDataInputs:
    """Names that exist only once their resources do; the keys are URLs in the vault."""

    job: pulumi.Output[JobSpec]
    bucket_url: pulumi.Output[str]
    ingestion_url: pulumi.Output[str]
    mount_source: pulumi.Output[str] | None
    resource_group_name: pulumi.Output[str]
    member_key: pulumi.Output[str]
    signing_key: pulumi.Output[str]

    def get_names(self, *further: pulumi.Output[str]) -> pulumi.Output[tuple[_Names, list[str]]]:
        """The names as one output, with the values of `further`."""
        own = (*(getattr(self, name) for name in _Names._fields),)
        return pulumi.Output.all(*own, *further).apply(lambda values: (_Names(*values[: len(own)]), values[len(own) :]))


def node_user_data(
    config: StackConfig, planned: AzurePlan, user_data_inputs: UserDataInputs, client_id: pulumi.Output[str]
) -> pulumi.Output[str]:
    """A worker's cloud-init file, base64 of gzip; `client_id`: of its identity."""

    def render(known: tuple[_Names, list[str]]) -> str:
        names, (client,) = known
        return base64gzip(render_azure_node(_node(config, planned, names, client)))

    return user_data_inputs.get_names(client_id).apply(render)


def head_user_data(
    config: StackConfig,
    planned: AzurePlan,
    user_data_inputs: UserDataInputs,
    client_id: pulumi.Output[str],
    fallback_config: pulumi.Output[str],
) -> pulumi.Output[str]:
    """The head node's cloud-init file, base64 of gzip; `fallback_config`: the node pool's."""

    def render(known: tuple[_Names, list[str]]) -> str:
        names, (client, ladder) = known
        return base64gzip(render_azure_head(_head(config, planned, names, client, ladder)))

    return user_data_inputs.get_names(client_id, fallback_config).apply(render)


def _common(config: StackConfig, names: _Names, client_id: str) -> dict[str, Any]:
    """The settings of every machine. Only the trainer supports a member key, not torchrun of a custom command."""
    return {
        "stack": config.stack,
        "client_id": client_id,
        "job": names.job,
        "image_registry": names.job.image.partition("/")[0],
        "bucket_uri": f"{names.bucket_url}/{config.stack}",
        "run_dir": run_dir(config),
        "file_system": None if names.mount_source is None else FileSystem("lustre", names.mount_source, MOUNT),
        "ingestion_url": names.ingestion_url,
        "member_key": names.member_key if config.trains else None,
        "signing_key": names.signing_key,
        "max_hours": config.work.max_hours,
    }


def _node(config: StackConfig, planned: AzurePlan, names: _Names, client_id: str) -> AzureNodeSpec:
    return AzureNodeSpec(
        **_common(config, names, client_id),
        # A command on one node does not use InfiniBand.
        fabric=_fabric(planned.fabric) if config.trains or planned.meets else None,
        data_dir=data_dir(planned),
        scratch_mount_point="/scratch" if planned.machine.instance_store_gib.value else None,
        scratch_is_temporary_disk=planned.machine.temporary_disk,
        labels=container_labels(config, planned.tags),
        terminate_when_done=config.work.terminate_when_done,
        breaker=Breaker(config.cluster.given_up_limit, config.cluster.breaker.minutes),
    )


def _fabric(plan: FabricPlan) -> FabricSetup | None:
    """The fabric that a node checks; None if its type has neither InfiniBand nor settings for NCCL."""
    if not plan.num_hcas and not plan.nccl_conf:
        return None
    return FabricSetup(
        num_hcas=plan.num_hcas,
        gbps_each=plan.gbps_each,
        devices=plan.devices,
        kernel_modules=plan.kernel_modules,
        topology_file=plan.topology_file or "",
        nccl_conf=plan.nccl_conf,
    )


def _head(config: StackConfig, planned: AzurePlan, names: _Names, client_id: str, ladder: str) -> AzureHeadSpec:
    return AzureHeadSpec(
        **_common(config, names, client_id),
        subscription_id=planned.subscription_id,
        resource_group_name=names.resource_group_name,
        port=RENDEZVOUS_PORT,
        metrics_port=METRICS_PORT,
        prometheus_image=config.head.prometheus_image if scrapes(config) else None,
        fallback=json.loads(ladder),
    )
