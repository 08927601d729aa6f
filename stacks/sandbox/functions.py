"""Sandbox handlers: Lambda functions, who may call them, and the topics that do.

The code is zipped as Pulumi's provider zips it, so what moto holds can be compared; it is run in the tests only.
"""

import base64
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

from stacks.sandbox.aws import Aws, one
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]


def _zipped(assets: Mapping[str, Any]) -> bytes:
    """The files of an archive of texts, with one date, so that the same files make the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, asset in sorted(assets.items()):
            archive.writestr(zipfile.ZipInfo(path), asset.text)
    return packed.getvalue()


def _function(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    code = _zipped(wire.take("code")["code"].assets)
    inputs = {"functionName": name, **wire.rest(), **wire.take("tags")}
    parameters = {**aws.request("lambda", "CreateFunction", inputs), "Code": {"ZipFile": code}}
    arn = aws.call("lambda", "CreateFunction", parameters)["FunctionArn"]

    def held() -> Mapping[str, Any]:
        answer = aws.read("lambda", "GetFunction", {"FunctionName": name})
        return {**answer["Configuration"], "Tags": answer.get("Tags", {})}

    declared = {key: value for key, value in parameters.items() if key != "Code"}
    declared["CodeSha256"] = base64.b64encode(hashlib.sha256(code).digest()).decode()
    return Applied(name, wire.outputs(name=name, arn=arn), declared, held, unkept=("LoggingConfig",))


def _permission(aws: Aws, wire: Wire) -> Applied:
    inputs = {"statementId": wire.physical_name("statementId"), **wire.rest()}
    parameters = aws.request("lambda", "AddPermission", inputs, function="FunctionName")
    aws.call("lambda", "AddPermission", parameters)
    name, statement_id = parameters["FunctionName"], parameters["StatementId"]

    def held() -> Mapping[str, Any]:
        policy = json.loads(aws.read("lambda", "GetPolicy", {"FunctionName": name})["Policy"])
        return one([item for item in policy["Statement"] if item["Sid"] == statement_id])

    declared = {
        "Action": parameters["Action"],
        "Principal": {"Service": parameters["Principal"]},
        "Condition": {"ArnLike": {"AWS:SourceArn": parameters["SourceArn"]}},
    }
    return Applied(statement_id, wire.outputs(), declared, held)


def _subscription(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("sns", "Subscribe", wire.rest(), topic="TopicArn")
    arn = aws.call("sns", "Subscribe", parameters)["SubscriptionArn"]

    def held() -> Mapping[str, Any]:
        found: Mapping[str, Any] = aws.read("sns", "GetSubscriptionAttributes", {"SubscriptionArn": arn})["Attributes"]
        return found

    return Applied(arn, wire.outputs(arn=arn), parameters, held)


HANDLERS = {
    "aws:lambda/function:Function": _function,
    "aws:lambda/permission:Permission": _permission,
    "aws:sns/topicSubscription:TopicSubscription": _subscription,
}
