"""Budget: a monthly limit on what carries the stack's tag in its resource group, with alarms, and a stop if wanted.

A budget is of its resource group, and reads costs in the currency of the subscription's bill; it begins on a day that
the stack file pins, for a computed one would change the stack each month. What carries no tag (little: Azure's own
traffic between zones) does not count. What the stop can and cannot do is in `components.azure.budget_stop`.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import pulumi
from pulumi_azure_native import consumption

from components.azure.budget_stop import StopPlan, declare_stop
from components.azure.channels import check_budget_emails, declare_action_group
from components.azure.policies import group_id
from components.findings import InputError

__all__ = [
    "MAX_MONTHS_AHEAD",
    "MAX_NOTIFICATIONS",
    "Budget",
    "BudgetAlarm",
    "BudgetArgs",
    "check_starts_on",
    "months_ahead",
    "plan_budget_alarms",
]

MAX_NOTIFICATIONS = 5
MAX_MONTHS_AHEAD = 12
"""How far ahead a new budget may begin ("Budgets - Create Or Update"); it may not begin before the current month."""
# Azure takes no earlier one.
EARLIEST = datetime.date(2017, 6, 1)


@dataclass(frozen=True)
class BudgetAlarm:
    """One alarm: percent of the budget, on money spent (Actual) or expected by the month's end (Forecasted)."""

    threshold: float
    threshold_type: str

    @property
    def name(self) -> str:
        """What it is called among the budget's alarms."""
        return f"{self.threshold_type}-{self.threshold:g}".lower().replace(".", "-")


class BudgetArgs(TypedDict):
    """Inputs of Budget.

    `starts_on` is the first of a month, `2026-01-01`: when the budget is first made, of the current one or of one of
    the next twelve. `tag_key` and `tag_value` select what counts; `tag_value` is the stack. At `stop_at_percent` the
    scale sets of `group_ids` are emptied and the machines of `head_ids` halted: both resource ids. With `role_wait_sec`
    (0) Azure gets some time to know the role by which that is done before it is assigned: from Python programs alone
    (`components.azure.grants`).
    """

    subscription_id: str
    resource_group_name: pulumi.Input[str]
    location: str
    monthly_usd: float
    starts_on: str
    emails: list[str]
    alert_percent: list[float]
    stop_at_percent: NotRequired[float | None]
    group_ids: NotRequired[pulumi.Input[list[str]]]
    head_ids: NotRequired[pulumi.Input[list[str]]]
    role_wait_sec: NotRequired[float]
    tag_key: str
    tag_value: str
    tags: dict[str, str]


def plan_budget_alarms(
    alert_percent: Sequence[float], stop_at_percent: float | None = None, place: str = "gangway:budget.alert_percent"
) -> list[BudgetAlarm]:
    """An alarm on money spent at each percentage, the stop among them, and one when the forecast reaches the whole.

    Raises:
        InputError: they are more than a budget has.
    """
    percents = sorted({*alert_percent, *([stop_at_percent] if stop_at_percent is not None else [])})
    alarms = [*(BudgetAlarm(percent, "Actual") for percent in percents), BudgetAlarm(100, "Forecasted")]
    if len(alarms) > MAX_NOTIFICATIONS:
        raise InputError(
            place,
            "more alarms than a budget of Azure has",
            value=list(alert_percent),
            allowed=f"{MAX_NOTIFICATIONS} in all; one is for the forecast"
            + (", one for stop_at_percent" if stop_at_percent is not None else ""),
            fix=f"remove {len(alarms) - MAX_NOTIFICATIONS}",
        )
    return alarms


