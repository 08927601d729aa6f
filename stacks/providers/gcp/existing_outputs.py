"""Existing resources with the outputs of the components that would make them."""

from dataclasses import dataclass
from typing import Any, Self

import pulumi

from gangway.components.gcp.storage import IMAGE
from gangway.stacks.base.shared import head_ports
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.existing import get_existing
from gangway.stacks.providers.gcp.existing_lookups import MountSource
from gangway.stacks.providers.gcp.plan import GcpPlan


@dataclass(frozen=True)
class ExistingBucket:
    """As RunBucket."""

    bucket_name: pulumi.Output[str]


@dataclass(frozen=True)
class ExistingRegistry:
    """As ImageRegistry."""

    repository_url: pulumi.Output[str]
    repository_id: pulumi.Output[str]
    registry_host: pulumi.Output[str]

    @classmethod
    def named(cls, name: str) -> Self:
        """`name`: projects/P/locations/R/repositories/NAME."""
        _, project, _, location, _, repository = name.split("/")
        host = f"{location}-docker.pkg.dev"
        texts = (f"{host}/{project}/{repository}/{IMAGE}", name, host)
        return cls(*(pulumi.Output.from_input(text) for text in texts))


@dataclass(frozen=True)
class ExistingFileSystem:
    """As LustreFileSystem and Filestore."""

    file_system_id: pulumi.Output[str]
    mount_point: pulumi.Output[str]
    dns_name: pulumi.Output[str]
    mount_name: pulumi.Output[str]

    @classmethod
    def mounted(cls, name: str, mount: MountSource) -> Self:
        """`name`: of the instance."""
        texts = (name, mount.mount_point, mount.address, mount.share)
        return cls(*(pulumi.Output.from_input(text) for text in texts))


def existing_network_args(config: StackConfig, planned: GcpPlan) -> dict[str, Any]:
    """The arguments of ExistingNetwork."""
    existing, lustre = get_existing(config), config.storage is not None and config.storage.kind == "lustre"
    tags = existing.network_tags
    fabric = existing.fabric_subnetworks
    args: dict[str, Any] = {
        "project": planned.project,
        "zone": planned.zone,
        "network": existing.network,
        "subnetwork": existing.subnetwork,
        "fabric_network_ids": [nic.network for nic in fabric],
        "fabric_subnet_ids": [nic.subnetwork for nic in fabric],
        "fabric_tag": tags and tags.fabric,
        "head_tag": tags and (tags.head or tags.fabric),
        "services_cidr": existing.services_cidr if lustre else None,
        "head": None,
        "tags": planned.tags,
    }
    if planned.head:
        args["head"] = head_ports(config, lustre=lustre)
    if planned.tpu is None:
        args["machine_type"] = planned.machine.name
    return args
