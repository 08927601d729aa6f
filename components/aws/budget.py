"""Budget: a monthly limit on what has the stack's tag, with alarms, and a Lambda function that can stop the stack."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_aws import budgets, cloudwatch, costexplorer, iam, lambda_, sns

from gangway.components.aws.identity import OPEN_RESOURCES, allow, allow_on_groups, declare_role, document, trust
from gangway.components.aws.monitoring import declare_topic
from gangway.components.core.findings import InputError
from gangway.components.core.outputs import register_outputs

RUNTIME = "python3.13"
TIMEOUT_SEC = 60
LOG_DAYS = 30
# AWS Budgets takes ten notifications a budget, each with one topic and ten addresses.
MAX_ALARMS = 10


def stop_code() -> str:
    """The function's source, `components/aws/stop_groups.py`."""
    return Path(__file__).with_name("stop_groups.py").read_text("utf-8")


def stop_policy(log_group_arn: str, stack: str) -> dict[str, Any]:
    """What the function may do: find groups, empty those of its stack, and log."""
    empty = ["autoscaling:SuspendProcesses", "autoscaling:UpdateAutoScalingGroup"]
    find = "autoscaling:DescribeAutoScalingGroups"
    assert find in OPEN_RESOURCES, "an open resource needs its reason"
    return document(
        [
            allow("FindGroups", [find], "*"),
            allow_on_groups(stack, "EmptyOwnGroups", empty, log_group_arn),
            allow("WriteLogs", ["logs:CreateLogStream", "logs:PutLogEvents"], f"{log_group_arn}:*"),
        ]
    )


@dataclass(frozen=True)
class BudgetAlarm:
    """One alarm: percent of the budget, on money spent (ACTUAL) or expected by the month's end (FORECASTED)."""

    threshold: float
    notification_type: str
    stops: bool = False


class BudgetArgs(TypedDict):
    """Inputs of Budget. `tag_key` and `tag_value` (the stack) select the costs. At `stop_at_percent` the stack's Auto
    Scaling groups are set to zero. `kms_key_arn` is a key that budgets.amazonaws.com may use; AWS's own key for SNS
    does not allow that, so without one the topic is unencrypted (its messages name the budget and the amounts).
    """

    monthly_usd: float
    emails: list[str]
    alert_percent: list[float]
    stop_at_percent: NotRequired[float | None]
    tag_key: str
    tag_value: str
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def plan_budget_alarms(
    alert_percent: list[float], stop_at_percent: float | None = None, place: str = "gangway:budget"
) -> list[BudgetAlarm]:
    """ACTUAL at each percentage and the stop's, FORECASTED at 100 %. InputError: more alarms than AWS takes."""
    stop = {stop_at_percent} if stop_at_percent is not None else set()
    percents = sorted({*alert_percent, *stop})
    if len(percents) >= MAX_ALARMS:
        others = [percent for percent in percents if percent not in stop][: MAX_ALARMS - 1 - len(stop)]
        raise InputError(
            f"{place}.alert_percent",
            "more alarms than AWS Budgets takes",
            value=alert_percent,
            allowed=f"{MAX_ALARMS} alarms a budget; the forecast is one, stop_at_percent another unless it is listed",
            fix=f"set alert_percent: [{', '.join(f'{percent:g}' for percent in others)}]",
        )
    actual = [BudgetAlarm(percent, "ACTUAL", stops=percent in stop) for percent in percents]
    return [*actual, BudgetAlarm(100, "FORECASTED")]


