"""Budget: how many alarms there are, when it begins, and what it counts."""

import datetime
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.budget import (
    API,
    MAX_NOTIFICATIONS,
    PARAMETERS,
    Budget,
    check_starts_on,
    months_ahead,
    plan_budget_alarms,
    stop_definition,
)
from gangway.components.azure.policies import GROUP_WIDE, stop_actions
from gangway.components.core.findings import InputError
from tests.components.fixture_types import Make, Mistakes

percents = st.lists(st.integers(1, 1000).map(float), max_size=8)


@given(percents, st.none() | st.integers(1, 1000).map(float))
def test_a_budget_has_its_alarms_or_says_how_many_are_too_many(alerts: list[float], stop: float | None) -> None:
    wanted = {*alerts, *([] if stop is None else [stop])}
    if len(wanted) + 1 > MAX_NOTIFICATIONS:
        with pytest.raises(InputError) as caught:
            plan_budget_alarms(alerts, stop)
        assert caught.value.fix == f"remove {len(wanted) + 1 - MAX_NOTIFICATIONS}"
        return
    alarms = plan_budget_alarms(alerts, stop)
    assert {alarm.threshold for alarm in alarms if alarm.threshold_type == "Actual"} == wanted
    assert [alarm.threshold for alarm in alarms if alarm.threshold_type == "Forecasted"] == [100]
    assert len({alarm.name for alarm in alarms}) == len(alarms)


@pytest.mark.parametrize("day", ["2026-11-01", "2017-06-01", "2030-01-01"])
def test_a_budget_begins_on_the_first_of_a_month(day: str) -> None:
    check_starts_on(day)


