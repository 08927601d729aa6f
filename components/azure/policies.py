"""The rules of our grants: roles, scopes, and what is wider than we wish; names as Azure requires them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5

from gangway.components.azure.capacity import HEAD_ACTIONS
from gangway.components.azure.retention import IMPORT_LOG
from gangway.components.core.blob_url import BlobUrl
from gangway.components.core.findings import InputError

# Azure documentation, "Azure built-in roles": the same GUIDs in every tenant.
ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
BLOB_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
BLOB_READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
COST_READER = "72fafb9e-0641-4937-9268-a91bfd8191a3"
IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
KEY_USER = "e147488a-f6f5-4113-8e2d-b22465e65bf6"
# Monitoring Metrics Publisher: on a data collection rule, the right to send lines.
LOG_WRITER = "3913510d-42f4-4e42-8a64-420c390055eb"
SECRET_USER = "4633458b-17de-408a-b874-0445c86b69e6"
STORAGE_CONTRIBUTOR = "17d1049b-9a84-46fb-8f53-869881c3d3ab"

_BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
RUN_WRITER_ACTIONS = (f"{_BLOBS}/read", f"{_BLOBS}/write")  # without delete; an overwritten blob keeps its old version

_GALLERIES = "Microsoft.Compute/galleries"
IMAGE_WRITER_ACTIONS = (
    *(f"{_GALLERIES}{part}" for part in ("/read", "/images/read", "/images/versions/read", "/images/versions/write")),
    *(f"Microsoft.Compute/images/{verb}" for verb in ("delete", "read", "write")),
)
"""What Image Builder needs to put an image into a gallery ("Configure Azure VM Image Builder permissions")."""
_IMAGES = "only Image Builder has it, in the group of the machine images, which has nothing else"

_SET = "Microsoft.Compute/virtualMachineScaleSets"
_CLUSTER = "Microsoft.ContainerService/managedClusters"
_LATER = "the scale sets take the identity, so they do not exist yet when it gets its rights"
GROUP_WIDE: Mapping[str, str] = {
    f"{_SET}/read": f"read only; {_LATER}",
    f"{_SET}/virtualMachines/read": f"read only; {_LATER}",
    f"{_SET}/virtualMachines/networkInterfaces/read": f"read only: where workers are; {_LATER}",
    f"{_SET}/virtualMachines/delete": "a node leaves its scale set for good, the head takes away one that never "
    f"ran; {_LATER}",
    f"{_SET}/write": f"how many nodes there are is a property of the set, and no smaller right sets it; {_LATER}",
    f"{_CLUSTER}/read": "read only; only the budget's stop has it, which stops the stack's cluster",
    f"{_CLUSTER}/stop/action": "only the budget's stop has it; the group has no other cluster",
    "Microsoft.Compute/virtualMachines/read": "read only; the budget's stop has it, to see the head, and "
    "the head's Prometheus, which asks for single machines before scale sets",
    "Microsoft.Network/networkInterfaces/read": "read only: where single machines are, for Prometheus on the head",
    "Microsoft.Compute/virtualMachines/deallocate/action": "only the budget's stop has it, for the head, which "
    "would fill the scale sets again",
    **dict.fromkeys(IMAGE_WRITER_ACTIONS, _IMAGES),
    COST_READER: "read only; costs are told for groups, not for resources",
}  # every action and role of our identities on the whole resource group, and why there is nothing narrower

_GROUP = re.compile(r"/subscriptions/[^/]+/resourceGroups/[^/]+", re.IGNORECASE)
_ACCOUNT = re.compile(
    r"/subscriptions/(?P<subscription>[0-9a-f-]{36})/resourceGroups/(?P<group>[^/]{1,90})"
    r"/providers/Microsoft\.Storage/storageAccounts/(?P<account>[a-z0-9]{3,24})",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class AccountPlace:
    """The place of a storage account."""

    subscription_id: str
    resource_group_name: str


def get_account(account_id: str, source: BlobUrl, place: str = "gangway:azure.source_account_id") -> AccountPlace:
    """Parse an account's resource id. InputError: not a storage account, or not `source`'s."""
    found = _ACCOUNT.fullmatch(account_id)
    if found is None or found["account"] != source.account:
        expected = f"/providers/Microsoft.Storage/storageAccounts/{source.account}"
        raise InputError(
            place,
            f"not the resource id of the storage account {source.account}",
            value=account_id,
            allowed=f"/subscriptions/.../resourceGroups/...{expected}",
            fix=f"copy it from `az storage account show --name {source.account} --query id`",
        )
    return AccountPlace(found["subscription"], found["group"])


def import_log(stack: str) -> str:
    """The container for the log of a stack's imports, in the data's account."""
    return f"{stack}{IMPORT_LOG}"


def importable(
    account_id: str,
    source: BlobUrl,
    subscription_id: str,
    stack: str,
    place: str = "gangway:azure.source_account_id",
    source_place: str = "gangway:storage.source",
) -> AccountPlace:
    """The account of an import. InputError: as `get_account`, another subscription, or the log's container."""
    account = get_account(account_id, source, place)
    if account.subscription_id != subscription_id:
        raise InputError(
            place,
            "the log of imports is made in this account, and a stack makes things in its own subscription alone",
            value=account_id,
            allowed=f"an account in the subscription {subscription_id}",
            fix="copy the data into an account of this subscription, or leave source out",
        )
    if source.container == import_log(stack):
        raise InputError(
            source_place,
            "this is the container for the log of imports, which Managed Lustre wants beside that of the data",
            value=str(source),
            allowed=f"any container but {source.container}",
            fix="copy the data into another container of the account",
        )
    return account


