"""The settings `existing` of gangway:azure: what the stack uses but does not own."""

from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Annotated

from pydantic import AfterValidator, Field

from gangway.stacks.config.section import Section

PLACE = "gangway:azure.existing"
GROUP = r"^/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/]{1,90}"
RESOURCE = f"{GROUP}/providers/"
_EXAMPLE_GROUP = "/subscriptions/11111111-0000-0000-0000-111111111111/resourceGroups/platform"
_NETWORK = r"Microsoft\.Network/virtualNetworks/[^/]{2,64}"


def _address(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except ValueError:
        raise ValueError("an IPv4 address, such as 10.20.0.10") from None


def _resource(kind: str, example: str) -> str | None:
    """A setting for the id of a resource of one kind."""
    value: str | None = Field(
        default=None, pattern=f"{RESOURCE}{kind}$", examples=[f"{_EXAMPLE_GROUP}/providers/{example}"]
    )
    return value


class SecurityGroupIds(Section):
    """Application security groups that the machines join, for the rules of their subnet.

    Attributes:
        fabric: resource id of the group of the nodes.
        head: resource id of the group of the head.
    """

    fabric: str | None = _resource(
        r"Microsoft\.Network/applicationSecurityGroups/[^/]{1,80}",
        "Microsoft.Network/applicationSecurityGroups/training-nodes",
    )
    head: str | None = _resource(
        r"Microsoft\.Network/applicationSecurityGroups/[^/]{1,80}",
        "Microsoft.Network/applicationSecurityGroups/training-head",
    )


class ExistingKey(Section):
    """A key in a vault, with what may already use it: the stack grants nothing on it.

    Attributes:
        key_url: URL of one version of the key; disks and storage follow its rotation.
        vault_id: resource id of its vault.
        identity_id: resource id of the managed identity with which storage uses the key.
        disk_encryption_set_id: resource id of the disk encryption set of the machines' disks.
    """

    key_url: str = Field(
        pattern=r"^https://[A-Za-z0-9-]{3,24}\.vault\.azure\.net/keys/[A-Za-z0-9-]{1,127}/[0-9a-f]{32}$",
        examples=[f"https://platform-keys.vault.azure.net/keys/training/{'0123456789abcdef' * 2}"],
    )
    vault_id: str = Field(
        pattern=RESOURCE + r"Microsoft\.KeyVault/vaults/[A-Za-z0-9-]{3,24}$",
        examples=[f"{_EXAMPLE_GROUP}/providers/Microsoft.KeyVault/vaults/platform-keys"],
    )
    identity_id: str = Field(
        pattern=RESOURCE + r"Microsoft\.ManagedIdentity/userAssignedIdentities/[\w-]{3,128}$",
        examples=[f"{_EXAMPLE_GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/storage-key"],
    )
    disk_encryption_set_id: str = Field(
        pattern=RESOURCE + r"Microsoft\.Compute/diskEncryptionSets/[\w-]{1,80}$",
        examples=[f"{_EXAMPLE_GROUP}/providers/Microsoft.Compute/diskEncryptionSets/training"],
    )

    @property
    def key_name(self) -> str:
        """The key's name in its vault."""
        return self.key_url.split("/")[4]

    @property
    def vault_uri(self) -> str:
        """The vault's address."""
        return self.key_url.partition("keys/")[0]

    @property
    def key_id(self) -> str:
        """The key's resource id, a scope of roles."""
        return f"{self.vault_id}/keys/{self.key_name}"


class ExistingConfig(Section):
    """Resources that exist and that the stack only uses: `up` neither creates, tags, changes nor deletes them.

    Attributes:
        resource_group_id: resource id of the group that gets the stack's resources, best an empty one.
        subnet_id: resource id of the machines' subnet, in the stack's subscription.
        head_private_ip: free address of that subnet for the head.
        lustre_subnet_id: resource id of the subnet for the stack's Managed Lustre, which should hold nothing else.
        application_security_groups: application security groups that the machines join.
        private_dns_zone_id: resource id of a private DNS zone for the head's name; if omitted, nodes use its address.
        file_system_id: resource id of a Managed Lustre file system; `gangway:storage` describes it.
        data_folder: folder of that file system with the training data.
        key: key for data at rest, with encryption: customer-key.
        node_identity_id: resource id of the nodes' managed identity, which must have its roles.
        head_identity_id: resource id of the head's managed identity, which must have its roles.
        log_workspace_id: resource id of a Log Analytics workspace for the stack's table.
        registry_id: resource id of the registry to which `up` pushes the trainer's image.
        run_container_id: resource id of the blob container for run records.
    """

    resource_group_id: str | None = Field(default=None, pattern=f"{GROUP}$", examples=[_EXAMPLE_GROUP])
    subnet_id: str | None = _resource(
        rf"{_NETWORK}/subnets/[^/]{{1,80}}", "Microsoft.Network/virtualNetworks/spoke/subnets/training"
    )
    head_private_ip: Annotated[str, AfterValidator(_address)] | None = Field(default=None, examples=["10.20.0.10"])
    lustre_subnet_id: str | None = _resource(
        rf"{_NETWORK}/subnets/[^/]{{1,80}}", "Microsoft.Network/virtualNetworks/spoke/subnets/lustre"
    )
    application_security_groups: SecurityGroupIds = SecurityGroupIds()
    private_dns_zone_id: str | None = _resource(
        r"Microsoft\.Network/privateDnsZones/[a-z0-9._-]{1,253}",
        "Microsoft.Network/privateDnsZones/training.example.internal",
    )
    file_system_id: str | None = _resource(
        r"Microsoft\.StorageCache/amlFilesystems/[\w-]{2,80}", "Microsoft.StorageCache/amlFilesystems/shared"
    )
    data_folder: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$", examples=["images/celeba"]
    )
    key: ExistingKey | None = None
    node_identity_id: str | None = _resource(
        r"Microsoft\.ManagedIdentity/userAssignedIdentities/[\w-]{3,128}",
        "Microsoft.ManagedIdentity/userAssignedIdentities/training-node",
    )
    head_identity_id: str | None = _resource(
        r"Microsoft\.ManagedIdentity/userAssignedIdentities/[\w-]{3,128}",
        "Microsoft.ManagedIdentity/userAssignedIdentities/training-head",
    )
    log_workspace_id: str | None = _resource(
        r"Microsoft\.OperationalInsights/workspaces/[\w-]{4,63}", "Microsoft.OperationalInsights/workspaces/platform"
    )
    registry_id: str | None = _resource(
        r"Microsoft\.ContainerRegistry/registries/[A-Za-z0-9]{5,50}",
        "Microsoft.ContainerRegistry/registries/myregistry",
    )
    run_container_id: str | None = _resource(
        r"Microsoft\.Storage/storageAccounts/[a-z0-9]{3,24}/blobServices/default/containers/[a-z0-9-]{3,63}",
        "Microsoft.Storage/storageAccounts/myaccount/blobServices/default/containers/runs",
    )

    @property
    def values(self) -> Mapping[str, str]:
        """Setting below `existing` -> its value."""
        flat = self.model_dump(exclude_none=True)
        nested = {name: value for name, value in flat.items() if isinstance(value, dict)}
        inner = {f"{name}.{key}": value for name, values in nested.items() for key, value in values.items()}
        return {**{name: value for name, value in flat.items() if name not in nested}, **inner}

    @property
    def ids(self) -> Mapping[str, str]:
        """Those that are resource ids."""
        return {name: value for name, value in self.values.items() if value.startswith("/")}

    @property
    def network_id(self) -> str:
        """Resource id of the machines' network."""
        return "" if self.subnet_id is None else self.subnet_id.partition("/subnets/")[0]


def subscription(resource_id: str) -> str:
    """The subscription of a resource."""
    return resource_id.split("/")[2]


def group_name(resource_id: str) -> str:
    """The resource group of a resource."""
    return resource_id.split("/")[4]


def resource_name(resource_id: str) -> str:
    """The last part of a resource id."""
    return resource_id.rpartition("/")[2]
