"""LustreFileSystem (FSx for Lustre linked to S3), RunBucket for checkpoints and run records, ImageRegistry (ECR)."""

from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_aws import cloudwatch, ecr, fsx, s3

from gangway.components.aws.last_export import LastExport
from gangway.components.catalog.loader import load
from gangway.components.catalog.schema import LustreOffer
from gangway.components.core.fields import LustreDeployment
from gangway.components.core.findings import InputError
from gangway.components.core.image import CACHE_TAG, CONTENT_PREFIX
from gangway.components.core.limits import check_tier, nearest_number
from gangway.components.core.outputs import after, register_outputs, resources_of
from gangway.components.estimate.storage_sizes import fsx_sizes_around, fsx_steps, refuse_size

# Links to S3 need Lustre 2.12 or newer, and a scratch file system defaults to 2.10; metadata configuration needs 2.15.
LUSTRE_VERSION = "2.15"
# Sunday, 03:00 UTC. By default FSx chooses a window, in which a run loses its file system for minutes.
MAINTENANCE_START = "7:03:00"
LOG_DAYS = 30
NONCURRENT_DAYS = 30
ABORT_UPLOAD_DAYS = 7


@dataclass(frozen=True)
class LustrePlan:
    """A file system FSx accepts: PERSISTENT_2 or SCRATCH_2. `throughput_mbps_per_tib`: None on scratch, where it is
    fixed and may not be sent; `efa` (with GPUDirect Storage) is fixed at creation; `metadata_mode`: AUTOMATIC or
    USER_PROVISIONED (with `metadata_iops`); None on scratch.
    """

    deployment_type: str
    capacity_gib: int
    throughput_mbps_per_tib: int | None
    efa: bool
    metadata_mode: str | None
    metadata_iops: int | None


def plan_lustre(
    capacity_gib: int,
    throughput_mbps_per_tib: int | None,
    place: str = "gangway:storage",
    *,
    deployment: LustreDeployment = LustreDeployment.PERSISTENT,
    efa: bool = False,
    metadata_iops: int | None = None,
    customer_key: bool = False,
    region: str = "",
) -> LustrePlan:
    """Check a file system. InputError: nearest values, with price in `region`. `metadata_iops` None: FSx chooses."""
    offer = load().lustre["aws"]
    if deployment == LustreDeployment.SCRATCH:
        _check_scratch(offer, place, throughput_mbps_per_tib, efa, metadata_iops, customer_key)
        _check_size(offer, place, capacity_gib, None, region, efa=False)
        assert offer.scratch_deployment_type.value is not None, "AWS has scratch file systems"
        return LustrePlan(offer.scratch_deployment_type.value, capacity_gib, None, False, None, None)
    tier = check_tier(place, "FSx for Lustre", offer.throughput_mbps_per_tib.value, throughput_mbps_per_tib)
    _check_size(offer, place, capacity_gib, tier, region, efa=efa)
    _check_metadata(offer, place, metadata_iops)
    # A file system created without a metadata configuration can never get one, and AUTOMATIC is included in the price.
    mode = "AUTOMATIC" if metadata_iops is None else "USER_PROVISIONED"
    return LustrePlan(offer.deployment_type.value, capacity_gib, tier, efa, mode, metadata_iops)


def _check_scratch(
    offer: LustreOffer,
    place: str,
    throughput_mbps_per_tib: int | None,
    efa: bool,
    metadata_iops: int | None,
    customer_key: bool,
) -> None:
    if efa:
        raise InputError(
            f"{place}.efa",
            "a scratch file system has no EFA",
            value=efa,
            allowed="efa: true with deployment: persistent",
            fix="set deployment: persistent, or efa: false",
        )
    fixed = offer.scratch_throughput_mbps_per_tib.value
    settings = {
        "throughput_mbps_per_tib": (throughput_mbps_per_tib, f"its throughput is fixed at {fixed} MB/s per TiB"),
        "metadata_iops": (metadata_iops, "its metadata performance cannot be set"),
        "kms_key_arn": (customer_key or None, "FSx encrypts it with its own key"),
    }
    for name, (value, why) in settings.items():
        if value is not None:
            raise InputError(
                f"{place}.{name}",
                f"not a setting of a scratch file system: {why}",
                value=value,
                allowed=f"no {name} with deployment: scratch",
                fix=f"leave {name} out, or set deployment: persistent",
            )


