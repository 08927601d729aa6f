"""Sandbox handlers: KMS keys, their names and their policies."""

import json
from collections.abc import Mapping
from typing import Any

from stacks.sandbox.aws import Aws, one
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]


def _key(aws: Aws, wire: Wire) -> Applied:
    # How long a deletion waits is said when the key is deleted.
    wire.skip("deletionWindowInDays")
    rotates = wire.take("enableKeyRotation").get("enableKeyRotation", False)
    tags = [{"tagKey": key, "tagValue": value} for key, value in wire.take("tags").get("tags", {}).items()]
    parameters = aws.request("kms", "CreateKey", {**wire.rest(), "tags": tags})
    made = aws.call("kms", "CreateKey", parameters)["KeyMetadata"]
    id_ = made["KeyId"]
    if rotates:
        aws.call("kms", "EnableKeyRotation", {"KeyId": id_})

    def held() -> Mapping[str, Any]:
        return {
            **aws.read("kms", "DescribeKey", {"KeyId": id_})["KeyMetadata"],
            **aws.read("kms", "GetKeyRotationStatus", {"KeyId": id_}),
            "Tags": sorted(aws.read("kms", "ListResourceTags", {"KeyId": id_})["Tags"], key=str),
        }

    declared = {**parameters, "KeyRotationEnabled": rotates, "Tags": sorted(parameters["Tags"], key=str)}
    return Applied(id_, wire.outputs(arn=made["Arn"], keyId=id_), declared, held)


def _alias(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("kms", "CreateAlias", wire.rest(), name="AliasName")
    aws.call("kms", "CreateAlias", parameters)

    def held() -> Mapping[str, Any]:
        found = aws.read("kms", "ListAliases", {"KeyId": parameters["TargetKeyId"]})["Aliases"]
        return one([alias for alias in found if alias["AliasName"] == parameters["AliasName"]])

    return Applied(parameters["AliasName"], wire.outputs(), parameters, held)


def _key_policy(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("kms", "PutKeyPolicy", {**wire.rest(), "policyName": "default"})
    aws.call("kms", "PutKeyPolicy", parameters)
    key = {"KeyId": parameters["KeyId"], "PolicyName": "default"}

    def held() -> Mapping[str, Any]:
        return {**key, "Policy": json.loads(aws.read("kms", "GetKeyPolicy", key)["Policy"])}

    return Applied(key["KeyId"], wire.outputs(), {**parameters, "Policy": json.loads(parameters["Policy"])}, held)


HANDLERS = {
    "aws:kms/key:Key": _key,
    "aws:kms/alias:Alias": _alias,
    "aws:kms/keyPolicy:KeyPolicy": _key_policy,
}
