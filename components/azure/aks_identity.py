"""AksIdentity: whom an AKS cluster acts as, whom its nodes, and whom pods of a team's namespace. None has a password:
Azure knows machines by themselves, and pods by tokens of the cluster's own (workload identity).
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_azure_native import managedidentity

from components.azure.identity import Grantee
from components.azure.policies import ACR_PULL, BLOB_CONTRIBUTOR
from components.azure.settling import heeded
from components.core.dependencies import after
from components.core.findings import InputError

__all__ = [
    "AUDIENCE",
    "MAX_SUBJECTS",
    "AksIdentity",
    "AksIdentityArgs",
    "AksWorkloads",
    "AksWorkloadsArgs",
    "WorkloadArgs",
    "check_workloads",
    "subject_of",
]

# Azure documentation, "Azure built-in roles": the same GUIDs in every tenant.
NETWORK_CONTRIBUTOR = "4d97b98b-1d4f-4787-a291-c67834d212e7"
IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
AUDIENCE = "api://AzureADTokenExchange"
"""Of a pod's token ("Workload identity federation")."""
MAX_SUBJECTS = 20
"""Federated credentials that one identity takes ("Important considerations and restrictions")."""


class AksIdentityArgs(TypedDict):
    """Inputs of AksIdentity. The cluster may join `subnet_id`, and read `disk_encryption_set_id`; its nodes pull images
    from the registry `repository_id`. With `role_wait_sec` (0) Azure gets some time to heed the grants: from Python
    programs alone (`components.core.settling`).
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
    """The cluster's identity and its nodes'. `identity_id` waits for its grants, `kubelet_identity_id` for theirs; the
    latter's `kubelet_client_id` and `kubelet_object_id` are by which Azure knows it.
    """

    identity_id: pulumi.Output[str]
    kubelet_identity_id: pulumi.Output[str]
    kubelet_client_id: pulumi.Output[str]
    kubelet_object_id: pulumi.Output[str]

    def __init__(self, name: str, args: AksIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:AksIdentity", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        cluster, nodes = self._identity("cluster"), self._identity("node")
        control, kubelet = self._grantee("cluster", cluster), self._grantee("node", nodes)
        granted = [
            # Joins nodes and the API's address to the subnet ("Bring your own virtual network": permissions).
            control.may("subnet", NETWORK_CONTRIBUTOR, args["subnet_id"]),
            # And gives nodes this identity.
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


class WorkloadArgs(TypedDict):
    """Pods of one service account."""

    namespace: str
    service_account: str


class AksWorkloadsArgs(TypedDict):
    """Inputs of AksWorkloads. `oidc_issuer_url` is AksCluster's; pods of `workloads` write to `run_container_id`. A pod
    takes the identity by its service account's annotation `azure.workload.identity/client-id`, and its own label
    `azure.workload.identity/use: "true"`.
    """

    subscription_id: str
    resource_group_name: pulumi.Input[str]
    location: str
    stack: str
    oidc_issuer_url: pulumi.Input[str]
    workloads: list[WorkloadArgs]
    run_container_id: pulumi.Input[str]
    tags: dict[str, str]


def subject_of(workload: WorkloadArgs) -> str:
    """As a cluster's tokens name a service account.

    >>> subject_of({"namespace": "vision", "service_account": "jobs"})
    'system:serviceaccount:vision:jobs'
    """
    return f"system:serviceaccount:{workload['namespace']}:{workload['service_account']}"


def check_workloads(workloads: list[WorkloadArgs], place: str = "workloads") -> None:
    """Refuses more of them than one identity can be taken by. InputError: more than MAX_SUBJECTS."""
    if len(workloads) > MAX_SUBJECTS:
        raise InputError(
            place,
            "more service accounts than one identity of Azure can be taken by",
            value=len(workloads),
            allowed=f"at most {MAX_SUBJECTS}",
            fix="have several teams share a namespace",
        )


class AksWorkloads(pulumi.ComponentResource):
    """The identity of a cluster's jobs. `client_id`: by which pods ask for it, once they may."""

    client_id: pulumi.Output[str]

    def __init__(self, name: str, args: AksWorkloadsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:AksWorkloads", name, None, opts)
        check_workloads(args["workloads"])
        child = pulumi.ResourceOptions(parent=self)
        identity = managedidentity.UserAssignedIdentity(
            f"{name}-jobs",
            resource_group_name=args["resource_group_name"],
            location=args["location"],
            tags=args["tags"],
            opts=child,
        )
        whose = (name, "jobs", identity.principal_id, args["subscription_id"], args["stack"], child)
        made: list[pulumi.CustomResource] = [Grantee(*whose).may("runs", BLOB_CONTRIBUTOR, args["run_container_id"])]
        for workload in args["workloads"]:
            # One after the other: Azure refuses two at once on an identity ("Important considerations").
            later = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=made[-1:]))
            credential = managedidentity.FederatedIdentityCredential(
                f"{name}-{workload['namespace']}-{workload['service_account']}",
                federated_identity_credential_resource_name=f"{workload['namespace']}-{workload['service_account']}",
                resource_group_name=args["resource_group_name"],
                resource_name_=identity.name,
                issuer=args["oidc_issuer_url"],
                subject=subject_of(workload),
                audiences=[AUDIENCE],
                opts=later,
            )
            made.append(credential)
        self.client_id = after(identity.client_id, *made)
        self.register_outputs({"client_id": self.client_id})
