"""A project's APIs, least-privilege service accounts, encryption keys, and keys in Secret Manager."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NotRequired, TypedDict

import pulumi
from pulumi_gcp import artifactregistry, kms, projects, secretmanager, serviceaccount, storage, workflows

from gangway.components.core.outputs import after, register_outputs
from gangway.components.core.settling import Settling
from gangway.components.core.tags import shortened

SECRET_READER = "roles/secretmanager.secretAccessor"


class StackSecretArgs(TypedDict):
    """Inputs of StackSecret. `pem`: of `.member_key` or `.signing_key`; `kms_key_name` replaces Google's own key."""

    project: pulumi.Input[str]
    region: str
    pem: pulumi.Input[str]
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


class StackSecret(pulumi.ComponentResource):
    """A secret with one version. `secret_id`, `projects/P/secrets/NAME`: known once readable."""

    secret_id: pulumi.Output[str]

    def __init__(self, name: str, args: StackSecretArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:StackSecret", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        # The name is fixed.
        first = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(delete_before_replace=True))
        key = args.get("kms_key_name")
        encryption = secretmanager.SecretReplicationUserManagedReplicaCustomerManagedEncryptionArgs
        secret = secretmanager.Secret(
            name,
            project=args["project"],
            secret_id=name,
            replication=secretmanager.SecretReplicationArgs(
                user_managed=secretmanager.SecretReplicationUserManagedArgs(
                    replicas=[
                        secretmanager.SecretReplicationUserManagedReplicaArgs(
                            location=args["region"],
                            customer_managed_encryption=None if key is None else encryption(kms_key_name=key),
                        )
                    ]
                )
            ),
            labels=args["tags"],
            opts=first,
        )
        version = secretmanager.SecretVersion(
            name, secret=secret.id, secret_data=pulumi.Output.secret(args["pem"]), opts=child
        )
        self.secret_id = after(secret.id, version)
        register_outputs(self)


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
ON_REQUEST: Mapping[str, tuple[str, ...]] = {
    "lustre": ("lustre", "servicenetworking"),
    "filestore": ("file",),
    "tpu": ("tpu",),
    "encryption": ("cloudkms",),
    "keys": ("secretmanager",),
    "kubernetes": ("container",),
    "perimeter": ("accesscontextmanager",),
    "stop": ("eventarc", "workflows", "workflowexecutions"),
    "reconcile": ("cloudscheduler", "workflows", "workflowexecutions"),
}  # optional parts of a stack, and their APIs

AGENT_DOMAINS: Mapping[str, str] = {
    "compute": "compute-system",
    "filestore": "cloud-filer",
    "lustre": "gcp-sa-lustre",
    "artifactregistry": "gcp-sa-artifactregistry",
    "kubernetes": "container-engine-robot",
    "pubsub": "gcp-sa-pubsub",
    "secretmanager": "gcp-sa-secretmanager",
    "tpu": "cloud-tpu",
    "workflows": "gcp-sa-workflows",
}  # which act in a project as `service-<number>@<domain>.iam.gserviceaccount.com`
ROTATION_SEC = 90 * 24 * 3600
# Time to notice that encrypted data is still needed after a destroy.
DELETION_SEC = 30 * 24 * 3600
# Created on first use; other agents exist as soon as the API is enabled.
MADE_ON_REQUEST = (
    *("artifactregistry", "filestore", "kubernetes", "lustre", "pubsub", "secretmanager", "tpu", "workflows"),
)
# APIs whose names differ from the part of the stack.
API_NAMES = {"filestore": "file", "kubernetes": "container"}
USUAL = ("compute", "storage", "artifactregistry", "logging", "pubsub")
# Service accounts: 6 to 30 characters.
MAX_ACCOUNT = 30
# Managed Lustre: letters and digits, at most eight.
MAX_FILESYSTEM = 8
DATA_READER = "roles/storage.objectViewer"
# Overwriting an object needs the permission to delete it, and nodes overwrite records. The stack's bucket keeps every
# version, and deleted ones for some days.
RUN_WRITER = "roles/storage.objectUser"
IMAGE_READER = "roles/artifactregistry.reader"
KEY_USER = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
GROUP_PERMISSIONS = ("compute.instanceGroupManagers.get", "compute.instanceGroupManagers.update")
"""To leave, fill and empty groups: only for groups with the stack's tag (`gangway.components.gcp.node_pool`)."""
PROJECT_ROLES = ("roles/logging.logWriter", "roles/monitoring.metricWriter")


