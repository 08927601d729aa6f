"""What a project needs before anything else: its APIs, service accounts with the least roles, keys of encryption."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import NotRequired, TypedDict

import pulumi
from pulumi_gcp import artifactregistry, kms, projects, secretmanager, serviceaccount, storage

from components.core.dependencies import after
from components.core.settling import Settling
from components.core.tags import shortened
from components.gcp.stack_secret import SECRET_READER

__all__ = [
    "AGENT_DOMAINS",
    "DATA_READER",
    "GROUP_PERMISSIONS",
    "IMAGE_READER",
    "KEY_USER",
    "PROJECT_WIDE",
    "RUN_WRITER",
    "EncryptionKey",
    "EncryptionKeyArgs",
    "HeadIdentity",
    "HeadIdentityArgs",
    "NodeIdentity",
    "NodeIdentityArgs",
    "ProjectServices",
    "ProjectServicesArgs",
    "RolePlan",
    "account_id",
    "declare_role",
    "filesystem_name",
    "get_agent",
    "get_bucket",
    "get_prefix",
    "head_permissions",
    "heeded",
    "node_permissions",
    "plan_services",
]


ALWAYS = (
    "artifactregistry",
    "billingbudgets",
    "cloudresourcemanager",
    "compute",
    "containerscanning",
    "dns",
    "iam",
    "iap",
    "logging",
    "monitoring",
    "pubsub",
    "serviceusage",
    "storage",
)
ON_REQUEST: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "lustre": ("lustre", "servicenetworking"),
        "filestore": ("file",),
        "tpu": ("tpu",),
        "encryption": ("cloudkms",),
        "keys": ("secretmanager",),
        "kubernetes": ("container",),
        "perimeter": ("accesscontextmanager",),
        "stop": ("eventarc", "workflows", "workflowexecutions"),
        "reconcile": ("cloudscheduler", "workflows", "workflowexecutions"),
    }
)
"""What a stack may have besides, and the APIs behind it."""

AGENT_DOMAINS: Mapping[str, str] = MappingProxyType(
    {
        "compute": "compute-system",
        "filestore": "cloud-filer",
        "lustre": "gcp-sa-lustre",
        "artifactregistry": "gcp-sa-artifactregistry",
        "kubernetes": "container-engine-robot",
        "pubsub": "gcp-sa-pubsub",
        "secretmanager": "gcp-sa-secretmanager",
        "tpu": "cloud-tpu",
        "workflows": "gcp-sa-workflows",
    }
)
"""Services that act in a project through `service-<number>@<domain>.iam.gserviceaccount.com`."""
ROTATION_SEC = 90 * 24 * 3600
# Destroying the stack leaves this time to notice that something encrypted is still wanted.
DELETION_SEC = 30 * 24 * 3600
# Made when first asked for; the agents of the others exist as soon as the API is enabled.
MADE_ON_REQUEST = (
    *("artifactregistry", "filestore", "kubernetes", "lustre", "pubsub", "secretmanager", "tpu", "workflows"),
)
# Named otherwise than the part of the stack that they serve.
API_NAMES = {"filestore": "file", "kubernetes": "container"}
USUAL = ("compute", "storage", "artifactregistry", "logging", "pubsub")
# Service accounts: 6 to 30 characters.
MAX_ACCOUNT = 30
# Managed Lustre: letters and digits, at most eight.
MAX_FILESYSTEM = 8
DATA_READER = "roles/storage.objectViewer"
# Overwriting an object needs the permission to delete it, and nodes overwrite records. The bucket, which is the stack's
# own, keeps every version, and for some days also one that was deleted.
RUN_WRITER = "roles/storage.objectUser"
IMAGE_READER = "roles/artifactregistry.reader"
KEY_USER = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
GROUP_PERMISSIONS = ("compute.instanceGroupManagers.get", "compute.instanceGroupManagers.update")
"""What leaves, fills and empties groups: granted for groups with the stack's tag alone (`components.gcp.group_tag`)."""
PROJECT_ROLES = ("roles/logging.logWriter", "roles/monitoring.metricWriter")


def plan_services(*parts: str) -> list[str]:
    """The full names of all APIs of a stack that has these `parts` (keys of ON_REQUEST) besides the usual ones."""
    names = {*ALWAYS, *(name for part in parts for name in ON_REQUEST[part])}
    return [f"{name}.googleapis.com" for name in sorted(names)]


def get_agent(service: str, project_number: str) -> str:
    """A service agent as a member of an IAM policy.

    >>> get_agent("lustre", "123456789012")
    'serviceAccount:service-123456789012@gcp-sa-lustre.iam.gserviceaccount.com'
    """
    return f"serviceAccount:service-{project_number}@{AGENT_DOMAINS[service]}.iam.gserviceaccount.com"


