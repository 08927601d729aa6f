"""Sandbox handlers: IAM roles with their policies and profiles, KMS keys."""

import json
from collections.abc import Mapping
from typing import Any

from gangway.sandbox.aws import Aws, Wire, one
from gangway.sandbox.rows import Applied


def _role(aws: Aws, wire: Wire) -> Applied:
    wire.skip("forceDetachPolicies")
    name = wire.physical_name()
    inputs = {"roleName": name, **wire.tags(), **wire.rest()}
    parameters = aws.request("iam", "CreateRole", inputs, assumeRolePolicy="AssumeRolePolicyDocument")
    arn = aws.call("iam", "CreateRole", parameters)["Role"]["Arn"]
    # IAM returns the document as data, regardless of the text's spacing.
    declared = {**parameters, "AssumeRolePolicyDocument": json.loads(parameters["AssumeRolePolicyDocument"])}

    def read_back() -> Mapping[str, Any]:
        role: Mapping[str, Any] = aws.read("iam", "GetRole", {"RoleName": name})["Role"]
        return role

    return Applied(name, wire.outputs(name=name, arn=arn), declared, read_back)


def _role_policy(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    inputs = {"policyName": name, **wire.rest()}
    parameters = aws.request("iam", "PutRolePolicy", inputs, role="RoleName", policy="PolicyDocument")
    aws.call("iam", "PutRolePolicy", parameters)
    role = parameters["RoleName"]

    def read_back() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = aws.read("iam", "GetRolePolicy", {"RoleName": role, "PolicyName": name})
        return answer

    declared = {**parameters, "PolicyDocument": json.loads(parameters["PolicyDocument"])}
    return Applied(f"{role}:{name}", wire.outputs(name=name), declared, read_back)


def _instance_profile(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    role = wire.take("role")["role"]
    inputs = {"instanceProfileName": name, **wire.tags(), **wire.rest()}
    parameters = aws.request("iam", "CreateInstanceProfile", inputs)
    arn = aws.call("iam", "CreateInstanceProfile", parameters)["InstanceProfile"]["Arn"]
    aws.call("iam", "AddRoleToInstanceProfile", {"InstanceProfileName": name, "RoleName": role})

    def read_back() -> Mapping[str, Any]:
        profile = aws.read("iam", "GetInstanceProfile", {"InstanceProfileName": name})["InstanceProfile"]
        return {**profile, "Roles": [item["RoleName"] for item in profile["Roles"]]}

    return Applied(name, wire.outputs(name=name, arn=arn), {**parameters, "Roles": [role]}, read_back)


IDENTITY_HANDLERS = {
    "aws:iam/role:Role": _role,
    "aws:iam/rolePolicy:RolePolicy": _role_policy,
    "aws:iam/instanceProfile:InstanceProfile": _instance_profile,
}


def _key(aws: Aws, wire: Wire) -> Applied:
    # The deletion waiting time is in the delete request.
    wire.skip("deletionWindowInDays")
    rotates = wire.take("enableKeyRotation").get("enableKeyRotation", False)
    tags = [{"tagKey": key, "tagValue": value} for key, value in wire.take("tags").get("tags", {}).items()]
    parameters = aws.request("kms", "CreateKey", {**wire.rest(), "tags": tags})
    made = aws.call("kms", "CreateKey", parameters)["KeyMetadata"]
    id_ = made["KeyId"]
    if rotates:
        aws.call("kms", "EnableKeyRotation", {"KeyId": id_})

    def read_back() -> Mapping[str, Any]:
        return {
            **aws.read("kms", "DescribeKey", {"KeyId": id_})["KeyMetadata"],
            **aws.read("kms", "GetKeyRotationStatus", {"KeyId": id_}),
            "Tags": sorted(aws.read("kms", "ListResourceTags", {"KeyId": id_})["Tags"], key=str),
        }

    declared = {**parameters, "KeyRotationEnabled": rotates, "Tags": sorted(parameters["Tags"], key=str)}
    return Applied(id_, wire.outputs(arn=made["Arn"], keyId=id_), declared, read_back)


def _alias(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("kms", "CreateAlias", wire.rest(), name="AliasName")
    aws.call("kms", "CreateAlias", parameters)

    def read_back() -> Mapping[str, Any]:
        found = aws.read("kms", "ListAliases", {"KeyId": parameters["TargetKeyId"]})["Aliases"]
        return one([alias for alias in found if alias["AliasName"] == parameters["AliasName"]])

    return Applied(parameters["AliasName"], wire.outputs(), parameters, read_back)


def _key_policy(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("kms", "PutKeyPolicy", {**wire.rest(), "policyName": "default"})
    aws.call("kms", "PutKeyPolicy", parameters)
    key = {"KeyId": parameters["KeyId"], "PolicyName": "default"}

    def read_back() -> Mapping[str, Any]:
        return {**key, "Policy": json.loads(aws.read("kms", "GetKeyPolicy", key)["Policy"])}

    return Applied(key["KeyId"], wire.outputs(), {**parameters, "Policy": json.loads(parameters["Policy"])}, read_back)


def _parameter(aws: Aws, wire: Wire) -> Applied:
    # A secret on the wire: its mark, and the value.
    value = wire.take("value")["value"]["value"]
    parameters = aws.request("ssm", "PutParameter", {**wire.tags(), "value": value, **wire.rest()})
    aws.call("ssm", "PutParameter", parameters)
    name = parameters["Name"]

    def read_back() -> Mapping[str, Any]:
        about = one(
            aws.read("ssm", "DescribeParameters", {"Filters": [{"Key": "Name", "Values": [name]}]})["Parameters"]
        )
        tags = aws.read("ssm", "ListTagsForResource", {"ResourceType": "Parameter", "ResourceId": name})["TagList"]
        held = aws.read("ssm", "GetParameter", {"Name": name, "WithDecryption": True})["Parameter"]
        return {**about, **held, "Tags": sorted(tags, key=str)}

    arn = aws.read("ssm", "GetParameter", {"Name": name})["Parameter"]["ARN"]
    declared = {**parameters, "Tags": sorted(parameters["Tags"], key=str)}
    return Applied(name, wire.outputs(name=name, arn=arn), declared, read_back)


ENCRYPTION_HANDLERS = {
    "aws:ssm/parameter:Parameter": _parameter,
    "aws:kms/key:Key": _key,
    "aws:kms/alias:Alias": _alias,
    "aws:kms/keyPolicy:KeyPolicy": _key_policy,
}