def plan_services(*parts: str) -> list[str]:
    """The full names of a stack's APIs with these `parts` (keys of ON_REQUEST)."""
    names = {*ALWAYS, *(name for part in parts for name in ON_REQUEST[part])}
    return [f"{name}.googleapis.com" for name in sorted(names)]


def get_agent(service: str, project_number: str) -> str:
    """A service agent as a member of an IAM policy.

    >>> get_agent("lustre", "123456789012")
    'serviceAccount:service-123456789012@gcp-sa-lustre.iam.gserviceaccount.com'
    """
    return f"serviceAccount:service-{project_number}@{AGENT_DOMAINS[service]}.iam.gserviceaccount.com"


def key_users(services: Sequence[str]) -> tuple[str, ...]:
    """The services that use the key: those of every stack, and `services`."""
    return tuple(dict.fromkeys((*USUAL, *services)))


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
        register_outputs(self)


class EncryptionKeyArgs(TypedDict):
    """Inputs of EncryptionKey. `project_number` is the number of `project`. `services` use the key besides USUAL:
    lustre, filestore, kubernetes, secretmanager, tpu, workflows. `agents` are the service agents of storage and logging
    as members, which a lookup creates. `grant_wait_sec` (0): wait for the key's grants, only in Python programs
    (`gangway.components.core.settling`).
    """

    project: pulumi.Input[str]
    project_number: pulumi.Input[str]
    region: str
    services: list[str]
    agents: Mapping[str, pulumi.Input[str]]
    grant_wait_sec: NotRequired[float]
    tags: dict[str, str]


class EncryptionKey(pulumi.ComponentResource):
    """A rotating KMS key in its own ring, usable by the stack's service agents."""

    key_name: pulumi.Output[str]

    def __init__(self, name: str, args: EncryptionKeyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:EncryptionKey", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
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
            for service in key_users(args["services"])
        ]
        # Consumers of the name wait until the services may use the key.
        wait_sec = args.get("grant_wait_sec", 0)
        self.key_name = after(key.id, *heeded(f"{name}-data-heeded", "the key's users", users, wait_sec, self._child))
        register_outputs(self)

    def _agent(self, service: str) -> pulumi.Output[str]:
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
    """Grants or new agents and a wait for them, for `depends_on`; without `seconds` no wait. Google's "Access change
    propagation" says typically two minutes, sometimes seven or more.
    """
    if not seconds:
        return list(made)
    awaited = [pulumi.Output.concat(one.id, " for ", one.member) for one in made]
    return [*made, Settling(name, f"Google heeds {whose}", awaited, seconds, opts)]


def account_id(stack: str, role: str) -> str:
    """The id of the service account with this role in a stack.

    >>> account_id("demo", "node")
    'demo-node'
    """
    name = f"{shortened(stack, MAX_ACCOUNT - len(role) - 1)}-{role}"
    # Shorter than the minimum; no other stack can have this name.
    return name if len(name) >= 6 else f"gangway-{name}"


def filesystem_name(stack: str) -> str:
    """The Lustre mount name: the stack's letters and digits, or four of them and four of a hash.

    >>> filesystem_name("gcp-a3"), filesystem_name("gcp-a3-spot-two")
    ('gcpa3', 'gcpa0418')
    """
    plain = re.sub(r"[^a-z0-9]", "", stack.lower())
    if len(plain) <= MAX_FILESYSTEM:
        return plain
    return f"{plain[:4]}{sha256(stack.encode()).hexdigest()[:4]}"


