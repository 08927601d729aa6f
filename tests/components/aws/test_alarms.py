"""Alarms: when they ring, worked out by evaluating their expressions, and what they ask of AWS."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.aws.alarms import (
    MAX_GROUPS,
    STEPS_ALARM_MINUTES,
    AlarmPlan,
    check_groups,
    check_steps_alarm,
    plan_alarms,
)
from components.findings import InputError

GROUPS = ["demo-0-spot", "demo-1-on-demand"]


def plans() -> dict[str, AlarmPlan]:
    return {plan.name: plan for plan in plan_alarms("/gangway/demo", 30, 3, expect_gpu=True)}


def rings(plan: AlarmPlan, groups: int = 2, **values: float | None) -> bool:
    """Whether one window breaches, by CloudWatch's rules for a missing value (None): 0 in a sum, filled by FILL."""
    ids = [query.id for query in plan.queries("demo", [f"g{index}" for index in range(groups)]) if query.metric]
    assert set(ids) == set(values), "a value for each metric"
    if plan.expression is None:
        (result,) = values.values()
    else:
        text = next(q.expression for q in plan.queries("demo", ["g"] * groups) if q.expression)
        result = evaluate(str(text), values)
    if result is None:
        return False  # treat_missing_data: notBreaching
    return {
        "LessThanThreshold": result < plan.threshold,
        "GreaterThanThreshold": result > plan.threshold,
        "GreaterThanOrEqualToThreshold": result >= plan.threshold,
    }[plan.comparison]


def evaluate(text: str, values: Mapping[str, float | None]) -> float:
    """Metric math of ours, as Python: names become numbers, the two functions become functions."""
    python = text.replace("IF(", "if_(").replace("FILL(", "fill(")
    assert set(re.findall(r"[A-Za-z_]\w*", python)) <= {"if_", "fill", *values}
    functions = {"if_": lambda condition, yes, no: yes if condition else no, "fill": lambda value, _: value}
    numbers = {name: 0.0 if value is None else value for name, value in values.items()}
    return float(eval(python, {"__builtins__": {}}, {**functions, **numbers}))


@pytest.mark.parametrize(
    ("steps", "n0", "n1", "expected"),
    [
        (None, 0, 0, False),  # nothing runs, and nothing ever did
        (None, None, None, False),  # the groups' metrics have not come yet
        (None, 2, 0, True),  # nodes for the whole window, not one line
        (0, 2, 0, True),  # lines, but none of them statistics
        (1, 2, 0, False),
        (None, 0, 2, True),  # the fallback rung counts
        (None, None, 2, True),
        (1, None, None, False),
    ],
)
def test_no_steps_rings_only_on_nodes_that_stay(
    steps: float | None, n0: float | None, n1: float | None, expected: bool
) -> None:
    assert rings(plans()["no-steps"], steps=steps, n0=n0, n1=n1) is expected


def test_no_steps_looks_at_one_window_as_long_as_asked() -> None:
    """Nodes by their Minimum: a node that came up within the window, or a change of rungs, keeps it quiet."""
    plan = plans()["no-steps"]
    assert (plan.period_sec, plan.periods) == (1800, 1)
    assert {metric.id: metric.stat for metric in plan.metrics} == {"steps": "Sum", "n": "Minimum"}


@pytest.mark.parametrize(
    ("wanted", "n0", "n1", "expected"),
    [(2, 2, 0, False), (2, 0, 2, False), (2, 1, 0, True), (4, 0, 2, True), (0, 0, 0, False), (None, None, None, False)],
)
def test_nodes_missing_counts_every_rung(
    wanted: float | None, n0: float | None, n1: float | None, expected: bool
) -> None:
    assert rings(plans()["nodes-missing"], wanted=wanted, n0=n0, n1=n1) is expected


def test_nodes_missing_waits_half_an_hour() -> None:
    plan = plans()["nodes-missing"]
    assert plan.period_sec * plan.periods == 30 * 60


@pytest.mark.parametrize(("busy", "expected"), [(None, False), (0.0, True), (0.09, True), (0.1, False), (0.9, False)])
def test_gpu_idle_needs_a_figure(busy: float | None, expected: bool) -> None:
    plan = plans()["gpu-idle"]
    assert rings(plan, busy=busy) is expected
    assert plan.period_sec * plan.periods == 15 * 60


@pytest.mark.parametrize(("count", "expected"), [(None, False), (3, False), (4, True)])
def test_interruptions_above_the_number_are_told(count: float | None, expected: bool) -> None:
    plan = plans()["interruptions"]
    assert rings(plan, interruptions=count) is expected
    assert plan.period_sec * plan.periods == 3600
    assert plan.description.startswith("For information")


@given(groups=st.integers(1, MAX_GROUPS), minutes=st.sampled_from(STEPS_ALARM_MINUTES), gpu=st.booleans())
def test_every_alarm_is_one_that_aws_takes(groups: int, minutes: int, gpu: bool) -> None:
    names = [f"demo-{index}" for index in range(groups)]
    made = plan_alarms("/gangway/demo", minutes, 3, expect_gpu=gpu)
    assert len(made) == 3 + gpu
    for plan in made:
        queries = plan.queries("demo", names)
        metrics: list[Any] = [query.metric for query in queries if query.metric is not None]
        ids = [str(query.id) for query in queries]
        assert len(metrics) <= 10, "metrics in one alarm's expression"
        assert len(set(ids)) == len(ids)
        assert all(re.fullmatch(r"[a-z]\w*", id_) for id_ in ids)
        assert sum(bool(query.return_data) for query in queries) == 1
        assert {metric.period for metric in metrics} == {plan.period_sec}
        assert plan.period_sec % 60 == 0
        assert plan.period_sec * plan.periods <= 86_400, "the longest window of an alarm"
        assert plan.period_sec * plan.periods >= 600, "late metrics are a small part of the window"
        assert 100 < len(plan.description) <= 1024


def test_every_description_says_what_to_do() -> None:
    words = {"no-steps": "Read the log group /gangway/demo", "gpu-idle": "Look at", "interruptions": "put another"}
    for name, word in {**words, "nodes-missing": "activity history"}.items():
        assert word in plans()[name].description


def test_metrics_are_asked_where_they_are_published() -> None:
    metrics: list[Any] = [query.metric for plan in plans().values() for query in plan.queries("demo", GROUPS)]
    asked = {(m.namespace, m.metric_name, tuple((m.dimensions or {}).values())) for m in metrics if m is not None}
    assert asked == {
        ("Gangway/demo", "Steps", ()),
        ("Gangway/demo", "GpuUtilisation", ()),
        ("Gangway/demo", "Interruptions", ()),
        ("AWS/AutoScaling", "GroupDesiredCapacity", (GROUPS[0],)),
        ("AWS/AutoScaling", "GroupInServiceInstances", (GROUPS[0],)),
        ("AWS/AutoScaling", "GroupInServiceInstances", (GROUPS[1],)),
    }


def test_a_ladder_too_long_for_one_alarm_is_refused() -> None:
    assert check_groups(tuple("abcdefghi")) == list("abcdefghi")
    with pytest.raises(InputError, match="at most 9 rungs"):
        check_groups("abcdefghij")


@pytest.mark.parametrize(("minutes", "fix"), [(0, 10), (9, 10), (1441, 1440)])
def test_a_window_too_short_or_too_long_is_refused(minutes: int, fix: int) -> None:
    with pytest.raises(InputError, match=f"steps_alarm_minutes: {fix}$"):
        check_steps_alarm(minutes)
    check_steps_alarm(fix)
