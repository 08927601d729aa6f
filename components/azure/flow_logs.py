"""What passed and what was refused in a virtual network: FlowLogStore holds it, `declare_flow_log` writes it there.

Azure makes a network watcher in each region by itself some time after the first network there, in a resource group of
its own. The log belongs to it, and so is made outside of the stack's own group. Where a subscription has opted out of
that, or keeps its watchers elsewhere, the watcher is named (`components.azure.watcher`). The log could be written with
the account's keys, which no account of ours has: it acts as an identity that may write blobs there ("Managed identity
for virtual network flow logs"). An account apart from the runs', whose every version is kept: an hour's blob is written
anew each minute, and all of it goes with the stack.
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_azure_native import managedidentity, network, storage

from components.azure.accounts import MAX_ACCOUNT_NAME, declare_account
from components.azure.encryption import KeyArgs
from components.azure.grants import Grantee
from components.azure.names import letters
from components.azure.policies import BLOB_CONTRIBUTOR
from components.azure.settling import Settling, heeded
from components.azure.watcher import Watcher
from components.order import after

__all__ = ["FlowLogStore", "FlowLogStoreArgs", "declare_flow_log"]

KEPT_DAYS = 30
# Of the account's name, which would be that of the runs' account otherwise.
ENDING = "flows"


class FlowLogStoreArgs(TypedDict):
    """Inputs of FlowLogStore. Without `key` Azure encrypts with its own keys.

    `role_wait_sec` (0) is how long Azure gets to heed that the identity may write: from Python programs alone
    (`components.azure.settling`).
    """

    subscription_id: str
    resource_group_name: pulumi.Input[str]
    location: str
    stack: str
    key: NotRequired[KeyArgs | None]
    role_wait_sec: NotRequired[float]
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
        waits = heeded(f"{name}-flows-heeded", "the flow log's identity", [grant], args.get("role_wait_sec", 0), child)
        self.identity_id = after(identity.id, *waits)
        self.register_outputs({"account_id": self.account_id, "identity_id": self.identity_id})


def declare_flow_log(
    name: str,
    network_id: pulumi.Input[str],
    store: tuple[pulumi.Input[str], pulumi.Input[str]],
    watcher: Watcher,
    wait_sec: float,
    location: str,
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> network.FlowLog:
    """Declares the flow log of a whole network, written to the account `store[0]` as the identity `store[1]`.

    A watcher that Azure makes comes after the region's first network, and a log without one is refused
    (ParentResourceNotFound, pulumi/pulumi#11430): `wait_sec` after the network the log is asked for.
    """
    before: list[pulumi.Resource] = []
    if watcher.by_azure and wait_sec:
        what = f"the network, and makes {watcher.name} in {watcher.resource_group_name} where there is none"
        before = [Settling(f"{name}-watcher", what, [network_id], wait_sec, opts)]
    return network.FlowLog(
        f"{name}-flows",
        resource_group_name=watcher.resource_group_name,
        network_watcher_name=watcher.name,
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
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=before)),
    )
