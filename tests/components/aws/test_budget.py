"""Budget: which alarms, whom they reach, and what counts."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from components.aws.budget import Budget, plan_alarms


@given(st.lists(st.floats(0.1, 1000), max_size=4))
def test_each_percentage_once_and_the_forecast_last(percents: list[float]) -> None:
    *actual, forecast = plan_alarms(percents)
    assert forecast == {"threshold": 100, "notification_type": "FORECASTED"}
    assert [alarm["threshold"] for alarm in actual] == sorted(set(percents))
    assert {alarm["notification_type"] for alarm in actual} <= {"ACTUAL"}
    assert len(actual) + 1 <= 5, "AWS allows five notifications a budget"


def test_the_budget_counts_what_carries_the_stacks_tag_and_tells_everybody(make: Callable[..., Any]) -> None:
    made = make(Budget, monthly_usd=60000, emails=["a@x.org", "b@x.org"], alert_percent=[100, 50, 80])
    budget, topic = made.one("Budget").inputs, made.one("Topic")
    expected = {"budgetType": "COST", "timeUnit": "MONTHLY", "limitAmount": "60000.00", "limitUnit": "USD"}
    assert {key: budget[key] for key in expected} == expected
    assert budget["costFilters"] == [{"name": "TagKeyValue", "values": ["user:gangway:stack$test"]}]
    heard = {
        "comparisonOperator": "GREATER_THAN",
        "thresholdType": "PERCENTAGE",
        "subscriberEmailAddresses": ["a@x.org", "b@x.org"],
        "subscriberSnsTopicArns": ["<Topic.demo-budget.arn>"],
    }
    assert budget["notifications"] == [
        {**heard, "threshold": percent, "notificationType": kind}
        for percent, kind in ((50, "ACTUAL"), (80, "ACTUAL"), (100, "ACTUAL"), (100, "FORECASTED"))
    ]
    assert topic.name == "demo-budget"


def test_only_the_budget_service_may_publish(make: Callable[..., Any]) -> None:
    policy = make(Budget).one("TopicPolicy").inputs
    (statement,) = json.loads(policy["policy"])["Statement"]
    assert policy["arn"] == statement["Resource"] == "<Topic.demo-budget.arn>"
    assert statement["Principal"] == {"Service": "budgets.amazonaws.com"}
    assert (statement["Effect"], statement["Action"]) == ("Allow", "SNS:Publish")
