"""What passed and what was refused in a virtual network: FlowLogStore holds it, `declare_flow_log` writes it there.

Azure makes a network watcher in each region by itself, in a resource group of its own; the log belongs to it. It could
write with the account's keys, which no account of ours has: it acts as an identity that may write blobs there ("Managed
identity for virtual network flow logs"). An account apart from the runs', whose every version is kept: an hour's blob
is written anew each minute, and all of it goes with the stack.
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_azure_native import managedidentity, network, storage

from components.azure.accounts import MAX_ACCOUNT_NAME, declare_account
from components.azure.encryption import KeyArgs
from components.azure.grants import Grantee
from components.azure.names import letters
from components.azure.policies import BLOB_CONTRIBUTOR
from components.order import after

__all__ = ["FlowLogStore", "FlowLogStoreArgs", "declare_flow_log"]

WATCHER_GROUP = "NetworkWatcherRG"
KEPT_DAYS = 30
# Of the account's name, which would be that of the runs' account otherwise.
ENDING = "flows"


class FlowLogStoreArgs(TypedDict):
    """Inputs of FlowLogStore. Without `key` Azure encrypts with its own keys."""

    subscription_id: str
    resource_group_name: pulumi.Input[str]
    location: str
    stack: str
    key: NotRequired[KeyArgs | None]
    tags: dict[str, str]


class FlowLogStore(pulumi.ComponentResource):
    """A storage account, and the identity that writes the log into it.

    Attributes:
        account_id: resource id of the account.
        identity_id: of the identity; waits until it may write.
    """

    account_id: pulumi.Output[str]
    identity_id: pulumi.Output[str]

    def __init__(self, name: str, args: FlowLogStoreArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:FlowLogStore", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = declare_account(
            f"{letters(name, MAX_ACCOUNT_NAME - len(ENDING))}{ENDING}",
            args["resource_group_name"],
            args["location"],
            sku="Standard_LRS",
            # Whoever has a role, as with the runs.
            rules=storage.NetworkRuleSetArgs(default_action=storage.DefaultAction.ALLOW),
            key=args.get("key"),
            tags=args["tags"],
            opts=child,
        )
        identity = managedidentity.UserAssignedIdentity(
            f"{name}-flows",
            resource_group_name=args["resource_group_name"],
            location=args["location"],
            tags=args["tags"],
            opts=child,
        )
        grantee = Grantee(name, "flows", identity.principal_id, args["subscription_id"], args["stack"], child)
        grant = grantee.may("write", BLOB_CONTRIBUTOR, account.id)
        self.account_id = account.id
        self.identity_id = after(identity.id, grant)
        self.register_outputs({"account_id": self.account_id, "identity_id": self.identity_id})


def declare_flow_log(
    name: str,
    network_id: pulumi.Input[str],
    store: tuple[pulumi.Input[str], pulumi.Input[str]],
    location: str,
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> network.FlowLog:
    """Declares the flow log of a whole network, written to the account `store[0]` as the identity `store[1]`."""
    return network.FlowLog(
        f"{name}-flows",
        resource_group_name=WATCHER_GROUP,
        network_watcher_name=f"NetworkWatcher_{location}",
        location=location,
        target_resource_id=network_id,
        storage_id=store[0],
        identity=network.ManagedServiceIdentityArgs(
            type=network.ResourceIdentityType.USER_ASSIGNED, user_assigned_identities=[store[1]]
        ),
        enabled=True,
        format=network.FlowLogFormatParametersArgs(type="JSON", version=2),
        retention_policy=network.RetentionPolicyParametersArgs(days=KEPT_DAYS, enabled=True),
        tags=tags,
        opts=opts,
    )
