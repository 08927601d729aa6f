"""AksIdentity: the managed identities of an AKS cluster and of its nodes. Pods have none."""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_azure_native import managedidentity

from gangway.components.azure.identity import Grantee
from gangway.components.azure.immutable import replacing
from gangway.components.azure.policies import ACR_PULL
from gangway.components.azure.settling import heeded
from gangway.components.core.dependencies import after

__all__ = ["AksIdentity", "AksIdentityArgs"]

# Azure documentation, "Azure built-in roles": the same GUIDs in every tenant.
NETWORK_CONTRIBUTOR = "4d97b98b-1d4f-4787-a291-c67834d212e7"
IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"


class AksIdentityArgs(TypedDict):
    """Inputs of AksIdentity. The cluster may join `subnet_id` and read `disk_encryption_set_id`; its nodes pull from
    the registry `repository_id`. `role_wait_sec` (0): wait for Azure to apply the grants, only in Python programs
    (`gangway.components.core.settling`).
    """

    subscription_id: str
    resource_group_name: pulumi.Input[str]
    location: str
    stack: str
    subnet_id: pulumi.Input[str]
    disk_encryption_set_id: NotRequired[pulumi.Input[str] | None]
    repository_id: NotRequired[pulumi.Input[str] | None]
    role_wait_sec: NotRequired[float]
    tags: dict[str, str]


class AksIdentity(pulumi.ComponentResource):
    """Identities of the cluster and its nodes. `identity_id` and `kubelet_identity_id` wait for their grants."""

    identity_id: pulumi.Output[str]
    kubelet_identity_id: pulumi.Output[str]
    kubelet_client_id: pulumi.Output[str]
    kubelet_object_id: pulumi.Output[str]

    def __init__(self, name: str, args: AksIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:AksIdentity", name, None, replacing(opts))
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        cluster, nodes = self._identity("cluster"), self._identity("node")
        control, kubelet = self._grantee("cluster", cluster), self._grantee("node", nodes)
        granted = [
            # Joins nodes and the API's address to the subnet ("Bring your own virtual network": permissions).
            control.may("subnet", NETWORK_CONTRIBUTOR, args["subnet_id"]),
            # Assigns this identity to nodes.
            control.may("nodes", IDENTITY_OPERATOR, nodes.id),
        ]
        if (disks := args.get("disk_encryption_set_id")) is not None:
            granted.append(control.may("disks", READER, disks))
        pulls = [] if (registry := args.get("repository_id")) is None else [kubelet.may("image", ACR_PULL, registry)]
        wait_sec = args.get("role_wait_sec", 0)
        self.identity_id = after(
            cluster.id, *heeded(f"{name}-cluster-heeded", "the cluster's identity", granted, wait_sec, self._child)
        )
        self.kubelet_identity_id = after(nodes.id, *pulls)
        self.kubelet_client_id = nodes.client_id
        self.kubelet_object_id = nodes.principal_id
        self.register_outputs(
            {
                "identity_id": self.identity_id,
                "kubelet_identity_id": self.kubelet_identity_id,
                "kubelet_client_id": self.kubelet_client_id,
                "kubelet_object_id": self.kubelet_object_id,
            }
        )

    def _identity(self, kind: str) -> managedidentity.UserAssignedIdentity:
        return managedidentity.UserAssignedIdentity(
            f"{self._name}-{kind}",
            resource_group_name=self._args["resource_group_name"],
            location=self._args["location"],
            tags=self._args["tags"],
            opts=self._child,
        )

    def _grantee(self, kind: str, identity: managedidentity.UserAssignedIdentity) -> Grantee:
        args = self._args
        return Grantee(self._name, kind, identity.principal_id, args["subscription_id"], args["stack"], self._child)
