"""LustreFileSystem (Managed Lustre), Filestore, RunBucket, HeadFiles (`up` writes, the head reads), ImageRegistry."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_gcp import artifactregistry, filestore, lustre, projects, storage

from gangway.components.catalog.loader import load_filestore_tiers, load_lustre_tiers
from gangway.components.catalog.schema import FilestoreTier
from gangway.components.core.fields import LustreDeployment
from gangway.components.core.findings import InputError
from gangway.components.core.limits import Setting, check_tier, nearest_number, refuse_foreign
from gangway.components.core.outputs import after, register_outputs
from gangway.components.estimate.storage_sizes import refuse_size, sizes_around
from gangway.components.gcp.identity import DATA_READER, filesystem_name, get_bucket
from gangway.components.gcp.network import declare_lock_callbacks

API_URL = "https://lustre.googleapis.com/v1"
# The objects of `source` below the mount, as on AWS.
DATA_PATH = "/data"
NONCURRENT_DAYS = 30
ABORT_UPLOAD_DAYS = 7
# Versions keep overwritten objects; this keeps deleted ones for a week.
SOFT_DELETE_SEC = 7 * 24 * 3600
SHARE = "gangway"


@dataclass(frozen=True)
class LustrePlan:
    """A file system Managed Lustre accepts."""

    filesystem: str
    capacity_gib: int
    throughput_mbps_per_tib: int


@dataclass(frozen=True)
class FilestorePlan:
    """A valid share: `tier` is the API's name."""

    tier: str
    capacity_gib: int


@dataclass(frozen=True)
class ImportRequest:
    """The call that imports a bucket's objects into a file system. Incremental, so repeating it is harmless."""

    url: str
    body: dict[str, Any]


def plan_lustre(
    capacity_gib: int,
    throughput_mbps_per_tib: int | None,
    place: str = "gangway:storage",
    *,
    stack: str,
    deployment: LustreDeployment = LustreDeployment.PERSISTENT,
    efa: bool = False,
    metadata_iops: int | None = None,
    export_runs: bool = False,
    region: str = "",
) -> LustrePlan:
    """Check tier and size, and refuse FSx-only settings. InputError: the nearest values, with prices in `region`."""
    _check_foreign(place, deployment, efa, metadata_iops, export_runs)
    tiers = load_lustre_tiers()
    tier = tiers[check_tier(place, "Managed Lustre", tiers, throughput_mbps_per_tib)]
    if capacity_gib not in (sizes := sizes_around(tier, capacity_gib)):
        raise refuse_size(
            place,
            capacity_gib,
            f"not a size Managed Lustre offers at {tier.throughput_mbps_per_tib} MB/s per TiB",
            f"nearest: {' and '.join(map(str, sizes))}",
            sizes,
            bill=("gcp", region, "managed-lustre"),
            tier=tier.throughput_mbps_per_tib,
            others=[name for name, other in tiers.items() if sizes_around(other, capacity_gib) == [capacity_gib]],
        )
    return LustrePlan(filesystem_name(stack), capacity_gib, tier.throughput_mbps_per_tib)


def plan_filestore(
    capacity_gib: int, tier: str = "basic-ssd", place: str = "gangway:storage", *, customer_key: bool = False
) -> FilestorePlan:
    """Check tier, size and support for the stack's key. InputError names the tiers, or the nearest sizes."""
    tiers = load_filestore_tiers()
    if tier not in tiers:
        raise InputError(
            f"{place}.tier", "not a tier of Filestore", value=tier, allowed=", ".join(tiers), fix="set tier: basic-ssd"
        )
    if customer_key and tier.startswith("basic-"):
        # The API's answer is 400: "tier BASIC_HDD does not support KMS encryption".
        raise InputError(
            f"{place}.tier",
            "Filestore encrypts its basic tiers with Google's own keys alone",
            value=tier,
            allowed=", ".join(name for name in tiers if not name.startswith("basic-")) + " with a customer's key",
            fix="set tier: zonal, or gangway:encryption: provider-key",
        )
    if capacity_gib not in (sizes := sizes_around(tiers[tier], capacity_gib)):
        raise InputError(
            f"{place}.capacity_gib",
            f"not a size Filestore offers in its tier {tier}",
            value=capacity_gib,
            allowed=f"nearest: {' and '.join(map(str, sizes))}",
            fix=f"set capacity_gib: {nearest_number(capacity_gib, sizes)}{_other_tiers(tiers, capacity_gib)}",
        )
    return FilestorePlan(tiers[tier].api_tier, capacity_gib)


