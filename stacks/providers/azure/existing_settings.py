"""The settings `existing` of gangway:azure: what the stack uses but does not own, and their mistakes without a lookup."""

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from typing import Annotated

from pydantic import AfterValidator, Field

from gangway.components.core.findings import InputError
from gangway.stacks.config.section import Section
from gangway.stacks.config.stack_config import StackConfig

PLACE = "gangway:azure.existing"
GROUP = r"^/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/]{1,90}"
RESOURCE = f"{GROUP}/providers/"
_EXAMPLE_GROUP = "/subscriptions/11111111-0000-0000-0000-111111111111/resourceGroups/platform"
_NETWORK = r"Microsoft\.Network/virtualNetworks/[^/]{2,64}"
_KEY_URL = re.compile(r"https://(?P<vault>[A-Za-z0-9-]{3,24})\.vault\.azure\.net/keys/(?P<key>[A-Za-z0-9-]{1,127})/.+")


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
    def ids(self) -> Mapping[str, str]:
        """Setting below `existing` -> the resource id in it."""
        flat = self.model_dump(exclude_none=True)
        nested = {
            f"{name}.{key}": value
            for name, inner in flat.items()
            if isinstance(inner, dict)
            for key, value in inner.items()
        }
        return {name: value for name, value in {**flat, **nested}.items() if str(value).startswith("/")}

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


# Setting -> why Azure or the stack needs it in the stack's own subscription. "Virtual machines and network interfaces":
# a NIC, its network and its machine are in one subscription and location; "Server-side encryption of Azure Disk
# Storage": disk encryption set and disks too.
_OWN_SUBSCRIPTION: Mapping[str, str] = {
    "resource_group_id": "a stack creates resources in its own subscription alone",
    "subnet_id": "Azure connects machines only to networks of their own subscription: name a subnet of the spoke",
    "lustre_subnet_id": "the file system is in the subscription of its network",
    "application_security_groups.fabric": "machines join only groups of their own subscription",
    "application_security_groups.head": "machines join only groups of their own subscription",
    "private_dns_zone_id": "the stack creates the head's record in its own subscription alone",
    "key.disk_encryption_set_id": "disks and their disk encryption set are in one subscription",
    "log_workspace_id": "the stack creates its table in its own subscription alone",
    "run_container_id": "the role that writes records exists only in the stack's subscription",
}
_NEEDS_SUBNET = (
    *("head_private_ip", "lustre_subnet_id", "application_security_groups", "private_dns_zone_id"),
    "file_system_id",
)
_NOT_WITH_AKS = (
    *("subnet_id", "head_private_ip", "lustre_subnet_id", "application_security_groups", "private_dns_zone_id"),
    *("file_system_id", "data_folder", "node_identity_id", "head_identity_id"),
)


def existing_mistakes(
    config: StackConfig, own: ExistingConfig, subscription_id: str, private_endpoints: bool, bastion: bool
) -> Iterator[InputError]:
    """What is wrong with the section by itself; the rest are arguments since its owner imports this module."""
    for name, why in _OWN_SUBSCRIPTION.items():
        value = own.ids.get(name)
        if value is not None and subscription(value) != subscription_id:
            yield InputError(
                f"{PLACE}.{name}",
                why,
                value=value,
                allowed=f"a resource of the subscription {subscription_id}",
                fix=f"copy an id that begins with /subscriptions/{subscription_id}/",
            )
    if config.engine.has_queue:
        yield from _refused(own, _NOT_WITH_AKS, "not supported with engine: kubernetes so far")
        yield from _key_mistakes(config, own, subscription_id)
        return
    if own.subnet_id is None:
        yield from _refused(own, _NEEDS_SUBNET, "of no effect without subnet_id: the stack's own network has all else")
    else:
        yield from _subnet_mistakes(config, own, private_endpoints, bastion)
    yield from _file_system_mistakes(config, own)
    yield from _key_mistakes(config, own, subscription_id)
    yield from _identity_mistakes(own)
    if own.registry_id is not None and config.ready_image is not None:
        yield _no_effect(
            "registry_id", "the image exists, and `up` pushes none", "name it in gangway:azure.registry_id"
        )


def _refused(own: ExistingConfig, names: tuple[str, ...], why: str) -> Iterator[InputError]:
    for name in sorted(own.model_fields_set.intersection(names), key=names.index):
        if getattr(own, name) not in (None, SecurityGroupIds()):
            yield InputError(f"{PLACE}.{name}", why, allowed=f"no {name} here", fix=f"leave {name} out")


def _missing(name: str, why: str, example: str) -> InputError:
    return InputError(
        f"{PLACE}.{name}", f"missing: {why}", allowed=f"required, such as {example}", fix=f"add {name}: {example}"
    )


