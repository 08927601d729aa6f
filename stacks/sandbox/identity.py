"""Sandbox handlers: IAM roles, their policies and instance profiles."""

import json
from collections.abc import Mapping
from typing import Any

from stacks.sandbox.aws import Aws
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]


def _role(aws: Aws, wire: Wire) -> Applied:
    wire.skip("forceDetachPolicies")
    name = wire.physical_name()
    inputs = {"roleName": name, **wire.tags(), **wire.rest()}
    parameters = aws.request("iam", "CreateRole", inputs, assumeRolePolicy="AssumeRolePolicyDocument")
    arn = aws.call("iam", "CreateRole", parameters)["Role"]["Arn"]
    # IAM answers the document as data, whatever the spacing of the text it was given.
    declared = {**parameters, "AssumeRolePolicyDocument": json.loads(parameters["AssumeRolePolicyDocument"])}

    def held() -> Mapping[str, Any]:
        role: Mapping[str, Any] = aws.read("iam", "GetRole", {"RoleName": name})["Role"]
        return role

    return Applied(name, wire.outputs(name=name, arn=arn), declared, held)


def _role_policy(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    inputs = {"policyName": name, **wire.rest()}
    parameters = aws.request("iam", "PutRolePolicy", inputs, role="RoleName", policy="PolicyDocument")
    aws.call("iam", "PutRolePolicy", parameters)
    role = parameters["RoleName"]

    def held() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = aws.read("iam", "GetRolePolicy", {"RoleName": role, "PolicyName": name})
        return answer

    declared = {**parameters, "PolicyDocument": json.loads(parameters["PolicyDocument"])}
    return Applied(f"{role}:{name}", wire.outputs(name=name), declared, held)


def _instance_profile(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    role = wire.take("role")["role"]
    inputs = {"instanceProfileName": name, **wire.tags(), **wire.rest()}
    parameters = aws.request("iam", "CreateInstanceProfile", inputs)
    arn = aws.call("iam", "CreateInstanceProfile", parameters)["InstanceProfile"]["Arn"]
    aws.call("iam", "AddRoleToInstanceProfile", {"InstanceProfileName": name, "RoleName": role})

    def held() -> Mapping[str, Any]:
        profile = aws.read("iam", "GetInstanceProfile", {"InstanceProfileName": name})["InstanceProfile"]
        return {**profile, "Roles": [item["RoleName"] for item in profile["Roles"]]}

    return Applied(name, wire.outputs(name=name, arn=arn), {**parameters, "Roles": [role]}, held)


HANDLERS = {
    "aws:iam/role:Role": _role,
    "aws:iam/rolePolicy:RolePolicy": _role_policy,
    "aws:iam/instanceProfile:InstanceProfile": _instance_profile,
}
