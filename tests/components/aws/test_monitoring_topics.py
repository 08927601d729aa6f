"""Topics: one service may publish, for this account only, and people are subscribed by mail."""

import json
from collections.abc import Callable
from typing import Any

from gangway.components.aws.budget import Budget
from gangway.components.aws.monitoring import Observability, topic_policy


def test_only_one_service_may_publish_and_only_for_the_account() -> None:
    (statement,) = topic_policy("arn:aws:sns:us-east-2:1234:x", "s.amazonaws.com", "arn:{partition}:s::{account}:*")[
        "Statement"
    ]
    assert statement["Principal"] == {"Service": "s.amazonaws.com"}
    assert (statement["Effect"], statement["Action"]) == ("Allow", "SNS:Publish")
    assert statement["Resource"] == "arn:aws:sns:us-east-2:1234:x"
    assert statement["Condition"] == {
        "StringEquals": {"aws:SourceAccount": "1234"},
        "ArnLike": {"aws:SourceArn": "arn:aws:s::1234:*"},
    }


def test_budgets_and_alarms_have_topics_of_their_own(make: Callable[..., Any]) -> None:
    publishers = {
        component: json.loads(made.inputs["policy"])["Statement"][0]["Principal"]["Service"]
        for component in (Budget, Observability)
        for made in make(component).of("TopicPolicy")
    }
    assert publishers == {Budget: "budgets.amazonaws.com", Observability: "cloudwatch.amazonaws.com"}


def test_everybody_hears_of_an_alarm(make: Callable[..., Any]) -> None:
    made = make(Observability, emails=["a@example.com", "b@example.com"])
    heard = [(s.inputs["topic"], s.inputs["protocol"], s.inputs["endpoint"]) for s in made.of("TopicSubscription")]
    topic = "${Topic.demo-alarms.arn}"
    assert heard == [(topic, "email", "a@example.com"), (topic, "email", "b@example.com")]