PROJECT_WIDE: Mapping[str, str] = {
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
    "container.clusters.update": "a cluster takes no policy; only the budget's stop has it, which empties node pools",
    "container.operations.get": "read only; an operation is not known beforehand",
    "lustre.instances.get": "Managed Lustre takes no policy on an instance; read only",
    "lustre.instances.importData": "Managed Lustre takes no policy on an instance",
    "lustre.operations.get": "read only; an operation is not known beforehand",
    "tpu.nodes.delete": "the nodes of a queued resource, which goes with them: neither takes a policy",
    "tpu.queuedResources.delete": "queued resources take no policy; the hosts of slices that leave have it",
}  # every role and permission of our accounts on a whole project, and why there is nothing narrower


def get_bucket(url: str) -> str:
    """The bucket of a `gs://bucket/prefix`."""
    return url.removeprefix("gs://").partition("/")[0]


def get_prefix(url: str) -> str:
    """The prefix of a `gs://bucket/prefix`, without slashes around it; empty for the whole bucket.

    >>> get_prefix("gs://data/celeba/")
    'celeba'
    """
    return url.removeprefix("gs://").partition("/")[2].strip("/")


class MachineIdentityArgs(TypedDict):
    """What the identities of nodes and head have in common."""

    project: pulumi.Input[str]
    stack: str
    run_bucket_name: pulumi.Input[str]
    repository_id: pulumi.Input[str]
    member_key_id: NotRequired[pulumi.Input[str] | None]
    signing_key_id: NotRequired[pulumi.Input[str] | None]
    groups_condition: NotRequired[pulumi.Input[str] | None]


class NodeIdentityArgs(MachineIdentityArgs):
    """Inputs of NodeIdentity. `repository_id` is `projects/P/locations/R/repositories/NAME`, `data_source` a readable
    `gs://bucket/prefix` (whole bucket; `up` needs the right to grant that), `member_key_id` and `signing_key_id` are
    StackSecrets'. `groups_condition` is GroupTag's: with it a node may leave its group. `releases_slices` lets a TPU
    host delete all slices. Accounts take no labels; Google's services use the key on behalf of a node.
    """

    data_source: NotRequired[str | None]
    releases_slices: NotRequired[bool]


class HeadIdentityArgs(MachineIdentityArgs):
    """Inputs of HeadIdentity. With `groups_condition`, GroupTag's, it resizes groups; with `imports` it starts Lustre
    imports. `files_bucket_name` is HeadFiles', which lists the groups; `member_key_id` and `signing_key_id` are
    StackSecrets'.
    """

    imports: NotRequired[bool]
    files_bucket_name: NotRequired[pulumi.Input[str] | None]


@dataclass(frozen=True)
class RolePlan:
    """A custom role: title, permissions, and condition on the resource."""

    title: str
    permissions: tuple[str, ...]
    condition: pulumi.Input[str] | None = None


def node_permissions(*, releases_slices: bool) -> tuple[str, ...]:
    """A TPU host's permission on the queue: delete its request with all nodes."""
    return ("tpu.nodes.delete", "tpu.queuedResources.delete") if releases_slices else ()


def head_permissions(*, fills_groups: bool, imports: bool) -> tuple[str, ...]:
    """The head's permissions on the whole project: find workers, wait for operations, fill the file system."""
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
    """A custom role, bound to `account` on the project, under its condition."""
    # Deleted role ids stay reserved for five weeks: the account's number makes a new one per stack.
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


