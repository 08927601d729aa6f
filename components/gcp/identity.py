"""NodeIdentity and HeadIdentity: the service accounts machines run as, each with no more than its own part of the job.

A node pulls its image, reads data, writes its own runs, and may leave its group. The head keeps the rendezvous, finds
the workers, fills the rungs of the capacity ladder (no service of Google's does) and has Lustre import. Roles are
bound on the bucket and the repository they are for; what has no policy of its own is bound on the project,
through a role of ours with those permissions alone (`components.gcp.policies.PROJECT_WIDE` gives each its reason).
Machines get short-lived tokens from their metadata server: there are no keys. People get in through IAP and OS Login.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import pulumi
from pulumi_gcp import artifactregistry, projects, serviceaccount, storage

from components.gcp.names import account_id
from components.gcp.policies import DATA_READER, IMAGE_READER, RUN_WRITER, bucket_of
from components.order import after

__all__ = [
    "HeadIdentity",
    "HeadIdentityArgs",
    "NodeIdentity",
    "NodeIdentityArgs",
    "RolePlan",
    "declare_role",
    "head_permissions",
    "node_permissions",
]

PROJECT_ROLES = ("roles/logging.logWriter", "roles/monitoring.metricWriter")


class NodeIdentityArgs(TypedDict):
    """Inputs of NodeIdentity.

    `repository_id` is `projects/P/locations/R/repositories/NAME`, `data_source` the `gs://bucket/prefix` whose bucket
    nodes may read (whoever runs `up` must be allowed to grant that). `self_termination` lets a node delete itself from
    its group. An account takes no labels, and no key either: Google's own services use the stack's key on behalf of a
    node.
    """

    project: pulumi.Input[str]
    stack: str
    run_bucket_name: pulumi.Input[str]
    repository_id: pulumi.Input[str]
    data_source: NotRequired[str | None]
    self_termination: NotRequired[bool]


class HeadIdentityArgs(TypedDict):
    """Inputs of HeadIdentity. `fills_groups`: it resizes the groups of lower rungs. `imports`: it has Lustre import.

    `files_bucket_name` is HeadFiles', where it reads which groups there are.
    """

    project: pulumi.Input[str]
    stack: str
    run_bucket_name: pulumi.Input[str]
    repository_id: pulumi.Input[str]
    fills_groups: NotRequired[bool]
    imports: NotRequired[bool]
    files_bucket_name: NotRequired[pulumi.Input[str] | None]


@dataclass(frozen=True)
class RolePlan:
    """A role of our own: what it is called for people, and its permissions."""

    title: str
    permissions: tuple[str, ...]


def node_permissions(*, self_termination: bool) -> tuple[str, ...]:
    """What a node does to Compute Engine: leave its group, which makes the group smaller by one."""
    return ("compute.instanceGroupManagers.get", "compute.instanceGroupManagers.update") if self_termination else ()


def head_permissions(*, fills_groups: bool, imports: bool) -> tuple[str, ...]:
    """What the head does to Compute Engine and Lustre: find workers, resize groups, fill the file system."""
    find = ("compute.instanceGroupManagers.get", "compute.instances.get", "compute.instances.list")
    fill = ("compute.instanceGroupManagers.update", "compute.zoneOperations.get") if fills_groups else ()
    load = ("lustre.instances.get", "lustre.instances.importData", "lustre.operations.get") if imports else ()
    return (*find, *fill, *load)


def declare_role(
    name: str,
    plan: RolePlan,
    account: serviceaccount.Account,
    project: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> projects.IAMMember:
    """A role of our own, bound to `account` on the project."""
    # The id of a deleted role is taken for five weeks: the account's number makes it a new one for every new stack.
    role_id = account.unique_id.apply(lambda number: f"{name.replace('-', '_')}_{number[-8:]}"[-64:])
    role = projects.IAMCustomRole(
        name, project=project, role_id=role_id, title=plan.title, permissions=list(plan.permissions), opts=opts
    )
    return projects.IAMMember(name, project=project, role=role.name, member=account.member, opts=opts)


@dataclass(frozen=True)
class _Machine:
    """An account of one kind of machine, and the grants every machine gets."""

    name: str
    kind: str
    stack: str
    project: pulumi.Input[str]
    opts: pulumi.ResourceOptions

    def account(self) -> serviceaccount.Account:
        return serviceaccount.Account(
            f"{self.name}-{self.kind}",
            project=self.project,
            account_id=account_id(self.stack, self.kind),
            display_name=f"Gangway {self.stack}: {self.kind}",
            opts=self.opts,
        )

    def usual(
        self, account: serviceaccount.Account, run_bucket: pulumi.Input[str], repository_id: pulumi.Input[str]
    ) -> list[pulumi.CustomResource]:
        """Own runs, the image, logs and metrics."""
        image = artifactregistry.RepositoryIamMember(
            f"{self.name}-{self.kind}-image",
            repository=repository_id,
            role=IMAGE_READER,
            member=account.member,
            opts=self.opts,
        )
        told = [
            projects.IAMMember(
                f"{self.name}-{self.kind}-{role.rpartition('.')[2]}",
                project=self.project,
                role=role,
                member=account.member,
                opts=self.opts,
            )
            for role in PROJECT_ROLES
        ]
        runs = self.on_bucket("runs", account, run_bucket, RUN_WRITER)
        return [image, runs, *told]

    def on_bucket(
        self, label: str, account: serviceaccount.Account, bucket: pulumi.Input[str], role: str
    ) -> storage.BucketIAMMember:
        return storage.BucketIAMMember(
            f"{self.name}-{self.kind}-{label}", bucket=bucket, role=role, member=account.member, opts=self.opts
        )

    def own_role(
        self, account: serviceaccount.Account, title: str, permissions: Sequence[str]
    ) -> list[pulumi.CustomResource]:
        if not permissions:
            return []
        plan = RolePlan(f"Gangway {self.stack}: {title}", tuple(permissions))
        return [declare_role(f"{self.name}-{self.kind}", plan, account, self.project, self.opts)]


class NodeIdentity(pulumi.ComponentResource):
    """Service account and grants of the nodes.

    Attributes:
        service_account_email: waits for the grants: a machine that takes it has them from its first second.
        service_account_member: the account as IAM policies name it.
    """

    service_account_email: pulumi.Output[str]
    service_account_member: pulumi.Output[str]

    def __init__(self, name: str, args: NodeIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:NodeIdentity", name, None, opts)
        machine = _Machine(name, "node", args["stack"], args["project"], pulumi.ResourceOptions(parent=self))
        account = machine.account()
        grants = machine.usual(account, args["run_bucket_name"], args["repository_id"])
        if source := args.get("data_source"):
            grants.append(machine.on_bucket("data", account, bucket_of(source), DATA_READER))
        permissions = node_permissions(self_termination=args.get("self_termination", False))
        grants += machine.own_role(account, "leave the group", permissions)
        self.service_account_email = after(account.email, *grants)
        self.service_account_member = account.member
        self.register_outputs(
            {
                "service_account_email": self.service_account_email,
                "service_account_member": self.service_account_member,
            }
        )


class HeadIdentity(pulumi.ComponentResource):
    """Service account and grants of the head node. Outputs as of NodeIdentity."""

    service_account_email: pulumi.Output[str]
    service_account_member: pulumi.Output[str]

    def __init__(self, name: str, args: HeadIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:HeadIdentity", name, None, opts)
        machine = _Machine(name, "head", args["stack"], args["project"], pulumi.ResourceOptions(parent=self))
        account = machine.account()
        grants = machine.usual(account, args["run_bucket_name"], args["repository_id"])
        if (files := args.get("files_bucket_name")) is not None:
            grants.append(machine.on_bucket("files", account, files, DATA_READER))
        permissions = head_permissions(fills_groups=args.get("fills_groups", False), imports=args.get("imports", False))
        grants += machine.own_role(account, "find workers, fill groups", permissions)
        self.service_account_email = after(account.email, *grants)
        self.service_account_member = account.member
        self.register_outputs(
            {
                "service_account_email": self.service_account_email,
                "service_account_member": self.service_account_member,
            }
        )