class ProjectServicesArgs(TypedDict):
    """Inputs of ProjectServices. `services` are full names, as `plan_services` gives them."""

    project: str
    services: list[str]


class ProjectServices(pulumi.ComponentResource):
    """The enabled APIs of one project. `project` is its id, known once they are."""

    project: pulumi.Output[str]

    def __init__(self, name: str, args: ProjectServicesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:ProjectServices", name, None, opts)
        enabled = [
            projects.Service(
                f"{name}-{service.partition('.')[0]}",
                project=args["project"],
                service=service,
                disable_on_destroy=False,
                opts=pulumi.ResourceOptions(parent=self),
            )
            for service in args["services"]
        ]
        self.project = after(args["project"], *enabled)
        self.register_outputs({"project": self.project})


class EncryptionKeyArgs(TypedDict):
    """Inputs of EncryptionKey. `project_number` is the number of `project`. `services` are those that use the key
    besides USUAL: lustre, filestore, kubernetes, secretmanager, tpu, workflows. `agents` are the service agents of
    storage and logging as members, which Google creates when they are looked up. `grant_wait_sec` (0) is how long to
    wait until a grant on the key takes effect: from Python programs alone (`components.core.settling`).
    """

    project: pulumi.Input[str]
    project_number: pulumi.Input[str]
    region: str
    services: list[str]
    agents: Mapping[str, pulumi.Input[str]]
    grant_wait_sec: NotRequired[float]
    tags: dict[str, str]


class EncryptionKey(pulumi.ComponentResource):
    """A rotating KMS key in a ring of its own, usable by the service agents of the stack."""

    key_name: pulumi.Output[str]

    def __init__(self, name: str, args: EncryptionKeyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:EncryptionKey", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        ring = kms.KeyRing(f"{name}-data", project=args["project"], location=args["region"], opts=self._child)
        key = kms.CryptoKey(
            f"{name}-data",
            key_ring=ring.id,
            purpose="ENCRYPT_DECRYPT",
            rotation_period=f"{ROTATION_SEC}s",
            destroy_scheduled_duration=f"{DELETION_SEC}s",
            labels=args["tags"],
            opts=self._child,
        )
        users = [
            kms.CryptoKeyIAMMember(
                f"{name}-{service}", crypto_key_id=key.id, role=KEY_USER, member=self._agent(service), opts=self._child
            )
            for service in dict.fromkeys((*USUAL, *args["services"]))
        ]
        # Whoever takes the name from here waits until the services may use the key.
        wait_sec = args.get("grant_wait_sec", 0)
        self.key_name = after(key.id, *heeded(f"{name}-data-heeded", "the key's users", users, wait_sec, self._child))
        self.register_outputs({"key_name": self.key_name})

    def _agent(self, service: str) -> pulumi.Output[str]:
        """The service agent as a member."""
        project = self._args["project"]
        if service in self._args["agents"]:
            return pulumi.Output.from_input(self._args["agents"][service])
        if service in MADE_ON_REQUEST:
            full = f"{API_NAMES.get(service, service)}.googleapis.com"
            return projects.ServiceIdentity(
                f"{self._name}-{service}", project=project, service=full, opts=self._child
            ).member
        return pulumi.Output.from_input(self._args["project_number"]).apply(lambda number: get_agent(service, number))


def heeded(
    name: str,
    whose: str,
    made: Sequence[kms.CryptoKeyIAMMember | projects.IAMMember | projects.ServiceIdentity],
    seconds: float,
    opts: pulumi.ResourceOptions,
) -> list[pulumi.CustomResource]:
    """What has to stand before somebody relies on grants, or on agents that were just made: they, and a wait; they
    alone without `seconds`. Google's "Access change propagation" speaks of two minutes as a rule, of seven or more.
    """
    if not seconds:
        return list(made)
    awaited = [pulumi.Output.concat(one.id, " for ", one.member) for one in made]
    return [*made, Settling(name, f"Google heeds {whose}", awaited, seconds, opts)]


def account_id(stack: str, role: str) -> str:
    """The id of the service account that does `role` in a stack.

    >>> account_id("demo", "node")
    'demo-node'
    """
    name = f"{shortened(stack, MAX_ACCOUNT - len(role) - 1)}-{role}"
    # Shorter than an id may be; no stack is called so and "gangway" too.
    return name if len(name) >= 6 else f"gangway-{name}"


def filesystem_name(stack: str) -> str:
    """The name by which clients mount the stack's Lustre: its letters and digits, or four of them and four of a hash.

    >>> filesystem_name("gcp-a3"), filesystem_name("gcp-a3-spot-two")
    ('gcpa3', 'gcpa0418')
    """
    plain = re.sub(r"[^a-z0-9]", "", stack.lower())
    if len(plain) <= MAX_FILESYSTEM:
        return plain
    return f"{plain[:4]}{sha256(stack.encode()).hexdigest()[:4]}"


PROJECT_WIDE: Mapping[str, str] = MappingProxyType(
    {
        "roles/container.defaultNodeServiceAccount": "logs, metrics and what a node tells its control plane: "
        "none takes a policy; it reads no data",
        "roles/logging.logWriter": "a log takes no policy; it only writes",
        "roles/monitoring.metricWriter": "metrics take no policy; it only writes",
        "roles/workflows.invoker": "a workflow takes no policy; it only starts them",
        "roles/tpu.admin": "queued resources take no policy; with TPUs the budget's stop has it, which deletes them, "
        "and what brings slices back, which deletes and makes them",
        "cloudscheduler.jobs.get": "a schedule takes no policy; read only",
        "cloudscheduler.jobs.pause": "a schedule takes no policy; only the budget's stop has it, with TPUs",
        "compute.instanceGroupManagers.list": "read only; a list has no tag to go by; only the budget's stop has it",
        "compute.instances.get": "read only; the workers are not known beforehand",
        "compute.instances.list": "read only; instances have no narrower place to be listed in",
        "compute.instances.stop": "the head's name is not known when the role is made; only the budget's stop has it",
        "compute.zoneOperations.get": "read only; an operation is not known beforehand",
        "container.clusters.get": "a cluster takes no policy; read only; only the budget's stop has it",
        "container.clusters.update": "a cluster takes no policy; only the budget's stop has it, "
        "which empties node pools",
        "container.operations.get": "read only; an operation is not known beforehand",
        "lustre.instances.get": "Managed Lustre takes no policy on an instance; read only",
        "lustre.instances.importData": "Managed Lustre takes no policy on an instance",
        "lustre.operations.get": "read only; an operation is not known beforehand",
        "tpu.nodes.delete": "the nodes of a queued resource, which goes with them: neither takes a policy",
        "tpu.queuedResources.delete": "queued resources take no policy; the hosts of slices that leave have it",
    }
)
"""Every role and permission that our accounts have on a whole project, and why there is nothing narrower."""


def get_bucket(url: str) -> str:
    """The bucket of a `gs://bucket/prefix`."""
    return url.removeprefix("gs://").partition("/")[0]


def get_prefix(url: str) -> str:
    """The prefix of a `gs://bucket/prefix`, without slashes around it; empty for the whole bucket.

    >>> get_prefix("gs://data/celeba/")
    'celeba'
    """
    return url.removeprefix("gs://").partition("/")[2].strip("/")


class NodeIdentityArgs(TypedDict):
    """Inputs of NodeIdentity. `repository_id` is `projects/P/locations/R/repositories/NAME`, `data_source` the
    `gs://bucket/prefix` whose bucket nodes may read (whoever runs `up` must be allowed to grant that), `member_key_id`
    and `signing_key_id` are StackSecrets'. `groups_condition` is GroupTag's: with it a node may leave its group.
    `releases_slices` lets a TPU host give up all slices. An account takes no labels, and no key either: Google's own
    services use the stack's key on behalf of a node.
    """

    project: pulumi.Input[str]
    stack: str
    run_bucket_name: pulumi.Input[str]
    repository_id: pulumi.Input[str]
    data_source: NotRequired[str | None]
    member_key_id: NotRequired[pulumi.Input[str] | None]
    signing_key_id: NotRequired[pulumi.Input[str] | None]
    groups_condition: NotRequired[pulumi.Input[str] | None]
    releases_slices: NotRequired[bool]


class HeadIdentityArgs(TypedDict):
    """Inputs of HeadIdentity. `groups_condition` is GroupTag's: with it the head resizes groups. `imports`: it has
    Lustre import. `files_bucket_name` is HeadFiles', where it reads which groups there are; `member_key_id` and
    `signing_key_id` are StackSecrets'.
    """

    project: pulumi.Input[str]
    stack: str
    run_bucket_name: pulumi.Input[str]
    repository_id: pulumi.Input[str]
    groups_condition: NotRequired[pulumi.Input[str] | None]
    imports: NotRequired[bool]
    files_bucket_name: NotRequired[pulumi.Input[str] | None]
    member_key_id: NotRequired[pulumi.Input[str] | None]
    signing_key_id: NotRequired[pulumi.Input[str] | None]


@dataclass(frozen=True)
class RolePlan:
    """A role of our own: what it is called for people, its permissions, and what has to hold of a resource."""

    title: str
    permissions: tuple[str, ...]
    condition: pulumi.Input[str] | None = None


def node_permissions(*, releases_slices: bool) -> tuple[str, ...]:
    """What a TPU host does to the queue: give up the request that it came from, with all of its nodes."""
    return ("tpu.nodes.delete", "tpu.queuedResources.delete") if releases_slices else ()


def head_permissions(*, fills_groups: bool, imports: bool) -> tuple[str, ...]:
    """What the head does in the whole project: find workers, wait for what it did to groups, fill the file system."""
    find = ("compute.instances.get", "compute.instances.list")
    fill = ("compute.zoneOperations.get",) if fills_groups else ()
    load = ("lustre.instances.get", "lustre.instances.importData", "lustre.operations.get") if imports else ()
    return (*find, *fill, *load)


def declare_role(
    name: str,
    plan: RolePlan,
    account: serviceaccount.Account,
    project: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> projects.IAMMember:
    """A role of our own, bound to `account` on the project, under its condition."""
    # The id of a deleted role is taken for five weeks: the account's number makes it a new one for every new stack.
    role_id = account.unique_id.apply(lambda number: f"{name.replace('-', '_')}_{number[-8:]}"[-64:])
    role = projects.IAMCustomRole(
        name, project=project, role_id=role_id, title=plan.title, permissions=list(plan.permissions), opts=opts
    )
    condition = None
    if plan.condition is not None:
        condition = projects.IAMMemberConditionArgs(title="the stack's own groups", expression=plan.condition)
    return projects.IAMMember(
        name, project=project, role=role.name, member=account.member, condition=condition, opts=opts
    )


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
        project_roles = [
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
        return [image, runs, *project_roles]

    def on_bucket(
        self, label: str, account: serviceaccount.Account, bucket: pulumi.Input[str], role: str
    ) -> storage.BucketIAMMember:
        return storage.BucketIAMMember(
            f"{self.name}-{self.kind}-{label}", bucket=bucket, role=role, member=account.member, opts=self.opts
        )

    def on_secrets(
        self, account: serviceaccount.Account, args: "NodeIdentityArgs | HeadIdentityArgs"
    ) -> list[pulumi.CustomResource]:
        """The keys of the stack that it has, and no other secret."""
        secrets = {"member-key": args.get("member_key_id"), "signing-key": args.get("signing_key_id")}
        return [
            secretmanager.SecretIamMember(
                f"{self.name}-{self.kind}-{what}",
                project=self.project,
                secret_id=secret_id,
                role=SECRET_READER,
                member=account.member,
                opts=self.opts,
            )
            for what, secret_id in secrets.items()
            if secret_id is not None
        ]

    def own_roles(
        self, account: serviceaccount.Account, title: str, permissions: Sequence[str], groups: pulumi.Input[str] | None
    ) -> list[pulumi.CustomResource]:
        """What it may do in the whole project, and what to groups under the condition `groups`: a condition is a whole
        role's.
        """
        name, whole = f"{self.name}-{self.kind}", f"Gangway {self.stack}: "
        plans = {name: RolePlan(whole + title, tuple(permissions))} if permissions else {}
        if groups is not None:
            plans[f"{name}-groups"] = RolePlan(f"{whole}{self.kind}, its groups", GROUP_PERMISSIONS, groups)
        return [declare_role(name, plan, account, self.project, self.opts) for name, plan in plans.items()]


class NodeIdentity(pulumi.ComponentResource):
    """Service account and grants of the nodes. `service_account_email`: waits for the grants: a machine that takes it
    has them from its first second; `service_account_member`: the account as IAM policies name it.
    """

    service_account_email: pulumi.Output[str]
    service_account_member: pulumi.Output[str]

    def __init__(self, name: str, args: NodeIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:NodeIdentity", name, None, opts)
        machine = _Machine(name, "node", args["stack"], args["project"], pulumi.ResourceOptions(parent=self))
        account = machine.account()
        grants = machine.usual(account, args["run_bucket_name"], args["repository_id"])
        if source := args.get("data_source"):
            grants.append(machine.on_bucket("data", account, get_bucket(source), DATA_READER))
        grants += machine.on_secrets(account, args)
        permissions = node_permissions(releases_slices=args.get("releases_slices", False))
        grants += machine.own_roles(account, "give up slices", permissions, args.get("groups_condition"))
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
        grants += machine.on_secrets(account, args)
        groups = args.get("groups_condition")
        permissions = head_permissions(fills_groups=groups is not None, imports=args.get("imports", False))
        grants += machine.own_roles(account, "find workers", permissions, groups)
        self.service_account_email = after(account.email, *grants)
        self.service_account_member = account.member
        self.register_outputs(
            {
                "service_account_email": self.service_account_email,
                "service_account_member": self.service_account_member,
            }
        )
