"""The budget: who counts, who hears, and that the body is one of the API."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.gcp.budget import (
    PAUSE_PERMISSIONS,
    POOL_PERMISSIONS,
    STOP_PERMISSIONS,
    Budget,
    BudgetAlarm,
    plan_amount,
    plan_budget_alarms,
    stop_source,
    units_and_nanos,
)
from gangway.components.gcp.identity import GROUP_PERMISSIONS, PROJECT_WIDE
from tests.components.fixture_types import Make, Mistakes


@pytest.fixture
def args(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "project": "lab",
        "project_number": "123456789012",
        "billing_account": "012345-6789AB-CDEF01",
        "region": "us-east5",
        "monthly_usd": 1500.25,
        "emails": ["a@example.com", "b@example.com"],
        "alert_percent": [50, 80, 100],
        "stop_at_percent": None,
        "tag_key": "gangway-stack",
        "tag_value": "demo",
        "tags": labels,
    }


def test_alarms_at_each_percentage_and_one_on_the_forecast() -> None:
    forecast = BudgetAlarm(100, "FORECASTED_SPEND")
    spent = [BudgetAlarm(percent, "CURRENT_SPEND") for percent in (50, 80, 100)]
    assert plan_budget_alarms([100, 50, 80]) == [*spent, forecast]
    assert plan_budget_alarms([50, 80], 100) == [*spent, forecast], "people hear of the stop"


def test_the_budget_is_one_of_the_api(make: Make, args: Any, api_mistakes: Mistakes) -> None:
    budget = make(Budget, args).one("Budget").inputs
    assert budget["billingAccount"] == "012345-6789AB-CDEF01"
    assert budget["budgetFilter"] == {
        "calendarPeriod": "MONTH",
        "projects": ["projects/123456789012"],
        "labels": {"gangway-stack": "demo"},
    }
    assert [rule["thresholdPercent"] for rule in budget["thresholdRules"]] == [0.5, 0.8, 1, 1]
    told = budget["allUpdatesRule"]
    body = {
        "displayName": budget["displayName"],
        "amount": budget["amount"],
        # The provider makes a list of the one value.
        "budgetFilter": {**budget["budgetFilter"], "labels": {"gangway-stack": ["demo"]}},
        "thresholdRules": budget["thresholdRules"],
        "notificationsRule": told,
    }
    assert api_mistakes("billingbudgets.v1", "GoogleCloudBillingBudgetsV1Budget", body) == []
    assert budget["amount"]["specifiedAmount"] == {"currencyCode": "USD", "units": "1500", "nanos": 250_000_000}


def test_people_and_the_topic_hear_of_it(make: Make, args: Any, labels: dict[str, str]) -> None:
    made = make(Budget, {**args, "kms_key_name": "key"})
    channels, topic = made.of("NotificationChannel"), made.one("Topic")
    assert [c.inputs["labels"] for c in channels] == [{"email_address": email} for email in args["emails"]]
    assert {c.inputs["type"] for c in channels} == {"email"}
    assert all(c.inputs["userLabels"] == labels for c in channels)
    assert (topic.inputs["kmsKeyName"], topic.inputs["labels"]) == ("key", labels)
    told = made.one("Budget").inputs["allUpdatesRule"]
    assert told["pubsubTopic"] == topic.id
    assert told["monitoringNotificationChannels"] == [c.id for c in channels]
    assert told["disableDefaultIamRecipients"] is True
    assert not made.of("Workflow")


def test_what_others_take_of_it(declare_seen: Make, args: Any) -> None:
    seen = declare_seen(Budget, args).seen
    assert seen == {"topic_id": "${Topic.demo-budget.id}", "budget_name": "${Budget.demo-budget.name}"}


def test_more_addresses_than_a_budget_takes(make: Make, args: Any) -> None:
    with pytest.raises(InputError, match="more addresses") as caught:
        make(Budget, {**args, "emails": [f"{n}@example.com" for n in range(7)]})
    assert caught.value.fix == "remove 2, or write to a group's address"


@pytest.mark.parametrize("wrong", ["012345-6789ab-cdef01", "billingAccounts/012345-6789AB-CDEF01", "x", ""])
def test_what_is_no_billing_account(make: Make, args: Any, wrong: str) -> None:
    with pytest.raises(InputError, match="not the id of a billing account") as caught:
        make(Budget, {**args, "billing_account": wrong})
    assert caught.value.place == "gangway:budget.billing_account"


def test_a_billing_account_in_another_currency_has_a_limit_in_it(make: Make, args: Any) -> None:
    """Dollars under another code would be another limit: 160000 JPY for 160000 USD."""
    budget = make(Budget, {**args, "currency": "JPY", "monthly_amount": 230000}).one("Budget").inputs
    assert budget["amount"]["specifiedAmount"] == {"currencyCode": "JPY", "units": "230000", "nanos": 0}
    assert plan_amount(1500.25) == ("USD", 1500.25)
    assert plan_amount(1500, "EUR", 1380.5) == ("EUR", 1380.5)


@pytest.mark.parametrize(
    ("currency", "amount", "place", "fix"),
    [
        ("EUR", None, "gangway:gcp", "add monthly_amount"),
        (None, 5.0, "gangway:gcp", "add currency: EUR, or the one of the account"),
        ("USD", 5.0, "gangway:gcp.currency", "leave currency and monthly_amount out"),
        ("euro", 5.0, "gangway:gcp.currency", "write currency: EUR, or the account's"),
    ],
)
def test_a_currency_that_is_half_told(currency: str | None, amount: float | None, place: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_amount(1500, currency, amount, "gangway:gcp")
    assert (caught.value.place, caught.value.fix) == (place, fix)


@given(st.decimals(min_value="0.01", max_value="10000000", places=2))
def test_money_is_exact_to_the_cent(usd: Any) -> None:
    units, nanos = units_and_nanos(float(usd))
    assert int(units) * 10**9 + nanos == int(usd * 10**9)
    assert 0 <= nanos < 10**9


ZONE = "projects/lab/zones/us-east5-a"
SCHEDULE = "projects/lab/locations/us-east5/jobs/gan-slices"
ZONE_URL = f"https://compute.googleapis.com/compute/v1/{ZONE}"


@dataclass
class Stop:
    """The workflow, and what it meets.

    Attributes:
        flow: the interpreter of `tests/cloud_workflows.py`.
        language: that module.
        answers: what a GET gives, by URL.
        broken: URLs that fail, and with which status.
    """

    language: Any
    environment: dict[str, str]
    answers: dict[str, Any] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.flow = self.language.Interpreter(stop_source(), self.environment, self._send)

    def _send(self, _method: str, url: str, _query: Any, _body: Any) -> Any:
        if url in self.broken:
            raise self.language.Raised(self.language.Fields(code=self.broken[url]))
        return self.answers.get(url, {})

    def run(self, spent: float) -> Any:
        return self.flow.run("main", self.language.readable(message(spent)))

    @property
    def calls(self) -> list[tuple[str, str, dict[str, Any]]]:
        calls: list[tuple[str, str, dict[str, Any]]] = self.flow.calls
        return calls


def message(spent: float, budget: float = 1000.0) -> dict[str, Any]:
    """What Eventarc hands over for a message of the budget."""
    told = {"budgetDisplayName": "gangway-demo", "costAmount": spent, "budgetAmount": budget, "currencyCode": "USD"}
    data = base64.b64encode(json.dumps(told).encode()).decode()
    return {"data": {"message": {"data": data, "attributes": {"billingAccountId": "x"}}}}


@pytest.fixture
def workflow(workflow_language: Any) -> Stop:
    lists = {
        "GROUPS": [f"{ZONE}/instanceGroupManagers/{name}" for name in ("demo-0-spot", "demo-1-flex")],
        "HEADS": [f"{ZONE}/instances/demo-head"],
        "NODE_POOLS": [],
        "QUEUED_RESOURCES": ["projects/lab/locations/us-east5-a/queuedResources/gan"],
        "SCHEDULES": [SCHEDULE],
    }
    environment = {key: json.dumps(names) for key, names in lists.items()}
    return Stop(workflow_language, {**environment, "STOP_PERCENT": "100"})


EMPTY = [
    ("POST", f"{ZONE_URL}/instances/demo-head/stop", {}),
    ("POST", f"https://cloudscheduler.googleapis.com/v1/{SCHEDULE}:pause", {}),
    ("GET", f"{ZONE_URL}/instanceGroupManagers/demo-0-spot/resizeRequests", {}),
    ("POST", f"{ZONE_URL}/instanceGroupManagers/demo-0-spot/resize", {"size": 0}),
    ("GET", f"{ZONE_URL}/instanceGroupManagers/demo-1-flex/resizeRequests", {}),
    ("POST", f"{ZONE_URL}/instanceGroupManagers/demo-1-flex/resize", {"size": 0}),
    (
        "DELETE",
        "https://tpu.googleapis.com/v2/projects/lab/locations/us-east5-a/queuedResources/gan",
        {"force": True},
    ),
]


@pytest.mark.parametrize(("spent", "stops"), [(0.0, False), (999.99, False), (1000.0, True), (5000.0, True)])
def test_it_stops_at_its_share_and_not_before(workflow: Stop, spent: float, stops: bool) -> None:
    assert workflow.run(spent) == ("stopped" if stops else "below")
    assert workflow.calls == (EMPTY if stops else [])


@pytest.mark.parametrize(("percent", "spent", "stops"), [("120", 1199, False), ("120", 1200, True), ("80", 800, True)])
def test_the_share_is_the_stack_files(workflow: Stop, percent: str, spent: float, stops: bool) -> None:
    workflow.flow.environment = {**workflow.environment, "STOP_PERCENT": percent}
    assert workflow.run(spent) == ("stopped" if stops else "below")


def test_nodes_still_waited_for_are_given_up(workflow: Stop) -> None:
    url = f"{ZONE_URL}/instanceGroupManagers/demo-1-flex"
    requests = [{"name": "a", "state": "SUCCEEDED"}, {"name": "b", "state": "ACCEPTED"}]
    workflow.answers[f"{url}/resizeRequests"] = {"items": requests}
    workflow.run(2000)
    of_the_group = [call for call in workflow.calls if call[1].startswith(url)]
    assert of_the_group == [
        ("GET", f"{url}/resizeRequests", {}),
        ("POST", f"{url}/resizeRequests/b/cancel", {}),
        ("POST", f"{url}/resize", {"size": 0}),
    ]


@pytest.mark.parametrize("index", [0, 1, 3, 4, 6])
def test_one_part_that_fails_leaves_no_other_undone(workflow: Stop, index: int) -> None:
    workflow.broken[EMPTY[index][1]] = 403
    with pytest.raises(workflow.language.Raised, match="not stopped"):
        workflow.run(2000)
    left_out = {5} if index == 4 else set()
    assert workflow.calls == [call for place, call in enumerate(EMPTY) if place not in left_out]


def test_a_schedule_that_is_paused_already_is_no_failure(workflow: Stop) -> None:
    workflow.broken[EMPTY[1][1]] = 400
    assert workflow.run(2000) == "stopped"
    assert workflow.calls == EMPTY


POOLS = [f"projects/lab/locations/us-east5/clusters/demo/nodePools/{name}" for name in ("demo-0-spot", "demo-1")]
CONTAINER = "https://container.googleapis.com/v1/"
OPERATION = f"{CONTAINER}projects/42/locations/us-east5/operations/operation-1"


def shrinking(workflow: Stop, looks: int = 0) -> Stop:
    """Node pools alone, whose changes are done when they have been looked at so often."""
    workflow.flow.environment = {
        **dict.fromkeys(workflow.environment, "[]"), "NODE_POOLS": json.dumps(POOLS), "STOP_PERCENT": "100",
    }  # fmt: skip
    begun = {"selfLink": OPERATION, "status": "RUNNING" if looks else "DONE"}
    for pool in POOLS:
        for change in ("setAutoscaling", "setSize"):
            workflow.answers[f"{CONTAINER}{pool}:{change}"] = begun
    seen = {"left": looks}

    def moment() -> None:
        seen["left"] = seen["left"] - 1 if seen["left"] > 0 else looks
        workflow.answers[OPERATION] = {**begun, "status": "RUNNING" if seen["left"] else "DONE"}

    workflow.flow.moment = moment
    return workflow


def test_node_pools_grow_no_more_and_are_emptied(
    workflow: Stop, published_call: Callable[..., set[str]], api_mistakes: Mistakes
) -> None:
    assert shrinking(workflow).run(2000) == "stopped"
    assert [(method, url) for method, url, _ in workflow.calls] == [
        ("POST", f"{CONTAINER}{pool}:{change}") for pool in POOLS for change in ("setAutoscaling", "setSize")
    ]
    assert all(published_call(*call) for call in workflow.calls)
    for body, schema in zip(
        workflow.flow.bodies, ("SetNodePoolAutoscalingRequest", "SetNodePoolSizeRequest") * 2, strict=True
    ):
        assert api_mistakes("container.v1", schema, body) == []
    assert workflow.flow.bodies[:2] == [{"autoscaling": {"enabled": False}}, {"nodeCount": 0}]


@pytest.mark.slow
@pytest.mark.parametrize("looks", [1, 3])
def test_each_change_of_a_cluster_is_waited_for(
    workflow: Stop, looks: int, published_call: Callable[..., set[str]]
) -> None:
    assert shrinking(workflow, looks).run(2000) == "stopped"
    asked = [url for method, url, _ in workflow.calls if method == "GET"]
    assert asked
    assert set(asked) == {OPERATION}
    assert workflow.flow.slept_sec == 10 * len(asked)
    assert all(published_call(*call) for call in workflow.calls)


def test_a_change_that_never_ends_is_given_up_and_the_next_pool_is_emptied(workflow: Stop) -> None:
    shrinking(workflow)
    workflow.answers[f"{CONTAINER}{POOLS[0]}:setAutoscaling"] = {"selfLink": OPERATION, "status": "RUNNING"}
    workflow.flow.moment = lambda: workflow.answers.update({OPERATION: {"selfLink": OPERATION, "status": "RUNNING"}})
    with pytest.raises(workflow.language.Raised, match="not stopped"):
        workflow.run(2000)
    assert workflow.calls[-1][1] == f"{CONTAINER}{POOLS[1]}:setSize"


def test_it_fits_into_a_workflow(workflow_language: Any) -> None:
    assert len(stop_source().encode()) < 128_000
    flows = yaml.safe_load(stop_source())
    names = [name for flow in flows.values() for name in workflow_language.step_names(flow["steps"])]
    assert len(names) > 10
    assert all(re.fullmatch(r"[a-z_]+", name) for name in names)
    expressions = re.findall(r"\$\{.*\}", stop_source())
    assert all(len(expression) <= 400 for expression in expressions), "the language takes no longer one"


def test_every_request_is_one_of_the_apis(
    workflow: Stop, published_call: Callable[..., set[str]], api_document: Callable[[str], dict[str, Any]]
) -> None:
    url = f"{ZONE_URL}/instanceGroupManagers/demo-1-flex"
    workflow.answers[f"{url}/resizeRequests"] = {"items": [{"name": "b", "state": "ACCEPTED"}]}
    workflow.run(2000)
    for call in workflow.calls:
        assert published_call(*call), call
    states = api_document("compute.v1")["schemas"]["InstanceGroupManagerResizeRequest"]["properties"]["state"]
    assert "ACCEPTED" in states["enum"]


@pytest.fixture
def stop_args(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "project": "lab",
        "project_number": "123456789012",
        "billing_account": "012345-6789AB-CDEF01",
        "region": "us-east5",
        "monthly_usd": 1500,
        "emails": ["a@example.com"],
        "alert_percent": [50],
        "stop_at_percent": 120,
        "group_ids": [f"{ZONE}/instanceGroupManagers/demo-0-spot"],
        "groups_condition": "resource.matchTagId('tagKeys/1', 'tagValues/2')",
        "head_ids": [f"{ZONE}/instances/demo-head"],
        "tag_key": "gangway-stack",
        "tag_value": "demo",
        "tags": labels,
    }


@pytest.fixture
def stopping(make: Make, stop_args: Any) -> Any:
    return make(Budget, stop_args)


def test_the_topic_starts_the_workflow(stopping: Any, api_mistakes: Mistakes) -> None:
    trigger, workflow = stopping.one("Trigger").inputs, stopping.one("Workflow")
    assert trigger["matchingCriterias"] == [
        {"attribute": "type", "value": "google.cloud.pubsub.topic.v1.messagePublished"}
    ]
    assert trigger["transport"] == {"pubsub": {"topic": stopping.one("Topic").id}}
    assert trigger["destination"] == {"workflow": workflow.id}
    assert trigger["serviceAccount"] == workflow.inputs["serviceAccount"] == "${Account.demo-stop.email}"
    body = {key: trigger[key] for key in ("transport", "destination", "serviceAccount", "labels")}
    body["eventFilters"] = trigger["matchingCriterias"]
    assert api_mistakes("eventarc.v1", "Trigger", body) == []


def test_the_workflow_is_the_file_and_its_environment(
    stopping: Any, labels: dict[str, str], api_mistakes: Mistakes
) -> None:
    workflow = stopping.one("Workflow").inputs
    assert workflow["userEnvVars"] == {
        "STOP_PERCENT": "120",
        "GROUPS": '["projects/lab/zones/us-east5-a/instanceGroupManagers/demo-0-spot"]',
        "HEADS": '["projects/lab/zones/us-east5-a/instances/demo-head"]',
        "NODE_POOLS": "[]",
        "QUEUED_RESOURCES": "[]",
        "SCHEDULES": "[]",
    }
    assert set(re.findall(r'sys\.get_env\("(\w+)"\)', stop_source())) == set(workflow["userEnvVars"])
    assert (workflow["sourceContents"], workflow["labels"]) == (stop_source(), labels)
    assert workflow["deletionProtection"] is False
    named = ("sourceContents", "userEnvVars", "serviceAccount", "callLogLevel", "labels")
    assert api_mistakes("workflows.v1", "Workflow", {key: workflow[key] for key in named}) == []


def test_its_account_may_stop_and_no_more(stopping: Any) -> None:
    assert stopping.one("Account").inputs["accountId"] == "demo-stop"
    roles = {role.name: set(role.inputs["permissions"]) for role in stopping.of("IAMCustomRole")}
    assert roles == {"demo-stop": set(STOP_PERMISSIONS), "demo-stop-groups": set(GROUP_PERMISSIONS)}
    assert roles["demo-stop"] <= PROJECT_WIDE.keys()
    conditions = {member.inputs["role"]: member.inputs.get("condition") for member in stopping.of("IAMMember")}
    groups = conditions.pop("${IAMCustomRole.demo-stop-groups.name}")
    assert groups["expression"] == "resource.matchTagId('tagKeys/1', 'tagValues/2')"
    assert conditions == dict.fromkeys(
        ("roles/workflows.invoker", "roles/logging.logWriter", "${IAMCustomRole.demo-stop.name}")
    )


def test_a_stop_that_could_empty_no_group_is_refused(make: Make, stop_args: Any) -> None:
    with pytest.raises(InputError, match="groups_condition"):
        make(Budget, {**stop_args, "groups_condition": None})


def test_the_trigger_waits_for_the_agent_that_acts_for_it(
    make: Make, stop_args: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pulumi_gcp import eventarc

    options: list[Any] = []
    real = eventarc.Trigger

    def noting(name: str, **args: Any) -> Any:
        options.append(args["opts"])
        return real(name, **args)

    monkeypatch.setattr(eventarc, "Trigger", noting)
    agent = make(Budget, stop_args).one("ServiceIdentity")
    assert agent.inputs == {"project": "lab", "service": "eventarc.googleapis.com"}
    (waits,) = options
    assert [type(resource).__name__ for resource in waits.depends_on] == ["ServiceIdentity"]


def test_with_tpus_it_may_delete_them(make: Make, stop_args: Any) -> None:
    tpus = {"queued_resource_names": ["projects/lab/locations/us-east5-a/queuedResources/gan"]}
    args = {**stop_args, **tpus, "schedule_ids": [SCHEDULE], "group_ids": [], "groups_condition": None}
    made = make(Budget, args)
    role = set(made.one("IAMCustomRole").inputs["permissions"])
    assert role == {*STOP_PERMISSIONS, *PAUSE_PERMISSIONS} <= PROJECT_WIDE.keys()
    assert json.loads(made.one("Workflow").inputs["userEnvVars"]["SCHEDULES"]) == [SCHEDULE]
    assert "roles/tpu.admin" in {member.inputs["role"] for member in made.of("IAMMember")}
    assert json.loads(made.one("Workflow").inputs["userEnvVars"]["QUEUED_RESOURCES"]) == args["queued_resource_names"]


def test_with_node_pools_it_may_change_clusters(make: Make, stop_args: Any) -> None:
    made = make(Budget, {**stop_args, "group_ids": [], "groups_condition": None, "node_pool_ids": POOLS})
    role = set(made.one("IAMCustomRole").inputs["permissions"])
    assert role == {*STOP_PERMISSIONS, *POOL_PERMISSIONS} <= PROJECT_WIDE.keys()
    assert json.loads(made.one("Workflow").inputs["userEnvVars"]["NODE_POOLS"]) == POOLS
