"""Budget: a monthly limit on the stack's label, with alarms, and a workflow that can stop its groups and TPUs."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

import pulumi
from pulumi_gcp import billing, eventarc, projects, pubsub, serviceaccount, workflows

from gangway.components.core.findings import InputError
from gangway.components.core.outputs import register_outputs
from gangway.components.gcp.identity import (
    GROUP_PERMISSIONS,
    RolePlan,
    account_id,
    declare_role,
    declare_workflow,
    grant_roles,
    heeded,
)
from gangway.components.gcp.monitoring import check_budget_emails, declare_channels

STOP_PERMISSIONS = ("compute.instanceGroupManagers.list", "compute.instances.stop")  # on the whole project
POOL_PERMISSIONS = ("container.clusters.get", "container.clusters.update", "container.operations.get")  # for node pools
PAUSE_PERMISSIONS = ("cloudscheduler.jobs.get", "cloudscheduler.jobs.pause")  # more for the reconciler of TPU slices
MESSAGE = "google.cloud.pubsub.topic.v1.messagePublished"
_CURRENCY = re.compile(r"[A-Z]{3}")
_BILLING_ACCOUNT = re.compile(r"[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}")


def stop_source() -> str:
    """The workflow's source."""
    return Path(__file__).with_name("stop_groups.yaml").read_text("utf-8")


@dataclass(frozen=True)
class BudgetAlarm:
    """One alarm: percent of the budget, on money spent (CURRENT_SPEND) or expected by its end (FORECASTED_SPEND)."""

    threshold: float
    spend_basis: str


class BudgetArgs(TypedDict):
    """Inputs of Budget. `project_number` is the number of `project`. Google takes only the billing account's currency:
    if it is not the dollar, `currency` is its ISO 4217 code and `monthly_amount` replaces `monthly_usd`. `tag_key` and
    `tag_value` (the stack) select the costs. At `stop_at_percent` the groups of `group_ids` and node pools of
    `node_pool_ids` are emptied, the TPUs of `queued_resource_names` deleted, the schedules of `schedule_ids` paused and
    the instances of `head_ids` stopped (full names, `projects/...`). It may empty groups only under `groups_condition`,
    GroupTag's. `grant_wait_sec` (0): wait for Google to apply the trigger's agent, only in Python programs
    (`gangway.components.core.settling`).
    """

    project: pulumi.Input[str]
    project_number: pulumi.Input[str]
    billing_account: str
    region: str
    monthly_usd: float
    currency: NotRequired[str | None]
    monthly_amount: NotRequired[float | None]
    emails: list[str]
    alert_percent: list[float]
    stop_at_percent: NotRequired[float | None]
    group_ids: NotRequired[pulumi.Input[list[str]]]
    groups_condition: NotRequired[pulumi.Input[str] | None]
    queued_resource_names: NotRequired[pulumi.Input[list[str]]]
    schedule_ids: NotRequired[pulumi.Input[list[str]]]
    head_ids: NotRequired[pulumi.Input[list[str]]]
    node_pool_ids: NotRequired[pulumi.Input[list[str]]]
    tag_key: str
    tag_value: str
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    grant_wait_sec: NotRequired[float]
    tags: dict[str, str]


def plan_budget_alarms(alert_percent: Sequence[float], stop_at_percent: float | None = None) -> list[BudgetAlarm]:
    """Alarms on money spent at each percentage, including the stop's, and on the forecast of the whole."""
    percents = sorted({*alert_percent, *([stop_at_percent] if stop_at_percent is not None else [])})
    return [*(BudgetAlarm(percent, "CURRENT_SPEND") for percent in percents), BudgetAlarm(100, "FORECASTED_SPEND")]


def check_billing_account(billing_account: str, place: str = "gangway:budget.billing_account") -> None:
    """Check the id's form. InputError: not a billing account."""
    if not _BILLING_ACCOUNT.fullmatch(billing_account):
        raise InputError(
            place,
            "not the id of a billing account",
            value=billing_account,
            allowed="three groups of six digits and letters A to F, such as 012345-6789AB-CDEF01",
            fix="copy it from `gcloud billing accounts list`",
        )