def _no_effect(name: str, why: str, fix: str) -> InputError:
    return InputError(f"{PLACE}.{name}", f"of no effect: {why}", allowed=f"no {name} here", fix=fix)


def _subnet_mistakes(
    config: StackConfig, own: ExistingConfig, private_endpoints: bool, bastion: bool
) -> Iterator[InputError]:
    if own.head_private_ip is None:
        yield _missing(
            "head_private_ip", "nodes find the head at a fixed address, which the subnet must have", "10.20.0.10"
        )
    makes_lustre = config.storage is not None and own.file_system_id is None
    if makes_lustre and own.lustre_subnet_id is None:
        example = f"{own.network_id}/subnets/lustre"
        yield _missing("lustre_subnet_id", "gangway:storage makes a file system, which needs a subnet", example)
    if own.lustre_subnet_id is not None and not makes_lustre:
        yield _no_effect("lustre_subnet_id", "the stack makes no file system", "leave lustre_subnet_id out")
    refused = {
        "bastion": (bastion, "Azure Bastion needs its own subnet", "use the Bastion of the hub"),
        # A network has one zone of a name, and in a landing zone the hub has them.
        "private_endpoints": (private_endpoints, "their DNS zones belong to the hub", "let the hub provide endpoints"),
    }
    for name, (is_set, why, otherwise) in refused.items():
        if is_set:
            yield InputError(
                f"gangway:azure.{name}",
                f"the stack does not change an existing network, and {why}",
                value=True,
                allowed=f"no {name} with {PLACE}.subnet_id",
                fix=f"leave {name} out, and {otherwise}",
            )


def _file_system_mistakes(config: StackConfig, own: ExistingConfig) -> Iterator[InputError]:
    if own.data_folder is not None and own.file_system_id is None:
        yield _no_effect("data_folder", "it is a folder of file_system_id", "leave data_folder out")
    if own.file_system_id is None:
        return
    if config.storage is None:
        yield InputError(
            "gangway:storage",
            f"missing: it describes the file system of {PLACE}.file_system_id, for throughput and sizes in the plan",
            allowed="required with file_system_id",
            fix="add gangway:storage: {kind: lustre, capacity_gib: 16384, throughput_mbps_per_tib: 250}",
        )
        return
    for name in ("source", "export_runs"):
        if getattr(config.storage, name):
            yield InputError(
                f"gangway:storage.{name}",
                "the stack does not change an existing file system, and thus neither imports nor exports",
                value=getattr(config.storage, name),
                allowed=f"no {name} with {PLACE}.file_system_id",
                fix=f"leave {name} out, and name the folder with the data in {PLACE}.data_folder",
            )


def _key_mistakes(config: StackConfig, own: ExistingConfig, subscription_id: str) -> Iterator[InputError]:
    if own.key is None:
        return
    if config.encryption != "customer-key":
        yield _no_effect("key", "data is encrypted with Azure's keys", "set gangway:encryption: customer-key")
    match = _KEY_URL.fullmatch(own.key.key_url)
    vault = resource_name(own.key.vault_id)
    if match is not None and match["vault"].lower() != vault.lower():
        yield InputError(
            f"{PLACE}.key.key_url",
            "not a key of the vault in vault_id",
            value=own.key.key_url,
            allowed=f"https://{vault}.vault.azure.net/keys/KEY/VERSION",
            fix=f"copy it from `az keyvault key show --vault-name {vault} --name KEY --query key.kid`",
        )
    makes_lustre = config.storage is not None and own.file_system_id is None
    if makes_lustre and subscription(own.key.vault_id) != subscription_id:
        # "Use customer-managed encryption keys with Azure Managed Lustre": properties of the key vault.
        yield InputError(
            f"{PLACE}.key.vault_id",
            "Managed Lustre takes a key only from a vault of its own subscription",
            value=own.key.vault_id,
            allowed=f"a vault in the subscription {subscription_id}",
            fix="name a key there, or bring an existing file system in file_system_id",
        )


def _identity_mistakes(own: ExistingConfig) -> Iterator[InputError]:
    """The roles of a provided identity have to exist before the resources do."""
    for name in ("node_identity_id", "head_identity_id"):
        if getattr(own, name) is not None and own.resource_group_id is None:
            yield InputError(
                f"{PLACE}.{name}",
                "its roles on the stack's resources are granted before `up`, on their group, which has to exist",
                value=getattr(own, name),
                allowed=f"{name} with {PLACE}.resource_group_id",
                fix=f"create a group for this stack, and name it in {PLACE}.resource_group_id",
            )
