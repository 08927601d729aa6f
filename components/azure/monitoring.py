"""NodeLogs and Observability: a Log Analytics table of the nodes' lines; alarms, workbook and action group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_azure_native import applicationinsights, monitor, operationalinsights
from pulumi_azure_native.monitor import outputs

from gangway.components.azure.common import CommonArgs, common_inputs, replacing
from gangway.components.azure.policies import guid
from gangway.components.core.findings import InputError
from gangway.components.core.limits import check_steps_alarm, check_within
from gangway.components.core.outputs import after, register_outputs

# Alarms as KQL queries, which return rows only when something is wrong. Each node sends ALIVE_EVENT once a minute.

TABLE = "Gangway_CL"  # the table of lines, with the suffix that Azure requires
COLUMNS: Sequence[tuple[str, str]] = (
    ("TimeGenerated", "datetime"),
    ("Node", "string"),
    ("Role", "string"),
    ("Unit", "string"),
    ("Event", "string"),
    ("Line", "dynamic"),
)
"""Time of the line, machine and role (`node` or `head`), systemd unit, `event` of a node's or head's own message (else
empty), and the whole line: text as `{"message": ...}`, and the job's JSON as `{"printed": ...}`, so that a job cannot
forge events.
"""
ALIVE_EVENT = "alive"  # sent by every node once a minute
LOOK_EVENT, REFUSED_EVENT = "ladder-looked", "ladder-refused"  # sent by the head: ladder checked; nodes refused
GPU_IDLE_BELOW = 0.10
# Lines reach the table some minutes late.
DELAY_MINUTES = 5
SLOT_MINUTES, SLOTS = 5, 18
# The head checks the ladder each minute: one failure is transient, a third of a quarter of an hour is not.
LOOKS_FAILED = 5
# Longer than the first node's boot to its first ALIVE_EVENT.
NO_NODE_MINUTES = 30
REFUSALS = 3
_LINES_OF_NODES = f'{TABLE} | where Role == "node" and Event == "{ALIVE_EVENT}"'


@dataclass(frozen=True)
class AlarmPlan:
    """One alarm. `description` is sent to people; any row of `query` (KQL) rings; `severity`: 0 critical to 3 info."""

    name: str
    description: str
    query: str
    severity: int


def plan_alarms(
    num_nodes: int, steps_alarm_minutes: int | None, interruptions_per_hour: int, *, expect_gpu: bool
) -> list[AlarmPlan]:
    """Every alarm; `steps_alarm_minutes` None for a job without steps. InputError: see `check_steps_alarm`."""
    of_steps = []
    if steps_alarm_minutes is not None:
        check_steps_alarm(steps_alarm_minutes)
        of_steps = [_no_steps(steps_alarm_minutes)]
    return [
        *of_steps,
        *([_gpu_idle()] if expect_gpu else []),
        _interruptions(interruptions_per_hour),
        _nodes_missing(num_nodes),
        _no_nodes(),
        _nodes_refused(),
        *(_of_event(*alarm) for alarm in _EVENT_ALARMS),
        _record_at_risk(),
    ]


def statistics(field: str) -> str:
    """Select the job's statistics lines with that field: they have no event."""
    return f"isempty(tostring(Line.printed.event)) and isnotnull(Line.printed.{field})"


def _steps(minutes: int) -> str:
    return f"toscalar({TABLE} | where TimeGenerated > ago({minutes}m) and {statistics('step')} | count)"


def _no_steps(minutes: int) -> AlarmPlan:
    """Rings if a node was there for the whole window, and still is, without a statistics line."""
    window = minutes + DELAY_MINUTES
    return AlarmPlan(
        "no-steps",
        f"No training step for {minutes} minutes, though there are nodes. Read the table's lines from their end: nodes "
        "that are still preparing, a job that waits for others (the head's rendezvous), or a trainer that hangs. A job "
        "that is done and whose nodes stay looks the same: destroy the stack, or set job.terminate_when_done.",
        f"let steps = {_steps(window)};\n"
        f"{_LINES_OF_NODES} and TimeGenerated > ago({window}m)\n"
        "| summarize First = min(TimeGenerated), Last = max(TimeGenerated) by Node\n"
        f"| where First < ago({minutes}m) and Last > ago({2 * DELAY_MINUTES}m) and steps == 0",
        0,
    )