def role_id(subscription_id: str, role: str) -> str:
    """The full id of a role by its GUID."""
    return f"/subscriptions/{subscription_id}/providers/Microsoft.Authorization/roleDefinitions/{role}"


def group_id(subscription_id: str, resource_group_name: str) -> str:
    """The id of a resource group."""
    return f"/subscriptions/{subscription_id}/resourceGroups/{resource_group_name}"


def assignable_scopes(places: Sequence[str]) -> list[str]:
    """The resource groups in which a role must be assignable: its own, and that of its scope if that is another one.

    >>> assignable_scopes(["/subscriptions/s/resourceGroups/g", "/subscriptions/s/resourceGroups/data/providers/a/b/c"])
    ['/subscriptions/s/resourceGroups/g', '/subscriptions/s/resourceGroups/data']
    """
    own, scope = places
    group = _GROUP.match(scope)
    return [own] if group is None or group[0].lower() == own.lower() else [own, group[0]]


def container_id(account_id: str, container: str) -> str:
    """The id of a blob container."""
    return f"{account_id}/blobServices/default/containers/{container}"


def node_actions(*, self_termination: bool) -> tuple[str, ...]:
    """A node's actions on its scale set: leaving it, which shrinks it by one."""
    return (
        (f"{_SET}/read", f"{_SET}/virtualMachines/read", f"{_SET}/virtualMachines/delete") if self_termination else ()
    )


def head_actions(*, fills_groups: bool, scrapes: bool) -> tuple[str, ...]:
    """The head's actions on scale sets: resize, delete failed machines; find workers, for which Prometheus lists scale
    sets and single machines ("Configuration", azure_sd_config).
    """
    find = (
        f"{_SET}/read",
        f"{_SET}/virtualMachines/read",
        f"{_SET}/virtualMachines/networkInterfaces/read",
        "Microsoft.Compute/virtualMachines/read",
        "Microsoft.Network/networkInterfaces/read",
    )
    return tuple(sorted({*(HEAD_ACTIONS if fills_groups else ()), *(find if scrapes else ())}))


def stop_actions(*, clusters: bool = False) -> tuple[str, ...]:
    """The stop's actions: empty scale sets, stop the head before it refills them, stop clusters."""
    if clusters:
        return (f"{_CLUSTER}/read", f"{_CLUSTER}/stop/action")
    head = ("Microsoft.Compute/virtualMachines/read", "Microsoft.Compute/virtualMachines/deallocate/action")
    return (f"{_SET}/read", f"{_SET}/write", *head)


# Names in Azure's form, stable per stack, and GUIDs. Pulumi appends eight random hex digits to a logical name and
# ignores Azure's rules, so it must fit; the digits avoid names of destroyed stacks (retained runs, deleted vaults).

RANDOM_DIGITS = 8  # Pulumi's suffix of a logical name
IMAGES_TAG = "gangway-images"
"""A tag of an image definition: how many images stay."""
NODES_TAG, LEAST_NODES_TAG, RUNG_TAG = "gangway-nodes", "gangway-nodes-min", "gangway-rung"
ENDED_TAG = "gangway-ended"
"""Tags of a scale set for the head: its maximum nodes, the job's minimum, its position in the ladder from 0, and the
blob that exists once the job has ended.
"""
# Any constant: names below it never collide with others'.
_NAMESPACE = UUID("6f1f7c3e-5d0b-5b52-9d1b-7a2f0f1f4a10")


def letters(name: str, most: int) -> str:
    """A logical name of lowercase letters and digits, short enough for Pulumi's digits.

    >>> letters("azure-ndv5-spot", 24)
    'azurendv5spot'
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())[: most - RANDOM_DIGITS]


def guid(subscription_id: str, stack: str, *parts: str) -> str:
    """The GUID of a role assignment, role or workbook of a stack: the same at every `up`."""
    return str(uuid5(_NAMESPACE, "/".join((subscription_id, stack, *parts))))
