"""Sandbox handlers: budgets with their alarms, the SNS topics that hear them, and the tags they count by.

What a topic calls is `stacks.sandbox.functions`.
"""

import json
from collections.abc import Mapping
from typing import Any

from stacks.sandbox.aws import Aws
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]


def _topic(aws: Aws, wire: Wire) -> Applied:
    key = wire.take("kmsMasterKeyId")
    attributes = {"Attributes": {"KmsMasterKeyId": key["kmsMasterKeyId"]}} if key else {}
    parameters = {"Name": wire.physical_name(), **attributes, **wire.tags()}
    arn = aws.call("sns", "CreateTopic", parameters)["TopicArn"]

    def held() -> Mapping[str, Any]:
        known = aws.read("sns", "GetTopicAttributes", {"TopicArn": arn})["Attributes"]
        found = aws.read("sns", "ListTagsForResource", {"ResourceArn": arn})["Tags"]
        return {"Name": known["TopicArn"].rpartition(":")[2], "Attributes": known, "Tags": found}

    return Applied(arn, wire.outputs(name=parameters["Name"], arn=arn), parameters, held)


def _topic_policy(aws: Aws, wire: Wire) -> Applied:
    inputs = wire.take("arn", "policy")
    arn, policy = inputs["arn"], inputs["policy"]
    request = {"TopicArn": arn, "AttributeName": "Policy", "AttributeValue": policy}
    aws.call("sns", "SetTopicAttributes", request)

    def held() -> Mapping[str, Any]:
        attributes = aws.read("sns", "GetTopicAttributes", {"TopicArn": arn})["Attributes"]
        return {"Policy": json.loads(attributes["Policy"])}

    return Applied(arn, wire.outputs(), {"Policy": json.loads(policy)}, held)


def _subscription(aws: Aws, wire: Wire) -> Applied:
    inputs = wire.take("topic", "protocol", "endpoint")
    parameters = {"TopicArn": inputs["topic"], "Protocol": inputs["protocol"], "Endpoint": inputs["endpoint"]}
    arn = aws.call("sns", "Subscribe", {**parameters, "ReturnSubscriptionArn": True})["SubscriptionArn"]

    def held() -> Mapping[str, Any]:
        known: Mapping[str, Any] = aws.read("sns", "GetSubscriptionAttributes", {"SubscriptionArn": arn})["Attributes"]
        return known

    return Applied(arn, wire.outputs(arn=arn), parameters, held, note="its owner has to confirm an e-mail address")


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

    def held() -> Mapping[str, Any]:
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
        held,
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


HANDLERS = {
    "aws:sns/topic:Topic": _topic,
    "aws:sns/topicPolicy:TopicPolicy": _topic_policy,
    "aws:sns/topicSubscription:TopicSubscription": _subscription,
    "aws:budgets/budget:Budget": _budget,
    "aws:costexplorer/costAllocationTag:CostAllocationTag": _cost_allocation_tag,
}
