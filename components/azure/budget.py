"""Budget: a monthly limit on the stack's tag, with alarms, and a Logic Apps workflow that can stop the stack."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired

import pulumi
from pulumi_azure_native import consumption, logic

from gangway.components.azure.common import CommonArgs, common_inputs, declare_identity, replacing
from gangway.components.azure.identity import Grantee
from gangway.components.azure.monitoring import check_budget_emails, declare_action_group
from gangway.components.azure.policies import COST_READER, RANDOM_DIGITS, group_id, stop_actions
from gangway.components.core.findings import InputError
from gangway.components.core.outputs import register_outputs
from gangway.components.core.tags import shortened

API = "https://management.azure.com"
COSTS_VERSION, COMPUTE_VERSION, CLUSTER_VERSION = "2023-11-01", "2024-07-01", "2024-09-01"
# Unclear: a copy of Microsoft's naming rules of 2020 says 80, 43 is recalled. A name that fits both.
MAX_WORKFLOW_NAME = 43
_SCHEMA = "https://schema.management.azure.com/providers/Microsoft.Logic/schemas/2016-06-01/workflowdefinition.json#"
PARAMETERS: Mapping[str, str] = {
    "clusters": "Array",
    "group": "String",
    "heads": "Array",
    "identity": "String",
    "limit": "Float",
    "sets": "Array",
}  # the workflow's parameters and types: ids, and dollars
MAX_NOTIFICATIONS = 5
MAX_MONTHS_AHEAD = 12  # latest start of a new budget ("Budgets - Create Or Update"); the earliest is the current month
# The earliest date that Azure accepts.
EARLIEST = datetime.date(2017, 6, 1)


def stop_definition(tag_key: str, tag_value: str) -> dict[str, Any]:
    """The workflow in the language of Logic Apps."""
    rows = "body('spent')['properties']['rows']"
    # No row means no costs. `if` evaluates both branches and would fail.
    spent = f"@first(coalesce(first({rows}), createArray(0)))"
    return {
        "$schema": _SCHEMA,
        "contentVersion": "1.0.0.0",
        "parameters": {name: {"type": kind} for name, kind in PARAMETERS.items()},
        "triggers": {"hourly": {"type": "Recurrence", "recurrence": {"frequency": "Hour", "interval": 1}}},
        "actions": {
            "spent": _ask_costs(tag_key, tag_value),
            "used_up": {
                "type": "If",
                "runAfter": {"spent": ["Succeeded"]},
                "expression": {"greaterOrEquals": [spent, "@parameters('limit')"]},
                "actions": {
                    "halt_heads": _for_each("heads", {"halt": _call("POST", "@{item()}/deallocate")}),
                    # Empty the nodes even if stopping the head fails.
                    "empty_sets": {
                        **_for_each("sets", _empty_set()),
                        "runAfter": {"halt_heads": ["Succeeded", "Failed", "TimedOut"]},
                    },
                    # Stops all machines and the control plane; queued jobs stay queued.
                    "stop_clusters": _for_each(
                        "clusters", {"stop": _call("POST", "@{item()}/stop", version=CLUSTER_VERSION)}
                    ),
                },
                "else": {"actions": {}},
            },
        },
        "outputs": {},
    }


def _ask_costs(tag_key: str, tag_value: str) -> dict[str, Any]:
    """This month's costs: one row with the sum in its first column, or no row."""
    dataset = {
        "granularity": "None",
        "aggregation": {"total": {"name": "Cost", "function": "Sum"}},
        "filter": {"tags": {"name": tag_key, "operator": "In", "values": [tag_value]}},
    }
    address = "@{parameters('group')}/providers/Microsoft.CostManagement/query"
    body = {"type": "ActualCost", "timeframe": "MonthToDate", "dataset": dataset}
    return _call("POST", address, body=body, version=COSTS_VERSION)


def _empty_set() -> dict[str, Any]:
    """Set the scale set's capacity to zero: Azure requires the whole sku."""
    sku = "@setProperty(body('read')['sku'], 'capacity', 0)"
    return {
        "read": _call("GET", "@{item()}"),
        "empty": {**_call("PATCH", "@{item()}", body={"sku": sku}), "runAfter": {"read": ["Succeeded"]}},
    }


