"""Sandbox handlers: IAM roles with their policies and profiles, KMS keys, parameters."""

from collections.abc import Mapping
from typing import Any

from gangway.sandbox.aws import Aws, Handler, Wire, find, one, put
from gangway.sandbox.rows import Applied


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


HANDLERS: Mapping[str, Handler] = {
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