def grant_roles(
    name: str,
    roles: Sequence[str],
    account: serviceaccount.Account,
    project: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> list[projects.IAMMember]:
    """Predefined roles of `account` on the whole project."""
    return [
        projects.IAMMember(
            f"{name}-{role.rpartition('/')[2].replace('.', '-')}",
            project=project,
            role=role,
            member=account.member,
            opts=opts,
        )
        for role in roles
    ]


class WorkflowArgs(TypedDict):
    """The arguments of a component that a workflow needs."""

    project: pulumi.Input[str]
    region: str
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def declare_workflow(
    name: str,
    args: WorkflowArgs,
    description: str,
    source: str,
    variables: Mapping[str, pulumi.Input[str]],
    email: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> workflows.Workflow:
    """A workflow that is deleted with the stack. `source`: a YAML file of this package."""
    return workflows.Workflow(
        name,
        project=args["project"],
        region=args["region"],
        description=description,
        source_contents=source,
        user_env_vars=variables,
        service_account=email,
        call_log_level="LOG_ERRORS_ONLY",
        crypto_key_name=args.get("kms_key_name"),
        deletion_protection=False,
        labels=args["tags"],
        opts=opts,
    )


class _Grants:
    """Grants of one account on single resources."""

    def __init__(
        self, name: str, project: pulumi.Input[str], member: pulumi.Input[str], opts: pulumi.ResourceOptions
    ) -> None:
        self._name, self._project, self._member, self._opts = name, project, member, opts

    def on_repository(self, repository: pulumi.Input[str]) -> artifactregistry.RepositoryIamMember:
        return artifactregistry.RepositoryIamMember(
            f"{self._name}-image", repository=repository, role=IMAGE_READER, member=self._member, opts=self._opts
        )

    def on_bucket(self, label: str, bucket: pulumi.Input[str], role: str) -> storage.BucketIAMMember:
        return storage.BucketIAMMember(
            f"{self._name}-{label}", bucket=bucket, role=role, member=self._member, opts=self._opts
        )

    def on_secrets(
        self, member_key_id: pulumi.Input[str] | None, signing_key_id: pulumi.Input[str] | None
    ) -> list[pulumi.CustomResource]:
        """Access to the stack's keys only."""
        secrets = {"member-key": member_key_id, "signing-key": signing_key_id}
        return [
            secretmanager.SecretIamMember(
                f"{self._name}-{what}",
                project=self._project,
                secret_id=secret_id,
                role=SECRET_READER,
                member=self._member,
                opts=self._opts,
            )
            for what, secret_id in secrets.items()
            if secret_id is not None
        ]


class _Machine:
    """An account of one kind of machine, and its grants, with every machine's to begin with."""

    def __init__(self, name: str, kind: str, args: MachineIdentityArgs, opts: pulumi.ResourceOptions) -> None:
        self._name, self._kind, self._args, self._opts = f"{name}-{kind}", kind, args, opts
        self.account = serviceaccount.Account(
            self._name,
            project=args["project"],
            account_id=account_id(args["stack"], kind),
            display_name=f"Gangway {args['stack']}: {kind}",
            opts=opts,
        )
        self.grant = _Grants(self._name, args["project"], self.account.member, opts)
        self.grants = self._usual()

    def _usual(self) -> list[pulumi.CustomResource]:
        project_roles = [
            projects.IAMMember(
                f"{self._name}-{role.rpartition('.')[2]}",
                project=self._args["project"],
                role=role,
                member=self.account.member,
                opts=self._opts,
            )
            for role in PROJECT_ROLES
        ]
        image = self.grant.on_repository(self._args["repository_id"])
        return [image, self.grant.on_bucket("runs", self._args["run_bucket_name"], RUN_WRITER), *project_roles]

    def on_secrets(self) -> list[pulumi.CustomResource]:
        """Access to the stack's keys only."""
        return self.grant.on_secrets(self._args.get("member_key_id"), self._args.get("signing_key_id"))

    def own_roles(self, title: str, permissions: Sequence[str]) -> list[pulumi.CustomResource]:
        """Permissions on the whole project, and on groups under their condition, which needs a separate role."""
        name, whole, groups = self._name, f"Gangway {self._args['stack']}: ", self._args.get("groups_condition")
        plans = {name: RolePlan(whole + title, tuple(permissions))} if permissions else {}
        if groups is not None:
            plans[f"{name}-groups"] = RolePlan(f"{whole}{self._kind}, its groups", GROUP_PERMISSIONS, groups)
        project = self._args["project"]
        return [declare_role(name, plan, self.account, project, self._opts) for name, plan in plans.items()]


class NodeIdentity(pulumi.ComponentResource):
    """The nodes' service account and grants. `service_account_email` waits; `..._member`: for IAM policies."""

    service_account_email: pulumi.Output[str]
    service_account_member: pulumi.Output[str]

    def __init__(self, name: str, args: NodeIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:NodeIdentity", name, None, opts)
        machine = _Machine(name, "node", args, pulumi.ResourceOptions(parent=self))
        grants = machine.grants
        if source := args.get("data_source"):
            grants.append(machine.grant.on_bucket("data", get_bucket(source), DATA_READER))
        grants += machine.on_secrets()
        permissions = node_permissions(releases_slices=args.get("releases_slices", False))
        grants += machine.own_roles("give up slices", permissions)
        self.service_account_email = after(machine.account.email, *grants)
        self.service_account_member = machine.account.member
        register_outputs(self)


class HeadIdentity(pulumi.ComponentResource):
    """Service account and grants of the head node. Outputs as of NodeIdentity."""

    service_account_email: pulumi.Output[str]
    service_account_member: pulumi.Output[str]

    def __init__(self, name: str, args: HeadIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:HeadIdentity", name, None, opts)
        machine = _Machine(name, "head", args, pulumi.ResourceOptions(parent=self))
        grants = machine.grants
        if (files := args.get("files_bucket_name")) is not None:
            grants.append(machine.grant.on_bucket("files", files, DATA_READER))
        grants += machine.on_secrets()
        fills_groups = args.get("groups_condition") is not None
        permissions = head_permissions(fills_groups=fills_groups, imports=args.get("imports", False))
        grants += machine.own_roles("find workers", permissions)
        self.service_account_email = after(machine.account.email, *grants)
        self.service_account_member = machine.account.member
        register_outputs(self)


class ExistingIdentityArgs(TypedDict):
    """Inputs of ExistingIdentity. `email`: of an account that exists. The rest as in NodeIdentityArgs and
    HeadIdentityArgs, but only resources of the stack: none that exists already.
    """

    project: pulumi.Input[str]
    email: str
    run_bucket_name: NotRequired[pulumi.Input[str] | None]
    repository_id: NotRequired[pulumi.Input[str] | None]
    files_bucket_name: NotRequired[pulumi.Input[str] | None]
    member_key_id: NotRequired[pulumi.Input[str] | None]
    signing_key_id: NotRequired[pulumi.Input[str] | None]


class ExistingIdentity(pulumi.ComponentResource):
    """An existing service account, with access to resources of the stack only. Outputs as of NodeIdentity."""

    service_account_email: pulumi.Output[str]
    service_account_member: pulumi.Output[str]

    def __init__(self, name: str, args: ExistingIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:ExistingIdentity", name, None, opts)
        member = f"serviceAccount:{args['email']}"
        child = pulumi.ResourceOptions(parent=self)
        grant = _Grants(name, args["project"], member, child)
        grants = grant.on_secrets(args.get("member_key_id"), args.get("signing_key_id"))
        if (runs := args.get("run_bucket_name")) is not None:
            grants.append(grant.on_bucket("runs", runs, RUN_WRITER))
        if (files := args.get("files_bucket_name")) is not None:
            grants.append(grant.on_bucket("files", files, DATA_READER))
        if (repository := args.get("repository_id")) is not None:
            grants.append(grant.on_repository(repository))
        self.service_account_email = after(args["email"], *grants)
        self.service_account_member = pulumi.Output.from_input(member)
        register_outputs(self)
