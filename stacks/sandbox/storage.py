"""Sandbox handlers: FSx for Lustre and its S3 links, ECR repositories and what they drop."""

import json
from collections.abc import Mapping
from typing import Any

from stacks.sandbox.aws import Aws, one
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]

# Pulumi's inputs that FSx wants beside, not inside, LustreConfiguration.
_FILE_SYSTEM = ("storageCapacity", "storageType", "subnetIds", "securityGroupIds", "kmsKeyId", "fileSystemTypeVersion")


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
        # FSx itself does not answer the groups either: they are on the file system's network interfaces.
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
    # A list on Pulumi's wire, of which ECR takes one.
    keys = wire.take("encryptionConfigurations").get("encryptionConfigurations", [])
    inputs = {"repositoryName": name, **wire.tags(), **wire.rest()}
    if keys:
        inputs["encryptionConfiguration"] = one(keys)
    parameters = aws.request("ecr", "CreateRepository", inputs)
    answer = aws.call("ecr", "CreateRepository", parameters)["repository"]
    arn = answer["repositoryArn"]

    def held() -> Mapping[str, Any]:
        repository = one(aws.read("ecr", "DescribeRepositories", {"repositoryNames": [name]})["repositories"])
        return {**repository, "tags": aws.read("ecr", "ListTagsForResource", {"resourceArn": arn})["tags"]}

    return Applied(name, wire.outputs(name=name, arn=arn, repositoryUrl=answer["repositoryUri"]), parameters, held)


def _repository_lifecycle(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request(
        "ecr", "PutLifecyclePolicy", wire.rest(), repository="repositoryName", policy="lifecyclePolicyText"
    )
    aws.call("ecr", "PutLifecyclePolicy", parameters)
    name = parameters["repositoryName"]

    def held() -> Mapping[str, Any]:
        text = aws.read("ecr", "GetLifecyclePolicy", {"repositoryName": name})["lifecyclePolicyText"]
        return {"repositoryName": name, "lifecyclePolicyText": json.loads(text)}

    declared = {**parameters, "lifecyclePolicyText": json.loads(parameters["lifecyclePolicyText"])}
    return Applied(name, wire.outputs(), declared, held)


HANDLERS = {
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre,
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": _data_repository_association,
    "aws:ecr/repository:Repository": _repository,
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": _repository_lifecycle,
}
