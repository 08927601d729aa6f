"""Budget: a monthly limit on what carries the stack's tag, with alarms to e-mail and a topic.

AWS filters by a tag only after the key has been activated as a cost allocation tag, which it allows once it has seen
the key (up to 24 h): activation is a later step, never part of the first `up`.
"""

from typing import TypedDict

import pulumi
from pulumi_aws import budgets, sns

__all__ = ["AlarmPlan", "Budget", "BudgetArgs", "plan_alarms"]


class AlarmPlan(TypedDict):
    """One alarm: percent of the budget, on money spent (ACTUAL) or expected by the month's end (FORECASTED)."""

    threshold: float
    notification_type: str


class BudgetArgs(TypedDict):
    """Inputs of Budget. `tag_key` and `tag_value` select what counts."""

    monthly_usd: float
    emails: list[str]
    alert_percent: list[float]
    tag_key: str
    tag_value: str
    tags: dict[str, str]


def plan_alarms(alert_percent: list[float]) -> list[AlarmPlan]:
    """An ACTUAL alarm at each percentage, and one when the forecast reaches the whole budget."""
    actual = [AlarmPlan(threshold=percent, notification_type="ACTUAL") for percent in sorted(set(alert_percent))]
    return [*actual, AlarmPlan(threshold=100, notification_type="FORECASTED")]


class Budget(pulumi.ComponentResource):
    """A monthly cost budget with a topic for machines and e-mail for people."""

    budget_name: pulumi.Output[str]
    topic_arn: pulumi.Output[str]

    def __init__(self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:Budget", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        topic = sns.Topic(f"{name}-budget", tags=args["tags"], opts=child)
        sns.TopicPolicy(
            f"{name}-budget",
            arn=topic.arn,
            policy=pulumi.Output.json_dumps(
                {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Sid": "BudgetsMayPublish",
                            "Effect": "Allow",
                            "Principal": {"Service": "budgets.amazonaws.com"},
                            "Action": "SNS:Publish",
                            "Resource": topic.arn,
                        }
                    ],
                }
            ),
            opts=child,
        )
        budget = budgets.Budget(
            f"{name}-budget",
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=f"{args['monthly_usd']:.2f}",
            limit_unit="USD",
            cost_filters=[
                budgets.BudgetCostFilterArgs(name="TagKeyValue", values=[f"user:{args['tag_key']}${args['tag_value']}"])
            ],
            notifications=[
                budgets.BudgetNotificationArgs(
                    comparison_operator="GREATER_THAN",
                    threshold=alarm["threshold"],
                    threshold_type="PERCENTAGE",
                    notification_type=alarm["notification_type"],
                    subscriber_email_addresses=args["emails"],
                    subscriber_sns_topic_arns=[topic.arn],
                )
                for alarm in plan_alarms(args["alert_percent"])
            ],
            tags=args["tags"],
            opts=child,
        )
        self.budget_name = budget.name
        self.topic_arn = topic.arn
        self.register_outputs({"budget_name": self.budget_name, "topic_arn": self.topic_arn})