def _check_size(offer: LustreOffer, place: str, capacity_gib: int, tier: int | None, region: str, *, efa: bool) -> None:
    """Valid: one small size and multiples of a step; with EFA, multiples of the tier's. `tier`: None for scratch."""
    sizes = fsx_sizes_around(offer, tier, efa, capacity_gib)
    if capacity_gib in sizes:
        return
    smallest, step = fsx_steps(offer, tier, efa)
    rule = f"multiples of {step} GiB" if smallest == step else f"{smallest} GiB or a multiple of {step} GiB"
    tiers = () if tier is None else offer.throughput_mbps_per_tib.value
    raise refuse_size(
        place,
        capacity_gib,
        f"not a size FSx for Lustre offers{f' with EFA at {tier} MB/s per TiB' if efa else ''}",
        f"{rule}; around this value {' and '.join(map(str, sizes))}",
        sizes,
        bill=("aws", region, "lustre-scratch-2" if tier is None else "lustre-persistent-2"),
        tier=tier,
        others=[other for other in tiers if fsx_sizes_around(offer, other, efa, capacity_gib) == [capacity_gib]],
    )


def _check_metadata(offer: LustreOffer, place: str, metadata_iops: int | None) -> None:
    values = offer.metadata_iops.value
    if metadata_iops is None or metadata_iops in values:
        return
    raise InputError(
        f"{place}.metadata_iops",
        "not a number of metadata IOPS that FSx for Lustre provisions",
        value=metadata_iops,
        allowed=", ".join(map(str, values)),
        fix=f"set metadata_iops: {nearest_number(metadata_iops, values)}, or leave it out: FSx then sets it by size",
    )


class LustreFileSystemArgs(TypedDict):
    """Inputs of LustreFileSystem. `source` is an `s3://bucket/prefix` mounted as /data; `runs` one synchronised with
    /runs. `export_wait_minutes`, with `region`: `destroy` first exports /runs and waits this long
    (`gangway.components.aws.last_export`, a dynamic provider, so only in Python programs); without it the last writes
    may be lost. `efa`, `deployment` and the security group are fixed at creation: changing one replaces the file
    system. The group must admit ports 988 and 1018-1023 from the nodes, and with `efa` everything from itself: the
    fabric group does both.
    """

    capacity_gib: int
    throughput_mbps_per_tib: NotRequired[int | None]
    deployment: NotRequired[LustreDeployment]
    efa: NotRequired[bool]
    metadata_iops: NotRequired[int | None]
    subnet_id: pulumi.Input[str]
    security_group_id: pulumi.Input[str]
    source: NotRequired[str | None]
    runs: NotRequired[pulumi.Input[str] | None]
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    export_wait_minutes: NotRequired[float]
    region: NotRequired[str]
    log: NotRequired[bool]
    maintenance_start: NotRequired[str]
    tags: dict[str, str]


