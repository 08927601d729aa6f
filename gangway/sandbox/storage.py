"""Sandbox handlers: S3 buckets with their settings, FSx for Lustre and its S3 links, ECR repositories."""

from collections.abc import Mapping
from typing import Any

from gangway.sandbox.aws import Aws, Handler, Wire, one, put
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


def _setting(setting: str, member: str = "", *, nested: bool = True, **renames: str) -> Handler:
    """The handler of a bucket setting: `Put<setting>` and `Get<setting>`.

    The request wraps it in a member beside the bucket's name (`member`: where Pulumi does not); the answer has the same
    member, or is the setting itself (`nested` False).
    """

    def handle(aws: Aws, wire: Wire) -> Applied:
        inputs = {**wire.take("bucket"), member: wire.rest()} if member else wire.rest()
        parameters, _ = aws.create("s3", f"Put{setting}", inputs, **renames)
        (wrapper,) = parameters.keys() - {"Bucket"}
        bucket = parameters["Bucket"]

        def read_back() -> Mapping[str, Any]:
            answer: Mapping[str, Any] = aws.read("s3", f"Get{setting}", {"Bucket": bucket})
            return answer[wrapper] if nested else answer

        return Applied(bucket, wire.outputs(), parameters[wrapper], read_back)

    return handle


def _lustre(aws: Aws, wire: Wire) -> Applied:
    outer = wire.take(*_FILE_SYSTEM)
    inputs = {"fileSystemType": "LUSTRE", **outer, **wire.tags(), "lustreConfiguration": wire.rest()}
    parameters, made = aws.create("fsx", "CreateFileSystem", inputs)
    answer = made["FileSystem"]
    id_ = answer["FileSystemId"]
    # Moto returns no mount name; AWS returns one of this form, and the nodes' user data needs one.
    mount_name = answer["LustreConfiguration"].get("MountName", "sandboxm")
    return Applied(
        id_,
        wire.outputs(arn=answer["ResourceARN"], dnsName=answer["DNSName"], mountName=mount_name),
        parameters,
        lambda: one(aws.read("fsx", "DescribeFileSystems", {"FileSystemIds": [id_]})["FileSystems"]),
        # FSx does not return the groups either: they are on the file system's network interfaces.
        unkept=("SecurityGroupIds", "FileSystemTypeVersion"),
        note="moto gives no MountName, a stand-in is used" if "MountName" not in answer["LustreConfiguration"] else "",
    )


def _repository(aws: Aws, wire: Wire) -> Applied:
    wire.skip("forceDelete")
    name = wire.physical_name()
    # A list on Pulumi's wire; ECR takes one element.
    keys = wire.take_value("encryptionConfigurations", [])
    inputs = {"repositoryName": name, **wire.tags(), **wire.rest()}
    if keys:
        inputs["encryptionConfiguration"] = one(keys)
    parameters, made = aws.create("ecr", "CreateRepository", inputs)
    answer = made["repository"]
    arn = answer["repositoryArn"]

    def read_back() -> Mapping[str, Any]:
        repository = one(aws.read("ecr", "DescribeRepositories", {"repositoryNames": [name]})["repositories"])
        return {**repository, "tags": aws.read("ecr", "ListTagsForResource", {"resourceArn": arn})["tags"]}

    return Applied(name, wire.outputs(name=name, arn=arn, repositoryUrl=answer["repositoryUri"]), parameters, read_back)


HANDLERS: Mapping[str, Handler] = {
    "aws:s3/bucket:Bucket": _bucket,
    "aws:s3/bucketPolicy:BucketPolicy": put(
        "s3",
        "PutBucketPolicy",
        "{Bucket}",
        lambda aws, _, name: {"Policy": aws.read("s3", "GetBucketPolicy", {"Bucket": name})["Policy"]},
        documents=("Policy",),
        uncompared=("Bucket",),
    ),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _setting(
        "PublicAccessBlock", "publicAccessBlockConfiguration"
    ),
    "aws:s3/bucketVersioning:BucketVersioning": _setting("BucketVersioning", nested=False),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _setting(
        "BucketOwnershipControls", "ownershipControls", rule="Rules"
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _setting(
        "BucketEncryption",
        "serverSideEncryptionConfiguration",
        sseAlgorithm="SSEAlgorithm",
        kmsMasterKeyId="KMSMasterKeyID",
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _setting(
        "BucketLifecycleConfiguration", "lifecycleConfiguration", nested=False
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre,
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": put(
        "fsx", "CreateDataRepositoryAssociation", "dra-{wire.name}", skipped=("deleteDataInFilesystem",)
    ),
    "aws:ecr/repository:Repository": _repository,
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": put(
        "ecr",
        "PutLifecyclePolicy",
        "{repositoryName}",
        lambda aws, _, name: aws.read("ecr", "GetLifecyclePolicy", {"repositoryName": name}),
        documents=("lifecyclePolicyText",),
        repository="repositoryName",
        policy="lifecyclePolicyText",
    ),
}
