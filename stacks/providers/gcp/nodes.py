"""The workers of a stack on Google Cloud: groups of GPU machines, or slices from the queue of TPUs.

Either way `Nodes` is what the parts around them get to know. Machines, shape and rungs are `plan`'s.
"""

from dataclasses import dataclass
from typing import Any, cast

import pulumi
import pulumi_gcp as gcp

from components.gcp.capacity import rung_zone
from components.gcp.firewall import network_tag
from components.gcp.head_files import HeadFiles
from components.gcp.head_node import HeadNode
from components.gcp.network import TrainingNetwork
from components.gcp.node_pool import CapacityRungArgs, GpuNodePool
from components.gcp.queued_tpu import QueuedTpu
from components.gcp.tpu_request import QueuedTpuArgs
from components.order import after
from stacks.providers.gcp.boot import FALLBACK_OBJECT, Boot, node_user_data, tpu_startup_script
from stacks.providers.gcp.plan import GcpPlan
from stacks.providers.gcp.tpu import TPU_TIERS, reservation_name
from stacks.settings.config import StackConfig

__all__ = ["Key", "Nodes", "declare_fallback", "gpu_nodes", "place", "tpu_nodes"]

Key = pulumi.Output[str] | None


@dataclass(frozen=True)
class Nodes:
    """The workers, as the parts around them speak of them; slices are in no group, and groups in no queue.

    Attributes:
        group_ids: full names of the groups.
        fallback: JSON for the head; None where there is no second rung.
        queued_resource: full name of the request.
    """

    group_names: pulumi.Output[list[str]]
    group_ids: pulumi.Output[list[str]]
    fallback: pulumi.Output[str] | None
    queued_resource: pulumi.Output[str] | None


def place(config: StackConfig, planned: GcpPlan) -> dict[str, Any]:
    """What nearly every component is told: project and region."""
    return {"project": planned.project, "region": config.region}


def gpu_nodes(
    config: StackConfig,
    planned: GcpPlan,
    network: TrainingNetwork,
    email: pulumi.Output[str],
    key: Key,
    boot: Boot,
    head: HeadNode | None,
    opts: pulumi.ResourceOptions,
) -> Nodes:
    """Groups of GPU machines, one for each rung."""
    cluster, storage = config.cluster, config.storage
    user_data = node_user_data(config, planned, boot)
    args: dict[str, Any] = {
        **place(config, planned),
        "zone": planned.zone,
        "machine_type": planned.machine.name,
        "num_nodes_min": cluster.nodes.min,
        "num_nodes_max": cluster.nodes.max,
        "capacity": [
            cast("CapacityRungArgs", rung.model_dump(mode="json", exclude_none=True)) for rung in cluster.capacity
        ],
        "subnet_ids": network.private_subnet_ids,
        "fabric_subnet_ids": network.fabric_subnet_ids,
        "security_group_ids": [network.fabric_security_group_id],
        "image_id": cluster.image_id,
        "service_account_email": email,
        # Workers agree on their last checkpoint over the head node's store, so it has to outlive them.
        "user_data": after(user_data, head.host) if head else user_data,
        "root_volume_gib": cluster.root_volume_gib,
        "secure_boot": storage is None or storage.kind != "lustre",
        "kms_key_name": key,
        "tags": planned.tags,
    }
    pool = GpuNodePool(config.stack, cast("Any", args), opts)
    zones = [rung_zone(rung, planned.zone) for rung in cluster.capacity]
    ids = pool.group_names.apply(
        lambda names: [_group_id(planned.project, *named) for named in zip(zones, names, strict=True)]
    )
    fallback = pool.fallback_config if len(cluster.capacity) > 1 else None
    return Nodes(pool.group_names, ids, fallback, None)


def _group_id(project: str, zone: str, name: str) -> str:
    return f"projects/{project}/zones/{zone}/instanceGroupManagers/{name}"


def tpu_nodes(
    config: StackConfig,
    planned: GcpPlan,
    network: TrainingNetwork,
    email: pulumi.Output[str],
    key: Key,
    boot: Boot,
    opts: pulumi.ResourceOptions,
) -> Nodes:
    """Slices, asked of the queue together."""
    tpu, cluster, section = planned.tpu, config.cluster, config.gcp
    assert tpu is not None, "asked for slices only where the plan has one"
    assert section is not None, "stacks.providers.settings has seen to it"
    (rung,) = cluster.capacity
    shape = {"accelerator_type": tpu.accelerator_type}
    own_shape = {"accelerator_config": {"type": tpu.api_type, "topology": tpu.topology}}
    optional = {
        "reservation_name": reservation_name(rung, planned.project, planned.zone),
        "kms_key_name": key,
        "api_url": section.tpu_api_url,
    }
    args: dict[str, Any] = {
        "project": planned.project,
        "zone": planned.zone,
        **(shape if tpu.default_topology else own_shape),
        "runtime_version": tpu.runtime_version,
        "tier": TPU_TIERS[rung.kind],
        "num_slices": cluster.nodes.max,
        "service_account": email,
        "subnetwork": network.private_subnet_ids[0],
        "network_tags": [network_tag(config.stack, "fabric")],
        "startup_script": tpu_startup_script(config, planned, boot),
        "labels": planned.tags,
        **{name: value for name, value in optional.items() if value is not None},
    }
    queued = QueuedTpu(config.stack, cast("QueuedTpuArgs", args), opts)
    nothing: pulumi.Output[list[str]] = pulumi.Output.from_input([])
    return Nodes(nothing, nothing, None, queued.name)


def declare_fallback(
    config: StackConfig, files: HeadFiles, content: pulumi.Output[str], opts: pulumi.ResourceOptions
) -> None:
    """The groups that the head fills. In a bucket, because the head stands before them and outlives them."""
    gcp.storage.BucketObject(
        f"{config.stack}-fallback",
        bucket=files.bucket_name,
        name=FALLBACK_OBJECT,
        content=content,
        content_type="application/json",
        opts=opts,
    )