def check_starts_on(starts_on: str, place: str = "gangway:azure.budget_starts_on") -> None:
    """Refuses a day on which no budget can begin.

    Raises:
        InputError: it is no date, not the first of a month, or before EARLIEST.
    """
    try:
        day = datetime.date.fromisoformat(starts_on)
    except ValueError:
        day = None
    if day is not None and day.day == 1 and day >= EARLIEST and day.isoformat() == starts_on:
        return
    first = EARLIEST if day is None or day < EARLIEST else day.replace(day=1)
    raise InputError(
        place,
        "a budget of Azure begins on the first of a month",
        value=starts_on,
        allowed=f"the first of a month, from {EARLIEST} on, such as '2026-01-01'",
        fix="write the first of this month" if day is None else f"set {place.rpartition('.')[2]}: '{first}'",
    )


def months_ahead(starts_on: str, today: datetime.date) -> int:
    """How many months after this one a budget begins; below 0 for one that is past. `check_starts_on` has passed it.

    >>> months_ahead("2027-01-01", datetime.date(2026, 11, 21))
    2
    """
    day = datetime.date.fromisoformat(starts_on)
    return (day.year - today.year) * 12 + day.month - today.month


class Budget(pulumi.ComponentResource):
    """A monthly cost budget. Outputs: its name, and the id of the action group that tells people."""

    budget_name: pulumi.Output[str]
    topic_id: pulumi.Output[str]

    def __init__(self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:Budget", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        check_starts_on(args["starts_on"])
        check_budget_emails(args["emails"])
        stop_at_percent = args.get("stop_at_percent")
        alarms = plan_budget_alarms(args["alert_percent"], stop_at_percent)
        group = declare_action_group(
            f"{name}-budget", args["emails"], args["resource_group_name"], args["tags"], self._child
        )
        if stop_at_percent is not None:
            self._stop(stop_at_percent)
        budget = self._budget(alarms, group.id)
        self.budget_name = budget.name
        self.topic_id = group.id
        self.register_outputs({"budget_name": self.budget_name, "topic_id": self.topic_id})

    def _stop(self, percent: float) -> None:
        args = self._args
        plan = StopPlan(
            limit_usd=round(args["monthly_usd"] * percent / 100, 2),
            tag_key=args["tag_key"],
            tag_value=args["tag_value"],
            groups=args.get("group_ids", []),
            heads=args.get("head_ids", []),
        )
        declare_stop(
            self._name,
            plan,
            args["subscription_id"],
            args["tag_value"],
            args["resource_group_name"],
            args["location"],
            args["tags"],
            self._child,
            wait_sec=args.get("role_wait_sec", 0),
        )

    def _budget(self, alarms: Sequence[BudgetAlarm], group: pulumi.Output[str]) -> consumption.Budget:
        args = self._args
        scope = pulumi.Output.from_input(args["resource_group_name"]).apply(
            lambda name: group_id(args["subscription_id"], name)
        )
        counted = consumption.BudgetComparisonExpressionArgs(
            name=args["tag_key"], operator=consumption.BudgetOperatorType.IN_, values=[args["tag_value"]]
        )
        return consumption.Budget(
            f"{self._name}-budget",
            scope=scope,
            category=consumption.CategoryType.COST,
            amount=args["monthly_usd"],
            time_grain=consumption.TimeGrainType.MONTHLY,
            time_period=consumption.BudgetTimePeriodArgs(start_date=f"{args['starts_on']}T00:00:00Z"),
            filter=consumption.BudgetFilterArgs(tags=counted),
            notifications={
                alarm.name: consumption.NotificationArgs(
                    enabled=True,
                    operator=consumption.OperatorType.GREATER_THAN_OR_EQUAL_TO,
                    threshold=alarm.threshold,
                    threshold_type=alarm.threshold_type,
                    # The action group writes to them; without it Azure would want them here, and write twice with both.
                    contact_emails=[],
                    contact_groups=[group],
                )
                for alarm in alarms
            },
            # "Start date of budgets cannot be updated. Please delete and create a new budget."
            opts=pulumi.ResourceOptions.merge(
                self._child, pulumi.ResourceOptions(replace_on_changes=["timePeriod.startDate"])
            ),
        )