def _gpu_idle() -> AlarmPlan:
    return AlarmPlan(
        "gpu-idle",
        f"Steps are made, but the GPUs were busy for less than {GPU_IDLE_BELOW:.0%} of 15 minutes. Look at images per "
        "second in the workbook: a data loader or a file system that cannot keep up is the usual cause, then a batch "
        "that is too small for the machine type.",
        f"{TABLE} | where TimeGenerated > ago(15m) and {statistics('gpu_utilisation')}\n"
        "| summarize Busy = avg(todouble(Line.printed.gpu_utilisation))\n"
        f"| where Busy < {GPU_IDLE_BELOW}",
        2,
    )


def _interruptions(per_hour: int) -> AlarmPlan:
    return AlarmPlan(
        "interruptions",
        f"For information: training was interrupted more than {per_hour} times in an hour. Nothing is lost but the "
        "work since each checkpoint. If it goes on, choose another zone or machine type, or put a rung of reserved or "
        "on-demand capacity above the spot rung.",
        f'{TABLE} | where TimeGenerated > ago(1h) and tostring(Line.printed.event) == "interrupt"\n'
        "| summarize Times = count()\n"
        f"| where Times > {per_hour}",
        3,
    )


def _nodes_missing(num_nodes: int) -> AlarmPlan:
    """Fewer nodes were up than wanted in a third of the last 90 minutes, since a node that is replaced repeatedly is up
    most of the time. Silent in the first 90 minutes, for a day after a successful job, and if no node ever came.
    """
    minutes = SLOT_MINUTES * SLOTS
    slots = f"range Slot from bin(ago({minutes}m), {SLOT_MINUTES}m) to bin(ago({2 * SLOT_MINUTES}m), {SLOT_MINUTES}m)"
    return AlarmPlan(
        "nodes-missing",
        f"In {minutes // 3} of the last {minutes} minutes there were fewer nodes than wanted, over all rungs. Training "
        "goes on with those that are there, if they are the job's minimum. The activity log of the scale sets says "
        "why: no capacity, a quota, or nodes that give themselves up as unhealthy.",
        f"let began = toscalar({_LINES_OF_NODES} and TimeGenerated > ago(1d) | summarize min(TimeGenerated));\n"
        f'let ended = toscalar({TABLE} | where TimeGenerated > ago(1d) and Event == "job-ended"\n'
        "    and toint(Line.exit_status) == 0 | count);\n"
        f"let steps = {_steps(15)};\n"
        f"let living = {_LINES_OF_NODES} and TimeGenerated > ago({minutes + SLOT_MINUTES}m)\n"
        f"    | summarize Nodes = dcount(Node) by Slot = bin(TimeGenerated, {SLOT_MINUTES}m);\n"
        f"{slots} step {SLOT_MINUTES}m\n"
        "| join kind=leftouter living on Slot\n"
        f"| summarize Missing = countif(coalesce(Nodes, 0) < {num_nodes})\n"
        f"| where Missing >= {SLOTS // 3} and began < ago({minutes}m) and (ended == 0 or steps > 0)",
        1,
    )


def _no_nodes() -> AlarmPlan:
    """Scale sets start empty, so `up` does not fail without capacity, and a missing node sends no events."""
    window = NO_NODE_MINUTES + DELAY_MINUTES
    return AlarmPlan(
        "no-nodes",
        f"For {NO_NODE_MINUTES} minutes the head has asked for nodes, and not one lives; head, NAT gateway and file "
        "system cost meanwhile. In the table the field `reason` of ladder-changed and ladder-refused says what Azure "
        "answers, the scale sets' activity log what became of machines: no capacity (wait, or add a rung, another zone "
        "or region), a quota, or an image or a setting that Azure does not take.",
        f"let living = toscalar({_LINES_OF_NODES} and TimeGenerated > ago({window}m) | count);\n"
        f'{TABLE} | where TimeGenerated > ago({window}m) and Event == "{LOOK_EVENT}"\n'
        "| summarize First = min(TimeGenerated), Last = max(TimeGenerated)\n"
        f"| where First < ago({NO_NODE_MINUTES}m) and Last > ago({2 * DELAY_MINUTES}m) and living == 0",
        1,
    )