class LustreFileSystem(pulumi.ComponentResource):
    """An FSx for Lustre file system, with the data set imported from S3 on first read and runs exported to S3."""

    file_system_id: pulumi.Output[str]
    dns_name: pulumi.Output[str]
    mount_name: pulumi.Output[str]

    def __init__(self, name: str, args: LustreFileSystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:LustreFileSystem", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        plan = plan_lustre(
            args["capacity_gib"],
            args.get("throughput_mbps_per_tib"),
            deployment=args.get("deployment", LustreDeployment.PERSISTENT),
            efa=args.get("efa", False),
            metadata_iops=args.get("metadata_iops"),
            customer_key=args.get("kms_key_arn") is not None,
        )
        file_system = self._file_system(plan)
        links: list[pulumi.CustomResource] = []
        if source := args.get("source"):
            # Import only: a job that deletes a file must not delete the team's data set.
            links.append(self._link("data", file_system, source, imports=["NEW", "CHANGED", "DELETED"], exports=[]))
        if (runs := args.get("runs")) is not None:
            # Deletions are not exported: emptying the file system must not empty the archive.
            links.append(self._link("runs", file_system, runs, imports=["NEW", "CHANGED"], exports=["NEW", "CHANGED"]))
            if (minutes := args.get("export_wait_minutes")) is not None:
                links.append(self._last_export(file_system, links[-1], minutes))
        self.file_system_id = file_system.id
        # Consumers find the data there, and their last writes are exported.
        self.dns_name = after(file_system.dns_name, *links)
        self.mount_name = file_system.mount_name
        register_outputs(self)

    def _last_export(
        self, file_system: fsx.LustreFileSystem, link: pulumi.CustomResource, minutes: float
    ) -> LastExport:
        """Deleted after the nodes, which wait for it as for the links, and before the link."""
        opts = pulumi.ResourceOptions(parent=self, depends_on=[link])
        return LastExport(f"{self._name}-runs", self._args["region"], file_system.id, "runs", minutes, opts)

    def _file_system(self, plan: LustrePlan) -> fsx.LustreFileSystem:
        args = self._args
        persistent = plan.metadata_mode is not None
        metadata = fsx.LustreFileSystemMetadataConfigurationArgs(mode=plan.metadata_mode, iops=plan.metadata_iops)
        return fsx.LustreFileSystem(
            f"{self._name}-lustre",
            deployment_type=plan.deployment_type,
            file_system_type_version=LUSTRE_VERSION,
            storage_type="SSD",
            storage_capacity=plan.capacity_gib,
            per_unit_storage_throughput=plan.throughput_mbps_per_tib,
            efa_enabled=True if plan.efa else None,
            metadata_configuration=metadata if persistent else None,
            subnet_ids=args["subnet_id"],
            security_group_ids=[args["security_group_id"]],
            data_compression_type="LZ4",
            kms_key_id=args.get("kms_key_arn"),
            log_configuration=self._log() if args.get("log") else None,
            weekly_maintenance_start_time=args.get("maintenance_start", MAINTENANCE_START),
            # Lasting data is in S3, exported as it is written; scratch file systems have no backups.
            automatic_backup_retention_days=0 if persistent else None,
            # No root squash: Docker and the preparation scripts run as root, and the group admits nobody else.
            tags={**args["tags"], "Name": self._name},
            opts=self._link_options(),
        )

    def _log(self) -> fsx.LustreFileSystemLogConfigurationArgs:
        """Failed imports and exports, in a log group that FSx requires below /aws/fsx."""
        group = cloudwatch.LogGroup(
            f"{self._name}-lustre",
            name=f"/aws/fsx/{self._name}",
            retention_in_days=LOG_DAYS,
            kms_key_id=self._args.get("kms_key_arn"),
            tags=self._args["tags"],
            opts=self._child,
        )
        return fsx.LustreFileSystemLogConfigurationArgs(level="WARN_ERROR", destination=group.arn)

    def _link_options(self) -> pulumi.ResourceOptions:
        """A link first reads all objects' names, which may exceed the provider's default of ten minutes."""
        slow = pulumi.CustomTimeouts(create="3h", update="3h", delete="2h")
        return pulumi.ResourceOptions(parent=self, custom_timeouts=slow)

    def _link(
        self,
        folder: str,
        file_system: fsx.LustreFileSystem,
        repository: pulumi.Input[str],
        imports: list[str],
        exports: list[str],
    ) -> fsx.DataRepositoryAssociation:
        export_policy = fsx.DataRepositoryAssociationS3AutoExportPolicyArgs(events=exports)
        return fsx.DataRepositoryAssociation(
            f"{self._name}-{folder}",
            file_system_id=file_system.id,
            file_system_path=f"/{folder}",
            data_repository_path=repository,
            batch_import_meta_data_on_create=True,
            s3=fsx.DataRepositoryAssociationS3Args(
                auto_import_policy=fsx.DataRepositoryAssociationS3AutoImportPolicyArgs(events=imports),
                auto_export_policy=export_policy if exports else None,
            ),
            tags={**self._args["tags"], "Name": f"{self._name}-{folder}"},
            opts=self._link_options(),
        )


