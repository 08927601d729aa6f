"""Budget: how many alarms there are, when it begins, and what it counts."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.budget import MAX_NOTIFICATIONS, Budget, check_starts_on, months_ahead, plan_budget_alarms
from gangway.components.core.findings import InputError

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


def test_what_counts_and_who_hears(
    make: Callable[..., Any], args: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
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


def test_the_stop_of_a_long_name_fits(declare: Callable[..., Any], args: dict[str, Any]) -> None:
    long = "a-stack-with-a-name-of-forty-characters-"[:39] + "x"
    made = declare(lambda: Budget(long, {**args, "stop_at_percent": 120.0}))  # type: ignore[typeddict-item]  # a dict
    assert len(made.one("Workflow").name) + len("12345678") <= 43


def test_a_budget_writes_to_somebody(make: Callable[..., Any], args: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"gangway:budget\.emails"):
        make(Budget, {**args, "emails": []})


def test_a_stop_knows_its_limit_and_what_to_stop(
    make: Callable[..., Any], args: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
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
