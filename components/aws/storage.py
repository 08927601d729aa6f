"""LustreFileSystem (FSx for Lustre linked to S3) and RunBucket (where checkpoints and run records outlive the nodes).

Sizes are checked against the catalogue before anything is declared: FSx accepts 1200 GiB or multiples of 2400 and says
so only minutes into a deployment. EFA-enabled file systems and customer keys belong to the full AWS depth.
"""

from dataclasses import dataclass
from typing import NotRequired, TypedDict

import pulumi
from pulumi_aws import fsx, s3

from components.catalog import load
from components.findings import InputError

__all__ = ["LustreFileSystem", "LustreFileSystemArgs", "LustrePlan", "RunBucket", "RunBucketArgs", "plan_lustre"]


@dataclass(frozen=True)
class LustrePlan:
    """A file system FSx accepts."""

    deployment_type: str
    capacity_gib: int
    throughput_mbps_per_tib: int


def plan_lustre(capacity_gib: int, throughput_mbps_per_tib: int, place: str = "gangway:storage") -> LustrePlan:
    """Checks size and tier.

    Raises:
        InputError: with the next larger size, or the nearest tier, that FSx accepts.
    """
    offer = load().lustre["aws"]
    smallest, step, tiers = offer.smallest_gib.value, offer.step_gib.value, offer.throughput_mbps_per_tib.value
    if capacity_gib != smallest and (capacity_gib < step or capacity_gib % step):
        larger = smallest if capacity_gib <= smallest else -(-capacity_gib // step) * step
        raise InputError(
            f"{place}.capacity_gib",
            "not a size FSx for Lustre offers",
            value=capacity_gib,
            allowed=f"{smallest} or a multiple of {step} GiB",
            fix=f"set capacity_gib: {larger}",
        )
    if throughput_mbps_per_tib not in tiers:
        raise InputError(
            f"{place}.throughput_mbps_per_tib",
            "not a throughput tier of FSx for Lustre",
            value=throughput_mbps_per_tib,
            allowed=", ".join(map(str, tiers)),
            fix=f"set throughput_mbps_per_tib: {min(tiers, key=lambda tier: abs(tier - throughput_mbps_per_tib))}",
        )
    return LustrePlan(offer.deployment_type.value, capacity_gib, throughput_mbps_per_tib)


class LustreFileSystemArgs(TypedDict):
    """Inputs of LustreFileSystem. `source` is an `s3://bucket/prefix` that appears under /data."""

    capacity_gib: int
    throughput_mbps_per_tib: int
    subnet_id: pulumi.Input[str]
    security_group_id: pulumi.Input[str]
    source: NotRequired[str | None]
    tags: dict[str, str]


class LustreFileSystem(pulumi.ComponentResource):
    """A persistent FSx for Lustre file system, with the data set imported from S3 on first read."""

    file_system_id: pulumi.Output[str]
    dns_name: pulumi.Output[str]
    mount_name: pulumi.Output[str]

    def __init__(self, name: str, args: LustreFileSystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:LustreFileSystem", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        plan = plan_lustre(args["capacity_gib"], args["throughput_mbps_per_tib"])
        tags = {**args["tags"], "Name": name}
        file_system = fsx.LustreFileSystem(
            f"{name}-lustre",
            deployment_type=plan.deployment_type,
            storage_type="SSD",
            storage_capacity=plan.capacity_gib,
            per_unit_storage_throughput=plan.throughput_mbps_per_tib,
            subnet_ids=args["subnet_id"],
            security_group_ids=[args["security_group_id"]],
            data_compression_type="LZ4",
            tags=tags,
            opts=child,
        )
        source = args.get("source")
        if source:
            fsx.DataRepositoryAssociation(
                f"{name}-data",
                file_system_id=file_system.id,
                file_system_path="/data",
                data_repository_path=source,
                batch_import_meta_data_on_create=True,
                s3=fsx.DataRepositoryAssociationS3Args(
                    auto_import_policy=fsx.DataRepositoryAssociationS3AutoImportPolicyArgs(
                        events=["NEW", "CHANGED", "DELETED"]
                    )
                ),
                tags=tags,
                opts=child,
            )
        self.file_system_id = file_system.id
        self.dns_name = file_system.dns_name
        self.mount_name = file_system.mount_name
        self.register_outputs(
            {"file_system_id": self.file_system_id, "dns_name": self.dns_name, "mount_name": self.mount_name}
        )


class RunBucketArgs(TypedDict):
    """Inputs of RunBucket."""

    tags: dict[str, str]


class RunBucket(pulumi.ComponentResource):
    """A private, versioned bucket for run records and exported checkpoints."""

    bucket_name: pulumi.Output[str]
    bucket_arn: pulumi.Output[str]

    def __init__(self, name: str, args: RunBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:RunBucket", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        bucket = s3.Bucket(f"{name}-runs", tags=args["tags"], opts=child)
        s3.BucketPublicAccessBlock(
            f"{name}-runs",
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=child,
        )
        s3.BucketVersioning(
            f"{name}-runs",
            bucket=bucket.id,
            versioning_configuration=s3.BucketVersioningVersioningConfigurationArgs(status="Enabled"),
            opts=child,
        )
        self.bucket_name = bucket.bucket
        self.bucket_arn = bucket.arn
        self.register_outputs({"bucket_name": self.bucket_name, "bucket_arn": self.bucket_arn})