def import_request(instance: str, source: str) -> ImportRequest:
    """Fill DATA_PATH of `instance` from `gs://bucket/prefix`; sent by the head or a node once DATA_PATH exists. The
    token needs `lustre.instances.importData`, and Managed Lustre's service agent read access to the bucket.
    """
    # A path inside a bucket has to end with a slash.
    body = {"gcsPath": {"uri": f"{source.rstrip('/')}/"}, "lustrePath": {"path": DATA_PATH}}
    return ImportRequest(f"{API_URL}/{instance}:importData", body)


def _check_foreign(
    place: str, deployment: LustreDeployment, efa: bool, metadata_iops: int | None, export_runs: bool
) -> None:
    wrong: dict[str, Setting] = {
        "deployment": (
            deployment != LustreDeployment.PERSISTENT,
            str(deployment),
            "every file system there is persistent",
        ),
        "efa": (efa, efa, "clients reach it over TCP"),
        "metadata_iops": (metadata_iops is not None, metadata_iops, "metadata performance follows the size"),
        "export_runs": (export_runs, export_runs, "it exports on demand only; nodes put their records into the bucket"),
    }
    refuse_foreign(place, "Google Cloud Managed Lustre", "gcp", wrong)


def _other_tiers(tiers: Mapping[str, FilestoreTier], capacity_gib: int) -> str:
    names = [name for name, tier in tiers.items() if sizes_around(tier, capacity_gib) == [capacity_gib]]
    return "".join(f", or tier: {name} with the {capacity_gib} GiB" for name in names)


class LustreFileSystemArgs(TypedDict):
    """Inputs of LustreFileSystem. `network` is `projects/P/global/networks/N`, already peered for private services.
    `source` is the `gs://bucket/prefix` that the head or a node imports: Managed Lustre's service agent gets read
    access to that bucket for good, and `up` needs the right to grant it. `deployment`, `efa`, `metadata_iops` and
    `runs` are FSx's and refused. `kms_key_name` is a key in the region.
    """

    project: pulumi.Input[str]
    zone: str
    stack: str
    capacity_gib: int
    throughput_mbps_per_tib: NotRequired[int | None]
    deployment: NotRequired[LustreDeployment]
    efa: NotRequired[bool]
    metadata_iops: NotRequired[int | None]
    runs: NotRequired[str | None]
    network: pulumi.Input[str]
    source: NotRequired[str | None]
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


class LustreFileSystem(pulumi.ComponentResource):
    """A Managed Lustre file system in the nodes' zone. `file_system_id` (`projects/P/locations/Z/instances/I`) is for
    imports, `mount_point` (`IP@tcp:/NAME`) for clients; `dns_name` is that IP address, `mount_name` that NAME.
    """

    file_system_id: pulumi.Output[str]
    mount_point: pulumi.Output[str]
    dns_name: pulumi.Output[str]
    mount_name: pulumi.Output[str]

    def __init__(self, name: str, args: LustreFileSystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:LustreFileSystem", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        plan = plan_lustre(
            args["capacity_gib"],
            args.get("throughput_mbps_per_tib"),
            stack=args["stack"],
            deployment=args.get("deployment", LustreDeployment.PERSISTENT),
            efa=args.get("efa", False),
            metadata_iops=args.get("metadata_iops"),
            export_runs=args.get("runs") is not None,
        )
        file_system = self._file_system(plan)
        readers = [self._grant_import(source)] if (source := args.get("source")) else []
        self.file_system_id = after(file_system.id, *readers)
        self.mount_point = file_system.mount_point
        self.dns_name = file_system.mount_point.apply(lambda point: point.partition("@")[0])
        self.mount_name = pulumi.Output.from_input(plan.filesystem)
        register_outputs(self)

    def _file_system(self, plan: LustrePlan) -> lustre.Instance:
        args = self._args
        return lustre.Instance(
            f"{self._name}-lustre",
            project=args["project"],
            location=args["zone"],
            # Pulumi generates no name for this type.
            instance_id=f"{self._name}-lustre",
            filesystem=plan.filesystem,
            # The API's 64-bit numbers are strings.
            capacity_gib=str(plan.capacity_gib),
            per_unit_storage_throughput=str(plan.throughput_mbps_per_tib),
            network=args["network"],
            gke_support_enabled=False,
            kms_key=args.get("kms_key_name"),
            description=f"{args['stack']}: data and runs",
            labels=args["tags"],
            # Mounted by name, which only one file system can have.
            opts=pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(delete_before_replace=True)),
        )

    def _grant_import(self, source: str) -> storage.BucketIAMMember:
        """Read access for the agent: https://docs.cloud.google.com/managed-lustre/docs/transfer-data."""
        agent = projects.ServiceIdentity(
            f"{self._name}-lustre", project=self._args["project"], service="lustre.googleapis.com", opts=self._child
        )
        return storage.BucketIAMMember(
            f"{self._name}-lustre-import",
            bucket=get_bucket(source),
            role=DATA_READER,
            member=agent.member,
            # The agent is the project's: other stacks that import from this bucket share the grant, and must not lose
            # it.
            opts=pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(retain_on_delete=True)),
        )


