"""Sandbox handlers: budgets, SNS topics, Lambda functions, log groups with metrics, dashboards, composite alarms."""

import base64
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

from gangway.sandbox.aws import Aws, Handler, Wire, find, one, put, validated
from gangway.sandbox.rows import Applied


def _topic(aws: Aws, wire: Wire) -> Applied:
    key = wire.take("kmsMasterKeyId")
    attributes = {"Attributes": {"KmsMasterKeyId": key["kmsMasterKeyId"]}} if key else {}
    parameters = {"Name": wire.physical_name(), **attributes, **wire.tags()}
    arn = aws.call("sns", "CreateTopic", parameters)["TopicArn"]

    def read_back() -> Mapping[str, Any]:
        known = aws.read("sns", "GetTopicAttributes", {"TopicArn": arn})["Attributes"]
        found = aws.read("sns", "ListTagsForResource", {"ResourceArn": arn})["Tags"]
        return {"Name": known["TopicArn"].rpartition(":")[2], "Attributes": known, "Tags": found}

    return Applied(arn, wire.outputs(name=parameters["Name"], arn=arn), parameters, read_back)


def _topic_policy(aws: Aws, wire: Wire) -> Applied:
    inputs = wire.take("arn", "policy")
    arn, policy = inputs["arn"], inputs["policy"]
    request = {"TopicArn": arn, "AttributeName": "Policy", "AttributeValue": policy}
    aws.call("sns", "SetTopicAttributes", request)

    def read_back() -> Mapping[str, Any]:
        attributes = aws.read("sns", "GetTopicAttributes", {"TopicArn": arn})["Attributes"]
        return {"Policy": json.loads(attributes["Policy"])}

    return Applied(arn, wire.outputs(), {"Policy": json.loads(policy)}, read_back)


