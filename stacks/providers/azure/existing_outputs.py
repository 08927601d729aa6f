"""What stands for a component whose resource exists already: the outputs that the other components read."""

from dataclasses import dataclass
from typing import Self

import pulumi

from gangway.components.azure.file_system import MOUNT_NAME
from gangway.components.azure.storage import IMAGE
from gangway.stacks.providers.azure.existing_settings import ExistingConfig, resource_name


@dataclass(frozen=True)
class GivenGroup:
    """As ResourceGroup."""

    resource_group_name: str


@dataclass(frozen=True)
class GivenNetwork:
    """As TrainingNetwork; without a group or a zone None."""

    vpc_id: str
    private_subnet_ids: pulumi.Output[list[str]]
    lustre_subnet_id: str
    fabric_security_group_id: str | None
    head_security_group_id: str | None
    private_zone_id: str | None

    @classmethod
    def from_settings(cls, existing: ExistingConfig) -> Self:
        """Of the subnet in the settings."""
        assert existing.subnet_id is not None, "only with a subnet"
        groups, zone = existing.application_security_groups, existing.private_dns_zone_id
        return cls(
            vpc_id=existing.network_id,
            private_subnet_ids=pulumi.Output.from_input([existing.subnet_id]),
            lustre_subnet_id=existing.lustre_subnet_id or "",
            fabric_security_group_id=groups.fabric,
            head_security_group_id=groups.head,
            private_zone_id=None if zone is None else resource_name(zone),
        )


@dataclass(frozen=True)
class GivenRuns:
    """As RunBucket."""

    bucket_name: str
    bucket_url: str
    account_id: str
    container_id: str

    @classmethod
    def from_id(cls, container_id: str) -> Self:
        """By the container's resource id."""
        account, name = container_id.partition("/blobServices/")[0], resource_name(container_id)
        url = f"https://{resource_name(account)}.blob.core.windows.net/{name}"
        return cls(name, url, account, container_id)


@dataclass(frozen=True)
class GivenRegistry:
    """As ImageRegistry. Images of several stacks share the registry, so each stack has a separate repository."""

    repository_url: str
    repository_id: str
    registry_host: pulumi.Output[str]

    @classmethod
    def from_id(cls, registry_id: str, host: str, stack: str) -> Self:
        """`host`: of its login server."""
        return cls(f"{host}/{stack}/{IMAGE}", registry_id, pulumi.Output.from_input(host))


@dataclass(frozen=True)
class GivenFileSystem:
    """As LustreFileSystem. `dns_name`: the address of its management server."""

    dns_name: str

    @property
    def mount_point(self) -> str:
        """What clients mount."""
        return f"{self.dns_name}@tcp:/{MOUNT_NAME}"


@dataclass(frozen=True)
class GivenIdentity:
    """As NodeIdentity and HeadIdentity."""

    identity_id: str
    client_id: pulumi.Output[str]