class FilestoreArgs(TypedDict):
    """Inputs of Filestore. `tier` is basic-hdd, basic-ssd (default) or zonal. `network` is the VPC network's name or
    path, `client_cidr` the range that may mount the share. `client_tags` are network tags of machines that lock files
    on it. `kms_key_name` needs zonal.
    """

    project: pulumi.Input[str]
    zone: str
    capacity_gib: int
    tier: NotRequired[str]
    network: pulumi.Input[str]
    client_cidr: pulumi.Input[str]
    client_tags: NotRequired[list[pulumi.Input[str]]]
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


class Filestore(pulumi.ComponentResource):
    """An NFS share in the nodes' zone, for small clusters that would leave Lustre mostly empty. `mount_point` is
    `IP:/gangway`; `dns_name` that IP address, `mount_name` `gangway`.
    """

    file_system_id: pulumi.Output[str]
    mount_point: pulumi.Output[str]
    dns_name: pulumi.Output[str]
    mount_name: pulumi.Output[str]

    def __init__(self, name: str, args: FilestoreArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:Filestore", name, None, opts)
        customer_key = args.get("kms_key_name") is not None
        plan = plan_filestore(args["capacity_gib"], args.get("tier", "basic-ssd"), customer_key=customer_key)
        network = filestore.InstanceNetworkArgs(
            network=args["network"], modes=["MODE_IPV4"], connect_mode="DIRECT_PEERING"
        )
        instance = filestore.Instance(
            f"{name}-filestore",
            project=args["project"],
            location=args["zone"],
            tier=plan.tier,
            file_shares=_share(plan, args["client_cidr"]),
            networks=[network],
            kms_key_name=args.get("kms_key_name"),
            labels=args["tags"],
            opts=pulumi.ResourceOptions(parent=self),
        )
        locks = self._allow_lock_callbacks(name, args, instance)
        # Clients mount it only once the servers may answer.
        self.file_system_id = after(instance.id, *locks)
        # Nothing is mounted in a plan, where no address is known.
        self.dns_name = instance.networks.apply(lambda networks: (networks[0].ip_addresses or [""])[0])
        self.mount_name = pulumi.Output.from_input(SHARE)
        self.mount_point = pulumi.Output.concat(self.dns_name, ":/", SHARE)
        register_outputs(self)

    def _allow_lock_callbacks(
        self, name: str, args: FilestoreArgs, instance: filestore.Instance
    ) -> list[pulumi.CustomResource]:
        """Google chooses the servers' addresses."""
        if not (tags := args.get("client_tags")):
            return []
        servers = instance.networks.apply(lambda networks: networks[0].reserved_ip_range or "")
        child = pulumi.ResourceOptions(parent=self)
        return [declare_lock_callbacks(name, args["project"], args["network"], servers, tags, child)]


def _share(plan: FilestorePlan, client_cidr: pulumi.Input[str]) -> filestore.InstanceFileSharesArgs:
    export = filestore.InstanceFileSharesNfsExportOptionArgs(
        ip_ranges=[client_cidr],
        access_mode="READ_WRITE",
        # Docker and the preparation scripts run as root, and the range admits nobody else.
        squash_mode="NO_ROOT_SQUASH",
    )
    return filestore.InstanceFileSharesArgs(name=SHARE, capacity_gb=plan.capacity_gib, nfs_export_options=[export])


class RunBucketArgs(TypedDict):
    """Inputs of RunBucket. Without `kms_key_name` Cloud Storage encrypts with its own keys. With `keep` false deleting
    it deletes every version of every object; else Google refuses.
    """

    project: pulumi.Input[str]
    region: str
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    keep: NotRequired[bool]
    tags: dict[str, str]


class RunBucket(pulumi.ComponentResource):
    """A private, encrypted, versioned bucket for run records and checkpoints. Current versions never expire."""

    bucket_name: pulumi.Output[str]
    bucket_url: pulumi.Output[str]

    def __init__(self, name: str, args: RunBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:RunBucket", name, None, opts)
        key = args.get("kms_key_name")
        bucket = storage.Bucket(
            f"{name}-runs",
            project=args["project"],
            location=args["region"],
            storage_class="STANDARD",
            # Only IAM decides, as conditions on prefixes need; nobody can make it public.
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            versioning=storage.BucketVersioningArgs(enabled=True),
            lifecycle_rules=_lifecycle(),
            soft_delete_policy=storage.BucketSoftDeletePolicyArgs(retention_duration_seconds=SOFT_DELETE_SEC),
            encryption=None if key is None else storage.BucketEncryptionArgs(default_kms_key_name=key),
            labels=args["tags"],
            force_destroy=None if args.get("keep", True) else True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.bucket_name = bucket.name
        self.bucket_url = pulumi.Output.concat("gs://", bucket.name)
        register_outputs(self)


def _lifecycle() -> list[storage.BucketLifecycleRuleArgs]:
    overwritten = storage.BucketLifecycleRuleConditionArgs(
        days_since_noncurrent_time=NONCURRENT_DAYS, with_state="ARCHIVED"
    )
    unfinished = storage.BucketLifecycleRuleConditionArgs(age=ABORT_UPLOAD_DAYS)
    return [
        storage.BucketLifecycleRuleArgs(action=storage.BucketLifecycleRuleActionArgs(type=action), condition=condition)
        for action, condition in (("Delete", overwritten), ("AbortIncompleteMultipartUpload", unfinished))
    ]


class HeadFilesArgs(TypedDict):
    """Inputs of HeadFiles. Without `kms_key_name` Cloud Storage encrypts with its own keys."""

    project: pulumi.Input[str]
    region: str
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


class HeadFiles(pulumi.ComponentResource):
    """A private bucket without versions, deleted with its content."""

    bucket_name: pulumi.Output[str]

    def __init__(self, name: str, args: HeadFilesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:HeadFiles", name, None, opts)
        key = args.get("kms_key_name")
        bucket = storage.Bucket(
            f"{name}-head",
            project=args["project"],
            location=args["region"],
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            force_destroy=True,
            # `up` can write it again.
            soft_delete_policy=storage.BucketSoftDeletePolicyArgs(retention_duration_seconds=0),
            encryption=None if key is None else storage.BucketEncryptionArgs(default_kms_key_name=key),
            labels=args["tags"],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.bucket_name = bucket.name
        register_outputs(self)


LOGIN_USER = "oauth2accesstoken"  # the user for a short-lived access token
IMAGE = "trainer"
KEPT_BUILDS = 10
# Versions per build: an index, the image, its provenance, the cache.
VERSIONS_PER_BUILD = 4
OLD_DAYS = 14


# Tags may move: immutability has no exceptions, and the build cache's tags must move, as must content tags after an
# `up` interrupted between push and state; nodes and run records use digests. The images are deleted with the stack, as
# each can be rebuilt from a run record's commit and lock.
class ImageRegistryArgs(TypedDict):
    """Inputs of ImageRegistry. Without `kms_key_name` Artifact Registry encrypts with its own keys."""

    project: pulumi.Input[str]
    region: str
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def _cleanup_policies() -> list[artifactregistry.RepositoryCleanupPolicyArgs]:
    """Drop what is older than two weeks except the newest ten builds: keeping wins over deleting."""
    newest = artifactregistry.RepositoryCleanupPolicyMostRecentVersionsArgs(keep_count=KEPT_BUILDS * VERSIONS_PER_BUILD)
    old = artifactregistry.RepositoryCleanupPolicyConditionArgs(tag_state="ANY", older_than=f"{OLD_DAYS * 86400}s")
    return [
        artifactregistry.RepositoryCleanupPolicyArgs(id="keep-newest", action="KEEP", most_recent_versions=newest),
        artifactregistry.RepositoryCleanupPolicyArgs(id="delete-old", action="DELETE", condition=old),
    ]


class ImageRegistry(pulumi.ComponentResource):
    """A private container repository that keeps its newest images. `repository_url`: prefix of image references;
    `repository_id`: `projects/P/locations/R/repositories/NAME`, for grants; `registry_host`: for logging in as
    LOGIN_USER.
    """

    repository_url: pulumi.Output[str]
    repository_id: pulumi.Output[str]
    registry_host: pulumi.Output[str]

    def __init__(self, name: str, args: ImageRegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:ImageRegistry", name, None, opts)
        repository = artifactregistry.Repository(
            f"{name}-trainer",
            project=args["project"],
            location=args["region"],
            # Pulumi generates no name for this type.
            repository_id=f"{name}-trainer",
            description="The trainer's images and its build cache",
            format="DOCKER",
            mode="STANDARD_REPOSITORY",
            docker_config=artifactregistry.RepositoryDockerConfigArgs(immutable_tags=False),
            cleanup_policies=_cleanup_policies(),
            # There is no value for "on": the inherited one is on if the project has the scanning API, which
            # ProjectServices enable.
            vulnerability_scanning_config=artifactregistry.RepositoryVulnerabilityScanningConfigArgs(
                enablement_config="INHERITED"
            ),
            kms_key_name=args.get("kms_key_name"),
            labels=args["tags"],
            # The name is fixed.
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        self.repository_url = pulumi.Output.concat(repository.registry_uri, "/", IMAGE)
        self.repository_id = repository.id
        self.registry_host = pulumi.Output.from_input(f"{args['region']}-docker.pkg.dev")
        register_outputs(self)