def bucket_policy(bucket_arn: str) -> dict[str, Any]:
    """Refuse all requests without TLS."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "OnlyOverTls",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [bucket_arn, f"{bucket_arn}/*"],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ],
    }


class RunBucketArgs(TypedDict):
    """Inputs of RunBucket. Without `kms_key_arn` S3 encrypts with its own keys (AES256). With `keep` false deleting it
    deletes every version of every object; else S3 refuses unless it is empty.
    """

    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    keep: NotRequired[bool]
    tags: dict[str, str]


class RunBucket(pulumi.ComponentResource):
    """A private, encrypted, versioned bucket for run records and checkpoints. Current versions never expire."""

    bucket_name: pulumi.Output[str]
    bucket_arn: pulumi.Output[str]

    def __init__(self, name: str, args: RunBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:RunBucket", name, None, opts)
        self._name = f"{name}-runs"
        self._bucket = s3.Bucket(
            self._name,
            tags=args["tags"],
            force_destroy=None if args.get("keep", True) else True,
            # Delete the key after the bucket, or not at all if S3 refuses because there are objects.
            opts=pulumi.ResourceOptions(parent=self, depends_on=resources_of(args.get("kms_key_arn"))),
        )
        # Settings are deleted with the bucket, never before: a bucket that is not empty keeps them.
        self._child = pulumi.ResourceOptions(parent=self, deleted_with=self._bucket)
        self._private()
        self._encrypted(args.get("kms_key_arn"))
        self._versioning()
        self.bucket_name = self._bucket.bucket
        self.bucket_arn = self._bucket.arn
        register_outputs(self)

    def _private(self) -> None:
        block = s3.BucketPublicAccessBlock(
            self._name,
            bucket=self._bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=self._child,
        )
        s3.BucketOwnershipControls(
            self._name,
            bucket=self._bucket.id,
            rule=s3.BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced"),
            opts=self._child,
        )
        s3.BucketPolicy(
            self._name,
            bucket=self._bucket.id,
            policy=pulumi.Output.json_dumps(self._bucket.arn.apply(bucket_policy)),
            # S3 answers "conflicting operation" when a policy and the block arrive together.
            opts=pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(depends_on=[block])),
        )

    def _encrypted(self, kms_key_arn: pulumi.Input[str] | None) -> None:
        default = s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
            sse_algorithm="AES256" if kms_key_arn is None else "aws:kms", kms_master_key_id=kms_key_arn
        )
        rule = s3.BucketServerSideEncryptionConfigurationRuleArgs(
            apply_server_side_encryption_by_default=default,
            # One data key for many objects: a checkpoint of a thousand parts needs few KMS calls.
            bucket_key_enabled=True if kms_key_arn is not None else None,
        )
        s3.BucketServerSideEncryptionConfiguration(self._name, bucket=self._bucket.id, rules=[rule], opts=self._child)

    def _versioning(self) -> None:
        versioning = s3.BucketVersioning(
            self._name,
            bucket=self._bucket.id,
            versioning_configuration=s3.BucketVersioningVersioningConfigurationArgs(status="Enabled"),
            opts=self._child,
        )
        rule = s3.BucketLifecycleConfigurationRuleArgs(
            id="overwritten-and-unfinished",
            status="Enabled",
            filter=s3.BucketLifecycleConfigurationRuleFilterArgs(),  # all objects
            noncurrent_version_expiration=s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
                noncurrent_days=NONCURRENT_DAYS
            ),
            abort_incomplete_multipart_upload=s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
                days_after_initiation=ABORT_UPLOAD_DAYS
            ),
        )
        s3.BucketLifecycleConfiguration(
            self._name,
            bucket=self._bucket.id,
            rules=[rule],
            opts=pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(depends_on=[versioning])),
        )


KEPT_IMAGES = 20
UNTAGGED_DAYS = 14


# Ours are all that `up` pushes (the build cache's and the content tags): after an `up` interrupted between push and
# state the same content gets another digest, which ECR would refuse at every `up` until the tag is deleted
# (moby/buildkit#3776). Nodes, launch templates and run records use digests; an untagged digest is kept for
# UNTAGGED_DAYS. The images are deleted with the stack, as each can be rebuilt from a run record's commit and lock;
# `pulumi state protect` keeps them.
class ImageRegistryArgs(TypedDict):
    """Inputs of ImageRegistry. Without `kms_key_arn` ECR encrypts with its own keys (AES256)."""

    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def lifecycle_policy() -> dict[str, Any]:
    """Drop untagged images after two weeks, and all but the newest. ECR wants the rule for any tag last."""
    untagged = {"tagStatus": "untagged", "countType": "sinceImagePushed", "countUnit": "days"}
    newest = {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": KEPT_IMAGES}
    rules = [
        (f"untagged for {UNTAGGED_DAYS} days", {**untagged, "countNumber": UNTAGGED_DAYS}),
        (f"all but the newest {KEPT_IMAGES}", newest),
    ]
    return {
        "rules": [
            {"rulePriority": priority, "description": text, "selection": selection, "action": {"type": "expire"}}
            for priority, (text, selection) in enumerate(rules, start=1)
        ]
    }


class ImageRegistry(pulumi.ComponentResource):
    """A private container repository that keeps its newest images."""

    repository_url: pulumi.Output[str]
    repository_arn: pulumi.Output[str]

    def __init__(self, name: str, args: ImageRegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:ImageRegistry", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        key = args.get("kms_key_arn")
        encryption = ecr.RepositoryEncryptionConfigurationArgs(encryption_type="KMS", kms_key=key)
        repository = ecr.Repository(
            f"{name}-trainer",
            image_tag_mutability="IMMUTABLE_WITH_EXCLUSION",
            image_tag_mutability_exclusion_filters=[
                ecr.RepositoryImageTagMutabilityExclusionFilterArgs(filter=tags, filter_type="WILDCARD")
                for tags in (CACHE_TAG, f"{CONTENT_PREFIX}*")
            ],
            image_scanning_configuration=ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            encryption_configurations=None if key is None else [encryption],
            force_delete=True,
            tags=args["tags"],
            opts=child,
        )
        ecr.LifecyclePolicy(
            f"{name}-trainer",
            repository=repository.name,
            policy=pulumi.Output.json_dumps(lifecycle_policy()),
            opts=child,
        )
        self.repository_url = repository.repository_url
        self.repository_arn = repository.arn
        register_outputs(self)