def _nodes_refused() -> AlarmPlan:
    return AlarmPlan(
        "nodes-refused",
        "Azure refuses the nodes that the head asks for, and not for want of machines: a quota, a policy, a feature "
        "that is not registered, an image or a size that does not fit. They are asked for again each minute, and will "
        "not come by themselves. In the table the field `reason` of ladder-refused has Azure's own words.",
        f'{TABLE} | where TimeGenerated > ago(15m) and Event == "{REFUSED_EVENT}"\n'
        "| summarize Times = count()\n"
        f"| where Times >= {REFUSALS}",
        1,
    )


# Name, event (and condition) of a node or the head, severity, description.
_EVENT_ALARMS = (
    (
        "node-given-up",
        '"node-given-up"',
        1,
        "A node found itself unfit (GPU, InfiniBand, file system, image) and gave itself up. Its scale set makes "
        "another. If it goes on, read the lines before `node-given-up` in the table: they say what was found.",
    ),
    (
        "launches-held",
        '"launches-held"',
        0,
        "So many nodes gave themselves up that the head asks for none any more. The field `reason` of launches-held in "
        "the table says why the last one gave up, breaker/held.json beside the run's record the same. Mend what it "
        "names, and then run `gangway breaker reset STACK`: the head asks for what is missing.",
    ),
    (
        "job-failed",
        '"job-ended" and toint(Line.exit_status) != 0',
        0,
        "The job ended with an exit status other than 0, and is not started again by itself. Read the end of the "
        "table's lines: status 2 is bad input, 3 a fabric too slow.",
    ),
)


def _of_event(name: str, event: str, severity: int, description: str) -> AlarmPlan:
    return AlarmPlan(name, description, f"{TABLE} | where TimeGenerated > ago(10m) and Event == {event}", severity)


def _record_at_risk() -> AlarmPlan:
    """The head retries by itself while the workers wait, so nothing else would report it."""
    return AlarmPlan(
        "record-at-risk",
        "The head node is not ready (file system, image), it cannot look after the scale sets of the ladder, the run "
        "record could not be put where it outlives the nodes, or nobody could be told that the job has ended, so that "
        "nodes may still come for it. All but the last is tried again, and the workers may be waiting, and cost, "
        "meanwhile. In the table the field `reason` of head-not-ready, ladder-not-kept, record-not-put or end-not-told "
        "says why: mend that, and before a destroy see that the record is in the run bucket.",
        f"{TABLE} | where TimeGenerated > ago(15m)\n"
        '| where Event in ("head-not-ready", "record-not-put", "end-not-told", "ladder-not-kept")\n'
        "| summarize Times = count() by Event\n"
        f'| where Event != "ladder-not-kept" or Times >= {LOOKS_FAILED}',
        0,
    )


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


class WorkspaceArgs(TypedDict):
    """An existing Log Analytics workspace in the region and subscription of the stack."""

    id: str
    name: str
    resource_group_name: str


class NodeLogsArgs(CommonArgs):
    """Inputs of NodeLogs. `retention_days` is 30 to 730. `workspace` gets the table; without, one is created."""

    retention_days: int
    workspace: NotRequired[WorkspaceArgs | None]


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
        given = args.get("workspace")
        workspace_id: pulumi.Input[str]
        if given is None:
            workspace = self._workspace()
            workspace_id, table = workspace.id, self._table(workspace.name, args["resource_group_name"])
        else:
            workspace_id, table = given["id"], self._table(given["name"], given["resource_group_name"])
        endpoint = monitor.DataCollectionEndpoint(
            f"{name}-lines",
            **common_inputs(args),
            network_acls=monitor.DataCollectionEndpointNetworkAclsArgs(
                public_network_access=monitor.KnownPublicNetworkAccessOptions.ENABLED
            ),
            opts=self._child,
        )
        self.workspace_id = after(workspace_id, table)
        rule = self._rule(endpoint, self.workspace_id)
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

    def _table(
        self, workspace_name: pulumi.Input[str], resource_group_name: pulumi.Input[str]
    ) -> operationalinsights.Table:
        # The two APIs spell this type differently.
        spelled = {"datetime": "dateTime"}
        columns = [operationalinsights.ColumnArgs(name=name, type=spelled.get(kind, kind)) for name, kind in COLUMNS]
        return operationalinsights.Table(
            f"{self._name}-lines",
            resource_group_name=resource_group_name,
            workspace_name=workspace_name,
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
