"""Sandbox handlers: budgets, SNS topics, Lambda functions, log groups with metrics, dashboards, composite alarms."""

import base64
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

from gangway.sandbox.aws import Aws, Wire, one
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


def _subscription(aws: Aws, wire: Wire) -> Applied:
    inputs = wire.take("topic", "protocol", "endpoint")
    parameters = {"TopicArn": inputs["topic"], "Protocol": inputs["protocol"], "Endpoint": inputs["endpoint"]}
    arn = aws.call("sns", "Subscribe", {**parameters, "ReturnSubscriptionArn": True})["SubscriptionArn"]

    def read_back() -> Mapping[str, Any]:
        known: Mapping[str, Any] = aws.read("sns", "GetSubscriptionAttributes", {"SubscriptionArn": arn})["Attributes"]
        return known

    return Applied(arn, wire.outputs(arn=arn), parameters, read_back, note="its owner has to confirm an e-mail address")


def _budget(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    filters = wire.take("costFilters").get("costFilters", [])
    alarms = [_alarm(alarm) for alarm in wire.take("notifications").get("notifications", [])]
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
    parameters = aws.request("budgets", "CreateBudget", inputs)
    aws.call("budgets", "CreateBudget", parameters)

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
    inputs = {"costAllocationTagsStatus": [wire.rest()]}
    parameters = aws.request("ce", "UpdateCostAllocationTagsStatus", inputs)
    aws.validate("ce", "UpdateCostAllocationTagsStatus", parameters)
    note = "moto has no UpdateCostAllocationTagsStatus: botocore checked and serialized the request"
    return Applied(wire.inputs["tagKey"], wire.outputs(), note=note)


BUDGET_HANDLERS = {
    "aws:sns/topic:Topic": _topic,
    "aws:sns/topicPolicy:TopicPolicy": _topic_policy,
    "aws:sns/topicSubscription:TopicSubscription": _subscription,
    "aws:budgets/budget:Budget": _budget,
    "aws:costexplorer/costAllocationTag:CostAllocationTag": _cost_allocation_tag,
}


def _zip(assets: Mapping[str, Any]) -> bytes:
    """An archive's text files with a fixed date, for deterministic bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, asset in sorted(assets.items()):
            archive.writestr(zipfile.ZipInfo(path), asset.text)
    return packed.getvalue()


def _function(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    code = _zip(wire.take("code")["code"].assets)
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
    parameters = aws.request("lambda", "AddPermission", inputs, function="FunctionName")
    aws.call("lambda", "AddPermission", parameters)
    name, statement_id = parameters["FunctionName"], parameters["StatementId"]

    def read_back() -> Mapping[str, Any]:
        policy = json.loads(aws.read("lambda", "GetPolicy", {"FunctionName": name})["Policy"])
        return one([item for item in policy["Statement"] if item["Sid"] == statement_id])

    declared = {
        "Action": parameters["Action"],
        "Principal": {"Service": parameters["Principal"]},
        "Condition": {"ArnLike": {"AWS:SourceArn": parameters["SourceArn"]}},
    }
    return Applied(statement_id, wire.outputs(), declared, read_back)


def _function_subscription(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("sns", "Subscribe", wire.rest(), topic="TopicArn")
    arn = aws.call("sns", "Subscribe", parameters)["SubscriptionArn"]

    def read_back() -> Mapping[str, Any]:
        found: Mapping[str, Any] = aws.read("sns", "GetSubscriptionAttributes", {"SubscriptionArn": arn})["Attributes"]
        return found

    return Applied(arn, wire.outputs(arn=arn), parameters, read_back)


FUNCTIONS_HANDLERS = {
    "aws:lambda/function:Function": _function,
    "aws:lambda/permission:Permission": _permission,
    "aws:sns/topicSubscription:TopicSubscription": _function_subscription,
}


def _log_group(aws: Aws, wire: Wire) -> Applied:
    wire.skip("skipDestroy")
    name = wire.physical_name()
    days = wire.take("retentionInDays")
    tags = wire.take("tags")
    parameters = aws.request("logs", "CreateLogGroup", {"logGroupName": name, **tags, **wire.rest()})
    aws.call("logs", "CreateLogGroup", parameters)
    retention = aws.request("logs", "PutRetentionPolicy", {"logGroupName": name, **days}) if days else {}
    if retention:
        aws.call("logs", "PutRetentionPolicy", retention)
    # AWS returns this ARN with a `:*` suffix, which Pulumi's provider removes.
    arn = f"arn:aws:logs:{aws.region}:{aws.account}:log-group:{name}"

    def read_back() -> Mapping[str, Any]:
        found = aws.read("logs", "DescribeLogGroups", {"logGroupNamePrefix": name})["logGroups"]
        group = one([group for group in found if group["logGroupName"] == name])
        return {**group, **aws.read("logs", "ListTagsForResource", {"resourceArn": arn})}

    return Applied(name, wire.outputs(name=name, arn=arn), {**parameters, **retention}, read_back)


def _metric_filter(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name()
    rename = {"name": "metricName", "namespace": "metricNamespace", "value": "metricValue"}
    (inputs,) = wire.take("metricTransformation").values()
    metric = {rename.get(key, key): value for key, value in inputs.items()}
    request = {"filterName": name, "metricTransformations": [metric], **wire.rest()}
    parameters = aws.request("logs", "PutMetricFilter", request, pattern="filterPattern")
    aws.call("logs", "PutMetricFilter", parameters)

    def read_back() -> Mapping[str, Any]:
        question = {"filterNamePrefix": name, "logGroupName": parameters["logGroupName"]}
        return one(aws.read("logs", "DescribeMetricFilters", question)["metricFilters"])

    return Applied(name, wire.outputs(name=name), parameters, read_back)


def _dashboard(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("cloudwatch", "PutDashboard", wire.rest())
    aws.call("cloudwatch", "PutDashboard", parameters)
    name = parameters["DashboardName"]

    def read_back() -> Mapping[str, Any]:
        answer = aws.read("cloudwatch", "GetDashboard", {"DashboardName": name})
        return {**answer, "DashboardBody": json.loads(answer["DashboardBody"])}

    arn = f"arn:aws:cloudwatch::{aws.account}:dashboard/{name}"
    declared = {"DashboardName": name, "DashboardBody": json.loads(parameters["DashboardBody"])}
    return Applied(name, wire.outputs(dashboardArn=arn), declared, read_back)


def _composite_alarm(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("cloudwatch", "PutCompositeAlarm", {**wire.tags(), **wire.rest()})
    aws.validate("cloudwatch", "PutCompositeAlarm", parameters)
    name = parameters["AlarmName"]
    arn = f"arn:aws:cloudwatch:{aws.region}:{aws.account}:alarm:{name}"
    note = "moto has no PutCompositeAlarm: botocore checked and serialized the request"
    return Applied(name, wire.outputs(arn=arn), note=note)


OBSERVABILITY_HANDLERS = {
    "aws:cloudwatch/compositeAlarm:CompositeAlarm": _composite_alarm,
    "aws:cloudwatch/dashboard:Dashboard": _dashboard,
    "aws:cloudwatch/logGroup:LogGroup": _log_group,
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": _metric_filter,
}
