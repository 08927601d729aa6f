"""Budget: which alarms, whom they reach, what counts, and what the last one does."""

import json

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.budget import (
    MAX_ALARMS,
    Budget,
    BudgetAlarm,
    CostTagActivation,
    plan_budget_alarms,
    stop_code,
    stop_policy,
)
from gangway.components.core.findings import InputError
from tests.components.fixture_types import Make

KEY = "arn:aws:kms:us-east-2:1:key/x"
percents = st.floats(0.1, 1000)


@given(st.lists(percents, max_size=4), st.none() | percents)
def test_each_percentage_once_and_the_forecast_last(alerts: list[float], stop: float | None) -> None:
    *actual, forecast = plan_budget_alarms(alerts, stop)
    assert forecast == BudgetAlarm(100, "FORECASTED")
    assert [alarm.threshold for alarm in actual] == sorted({*alerts, *([] if stop is None else [stop])})
    assert {alarm.notification_type for alarm in actual} <= {"ACTUAL"}
    assert [alarm.threshold for alarm in actual if alarm.stops] == ([] if stop is None else [stop])


@given(st.lists(st.integers(1, 1000).map(float), min_size=MAX_ALARMS, unique=True), st.none() | percents)
def test_too_many_alarms_are_refused_with_as_many_as_aws_takes(alerts: list[float], stop: float | None) -> None:
    with pytest.raises(InputError) as caught:
        plan_budget_alarms(alerts, stop)
    mended = json.loads(caught.value.fix.removeprefix("set alert_percent: "))
    assert set(mended) <= set(alerts)
    assert len(plan_budget_alarms(mended, stop)) == MAX_ALARMS


def test_the_budget_counts_what_carries_the_stacks_tag_and_tells_everybody(make: Make) -> None:
    made = make(
        Budget,
        monthly_usd=60000,
        emails=["a@x.org", "b@x.org"],
        alert_percent=[100, 50, 80],
        stop_at_percent=None,
        kms_key_arn=None,
    )
    budget, topic = made.one("Budget").inputs, made.one("Topic")
    expected = {"budgetType": "COST", "timeUnit": "MONTHLY", "limitAmount": "60000.00", "limitUnit": "USD"}
    assert {key: budget[key] for key in expected} == expected
    assert budget["costFilters"] == [{"name": "TagKeyValue", "values": ["user:gangway:stack$test"]}]
    heard = {
        "comparisonOperator": "GREATER_THAN",
        "thresholdType": "PERCENTAGE",
        "subscriberEmailAddresses": ["a@x.org", "b@x.org"],
        "subscriberSnsTopicArns": ["${Topic.demo-budget.arn}"],
    }
    assert budget["notifications"] == [
        {**heard, "threshold": percent, "notificationType": kind}
        for percent, kind in ((50, "ACTUAL"), (80, "ACTUAL"), (100, "ACTUAL"), (100, "FORECASTED"))
    ]
    assert topic.name == "demo-budget"
    assert "kmsMasterKeyId" not in topic.inputs
    assert not made.of("Function")


def test_the_stop_has_a_topic_of_its_own_which_calls_the_function(make: Make) -> None:
    made = make(Budget, alert_percent=[50.0, 80.0], stop_at_percent=120.0)
    alarms = {
        (alarm["threshold"], alarm["notificationType"]): alarm["subscriberSnsTopicArns"]
        for alarm in made.one("Budget").inputs["notifications"]
    }
    stop, budget = ["${Topic.demo-stop.arn}"], ["${Topic.demo-budget.arn}"]
    assert alarms == {
        (50, "ACTUAL"): budget, (80, "ACTUAL"): budget, (120, "ACTUAL"): stop, (100, "FORECASTED"): budget,
    }  # fmt: skip
    subscription, permission = made.one("TopicSubscription").inputs, made.one("Permission").inputs
    assert [subscription["topic"]] == stop == [permission["sourceArn"]]
    assert subscription["protocol"] == "lambda"
    assert permission["principal"] == "sns.amazonaws.com"
    assert {topic.inputs["kmsMasterKeyId"] for topic in made.of("Topic")} == {KEY}


def test_the_function_holds_the_file_as_it_is_read_and_no_more_rights_than_it_needs(make: Make) -> None:
    made = make(Budget)
    function = made.one("Function").inputs
    archive = function["code"]
    assert isinstance(archive, pulumi.AssetArchive)
    assert list(archive.assets) == ["stop_groups.py"]
    assert function["handler"] == "stop_groups.handler"
    assert function["environment"] == {"variables": {"STACK": "test"}}
    assert function["loggingConfig"]["logGroup"] == "${LogGroup.demo-stop.name}"
    assert json.loads(made.one("RolePolicy").inputs["policy"]) == stop_policy("${LogGroup.demo-stop.arn}", "test")
    trust = json.loads(made.one("Role").inputs["assumeRolePolicy"])["Statement"]
    assert [statement["Principal"] for statement in trust] == [{"Service": "lambda.amazonaws.com"}]


def test_the_functions_source_can_be_read_at_a_glance() -> None:
    assert len(stop_code().splitlines()) <= 30
    assert "boto3" in stop_code()


def test_activated_tags_stay_when_the_stack_goes(make: Make) -> None:
    made = make(CostTagActivation)
    tags = made.of("CostAllocationTag")
    assert {tag.inputs["tagKey"] for tag in tags} == {"team", "gangway:stack"}
    assert {tag.inputs["status"] for tag in tags} == {"Active"}
    assert not any(":" in tag.name for tag in tags)
