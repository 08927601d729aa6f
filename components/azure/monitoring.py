"""NodeLogs and Observability: a Log Analytics table of the nodes' lines; alarms, workbook and action group."""

from collections.abc import Sequence
from typing import Any, NotRequired

import pulumi
from pulumi_azure_native import applicationinsights, monitor, operationalinsights
from pulumi_azure_native.monitor import outputs

from gangway.components.azure.alarms import ALIVE_EVENT, COLUMNS, TABLE, AlarmPlan, plan_alarms, statistics
from gangway.components.azure.common import CommonArgs, common_inputs, replacing
from gangway.components.azure.names import guid
from gangway.components.core.dependencies import after
from gangway.components.core.findings import InputError
from gangway.components.core.limits import check_within
from gangway.components.core.outputs import register_outputs

# Microsoft.Consumption/budgets: addresses per notification.
MAX_BUDGET_EMAILS = 50
# Prefix of each message and subject; Azure allows 12 characters.
SHORT_NAME = "gangway"
DAY_MS = 24 * 3600 * 1000
NEWEST_LINES = 200
# Retention of a pay-as-you-go workspace; the first month is free.
RETENTION_DAYS = range(30, 731)
INTERRUPTIONS_PER_HOUR = 3
STREAM = f"Custom-{TABLE.removesuffix('_CL')}"
API_VERSION = "2023-01-01"
FREQUENCY = "PT5M"
# Alarms look back at most this far.
QUERY_RANGE = "P2D"


def check_budget_emails(emails: Sequence[str], place: str = "gangway:budget.emails") -> None:
    """Check the addresses. InputError: none, or more than MAX_BUDGET_EMAILS."""
    if not 1 <= len(emails) <= MAX_BUDGET_EMAILS:
        raise InputError(
            place,
            "a budget of Azure writes to somebody, and to a limited number",
            value=len(emails),
            allowed=f"1 to {MAX_BUDGET_EMAILS} addresses",
            fix="write to a group's address",
        )


