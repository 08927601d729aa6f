"""Sandbox handlers: FSx for Lustre and its S3 link, S3 buckets, ECR repositories."""

from collections.abc import Mapping
from typing import Any

from stacks.sandbox.aws import Aws, one
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]

# Pulumi's inputs that FSx wants beside, not inside, LustreConfiguration.
_FILE_SYSTEM = ("storageCapacity", "storageType", "subnetIds", "securityGroupIds", "kmsKeyId", "backupId")


def _lustre(aws: Aws, wire: Wire) -> Applied:
    outer = wire.take(*_FILE_SYSTEM)
    inputs = {"fileSystemType": "LUSTRE", **outer, **wire.tags(), "lustreConfiguration": wire.rest()}
    parameters = aws.request("fsx", "CreateFileSystem", inputs)
    answer = aws.call("fsx", "CreateFileSystem", parameters)["FileSystem"]
    id_ = answer["FileSystemId"]

    def held() -> Mapping[str, Any]:
        return one(aws.read("fsx", "DescribeFileSystems", {"FileSystemIds": [id_]})["FileSystems"])

    # Moto gives no mount name; AWS answers one of this form, and the nodes' user data needs one.
    mount_name = answer["LustreConfiguration"].get("MountName", "sandboxm")
    return Applied(
        id_,
        wire.outputs(arn=answer["ResourceARN"], dnsName=answer["DNSName"], mountName=mount_name),
        parameters,
        held,
        # FSx itself does not answer them either: they are on the file system's network interfaces.
        unkept=("SecurityGroupIds",),
        note="moto gives no MountName, a stand-in is used" if "MountName" not in answer["LustreConfiguration"] else "",
    )


def _data_repository_association(aws: Aws, wire: Wire) -> Applied:
    wire.skip("deleteDataInFilesystem")
    parameters = aws.request("fsx", "CreateDataRepositoryAssociation", {**wire.tags(), **wire.rest()})
    aws.validate("fsx", "CreateDataRepositoryAssociation", parameters)
    note = "moto has no CreateDataRepositoryAssociation: botocore checked and serialized the request"
    return Applied(f"dra-{wire.name}", wire.outputs(), note=note)


def _bucket(aws: Aws, wire: Wire) -> Applied:
    wire.skip("forceDestroy")
    name = wire.physical_name("bucket")
    # The region S3 began in is the one that may not be named.
    home = aws.region == "us-east-1"
    place = {} if home else {"CreateBucketConfiguration": {"LocationConstraint": aws.region}}
    aws.call("s3", "CreateBucket", {"Bucket": name, **place})
    tags = wire.tags()
    if tags:
        aws.call("s3", "PutBucketTagging", {"Bucket": name, "Tagging": {"TagSet": tags["Tags"]}})

    def held() -> Mapping[str, Any]:
        location = aws.read("s3", "GetBucketLocation", {"Bucket": name})["LocationConstraint"]
        found = aws.read("s3", "GetBucketTagging", {"Bucket": name})["TagSet"] if tags else []
        return {"Region": location or "us-east-1", "Tags": found}

    outputs = wire.outputs(bucket=name, arn=f"arn:aws:s3:::{name}")
    return Applied(name, outputs, {"Region": aws.region, **tags}, held)


def _public_access_block(aws: Aws, wire: Wire) -> Applied:
    bucket = wire.take("bucket")["bucket"]
    inputs = {"bucket": bucket, "publicAccessBlockConfiguration": wire.rest()}
    parameters = aws.request("s3", "PutPublicAccessBlock", inputs)
    aws.call("s3", "PutPublicAccessBlock", parameters)
    declared = parameters["PublicAccessBlockConfiguration"]

    def held() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = aws.read("s3", "GetPublicAccessBlock", {"Bucket": bucket})
        block: Mapping[str, Any] = answer["PublicAccessBlockConfiguration"]
        return block

    return Applied(bucket, wire.outputs(), declared, held)


def _versioning(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("s3", "PutBucketVersioning", wire.rest())
    aws.call("s3", "PutBucketVersioning", parameters)
    bucket = parameters["Bucket"]

    def held() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = aws.read("s3", "GetBucketVersioning", {"Bucket": bucket})
        return answer

    return Applied(bucket, wire.outputs(), parameters["VersioningConfiguration"], held)


def _repository(aws: Aws, wire: Wire) -> Applied:
    wire.skip("forceDelete")
    name = wire.physical_name()
    parameters = aws.request("ecr", "CreateRepository", {"repositoryName": name, **wire.tags(), **wire.rest()})
    answer = aws.call("ecr", "CreateRepository", parameters)["repository"]
    arn = answer["repositoryArn"]

    def held() -> Mapping[str, Any]:
        repository = one(aws.read("ecr", "DescribeRepositories", {"repositoryNames": [name]})["repositories"])
        return {**repository, "tags": aws.read("ecr", "ListTagsForResource", {"resourceArn": arn})["tags"]}

    return Applied(name, wire.outputs(name=name, arn=arn, repositoryUrl=answer["repositoryUri"]), parameters, held)


HANDLERS = {
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre,
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": _data_repository_association,
    "aws:s3/bucket:Bucket": _bucket,
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _public_access_block,
    "aws:s3/bucketVersioning:BucketVersioning": _versioning,
    "aws:ecr/repository:Repository": _repository,
}
