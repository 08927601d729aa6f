"""User data of the machines of a stack on Azure: workers and head node."""

import json
from typing import Any, NamedTuple

import pulumi

from gangway.components.azure.fabric import FabricPlan
from gangway.components.azure.launch import check_custom_data
from gangway.components.core.job import JobSpec
from gangway.images.azure import CLOUD, AzureHeadSpec, AzureNodeSpec, FabricSetup, render_azure_head, render_azure_node
from gangway.images.machine_image import MachineImageSpec, render_machine_image
from gangway.images.render import base64gzip
from gangway.images.specs import FileSystem, exporter_ports
from gangway.stacks.base.shared import has_exporters, head_settings, machine_settings, worker_settings
from gangway.stacks.base.stand_ins import stand_in, stand_in_digest
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.plan import MOUNT, AzurePlan, data_dir, job_spec


class Names(NamedTuple):
    """Names that exist only once their resources do; the keys are URLs in the vault."""

    job: JobSpec
    bucket_url: str
    ingestion_url: str
    mount_source: str | None
    resource_group_name: str
    member_key: str
    signing_key: str


def node_user_data(
    config: StackConfig, planned: AzurePlan, names: pulumi.Output[Names], client_id: pulumi.Output[str]
) -> pulumi.Output[str]:
    """A worker's cloud-init file, base64 of gzip; `client_id`: of its identity."""
    known = pulumi.Output.all(names, client_id)
    return known.apply(
        lambda values: base64gzip(render_azure_node(_node(config, planned, Names(*values[0]), values[1])))
    )


def check_user_data(config: StackConfig, planned: AzurePlan) -> None:
    """Render a worker's user data with the longest names that Azure may assign. InputError: above Azure's limit."""
    registry = f"{stand_in('registry', 50)}.azurecr.io/{config.stack}-trainer"
    vault = f"https://{stand_in('vault', 24)}.vault.azure.net/secrets"
    names = Names(
        job=job_spec(config, planned, config.ready_image or f"{registry}@{stand_in_digest()}"),
        bucket_url=f"az://{stand_in('account', 24)}/{stand_in('container', 63)}",
        ingestion_url=f"https://{stand_in('ingestion', 255)}",
        mount_source=f"{stand_in('file system', 63)}@tcp:/lustrefs" if config.storage else None,
        resource_group_name=stand_in("group", 90),
        member_key=f"{vault}/{stand_in('member key', 127)}",
        signing_key=f"{vault}/{stand_in('signing key', 127)}",
    )
    packed = base64gzip(render_azure_node(_node(config, planned, names, stand_in("client", 36))))
    check_custom_data(packed, "gangway:job", "shorten the command, its env or the settings")


def head_user_data(
    config: StackConfig,
    planned: AzurePlan,
    names: pulumi.Output[Names],
    client_id: pulumi.Output[str],
    fallback_config: pulumi.Output[str],
) -> pulumi.Output[str]:
    """The head node's cloud-init file, base64 of gzip; `fallback_config`: the node pool's."""

    def render(known: list[Any]) -> str:
        common = _common(config, Names(*known[0]), known[1])
        spec = AzureHeadSpec(
            **common,
            subscription_id=planned.subscription_id,
            resource_group_name=Names(*known[0]).resource_group_name,
            fallback=json.loads(known[2]),
            **head_settings(config),
        )
        return base64gzip(render_azure_head(spec))

    return pulumi.Output.all(names, client_id, fallback_config).apply(render)


def image_script(config: StackConfig, container: str, client_id: str) -> str:
    """The script of the nodes' machine image. `container`: the job's, by digest; `client_id`: of the builder."""
    spec = MachineImageSpec(
        cloud=CLOUD,
        docker=True,
        lustre=config.storage is not None,
        container=container,
        registry=container.partition("/")[0],
        exporters=tuple(exporter_ports(gpus=True)) if has_exporters(config) else (),
        settings={"CLIENT_ID": client_id, "SCRATCH_TEMPORARY": ""},
    )
    return render_machine_image(spec)


def _common(config: StackConfig, names: Names, client_id: str) -> dict[str, Any]:
    """The settings of every machine. Only the trainer supports a member key, not torchrun of a custom command."""
    return {
        **machine_settings(config, names.job, names.bucket_url, MOUNT),
        "client_id": client_id,
        "file_system": None if names.mount_source is None else FileSystem("lustre", names.mount_source, MOUNT),
        "ingestion_url": names.ingestion_url,
        "member_key": names.member_key if config.trains else None,
        "signing_key": names.signing_key,
    }


def _node(config: StackConfig, planned: AzurePlan, names: Names, client_id: str) -> AzureNodeSpec:
    return AzureNodeSpec(
        **_common(config, names, client_id),
        # A command on one node does not use InfiniBand.
        fabric=_fabric(planned.fabric) if config.trains or planned.meets else None,
        data_dir=data_dir(config, planned),
        scratch_is_temporary_disk=planned.machine.temporary_disk,
        **worker_settings(config, planned.machine, planned.tags),
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
