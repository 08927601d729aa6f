"""What stands for a component whose resource exists already: the outputs that the other components read."""

from dataclasses import dataclass
from typing import Self

import pulumi

from gangway.components.azure.file_system import MOUNT_NAME
from gangway.components.azure.storage import IMAGE
from gangway.stacks.providers.azure.existing_settings import (
    ExistingConfig,
    ExistingKey,
    group_name,
    resource_name,
)


def _known(value: str) -> pulumi.Output[str]:
    return pulumi.Output.from_input(value)


@dataclass(frozen=True)
class GivenGroup:
    """As ResourceGroup."""

    resource_group_name: pulumi.Output[str]

    @classmethod
    def from_id(cls, resource_id: str) -> Self:
        """By its resource id."""
        return cls(_known(group_name(resource_id)))


@dataclass(frozen=True)
class GivenNetwork:
    """As TrainingNetwork; without a group or a zone None."""

    vpc_id: pulumi.Output[str]
    private_subnet_ids: pulumi.Output[list[str]]
    lustre_subnet_id: pulumi.Output[str]
    fabric_security_group_id: str | None
    head_security_group_id: str | None
    private_zone_id: str | None

    @classmethod
    def from_settings(cls, existing: ExistingConfig) -> Self:
        """Of the subnet in the settings."""
        assert existing.subnet_id is not None, "only with a subnet"
        groups, zone = existing.application_security_groups, existing.private_dns_zone_id
        return cls(
            vpc_id=_known(existing.network_id),
            private_subnet_ids=pulumi.Output.from_input([existing.subnet_id]),
            lustre_subnet_id=_known(existing.lustre_subnet_id or ""),
            fabric_security_group_id=groups.fabric,
            head_security_group_id=groups.head,
            private_zone_id=None if zone is None else resource_name(zone),
        )


@dataclass(frozen=True)
class GivenKey:
    """As EncryptionKey."""

    key_name: pulumi.Output[str]
    key_url: pulumi.Output[str]
    vault_uri: pulumi.Output[str]
    vault_id: pulumi.Output[str]
    identity_id: pulumi.Output[str]
    disk_encryption_set_id: pulumi.Output[str]

    @classmethod
    def from_settings(cls, key: ExistingKey) -> Self:
        """Of the key in the settings."""
        return cls(
            key_name=_known(key.key_name),
            key_url=_known(key.key_url),
            vault_uri=_known(key.vault_uri),
            vault_id=_known(key.vault_id),
            identity_id=_known(key.identity_id),
            disk_encryption_set_id=_known(key.disk_encryption_set_id),
        )


@dataclass(frozen=True)
class GivenRuns:
    """As RunBucket."""

    bucket_name: pulumi.Output[str]
    bucket_url: pulumi.Output[str]
    account_id: pulumi.Output[str]
    container_id: pulumi.Output[str]

    @classmethod
    def from_id(cls, container_id: str) -> Self:
        """By the container's resource id."""
        account, name = container_id.partition("/blobServices/")[0], resource_name(container_id)
        url = f"https://{resource_name(account)}.blob.core.windows.net/{name}"
        return cls(_known(name), _known(url), _known(account), _known(container_id))


@dataclass(frozen=True)
class GivenRegistry:
    """As ImageRegistry. Images of several stacks share the registry, so each stack has a separate repository."""

    repository_url: pulumi.Output[str]
    repository_id: pulumi.Output[str]
    registry_host: pulumi.Output[str]

    @classmethod
    def from_id(cls, registry_id: str, host: str, stack: str) -> Self:
        """`host`: of its login server."""
        return cls(_known(f"{host}/{stack}/{IMAGE}"), _known(registry_id), _known(host))


@dataclass(frozen=True)
class GivenFileSystem:
    """As LustreFileSystem."""

    mount_point: pulumi.Output[str]
    dns_name: pulumi.Output[str]

    @classmethod
    def at(cls, address: str) -> Self:
        """`address`: of its management server."""
        return cls(_known(f"{address}@tcp:/{MOUNT_NAME}"), _known(address))


@dataclass(frozen=True)
class GivenIdentity:
    """As NodeIdentity and HeadIdentity."""

    identity_id: pulumi.Output[str]
    client_id: pulumi.Output[str]
    principal_id: pulumi.Output[str]

    @classmethod
    def known(cls, resource_id: str, client_id: str, principal_id: str) -> Self:
        """By its ids in Azure and in the directory."""
        return cls(_known(resource_id), _known(client_id), _known(principal_id))
