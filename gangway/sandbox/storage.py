"""Sandbox handlers: S3 buckets with their settings, FSx for Lustre and its S3 links, ECR repositories."""

import json
from collections.abc import Mapping
from typing import Any

from gangway.sandbox.aws import Aws, Wire, one
from gangway.sandbox.rows import Applied

# Pulumi's inputs that FSx expects beside LustreConfiguration, not inside.
_FILE_SYSTEM = ("storageCapacity", "storageType", "subnetIds", "securityGroupIds", "kmsKeyId", "fileSystemTypeVersion")


def _bucket(aws: Aws, wire: Wire) -> Applied:
    wire.skip("forceDestroy")
    name = wire.physical_name("bucket")
    # S3's original region must not be named.
    home = aws.region == "us-east-1"
    place = {} if home else {"CreateBucketConfiguration": {"LocationConstraint": aws.region}}
    aws.call("s3", "CreateBucket", {"Bucket": name, **place})
    tags = wire.tags()
    if tags:
        aws.call("s3", "PutBucketTagging", {"Bucket": name, "Tagging": {"TagSet": tags["Tags"]}})

    def read_back() -> Mapping[str, Any]:
        location = aws.read("s3", "GetBucketLocation", {"Bucket": name})["LocationConstraint"]
        found = aws.read("s3", "GetBucketTagging", {"Bucket": name})["TagSet"] if tags else []
        return {"Region": location or "us-east-1", "Tags": found}

    outputs = wire.outputs(bucket=name, arn=f"arn:aws:s3:::{name}")
    return Applied(name, outputs, {"Region": aws.region, **tags}, read_back)


def _set(
    aws: Aws, wire: Wire, setting: str, inputs: Mapping[str, Any], *, nested: bool = True, **renames: str
) -> Applied:
    """Put a bucket setting and prepare to read it back: `Put<setting>` and `Get<setting>`.

    The request wraps it in a member beside the bucket's name; the answer has the same member, or is the setting itself
    (`nested` False).
    """
    parameters = aws.request("s3", f"Put{setting}", inputs, **renames)
    aws.call("s3", f"Put{setting}", parameters)
    (member,) = parameters.keys() - {"Bucket"}
    bucket = parameters["Bucket"]

    def read_back() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = aws.read("s3", f"Get{setting}", {"Bucket": bucket})
        inner: Mapping[str, Any] = answer[member] if nested else answer
        return inner

    return Applied(bucket, wire.outputs(), parameters[member], read_back)


def _public_access_block(aws: Aws, wire: Wire) -> Applied:
    inputs = {**wire.take("bucket"), "publicAccessBlockConfiguration": wire.rest()}
    return _set(aws, wire, "PublicAccessBlock", inputs)


def _versioning(aws: Aws, wire: Wire) -> Applied:
    return _set(aws, wire, "BucketVersioning", wire.rest(), nested=False)


def _policy(aws: Aws, wire: Wire) -> Applied:
    """Not by `_set`: a policy is JSON within JSON and compared as data."""
    parameters = aws.request("s3", "PutBucketPolicy", wire.rest())
    aws.call("s3", "PutBucketPolicy", parameters)
    bucket = parameters["Bucket"]

    def read_back() -> Mapping[str, Any]:
        return {"Policy": json.loads(aws.read("s3", "GetBucketPolicy", {"Bucket": bucket})["Policy"])}

    return Applied(bucket, wire.outputs(), {"Policy": json.loads(parameters["Policy"])}, read_back)


def _ownership(aws: Aws, wire: Wire) -> Applied:
    inputs = {**wire.take("bucket"), "ownershipControls": {"rules": wire.take("rule")["rule"]}}
    return _set(aws, wire, "BucketOwnershipControls", inputs)


def _encryption(aws: Aws, wire: Wire) -> Applied:
    inputs = {**wire.take("bucket"), "serverSideEncryptionConfiguration": wire.rest()}
    return _set(aws, wire, "BucketEncryption", inputs, sseAlgorithm="SSEAlgorithm", kmsMasterKeyId="KMSMasterKeyID")