def _budget(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    filters = wire.take_value("costFilters", [])
    alarms = [_alarm(alarm) for alarm in wire.take_value("notifications", [])]
    limit = wire.take("limitAmount", "limitUnit")
    inputs: dict[str, Any] = {
        "accountId": aws.account,
        "budget": {
            "budgetName": name,
            "budgetLimit": {"amount": limit.get("limitAmount"), "unit": limit.get("limitUnit")},
            "costFilters": {item["name"]: item["values"] for item in filters},
            **wire.rest(),
        },
        "notificationsWithSubscribers": alarms,
        **wire.tags("resourceTags"),
    }
    parameters, _ = aws.create("budgets", "CreateBudget", inputs)

    def read_back() -> Mapping[str, Any]:
        question = {"AccountId": aws.account, "BudgetName": name}
        budget = aws.read("budgets", "DescribeBudget", question)["Budget"]
        found = aws.read("budgets", "DescribeNotificationsForBudget", question)["Notifications"]
        return {
            "Budget": budget,
            "NotificationsWithSubscribers": [{"Notification": notification} for notification in found],
        }

    arn = f"arn:aws:budgets::{aws.account}:budget/{name}"
    return Applied(
        f"{aws.account}:{name}",
        wire.outputs(name=name, arn=arn),
        {key: value for key, value in parameters.items() if key != "AccountId"},
        read_back,
        unkept=("NotificationsWithSubscribers.Subscribers", "ResourceTags"),
    )


def _alarm(alarm: Mapping[str, Any]) -> dict[str, Any]:
    """Pulumi lists subscribers by kind; the API wants one list beside the notification."""
    kinds = {"subscriberEmailAddresses": "EMAIL", "subscriberSnsTopicArns": "SNS"}
    return {
        "notification": {key: value for key, value in alarm.items() if key not in kinds},
        "subscribers": [
            {"subscriptionType": kind, "address": address}
            for key, kind in kinds.items()
            for address in alarm.get(key, [])
        ],
    }


def _cost_allocation_tag(aws: Aws, wire: Wire) -> Applied:
    operation = "UpdateCostAllocationTagsStatus"
    parameters = aws.request("ce", operation, {"costAllocationTagsStatus": [wire.rest()]})
    return validated(aws, wire, "ce", operation, parameters, wire.inputs["tagKey"])


def _zip(assets: Mapping[str, Any]) -> bytes:
    """An archive's text files with a fixed date, for deterministic bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, asset in sorted(assets.items()):
            archive.writestr(zipfile.ZipInfo(path), asset.text)
    return packed.getvalue()


def _function(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    code = _zip(wire.take_value("code").assets)
    inputs = {"functionName": name, **wire.rest(), **wire.take("tags")}
    parameters = {**aws.request("lambda", "CreateFunction", inputs), "Code": {"ZipFile": code}}
    arn = aws.call("lambda", "CreateFunction", parameters)["FunctionArn"]

    def read_back() -> Mapping[str, Any]:
        answer = aws.read("lambda", "GetFunction", {"FunctionName": name})
        return {**answer["Configuration"], "Tags": answer.get("Tags", {})}

    declared = {key: value for key, value in parameters.items() if key != "Code"}
    declared["CodeSha256"] = base64.b64encode(hashlib.sha256(code).digest()).decode()
    return Applied(name, wire.outputs(name=name, arn=arn), declared, read_back, unkept=("LoggingConfig",))


def _permission(aws: Aws, wire: Wire) -> Applied:
    inputs = {"statementId": wire.physical_name("statementId"), **wire.rest()}
    parameters, _ = aws.create("lambda", "AddPermission", inputs, function="FunctionName")
    name, statement_id = parameters["FunctionName"], parameters["StatementId"]

    def read_back() -> Mapping[str, Any]:
        policy = json.loads(aws.read("lambda", "GetPolicy", {"FunctionName": name})["Policy"])
        return find(policy["Statement"], Sid=statement_id)

    declared = {
        "Action": parameters["Action"],
        "Principal": {"Service": parameters["Principal"]},
        "Condition": {"ArnLike": {"AWS:SourceArn": parameters["SourceArn"]}},
    }
    return Applied(statement_id, wire.outputs(), declared, read_back)


def _log_group(aws: Aws, wire: Wire) -> Applied:
    wire.skip("skipDestroy")
    name = wire.physical_name()
    days = wire.take("retentionInDays")
    tags = wire.take("tags")
    parameters, _ = aws.create("logs", "CreateLogGroup", {"logGroupName": name, **tags, **wire.rest()})
    retention = aws.request("logs", "PutRetentionPolicy", {"logGroupName": name, **days}) if days else {}
    if retention:
        aws.call("logs", "PutRetentionPolicy", retention)
    # AWS returns this ARN with a `:*` suffix, which Pulumi's provider removes.
    arn = f"arn:aws:logs:{aws.region}:{aws.account}:log-group:{name}"

    def read_back() -> Mapping[str, Any]:
        found = aws.read("logs", "DescribeLogGroups", {"logGroupNamePrefix": name})["logGroups"]
        return {**find(found, logGroupName=name), **aws.read("logs", "ListTagsForResource", {"resourceArn": arn})}

    return Applied(name, wire.outputs(name=name, arn=arn), {**parameters, **retention}, read_back)


def _metric_filter(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    rename = {"name": "metricName", "namespace": "metricNamespace", "value": "metricValue"}
    (inputs,) = wire.take("metricTransformation").values()
    metric = {rename.get(key, key): value for key, value in inputs.items()}
    request = {"filterName": name, "metricTransformations": [metric], **wire.rest()}
    parameters, _ = aws.create("logs", "PutMetricFilter", request, pattern="filterPattern")
    question = {"filterNamePrefix": name, "logGroupName": parameters["logGroupName"]}
    return Applied(
        name,
        wire.outputs(name=name),
        parameters,
        lambda: one(aws.read("logs", "DescribeMetricFilters", question)["metricFilters"]),
    )


HANDLERS: Mapping[str, Handler] = {
    "aws:budgets/budget:Budget": _budget,
    "aws:cloudwatch/compositeAlarm:CompositeAlarm": put(
        "cloudwatch",
        "PutCompositeAlarm",
        "{AlarmName}",
        outputs={"arn": "arn:aws:cloudwatch:{aws.region}:{aws.account}:alarm:{AlarmName}"},
    ),
    "aws:cloudwatch/dashboard:Dashboard": put(
        "cloudwatch",
        "PutDashboard",
        "{DashboardName}",
        lambda aws, _, name: aws.read("cloudwatch", "GetDashboard", {"DashboardName": name}),
        outputs={"dashboardArn": "arn:aws:cloudwatch::{aws.account}:dashboard/{DashboardName}"},
        documents=("DashboardBody",),
    ),
    "aws:cloudwatch/logGroup:LogGroup": _log_group,
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": _metric_filter,
    "aws:costexplorer/costAllocationTag:CostAllocationTag": _cost_allocation_tag,
    "aws:lambda/function:Function": _function,
    "aws:lambda/permission:Permission": _permission,
    "aws:sns/topic:Topic": _topic,
    "aws:sns/topicPolicy:TopicPolicy": _topic_policy,
    "aws:sns/topicSubscription:TopicSubscription": put(
        "sns",
        "Subscribe",
        "{made[SubscriptionArn]}",
        lambda aws, _, arn: aws.read("sns", "GetSubscriptionAttributes", {"SubscriptionArn": arn})["Attributes"],
        outputs={"arn": "{made[SubscriptionArn]}"},
        topic="TopicArn",
    ),
}