@pytest.mark.parametrize(
    ("day", "fix"),
    [
        ("2026-11-21", "set budget_starts_on: '2026-11-01'"),
        ("2016-01-01", "set budget_starts_on: '2017-06-01'"),
        ("20261101", "set budget_starts_on: '2026-11-01'"),
        ("2026-13-01", "write the first of this month"),
        ("now", "write the first of this month"),
    ],
)
def test_another_day_is_refused_with_one_that_is_right(day: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        check_starts_on(day)
    assert (caught.value.place, caught.value.value, caught.value.fix) == ("gangway:azure.budget_starts_on", day, fix)


@pytest.mark.parametrize(
    ("day", "months"),
    [
        ("2026-11-01", 0),
        ("2026-10-01", -1),
        ("2026-12-01", 1),
        ("2027-11-01", 12),
        ("2027-12-01", 13),
        ("2020-01-01", -82),
    ],
)
def test_how_far_ahead_it_begins(day: str, months: int) -> None:
    assert months_ahead(day, datetime.date(2026, 11, 30)) == months


@pytest.fixture
def args(place: dict[str, Any]) -> dict[str, Any]:
    return {
        **{key: place[key] for key in ("subscription_id", "resource_group_name", "location", "tags")},
        "monthly_usd": 60000.0, "starts_on": "2026-11-01", "emails": ["a@example.com", "b@example.com"],
        "alert_percent": [50.0, 80.0, 100.0], "tag_key": "gangway-stack", "tag_value": "demo",
    }  # fmt: skip


def test_what_counts_and_who_hears(make: Make, args: dict[str, Any], arm_mistakes: Mistakes) -> None:
    made = make(Budget, args)
    assert arm_mistakes(made) == []
    budget = made.one("Budget").inputs
    assert budget["scope"] == f"/subscriptions/{args['subscription_id']}/resourceGroups/gangway-demo"
    assert budget["filter"] == {"tags": {"name": "gangway-stack", "operator": "In", "values": ["demo"]}}
    assert budget["timePeriod"] == {"startDate": "2026-11-01T00:00:00Z"}
    assert (budget["amount"], budget["timeGrain"], budget["category"]) == (60000, "Monthly", "Cost")
    told = budget["notifications"]
    assert set(told) == {"actual-50", "actual-80", "actual-100", "forecasted-100"}
    assert all(it["contactGroups"] == ["${ActionGroup.demo-budget.id}"] for it in told.values())
    assert told["forecasted-100"]["thresholdType"] == "Forecasted"
    people = made.one("ActionGroup").inputs["emailReceivers"]
    assert [person["emailAddress"] for person in people] == ["a@example.com", "b@example.com"]
    assert not made.of("Workflow")


@pytest.mark.parametrize(("starts_on", "ignored"), [(None, ("timePeriod.startDate",)), ("2026-11-01", ())])
def test_without_a_start_it_begins_in_the_month_of_creation_and_stays(
    make: Make, args: dict[str, Any], monkeypatch: pytest.MonkeyPatch, starts_on: str | None, ignored: tuple[str, ...]
) -> None:
    monkeypatch.setattr("gangway.components.azure.budget.this_month", lambda: datetime.date(2027, 2, 1))
    budget = make(Budget, {**args, "starts_on": starts_on}).one("Budget")
    assert budget.inputs["timePeriod"] == {"startDate": f"{starts_on or '2027-02-01'}T00:00:00Z"}
    assert budget.ignore_changes == ignored


def test_the_stop_of_a_long_name_fits(declare: Make, args: dict[str, Any]) -> None:
    long = "a-stack-with-a-name-of-forty-characters-"[:39] + "x"
    made = declare(lambda: Budget(long, {**args, "stop_at_percent": 120.0}))  # type: ignore[typeddict-item]  # a dict
    assert len(made.one("Workflow").name) + len("12345678") <= 43


def test_a_budget_writes_to_somebody(make: Make, args: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"gangway:budget\.emails"):
        make(Budget, {**args, "emails": []})


def test_a_stop_knows_its_limit_and_what_to_stop(make: Make, args: dict[str, Any], arm_mistakes: Mistakes) -> None:
    made = make(Budget, {**args, "stop_at_percent": 120.0, "group_ids": ["/set"], "head_ids": ["/head"]})
    assert arm_mistakes(made) == []
    assert "actual-120" in made.one("Budget").inputs["notifications"]
    workflow = made.one("Workflow")
    told = {key: entry["value"] for key, entry in workflow.inputs["parameters"].items()}
    assert told["limit"] == 72000
    assert (told["sets"], told["heads"]) == (["/set"], ["/head"])
    grants = {grant.urn for grant in made.of("RoleAssignment")}
    assert grants
    assert grants <= workflow.dependencies, "it would stop nothing before it may"


COMPUTE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute"
SETS = [f"{COMPUTE}/virtualMachineScaleSets/{name}" for name in ("demo-0-spot", "demo-1-on-demand")]
HEAD = f"{COMPUTE}/virtualMachines/demo-head"
CLUSTER = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/demo"
_WORDS = re.compile(r"\s*('(?:[^']|'')*'|[A-Za-z_]+|-?\d+(?:\.\d+)?|[(),\[\]])")


class RefusedError(Exception):
    """A call that the API did not take."""


class Expression:
    """An expression of Logic Apps: functions, strings, numbers, and what is in brackets behind them."""

    def __init__(self, text: str, functions: dict[str, Callable[..., Any]]) -> None:
        self.words, self.functions = _WORDS.findall(text), functions
        assert "".join(self.words) == text.replace(" ", ""), f"unknown words in {text}"

    def value(self) -> Any:
        result = self._term()
        assert not self.words, f"{self.words} left over"
        return result

    def _term(self) -> Any:
        word = self.words.pop(0)
        if word.startswith("'"):
            result: Any = word[1:-1].replace("''", "'")
        elif word[0].isdigit() or word[0] == "-":
            result = float(word)
        else:
            result = self.functions[word](*self._arguments())
        while self.words[:1] == ["["]:
            self.words.pop(0)
            key = self._term()
            assert self.words.pop(0) == "]"
            result = result[key]
        return result

    def _arguments(self) -> list[Any]:
        assert self.words.pop(0) == "("
        found = []
        while self.words[0] != ")":
            found.append(self._term())
            if self.words[0] == ",":
                self.words.pop(0)
        self.words.pop(0)
        return found


class LogicApp:
    """Runs a definition once. `api` answers calls, and raises RefusedError for those it does not take."""

    def __init__(self, definition: dict[str, Any], parameters: dict[str, Any], api: Make) -> None:
        assert set(definition["parameters"]) == set(parameters)
        self.definition, self.parameters, self.api = definition, parameters, api
        self.bodies: dict[str, Any] = {}
        self.item: Any = None

    def run(self) -> str:
        return self._actions(self.definition["actions"])

    def _actions(self, actions: dict[str, Any]) -> str:
        """Each action after those it waits for, if they ended as it wishes. Failed when a last one failed."""
        states: dict[str, str] = {}
        while len(states) < len(actions):
            ready = [n for n, a in actions.items() if n not in states and set(a.get("runAfter", {})) <= set(states)]
            assert ready, "a circle"
            for name in ready:
                after = actions[name].get("runAfter", {})
                wanted = all(states[other] in ends for other, ends in after.items())
                states[name] = self._action(name, actions[name]) if wanted else "Skipped"
        waited = {other for action in actions.values() for other in action.get("runAfter", {})}
        ends = [state for name, state in states.items() if name not in waited]
        return "Failed" if "Failed" in states.values() or set(ends) == {"Skipped"} else "Succeeded"

    def _action(self, name: str, action: dict[str, Any]) -> str:
        if action["type"] == "Http":
            try:
                self.bodies[name] = self.api(**self._known(action["inputs"]))
            except RefusedError:
                return "Failed"
            return "Succeeded"
        if action["type"] == "Foreach":
            ends = []
            for item in self._known(action["foreach"]):
                self.item = item
                ends.append(self._actions(action["actions"]))
            return "Failed" if "Failed" in ends else "Succeeded"
        assert action["type"] == "If"
        ((operator, sides),) = action["expression"].items()
        assert operator == "greaterOrEquals"
        left, right = self._known(sides)
        return self._actions(action["actions"] if left >= right else action["else"]["actions"])

    def _known(self, value: Any) -> Any:
        """`value` with its expressions evaluated: a string that begins with @ is one, @{...} stands in a string."""
        if isinstance(value, dict):
            return {key: self._known(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._known(item) for item in value]
        if not isinstance(value, str):
            return value
        if value.startswith("@") and not value.startswith("@{"):
            return self._evaluated(value[1:])
        return re.sub(r"@\{([^}]*)\}", lambda found: str(self._evaluated(found[1])), value)

    def _evaluated(self, text: str) -> Any:
        functions: dict[str, Callable[..., Any]] = {
            "parameters": self.parameters.__getitem__,
            "body": self.bodies.__getitem__,
            "item": lambda: self.item,
            "coalesce": lambda *values: next((value for value in values if value is not None), None),
            "createArray": lambda *values: list(values),
            "first": lambda rows: rows[0] if rows else None,
            "setProperty": lambda thing, key, new: {**thing, key: new},
        }
        return Expression(text, functions).value()


class Azure:
    """What the workflow calls: costs, scale sets, the head. `broken` addresses are refused."""

    def __init__(self, rows: list[list[Any]], broken: str = "nothing") -> None:
        self.rows, self.broken = rows, broken
        self.calls: list[tuple[str, str]] = []
        self.asked: Any = None
        self.skus = {name: {"name": "Standard_ND96isr_H100_v5", "tier": "Standard", "capacity": 2} for name in SETS}

    def __call__(
        self,
        method: str,
        uri: str,
        authentication: dict[str, str],
        retryPolicy: Any,  # noqa: N803 - the language's own word
        body: Any = None,
    ) -> Any:
        assert authentication == {
            "type": "ManagedServiceIdentity", "identity": "/identity", "audience": "https://management.azure.com/",
        }  # fmt: skip
        assert retryPolicy["count"] > 0
        address, _, version = uri.removeprefix(API).partition("?api-version=")
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", version)
        if self.broken in address:
            raise RefusedError(address)
        self.calls.append((method, address))
        if address.endswith("/query"):
            self.asked = body
            return {"properties": {"columns": [{"name": "Cost"}, {"name": "Currency"}], "rows": self.rows}}
        if method == "GET":
            return {"sku": self.skus[address]}
        if method == "PATCH":
            self.skus[address] = body["sku"]
        return None


def run(azure: Azure) -> str:
    told = {
        "clusters": [CLUSTER],
        "group": "/subscriptions/s/resourceGroups/g",
        "heads": [HEAD],
        "identity": "/identity",
        "limit": 100.0,
        "sets": SETS,
    }
    assert set(told) == set(PARAMETERS)
    return LogicApp(stop_definition("gangway-stack", "demo"), told, azure).run()


@pytest.mark.parametrize("rows", [[], [[99.99, "USD"]]])
def test_enough_left_and_nothing_happens(rows: list[list[Any]]) -> None:
    azure = Azure(rows)
    assert run(azure) == "Succeeded"
    assert azure.calls == [("POST", "/subscriptions/s/resourceGroups/g/providers/Microsoft.CostManagement/query")]


@pytest.mark.parametrize("spent", [100.0, 170.5])
def test_used_up_and_everything_is_stopped_the_head_first(spent: float) -> None:
    azure = Azure([[spent, "USD"]])
    assert run(azure) == "Succeeded"
    assert azure.calls[1] == ("POST", f"{HEAD}/deallocate")
    assert [sku["capacity"] for sku in azure.skus.values()] == [0, 0]
    assert {sku["name"] for sku in azure.skus.values()} == {"Standard_ND96isr_H100_v5"}, "the rest stays"


def test_it_counts_what_the_budget_counts() -> None:
    azure = Azure([])
    run(azure)
    assert azure.asked["timeframe"] == "MonthToDate"
    assert azure.asked["dataset"]["filter"] == {"tags": {"name": "gangway-stack", "operator": "In", "values": ["demo"]}}


@pytest.mark.parametrize("broken", ["demo-head", "demo-0-spot"])
def test_what_cannot_be_stopped_leaves_nothing_else_on(broken: str) -> None:
    azure = Azure([[500.0, "USD"]], broken)
    assert run(azure) == "Failed", "a run that fails shows"
    assert azure.skus[SETS[1]]["capacity"] == 0
    assert azure.skus[SETS[0]]["capacity"] == (2 if broken == "demo-0-spot" else 0)


def test_costs_that_are_not_told_stop_nothing() -> None:
    azure = Azure([[500.0, "USD"]], "query")
    assert run(azure) == "Failed"
    assert azure.calls == []


def test_each_call_is_one_that_its_role_allows() -> None:
    allowed = stop_actions()
    for needed in ("virtualMachineScaleSets/read", "virtualMachineScaleSets/write",
                   "virtualMachines/deallocate/action"):  # fmt: skip
        assert f"Microsoft.Compute/{needed}" in allowed


def test_nothing_from_outside_starts_it() -> None:
    (trigger,) = stop_definition("k", "v")["triggers"].values()
    assert trigger == {"type": "Recurrence", "recurrence": {"frequency": "Hour", "interval": 1}}


def test_a_cluster_is_stopped_whole() -> None:
    azure = Azure([[500.0, "USD"]])
    assert run(azure) == "Succeeded"
    assert ("POST", f"{CLUSTER}/stop") in azure.calls
    broken = Azure([[500.0, "USD"]], "managedClusters")
    assert run(broken) == "Failed"
    assert [sku["capacity"] for sku in broken.skus.values()] == [0, 0], "the rest is stopped all the same"


def test_the_stop_of_a_cluster_may_stop_clusters_alone() -> None:
    assert set(stop_actions(clusters=True)) == {
        "Microsoft.ContainerService/managedClusters/read",
        "Microsoft.ContainerService/managedClusters/stop/action",
    }
    assert set(stop_actions(clusters=True)) <= GROUP_WIDE.keys()