def _lifecycle(aws: Aws, wire: Wire) -> Applied:
    inputs = {**wire.take("bucket"), "lifecycleConfiguration": wire.rest()}
    return _set(aws, wire, "BucketLifecycleConfiguration", inputs, nested=False)


BUCKET_HANDLERS = {
    "aws:s3/bucket:Bucket": _bucket,
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _public_access_block,
    "aws:s3/bucketVersioning:BucketVersioning": _versioning,
    "aws:s3/bucketPolicy:BucketPolicy": _policy,
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _ownership,
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _encryption,
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _lifecycle,
}


def _lustre(aws: Aws, wire: Wire) -> Applied:
    outer = wire.take(*_FILE_SYSTEM)
    inputs = {"fileSystemType": "LUSTRE", **outer, **wire.tags(), "lustreConfiguration": wire.rest()}
    parameters = aws.request("fsx", "CreateFileSystem", inputs)
    answer = aws.call("fsx", "CreateFileSystem", parameters)["FileSystem"]
    id_ = answer["FileSystemId"]

    def read_back() -> Mapping[str, Any]:
        return one(aws.read("fsx", "DescribeFileSystems", {"FileSystemIds": [id_]})["FileSystems"])

    # Moto returns no mount name; AWS returns one of this form, and the nodes' user data needs one.
    mount_name = answer["LustreConfiguration"].get("MountName", "sandboxm")
    return Applied(
        id_,
        wire.outputs(arn=answer["ResourceARN"], dnsName=answer["DNSName"], mountName=mount_name),
        parameters,
        read_back,
        # FSx does not return the groups either: they are on the file system's network interfaces.
        unkept=("SecurityGroupIds", "FileSystemTypeVersion"),
        note="moto gives no MountName, a stand-in is used" if "MountName" not in answer["LustreConfiguration"] else "",
    )


def _data_repository_association(aws: Aws, wire: Wire) -> Applied:
    wire.skip("deleteDataInFilesystem")
    parameters = aws.request("fsx", "CreateDataRepositoryAssociation", {**wire.tags(), **wire.rest()})
    aws.validate("fsx", "CreateDataRepositoryAssociation", parameters)
    note = "moto has no CreateDataRepositoryAssociation: botocore checked and serialized the request"
    return Applied(f"dra-{wire.name}", wire.outputs(), note=note)


def _repository(aws: Aws, wire: Wire) -> Applied:
    wire.skip("forceDelete")
    name = wire.physical_name()
    # A list on Pulumi's wire; ECR takes one element.
    keys = wire.take("encryptionConfigurations").get("encryptionConfigurations", [])
    inputs = {"repositoryName": name, **wire.tags(), **wire.rest()}
    if keys:
        inputs["encryptionConfiguration"] = one(keys)
    parameters = aws.request("ecr", "CreateRepository", inputs)
    answer = aws.call("ecr", "CreateRepository", parameters)["repository"]
    arn = answer["repositoryArn"]

    def read_back() -> Mapping[str, Any]:
        repository = one(aws.read("ecr", "DescribeRepositories", {"repositoryNames": [name]})["repositories"])
        return {**repository, "tags": aws.read("ecr", "ListTagsForResource", {"resourceArn": arn})["tags"]}

    return Applied(name, wire.outputs(name=name, arn=arn, repositoryUrl=answer["repositoryUri"]), parameters, read_back)


def _repository_lifecycle(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request(
        "ecr", "PutLifecyclePolicy", wire.rest(), repository="repositoryName", policy="lifecyclePolicyText"
    )
    aws.call("ecr", "PutLifecyclePolicy", parameters)
    name = parameters["repositoryName"]

    def read_back() -> Mapping[str, Any]:
        text = aws.read("ecr", "GetLifecyclePolicy", {"repositoryName": name})["lifecyclePolicyText"]
        return {"repositoryName": name, "lifecyclePolicyText": json.loads(text)}

    declared = {**parameters, "lifecyclePolicyText": json.loads(parameters["lifecyclePolicyText"])}
    return Applied(name, wire.outputs(), declared, read_back)


STORAGE_HANDLERS = {
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre,
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": _data_repository_association,
    "aws:ecr/repository:Repository": _repository,
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": _repository_lifecycle,
}
