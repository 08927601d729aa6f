"""Sandbox handlers of data and who may use it: S3, FSx for Lustre, ECR; IAM roles, KMS keys, parameters."""

from collections.abc import Mapping
from typing import Any

from gangway.sandbox.aws import Aws, Handler, Wire, find, one, put
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


_DATA_HANDLERS: Mapping[str, Handler] = {
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


def _instance_profile(aws: Aws, wire: Wire) -> Applied:
    name, role = wire.physical_name(), wire.take_value("role")
    inputs = {"instanceProfileName": name, **wire.tags(), **wire.rest()}
    parameters, made = aws.create("iam", "CreateInstanceProfile", inputs)
    aws.call("iam", "AddRoleToInstanceProfile", {"InstanceProfileName": name, "RoleName": role})

    def read_back() -> Mapping[str, Any]:
        profile = aws.read("iam", "GetInstanceProfile", {"InstanceProfileName": name})["InstanceProfile"]
        return {**profile, "Roles": [item["RoleName"] for item in profile["Roles"]]}

    outputs = wire.outputs(name=name, arn=made["InstanceProfile"]["Arn"])
    return Applied(name, outputs, {**parameters, "Roles": [role]}, read_back)


def _read_attachment(aws: Aws, sent: Mapping[str, Any], _: str) -> Mapping[str, Any]:
    attached = aws.read("iam", "ListAttachedRolePolicies", {"RoleName": sent["RoleName"]})["AttachedPolicies"]
    return {"RoleName": sent["RoleName"], **find(attached, PolicyArn=sent["PolicyArn"])}


def _key(aws: Aws, wire: Wire) -> Applied:
    # The deletion waiting time is in the delete request.
    wire.skip("deletionWindowInDays")
    rotates = wire.take_value("enableKeyRotation", False)
    tags = [{"tagKey": key, "tagValue": value} for key, value in wire.take_value("tags", {}).items()]
    parameters, answer = aws.create("kms", "CreateKey", {**wire.rest(), "tags": tags})
    made = answer["KeyMetadata"]
    key = {"KeyId": made["KeyId"]}
    if rotates:
        aws.call("kms", "EnableKeyRotation", key)

    def read_back() -> Mapping[str, Any]:
        return {
            **aws.read("kms", "DescribeKey", key)["KeyMetadata"],
            **aws.read("kms", "GetKeyRotationStatus", key),
            "Tags": sorted(aws.read("kms", "ListResourceTags", key)["Tags"], key=str),
        }

    declared = {**parameters, "KeyRotationEnabled": rotates, "Tags": sorted(parameters["Tags"], key=str)}
    return Applied(made["KeyId"], wire.outputs(arn=made["Arn"], keyId=made["KeyId"]), declared, read_back)


def _parameter(aws: Aws, wire: Wire) -> Applied:
    # A secret on the wire: its mark, and the value.
    value = wire.take_value("value")["value"]
    parameters, _ = aws.create("ssm", "PutParameter", {**wire.tags(), "value": value, **wire.rest()})
    name = parameters["Name"]

    def read_back() -> Mapping[str, Any]:
        question = {"Filters": [{"Key": "Name", "Values": [name]}]}
        about = one(aws.read("ssm", "DescribeParameters", question)["Parameters"])
        tags = aws.read("ssm", "ListTagsForResource", {"ResourceType": "Parameter", "ResourceId": name})["TagList"]
        held = aws.read("ssm", "GetParameter", {"Name": name, "WithDecryption": True})["Parameter"]
        return {**about, **held, "Tags": sorted(tags, key=str)}

    arn = aws.read("ssm", "GetParameter", {"Name": name})["Parameter"]["ARN"]
    declared = {**parameters, "Tags": sorted(parameters["Tags"], key=str)}
    return Applied(name, wire.outputs(name=name, arn=arn), declared, read_back)


_IDENTITY_HANDLERS: Mapping[str, Handler] = {
    "aws:iam/role:Role": put(
        "iam",
        "CreateRole",
        "{RoleName}",
        lambda aws, sent, name: aws.read("iam", "GetRole", {"RoleName": name})["Role"],
        named="roleName",
        skipped=("forceDetachPolicies",),
        outputs={"arn": "{made[Role][Arn]}"},
        documents=("AssumeRolePolicyDocument",),
        assumeRolePolicy="AssumeRolePolicyDocument",
    ),
    "aws:iam/instanceProfile:InstanceProfile": _instance_profile,
    "aws:iam/rolePolicy:RolePolicy": put(
        "iam",
        "PutRolePolicy",
        "{RoleName}:{PolicyName}",
        lambda aws, sent, _: aws.read("iam", "GetRolePolicy", {key: sent[key] for key in ("RoleName", "PolicyName")}),
        named="policyName",
        documents=("PolicyDocument",),
        role="RoleName",
        policy="PolicyDocument",
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": put(
        "iam", "AttachRolePolicy", "{RoleName}/{PolicyArn}", _read_attachment, role="RoleName"
    ),
    "aws:kms/key:Key": _key,
    "aws:kms/alias:Alias": put(
        "kms",
        "CreateAlias",
        "{AliasName}",
        lambda aws, sent, name: find(
            aws.read("kms", "ListAliases", {"KeyId": sent["TargetKeyId"]})["Aliases"], AliasName=name
        ),
        name="AliasName",
    ),
    "aws:kms/keyPolicy:KeyPolicy": put(
        "kms",
        "PutKeyPolicy",
        "{KeyId}",
        lambda aws, sent, _: {
            **sent,
            "Policy": aws.read("kms", "GetKeyPolicy", {key: sent[key] for key in ("KeyId", "PolicyName")})["Policy"],
        },
        documents=("Policy",),
        fixed={"policyName": "default"},
    ),
    "aws:ssm/parameter:Parameter": _parameter,
}

HANDLERS: Mapping[str, Handler] = {**_DATA_HANDLERS, **_IDENTITY_HANDLERS}