def plan_amount(
    monthly_usd: float,
    currency: str | None = None,
    monthly_amount: float | None = None,
    place: str = "gangway:budget",
) -> tuple[str, float]:
    """Currency and limit. InputError: only one of `currency` and `monthly_amount`, no currency code, dollars twice."""
    if currency is None and monthly_amount is None:
        return "USD", monthly_usd
    if currency is None or monthly_amount is None:
        raise InputError(
            place,
            "currency and monthly_amount belong together",
            value=monthly_amount if currency is None else currency,
            allowed="both, or neither for a billing account in dollars",
            fix="add currency: EUR, or the one of the account" if currency is None else "add monthly_amount",
        )
    if not _CURRENCY.fullmatch(currency) or currency == "USD":
        raise InputError(
            f"{place}.currency",
            "not another currency than the dollar",
            value=currency,
            allowed="three capital letters, such as EUR; monthly_usd is for USD",
            fix="leave currency and monthly_amount out"
            if currency == "USD"
            else "write currency: EUR, or the account's",
        )
    return currency, monthly_amount


def units_and_nanos(amount: float) -> tuple[str, int]:
    """Money as in the API: whole units of a currency, and billionths.

    >>> units_and_nanos(1500.25)
    ('1500', 250000000)
    """
    cents = round(amount * 100)
    return str(cents // 100), cents % 100 * 10_000_000


class Budget(pulumi.ComponentResource):
    """A monthly cost budget for one label."""

    budget_name: pulumi.Output[str]
    topic_id: pulumi.Output[str]

    def __init__(self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:Budget", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        check_billing_account(args["billing_account"])
        check_budget_emails(args["emails"])
        topic = self._topic()
        stop_at_percent = args.get("stop_at_percent")
        if stop_at_percent is not None:
            self._stop(topic, stop_at_percent)
        budget = self._budget(plan_budget_alarms(args["alert_percent"], stop_at_percent), topic.id)
        self.budget_name = budget.name
        self.topic_id = topic.id
        register_outputs(self)

    def _topic(self) -> pubsub.Topic:
        """The topic. Creating the budget lets Google publish to it, which needs topics.setIamPolicy."""
        return pubsub.Topic(
            f"{self._name}-budget",
            project=self._args["project"],
            kms_key_name=self._args.get("kms_key_name"),
            labels=self._args["tags"],
            opts=self._child,
        )

    def _stop(self, topic: pubsub.Topic, percent: float) -> None:
        args, label = self._args, f"{self._name}-stop"
        if args.get("groups_condition") is None and args.get("group_ids", []) != []:
            raise InputError(
                "groups_condition",
                "missing: without it the stop may empty none of group_ids",
                allowed="the condition of the GroupTag that the groups carry",
                fix="pass GroupTag's condition, and its bound to GpuNodePool",
            )
        account, grants = self._account(label)
        # Without its permissions the workflow would stop nothing.
        opts = pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(depends_on=grants))
        description = f"{args['tag_value']}: budget used up, nodes end"
        variables = self._environment(percent)
        workflow = declare_workflow(label, args, description, stop_source(), variables, account.email, opts)
        self._trigger(label, topic, workflow, account)

    def _environment(self, percent: float) -> dict[str, pulumi.Input[str]]:
        args = self._args
        lists = {
            "GROUPS": args.get("group_ids", []),
            "HEADS": args.get("head_ids", []),
            "NODE_POOLS": args.get("node_pool_ids", []),
            "QUEUED_RESOURCES": args.get("queued_resource_names", []),
            "SCHEDULES": args.get("schedule_ids", []),
        }
        return {
            "STOP_PERCENT": f"{percent:g}",
            **{key: pulumi.Output.from_input(names).apply(json.dumps) for key, names in lists.items()},
        }

    def _account(self, label: str) -> tuple[serviceaccount.Account, list[pulumi.Resource]]:
        args, project, title = self._args, self._args["project"], f"Gangway {self._args['tag_value']}: stop"
        account = serviceaccount.Account(
            label,
            project=project,
            account_id=account_id(args["tag_value"], "stop"),
            display_name=f"{title} at the budget's end",
            opts=self._child,
        )
        tpus, pools = args.get("queued_resource_names", []) != [], args.get("node_pool_ids", []) != []
        further = (PAUSE_PERMISSIONS if tpus else ()) + (POOL_PERMISSIONS if pools else ())
        plans = {label: RolePlan(title, STOP_PERMISSIONS + further)}
        if (groups := args.get("groups_condition")) is not None:
            plans[f"{label}-groups"] = RolePlan(f"{title}, its groups", GROUP_PERMISSIONS, groups)
        # A workflow logs its errors as its own account.
        roles = ("roles/workflows.invoker", "roles/logging.logWriter", *(("roles/tpu.admin",) if tpus else ()))
        members = grant_roles(label, roles, account, project, self._child)
        own = [declare_role(name, plan, account, project, self._child) for name, plan in plans.items()]
        return account, [*members, *own]

    def _trigger(
        self, label: str, topic: pubsub.Topic, workflow: workflows.Workflow, account: serviceaccount.Account
    ) -> None:
        args = self._args
        # Eventarc acts through an agent that is created on first use: in a new project a trigger would fail.
        agent = projects.ServiceIdentity(
            f"{label}-eventarc", project=args["project"], service="eventarc.googleapis.com", opts=self._child
        )
        # Its grants take minutes to apply.
        waits = heeded(f"{label}-heeded", "Eventarc's agent", [agent], args.get("grant_wait_sec", 0), self._child)
        eventarc.Trigger(
            label,
            project=args["project"],
            location=args["region"],
            matching_criterias=[eventarc.TriggerMatchingCriteriaArgs(attribute="type", value=MESSAGE)],
            transport=eventarc.TriggerTransportArgs(pubsub=eventarc.TriggerTransportPubsubArgs(topic=topic.id)),
            destination=eventarc.TriggerDestinationArgs(workflow=workflow.id),
            service_account=account.email,
            labels=args["tags"],
            opts=pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(depends_on=waits)),
        )

    def _budget(self, alarms: Sequence[BudgetAlarm], topic_id: pulumi.Output[str]) -> billing.Budget:
        args = self._args
        channels = declare_channels(f"{self._name}-budget", args["emails"], args["project"], args["tags"], self._child)
        currency, amount = plan_amount(args["monthly_usd"], args.get("currency"), args.get("monthly_amount"))
        units, nanos = units_and_nanos(amount)
        money = billing.BudgetAmountSpecifiedAmountArgs(currency_code=currency, units=units, nanos=nanos)
        return billing.Budget(
            f"{self._name}-budget",
            billing_account=args["billing_account"],
            display_name=f"gangway-{args['tag_value']}",
            amount=billing.BudgetAmountArgs(specified_amount=money),
            budget_filter=billing.BudgetBudgetFilterArgs(
                calendar_period="MONTH",
                projects=[pulumi.Output.concat("projects/", args["project_number"])],
                labels={args["tag_key"]: args["tag_value"]},
            ),
            threshold_rules=[
                billing.BudgetThresholdRuleArgs(threshold_percent=alarm.threshold / 100, spend_basis=alarm.spend_basis)
                for alarm in alarms
            ],
            all_updates_rule=billing.BudgetAllUpdatesRuleArgs(
                pubsub_topic=topic_id,
                schema_version="1.0",
                monitoring_notification_channels=[channel.id for channel in channels],
                # Only the stack file's addresses: others have their own budgets.
                disable_default_iam_recipients=True,
            ),
            opts=self._child,
        )