class Budget(pulumi.ComponentResource):
    """A monthly cost budget with a topic for machines, e-mail for people, and a stop for the nodes."""

    budget_name: pulumi.Output[str]
    topic_arn: pulumi.Output[str]

    def __init__(self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:Budget", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        stop_at_percent = args.get("stop_at_percent")
        alarms = plan_budget_alarms(args["alert_percent"], stop_at_percent)
        topic = stop_topic = self._topic("budget")
        if stop_at_percent is not None:
            # A separate topic: messages of Budgets are prose without a reliable percentage.
            stop_topic = self._topic("stop")
            self._stop(stop_topic)
        budget = self._budget([(alarm, stop_topic if alarm.stops else topic) for alarm in alarms])
        self.budget_name = budget.name
        self.topic_arn = topic.arn
        register_outputs(self)

    def _topic(self, suffix: str) -> sns.Topic:
        return declare_topic(
            f"{self._name}-{suffix}",
            "budgets.amazonaws.com",
            "arn:{partition}:budgets::{account}:*",
            kms_key_arn=self._args.get("kms_key_arn"),
            tags=self._args["tags"],
            opts=self._child,
        )

    def _stop(self, topic: sns.Topic) -> None:
        label, args, tags, child = f"{self._name}-stop", self._args, self._args["tags"], self._child
        key = args.get("kms_key_arn")
        group = cloudwatch.LogGroup(label, retention_in_days=LOG_DAYS, kms_key_id=key, tags=tags, opts=child)
        policy = group.arn.apply(lambda arn: stop_policy(arn, args["tag_value"]))
        role, permissions = declare_role(label, trust("lambda.amazonaws.com"), policy, tags, child)
        # Without its permissions a call would stop nothing.
        function = self._function(label, role, group, permissions)
        # Only this topic may call it.
        permission = lambda_.Permission(
            label,
            action="lambda:InvokeFunction",
            function=function.name,
            principal="sns.amazonaws.com",
            source_arn=topic.arn,
            opts=child,
        )
        after = pulumi.ResourceOptions(parent=self, depends_on=[permission])
        sns.TopicSubscription(label, topic=topic.arn, protocol="lambda", endpoint=function.arn, opts=after)

    def _function(
        self, label: str, role: iam.Role, group: cloudwatch.LogGroup, permissions: iam.RolePolicy
    ) -> lambda_.Function:
        stack = self._args["tag_value"]
        return lambda_.Function(
            label,
            description=f"{stack}: budget used up, nodes end",
            runtime=RUNTIME,
            handler="stop_groups.handler",
            code=pulumi.AssetArchive({"stop_groups.py": pulumi.StringAsset(stop_code())}),
            role=role.arn,
            timeout=TIMEOUT_SEC,
            environment=lambda_.FunctionEnvironmentArgs(variables={"STACK": stack}),
            logging_config=lambda_.FunctionLoggingConfigArgs(log_format="Text", log_group=group.name),
            tags=self._args["tags"],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[permissions]),
        )

    def _budget(self, alarms: list[tuple[BudgetAlarm, sns.Topic]]) -> budgets.Budget:
        args = self._args
        return budgets.Budget(
            f"{self._name}-budget",
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
                    threshold=alarm.threshold,
                    threshold_type="PERCENTAGE",
                    notification_type=alarm.notification_type,
                    subscriber_email_addresses=args["emails"],
                    subscriber_sns_topic_arns=[topic.arn],
                )
                for alarm, topic in alarms
            ],
            tags=args["tags"],
            opts=self._child,
        )


class CostTagActivationArgs(TypedDict):
    """Inputs of CostTagActivation. A key must have been on a bill, up to 24 h after the first tagged resource."""

    tag_keys: list[str]


class CostTagActivation(pulumi.ComponentResource):
    """Activates tag keys for budgets of the whole account; only its payer may, and only one of its stacks should."""

    tag_keys: pulumi.Output[list[str]]

    def __init__(self, name: str, args: CostTagActivationArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:CostTagActivation", name, None, opts)
        activated = [
            costexplorer.CostAllocationTag(
                # A colon would read as part of a URN.
                f"{name}-{key.replace(':', '-')}",
                tag_key=key,
                status="Active",
                # Other stacks use the key too: destroying this one must not hide their costs.
                opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
            )
            for key in args["tag_keys"]
        ]
        self.tag_keys = pulumi.Output.all(*[tag.tag_key for tag in activated]).apply(list)
        register_outputs(self)