def _for_each(parameter: str, actions: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Foreach", "foreach": f"@parameters('{parameter}')", "actions": actions}


def _call(method: str, address: str, *, body: Any = None, version: str = COMPUTE_VERSION) -> dict[str, Any]:
    """A call to Azure's API. It does not wait for accepted operations, which needs rights on the subscription."""
    inputs = {
        "method": method,
        "uri": f"{API}{address}?api-version={version}",
        "authentication": {
            "type": "ManagedServiceIdentity",
            "identity": "@parameters('identity')",
            "audience": f"{API}/",
        },
        "retryPolicy": {"type": "exponential", "count": 4, "interval": "PT20S"},
        **({} if body is None else {"body": body}),
    }
    return {"type": "Http", "inputs": inputs, "operationOptions": "DisableAsyncPattern"}


@dataclass(frozen=True)
class BudgetAlarm:
    """One alarm: percent of the budget, on money spent (Actual) or expected by the month's end (Forecasted)."""

    threshold: float
    threshold_type: str

    @property
    def name(self) -> str:
        """Its name in the budget."""
        return f"{self.threshold_type}-{self.threshold:g}".lower().replace(".", "-")


class BudgetArgs(CommonArgs):
    """Inputs of Budget. `starts_on` is the first of a month, `2026-01-01`: at creation, of this month or one of the
    next twelve; by default the month of creation, and what an existing budget has stays. `tag_key` and `tag_value` (the
    stack) select the costs. At `stop_at_percent` the scale sets of `group_ids` are emptied, the machines of `head_ids`
    stopped (both resource ids), and the clusters of `cluster_ids` stopped. `subscription_wide` (false) counts the tag
    in the whole subscription, such as a cluster's machines in their own group, and needs the right to create budgets
    there. `role_wait_sec` (0): wait for Azure to know the stop's role before assigning it, only in Python programs
    (`gangway.components.azure.identity`).
    """

    subscription_id: str
    monthly_usd: float
    starts_on: NotRequired[str | None]
    emails: list[str]
    alert_percent: list[float]
    stop_at_percent: NotRequired[float | None]
    group_ids: NotRequired[pulumi.Input[list[str]]]
    head_ids: NotRequired[pulumi.Input[list[str]]]
    cluster_ids: NotRequired[pulumi.Input[list[str]]]
    subscription_wide: NotRequired[bool]
    role_wait_sec: NotRequired[float]
    tag_key: str
    tag_value: str


def plan_budget_alarms(
    alert_percent: Sequence[float], stop_at_percent: float | None = None, place: str = "gangway:budget.alert_percent"
) -> list[BudgetAlarm]:
    """Money spent at each percentage, including the stop's, and the forecast of the whole. InputError: too many."""
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
    """Check the date. InputError: no date, not the first of a month, or before EARLIEST."""
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


def this_month() -> datetime.date:
    """The first day of the month."""
    return datetime.datetime.now(datetime.UTC).date().replace(day=1)


def months_ahead(starts_on: str, today: datetime.date) -> int:
    """Months from this one to a budget's start; negative if past. `check_starts_on` has passed it.

    >>> months_ahead("2027-01-01", datetime.date(2026, 11, 21))
    2
    """
    day = datetime.date.fromisoformat(starts_on)
    return (day.year - today.year) * 12 + day.month - today.month


class Budget(pulumi.ComponentResource):
    """A monthly cost budget. Outputs: its name, and the id of the action group that notifies people."""

    budget_name: pulumi.Output[str]
    topic_id: pulumi.Output[str]

    def __init__(self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:Budget", name, None, replacing(opts))
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        if (starts_on := args.get("starts_on")) is not None:
            check_starts_on(starts_on)
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
        register_outputs(self)

    def _scope(self) -> pulumi.Output[str]:
        subscription_id = self._args["subscription_id"]
        if self._args.get("subscription_wide", False):
            return pulumi.Output.from_input(f"/subscriptions/{subscription_id}")
        group = pulumi.Output.from_input(self._args["resource_group_name"])
        return group.apply(lambda name: group_id(subscription_id, name))

    def _stop(self, percent: float) -> None:
        args, child, stack = self._args, self._child, self._args["tag_value"]
        scope, clusters = self._scope(), args.get("cluster_ids", [])
        identity = declare_identity(f"{self._name}-stop", args, child)
        whose = (self._name, "stop", identity.principal_id, args["subscription_id"], stack, child)
        grantee = Grantee(*whose, wait_sec=args.get("role_wait_sec", 0))
        actions = stop_actions(clusters=clusters != [])
        group = args["resource_group_name"]
        grants = [
            grantee.may("costs", COST_READER, scope),
            *grantee.may_do("empty", "empty scale sets at the budget's end", actions, group),
        ]
        values: dict[str, Any] = {
            "clusters": clusters,
            "group": scope,
            "heads": args.get("head_ids", []),
            "identity": identity.id,
            # Monthly costs, in the budget's currency.
            "limit": round(args["monthly_usd"] * percent / 100, 2),
            "sets": args.get("group_ids", []),
        }
        logic.Workflow(
            shortened(f"{self._name}-stop", MAX_WORKFLOW_NAME - RANDOM_DIGITS),
            **common_inputs(args),
            state=logic.WorkflowState.ENABLED,
            definition=stop_definition(args["tag_key"], stack),
            parameters={
                key: logic.WorkflowParameterArgs(type=kind, value=values[key]) for key, kind in PARAMETERS.items()
            },
            identity=logic.ManagedServiceIdentityArgs(
                type=logic.ManagedServiceIdentityType.USER_ASSIGNED, user_assigned_identities=[identity.id]
            ),
            # Without its permissions the workflow would stop nothing.
            opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=grants)),
        )

    def _budget(self, alarms: Sequence[BudgetAlarm], group: pulumi.Output[str]) -> consumption.Budget:
        args, starts_on = self._args, self._args.get("starts_on")
        counted = consumption.BudgetComparisonExpressionArgs(
            name=args["tag_key"], operator=consumption.BudgetOperatorType.IN_, values=[args["tag_value"]]
        )
        return consumption.Budget(
            f"{self._name}-budget",
            scope=self._scope(),
            category=consumption.CategoryType.COST,
            amount=args["monthly_usd"],
            time_grain=consumption.TimeGrainType.MONTHLY,
            time_period=consumption.BudgetTimePeriodArgs(start_date=f"{starts_on or this_month()}T00:00:00Z"),
            filter=consumption.BudgetFilterArgs(tags=counted),
            notifications={
                alarm.name: consumption.NotificationArgs(
                    enabled=True,
                    operator=consumption.OperatorType.GREATER_THAN_OR_EQUAL_TO,
                    threshold=alarm.threshold,
                    threshold_type=alarm.threshold_type,
                    # The action group notifies them; without it Azure requires them here, with both it writes twice.
                    contact_emails=[],
                    contact_groups=[group],
                )
                for alarm in alarms
            },
            # Without a start, each month's `up` declares another one.
            opts=pulumi.ResourceOptions.merge(
                self._child, pulumi.ResourceOptions(ignore_changes=None if starts_on else ["timePeriod.startDate"])
            ),
        )
