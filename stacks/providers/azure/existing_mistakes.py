"""Mistakes in the settings `existing` of gangway:azure that need no lookup."""

from collections.abc import Iterator, Mapping

from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.existing_settings import (
    PLACE,
    ExistingConfig,
    SecurityGroupIds,
    resource_name,
    subscription,
)
from gangway.stacks.providers.azure.settings import AzureConfig

# Setting -> why Azure or the stack needs it in the stack's own subscription. "Virtual machines and network interfaces":
# a NIC, its network and its machine are in one subscription and location; "Server-side encryption of Azure Disk
# Storage": disk encryption set and disks too.
_OWN_SUBSCRIPTION: Mapping[str, str] = {
    "resource_group_id": "a stack creates resources in its own subscription alone",
    "subnet_id": "Azure connects machines only to networks of the same subscription: name a subnet of the spoke",
    "lustre_subnet_id": "the file system is in the subscription of its network",
    "application_security_groups.fabric": "machines join only groups of the same subscription",
    "application_security_groups.head": "machines join only groups of the same subscription",
    "private_dns_zone_id": "the stack creates the head's record in its own subscription alone",
    "key.disk_encryption_set_id": "disks and their disk encryption set are in one subscription",
    "log_workspace_id": "the stack creates its table in its own subscription alone",
    "run_container_id": "the role that writes records exists only in the stack's subscription",
}
_NEEDS_SUBNET = (
    "head_private_ip",
    *("lustre_subnet_id", "application_security_groups", "private_dns_zone_id", "file_system_id"),
)
_NOT_WITH_AKS = ("subnet_id", *_NEEDS_SUBNET, "data_folder", "node_identity_id", "head_identity_id")


def mistakes(config: StackConfig) -> Iterator[InputError]:
    """What is wrong with the section by itself and next to the rest of the file."""
    section = config.section(AzureConfig)
    own, subscription_id = section.existing, section.subscription_id
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
        yield from _subnet_mistakes(config, section)
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
            value, fix = own.values.get(name), f"leave {name} out"
            yield InputError(f"{PLACE}.{name}", why, value=value, allowed=f"no {name} here", fix=fix)


def _missing(name: str, why: str, example: str) -> InputError:
    return InputError(
        f"{PLACE}.{name}", f"missing: {why}", allowed=f"required, such as {example}", fix=f"add {name}: {example}"
    )


def _no_effect(name: str, why: str, fix: str) -> InputError:
    return InputError(f"{PLACE}.{name}", f"of no effect: {why}", allowed=f"no {name} here", fix=fix)


def _subnet_mistakes(config: StackConfig, section: AzureConfig) -> Iterator[InputError]:
    own = section.existing
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
        "bastion": (section.bastion, "Azure Bastion needs its own subnet", "use the Bastion of the hub"),
        # A network has one zone of a name, and in a landing zone the hub has them.
        "private_endpoints": (section.private_endpoints, "the hub has their DNS zones", "use endpoints of the hub"),
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
    vault = resource_name(own.key.vault_id)
    if own.key.vault_uri.lower() != f"https://{vault}.vault.azure.net/".lower():
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
            "Managed Lustre takes a key only from a vault of the same subscription",
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
