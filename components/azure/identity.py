"""NodeIdentity and HeadIdentity: the managed identities machines run as, each with no more than its part of the job.

A node pulls its image, reads data, writes its own runs, sends its lines, and may leave its scale set. The head finds
the workers and fills the rungs of the capacity ladder (no service of Azure's does). Built-in roles are assigned on the
container, the registry and the collection rule they are for; what is wider is in `components.azure.policies.GROUP_WIDE`
with its reason. Machines get short-lived tokens from their metadata service: there are no secrets. Whoever runs `up`
must be allowed to assign roles and to make some (User Access Administrator, or Owner).
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_azure_native import managedidentity

from components.azure.grants import Grantee
from components.azure.policies import (
    ACR_PULL,
    BLOB_CONTRIBUTOR,
    BLOB_READER,
    LOG_WRITER,
    account_of,
    blob_source,
    container_id,
    head_actions,
    node_actions,
)
from components.order import after

__all__ = ["HeadIdentity", "HeadIdentityArgs", "NodeIdentity", "NodeIdentityArgs"]


class NodeIdentityArgs(TypedDict):
    """Inputs of NodeIdentity.

    `run_container_id` is RunBucket's, `repository_id` the registry's resource id, `data_collection_rule_id` that of
    NodeLogs. `data_source` is the `az://account/container/prefix` nodes may read, `data_source_account_id` that storage
    account's resource id (a container is the smallest place a role can be assigned on; whoever runs `up` must be
    allowed to). `self_termination` lets a node delete itself from its scale set. With `role_wait_sec` (0)
    Azure gets some time to know a role of our own before it is assigned: from Python programs alone
    (`components.azure.grants`).
    """

    subscription_id: str
    resource_group_name: pulumi.Input[str]
    location: str
    stack: str
    run_container_id: pulumi.Input[str]
    repository_id: pulumi.Input[str]
    data_collection_rule_id: NotRequired[pulumi.Input[str] | None]
    data_source: NotRequired[str | None]
    data_source_account_id: NotRequired[str | None]
    self_termination: NotRequired[bool]
    role_wait_sec: NotRequired[float]
    tags: dict[str, str]


class HeadIdentityArgs(TypedDict):
    """Inputs of HeadIdentity: as of NodeIdentity.

    `fills_groups` lets it set the capacity of scale sets, `scrapes` lets its Prometheus find the workers.
    """

    subscription_id: str
    resource_group_name: pulumi.Input[str]
    location: str
    stack: str
    run_container_id: pulumi.Input[str]
    repository_id: pulumi.Input[str]
    data_collection_rule_id: NotRequired[pulumi.Input[str] | None]
    fills_groups: NotRequired[bool]
    scrapes: NotRequired[bool]
    role_wait_sec: NotRequired[float]
    tags: dict[str, str]


def _identity(
    name: str, kind: str, args: NodeIdentityArgs | HeadIdentityArgs, opts: pulumi.ResourceOptions
) -> tuple[managedidentity.UserAssignedIdentity, Grantee, list[pulumi.CustomResource]]:
    """An identity, and the grants every machine gets: own runs, the image, lines."""
    identity = managedidentity.UserAssignedIdentity(
        f"{name}-{kind}",
        resource_group_name=args["resource_group_name"],
        location=args["location"],
        tags=args["tags"],
        opts=opts,
    )
    whose = (name, kind, identity.principal_id, args["subscription_id"], args["stack"], opts)
    grantee = Grantee(*whose, wait_sec=args.get("role_wait_sec", 0))
    grants: list[pulumi.CustomResource] = [
        grantee.may("image", ACR_PULL, args["repository_id"]),
        grantee.may("runs", BLOB_CONTRIBUTOR, args["run_container_id"]),
    ]
    rule = args.get("data_collection_rule_id")
    if rule is not None:
        grants.append(grantee.may("lines", LOG_WRITER, rule))
    return identity, grantee, grants


class NodeIdentity(pulumi.ComponentResource):
    """Managed identity and grants of the nodes.

    Attributes:
        identity_id: its resource id, for the scale set; waits for the grants: a machine that takes it has them from its
            first second (Azure may take some minutes to heed them everywhere).
        client_id: by which a machine asks for its token.
        principal_id: object id, for further grants.
    """

    identity_id: pulumi.Output[str]
    client_id: pulumi.Output[str]
    principal_id: pulumi.Output[str]

    def __init__(self, name: str, args: NodeIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:NodeIdentity", name, None, opts)
        identity, grantee, grants = _identity(name, "node", args, pulumi.ResourceOptions(parent=self))
        if url := args.get("data_source"):
            source = blob_source(url)
            account_id = args.get("data_source_account_id") or ""
            account_of(account_id, source)
            grants.append(grantee.may("data", BLOB_READER, container_id(account_id, source.container)))
        actions = node_actions(self_termination=args.get("self_termination", False))
        grants += grantee.may_do("leave", "a node leaves its scale set", actions, args["resource_group_name"])
        self.identity_id = after(identity.id, *grants)
        self.client_id = identity.client_id
        self.principal_id = identity.principal_id
        self.register_outputs(
            {"identity_id": self.identity_id, "client_id": self.client_id, "principal_id": self.principal_id}
        )


class HeadIdentity(pulumi.ComponentResource):
    """Managed identity and grants of the head node. Outputs as of NodeIdentity."""

    identity_id: pulumi.Output[str]
    client_id: pulumi.Output[str]
    principal_id: pulumi.Output[str]

    def __init__(self, name: str, args: HeadIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:HeadIdentity", name, None, opts)
        identity, grantee, grants = _identity(name, "head", args, pulumi.ResourceOptions(parent=self))
        actions = head_actions(fills_groups=args.get("fills_groups", False), scrapes=args.get("scrapes", False))
        grants += grantee.may_do("fill", "find workers, fill scale sets", actions, args["resource_group_name"])
        self.identity_id = after(identity.id, *grants)
        self.client_id = identity.client_id
        self.principal_id = identity.principal_id
        self.register_outputs(
            {"identity_id": self.identity_id, "client_id": self.client_id, "principal_id": self.principal_id}
        )