def declare_action_group(
    name: str,
    emails: Sequence[str],
    resource_group_name: pulumi.Input[str],
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> monitor.ActionGroup:
    """Declare a group that writes to each address."""
    return monitor.ActionGroup(
        name,
        resource_group_name=resource_group_name,
        location="Global",
        group_short_name=SHORT_NAME,
        enabled=True,
        email_receivers=[
            monitor.MicrosoftCommonEmailReceiverArgs(
                name=f"person-{position}", email_address=email, use_common_alert_schema=True
            )
            for position, email in enumerate(emails)
        ],
        tags=tags,
        opts=opts,
    )


Item = dict[str, Any]


def plan_dashboard(stack: str, location: str) -> dict[str, Any]:
    """The workbook before JSON encoding. It queries the workspace it belongs to."""
    counted = '"interrupt", "checkpoint"', '"node-given-up", "job-ended"'
    items = [
        _text(stack, location),
        _chart("images", "Images per second", _average("images_per_sec")),
        _chart("gpu", "GPU utilisation, share of time", _average("gpu_utilisation")),
        _chart(
            "nodes",
            "Nodes",
            f'{TABLE} | where Role == "node" and Event == "{ALIVE_EVENT}"'
            " | summarize Nodes = dcount(Node) by bin(TimeGenerated, 5m)",
        ),
        _chart(
            "events",
            "Interruptions, checkpoints, nodes given up, jobs ended",
            f"{TABLE} | extend Printed = tostring(Line.printed.event)"
            f" | where Event in ({counted[1]}) or Printed in ({counted[0]})"
            " | summarize Times = count() by coalesce(Event, Printed), bin(TimeGenerated, 5m)",
        ),
        _query(
            "newest",
            "Newest lines",
            f'{TABLE} | where Event != "{ALIVE_EVENT}" | top {NEWEST_LINES} by TimeGenerated desc'
            " | project TimeGenerated, Node, Unit, Event, Line",
            "table",
        ),
    ]
    return {"version": "Notebook/1.0", "items": items, "styleSettings": {}}


def _average(field: str) -> str:
    mean = f"avg(todouble(Line.printed.{field}))"
    return f"{TABLE} | where {statistics(field)} | summarize {mean} by bin(TimeGenerated, 1m)"


def _text(stack: str, location: str) -> Item:
    content = (
        f"# {stack}\nGangway in {location}, table `{TABLE}`. Traffic over InfiniBand bypasses the network metrics of "
        "the machines; the trainer's images per second show what the fabric is worth."
    )
    return {"type": 1, "name": "heading", "content": {"json": content}}


def _chart(name: str, title: str, query: str) -> Item:
    return _query(name, title, query, "timechart")


def _query(name: str, title: str, query: str, visualization: str) -> Item:
    content = {
        "version": "KqlItem/1.0",
        "query": query,
        "size": 0,
        "title": title,
        "timeContext": {"durationMs": DAY_MS},
        # 0 is Log Analytics.
        "queryType": 0,
        "resourceType": "microsoft.operationalinsights/workspaces",
        "visualization": visualization,
    }
    return {"type": 3, "name": name, "content": content}


class NodeLogsArgs(CommonArgs):
    """Inputs of NodeLogs. `retention_days` is 30 to 730."""

    retention_days: int


class ObservabilityArgs(CommonArgs):
    """Inputs of Observability. `workspace_id` is NodeLogs', whose table must exist before alarms refer to it.
    `num_nodes` is the total of all scale sets. `steps_alarm_minutes` must exceed a node's time from boot to the first
    statistics line; None for a job without steps. `expect_gpu`: alarm on idle GPUs. `emails` get every alarm.
    `interruptions_per_hour` (3): alarm above it.
    """

    subscription_id: str
    stack: str
    workspace_id: pulumi.Input[str]
    num_nodes: int
    emails: list[str]
    steps_alarm_minutes: int | None
    expect_gpu: bool
    interruptions_per_hour: NotRequired[int]


def check_retention(days: int, place: str = "retention_days") -> None:
    """Check the retention. InputError: outside RETENTION_DAYS."""
    check_within(days, RETENTION_DAYS, place, "Log Analytics does not keep lines for so many days")


class NodeLogs(pulumi.ComponentResource):
    """The table of a stack's lines, and its ingestion. `workspace_id` waits for the table; `data_collection_rule_id`:
    machines get rights on it; `ingestion_url`: takes a POSTed JSON list of rows, with a token for
    `https://monitor.azure.com/`.
    """

    workspace_id: pulumi.Output[str]
    data_collection_rule_id: pulumi.Output[str]
    ingestion_url: pulumi.Output[str]

    def __init__(self, name: str, args: NodeLogsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:NodeLogs", name, None, replacing(opts))
        check_retention(args["retention_days"])
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        workspace = self._workspace()
        table = self._table(workspace)
        endpoint = monitor.DataCollectionEndpoint(
            f"{name}-lines",
            **common_inputs(args),
            network_acls=monitor.DataCollectionEndpointNetworkAclsArgs(
                public_network_access=monitor.KnownPublicNetworkAccessOptions.ENABLED
            ),
            opts=self._child,
        )
        rule = self._rule(endpoint, after(workspace.id, table))
        self.workspace_id = after(workspace.id, table)
        self.data_collection_rule_id = rule.id
        self.ingestion_url = pulumi.Output.concat(
            endpoint.logs_ingestion.apply(_address),
            "/dataCollectionRules/",
            rule.immutable_id,
            f"/streams/{STREAM}?api-version={API_VERSION}",
        )
        register_outputs(self)

    def _workspace(self) -> operationalinsights.Workspace:
        return operationalinsights.Workspace(
            f"{self._name}-lines",
            **common_inputs(self._args),
            sku=operationalinsights.WorkspaceSkuArgs(name=operationalinsights.WorkspaceSkuNameEnum.PER_GB2018),
            retention_in_days=self._args["retention_days"],
            features=operationalinsights.WorkspaceFeaturesArgs(disable_local_auth=True),
            opts=self._child,
        )

    def _table(self, workspace: operationalinsights.Workspace) -> operationalinsights.Table:
        # The two APIs spell this type differently.
        spelled = {"datetime": "dateTime"}
        columns = [operationalinsights.ColumnArgs(name=name, type=spelled.get(kind, kind)) for name, kind in COLUMNS]
        return operationalinsights.Table(
            f"{self._name}-lines",
            resource_group_name=self._args["resource_group_name"],
            workspace_name=workspace.name,
            table_name=TABLE,
            plan=operationalinsights.TablePlanEnum.ANALYTICS,
            retention_in_days=self._args["retention_days"],
            schema=operationalinsights.SchemaArgs(name=TABLE, columns=columns),
            opts=self._child,
        )

    def _rule(
        self, endpoint: monitor.DataCollectionEndpoint, workspace_id: pulumi.Output[str]
    ) -> monitor.DataCollectionRule:
        columns = [monitor.ColumnDefinitionArgs(name=name, type=kind) for name, kind in COLUMNS]
        there = "lines"
        return monitor.DataCollectionRule(
            f"{self._name}-lines",
            **common_inputs(self._args),
            data_collection_endpoint_id=endpoint.id,
            stream_declarations={STREAM: monitor.StreamDeclarationArgs(columns=columns)},
            destinations=monitor.DataCollectionRuleDestinationsArgs(
                log_analytics=[monitor.LogAnalyticsDestinationArgs(name=there, workspace_resource_id=workspace_id)]
            ),
            data_flows=[
                monitor.DataFlowArgs(
                    streams=[STREAM], destinations=[there], transform_kql="source", output_stream=f"Custom-{TABLE}"
                )
            ],
            opts=self._child,
        )


def _address(ingestion: outputs.DataCollectionEndpointResponseLogsIngestion | None) -> str:
    """Nothing is sent in a plan, where no address is known."""
    return "" if ingestion is None else ingestion.endpoint


class Observability(pulumi.ComponentResource):
    """Alarms and the workbook of one stack."""

    alarm_names: pulumi.Output[list[str]]
    channel_names: pulumi.Output[list[str]]
    dashboard_id: pulumi.Output[str]

    def __init__(self, name: str, args: ObservabilityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:Observability", name, None, replacing(opts))
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        plans = plan_alarms(
            args["num_nodes"],
            args["steps_alarm_minutes"],
            args.get("interruptions_per_hour", INTERRUPTIONS_PER_HOUR),
            expect_gpu=args["expect_gpu"],
        )
        group = declare_action_group(
            f"{name}-alarms", args["emails"], args["resource_group_name"], args["tags"], self._child
        )
        self.channel_names = pulumi.Output.all(group.id).apply(list)
        self.alarm_names = pulumi.Output.all(*[self._alarm(plan, group).name for plan in plans]).apply(list)
        self.dashboard_id = self._workbook().id
        register_outputs(self)

    def _alarm(self, plan: AlarmPlan, group: monitor.ActionGroup) -> monitor.ScheduledQueryRule:
        args = self._args
        rings = monitor.ConditionArgs(
            query=plan.query,
            time_aggregation=monitor.TimeAggregation.COUNT,
            operator="GreaterThan",
            threshold=0,
            failing_periods=monitor.ConditionFailingPeriodsArgs(
                number_of_evaluation_periods=1, min_failing_periods_to_alert=1
            ),
        )
        return monitor.ScheduledQueryRule(
            f"{self._name}-{plan.name}",
            **common_inputs(args),
            kind=monitor.Kind.LOG_ALERT,
            display_name=f"{args['stack']}: {plan.name}",
            description=plan.description,
            severity=plan.severity,
            enabled=True,
            scopes=[args["workspace_id"]],
            evaluation_frequency=FREQUENCY,
            window_size=FREQUENCY,
            override_query_time_range=QUERY_RANGE,
            criteria=monitor.ScheduledQueryRuleCriteriaArgs(all_of=[rings]),
            auto_mitigate=True,
            actions=monitor.ActionsArgs(action_groups=[group.id]),
            opts=self._child,
        )

    def _workbook(self) -> applicationinsights.Workbook:
        args = self._args
        return applicationinsights.Workbook(
            f"{self._name}-workbook",
            **common_inputs(args),
            # Workbook names are GUIDs.
            resource_name_=guid(args["subscription_id"], args["stack"], "workbook"),
            kind=applicationinsights.WorkbookSharedTypeKind.SHARED,
            category="workbook",
            display_name=f"gangway-{args['stack']}",
            source_id=args["workspace_id"],
            serialized_data=pulumi.Output.json_dumps(plan_dashboard(args["stack"], args["location"])),
            opts=self._child,
        )
