"""Alarms: when they ring, worked out minute by minute over whole lives of a stack, and what they ask of AWS."""

import re
from collections.abc import Callable
from itertools import chain, cycle, islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.alarms import MAX_GROUPS, AlarmPlan, check_groups, plan_alarms, plan_no_steps
from gangway.components.aws.monitoring import Observability
from gangway.components.core.findings import InputError
from gangway.components.core.limits import STEPS_ALARM_MINUTES, check_steps_alarm
from tests.components.fixture_types import Make

GROUPS = ["demo-0-spot", "demo-1-on-demand"]
MINUTES = 30
Series = list[float | None]
# First minute in which an alarm rings, or None: for what is reported.
Rings = Callable[..., int | None]


def plans() -> dict[str, AlarmPlan]:
    return {plan.name: plan for plan in plan_alarms("/gangway/demo", MINUTES, 3, expect_gpu=True)}


def span(minutes: int, value: float | None) -> Series:
    return [value] * minutes


def loop(up: int, down: int, minutes: int, nodes: float = 1) -> Series:
    """A node that gives itself up and is replaced, again and again."""
    return list(islice(cycle(span(up, nodes) + span(down, 0)), minutes))


def life(*parts: Series) -> Series:
    return list(chain(*parts))


@pytest.fixture
def states(make: Make, alarm_maths: Any) -> Callable[..., dict[str, list[bool]]]:
    """Every alarm of a stack by its name: its state after each minute, no-steps put together from its parts."""
    made = make(Observability, steps_alarm_minutes=MINUTES)
    declared = {alarm.name.removeprefix("demo-"): alarm.inputs for alarm in made.of("MetricAlarm")}

    def run(wanted: Series, n0: Series, n1: Series | None = None, **trainer: Series) -> dict[str, list[bool]]:
        reported = {
            **trainer,
            "GroupDesiredCapacity test-0-spot": wanted,
            "GroupInServiceInstances test-0-spot": n0,
            "GroupInServiceInstances test-1-on-demand": n1 or span(len(n0), 0),
        }
        found = {name: alarm_maths(inputs).states(reported) for name, inputs in declared.items()}
        parts = [found[name] for name in plan_no_steps("x", MINUTES).parts]
        return {**found, "no-steps": [all(pair) for pair in zip(*parts, strict=True)]}

    return run


@pytest.fixture
def first(states: Callable[..., dict[str, list[bool]]]) -> Rings:
    """The first minute after which an alarm rings."""

    def find(name: str, *groups: Series, **trainer: Series) -> int | None:
        rings = states(*groups, **trainer)[name]
        return rings.index(True) + 1 if True in rings else None

    return find


def test_a_steady_run_is_quiet(states: Any) -> None:
    nodes = span(300, 2)
    steps = life(span(20, None), span(280, 3))
    rung = {name for name, rings in states(nodes, nodes, Steps=steps).items() if any(rings)}
    assert rung == {"steps-absent", "nodes-up"}, "the parts, which tell nobody"


@pytest.mark.parametrize("boot", [0, 12])
def test_a_slow_first_start_is_quiet_for_as_long_as_asked_and_then_rings(first: Any, boot: int) -> None:
    """The metric of steps does not exist yet: FILL has nothing to fill."""
    n0 = life(span(boot, 0), span(200, 2))
    wanted = span(200 + boot, 2)
    assert first("no-steps", wanted, n0, Steps=life(span(boot + 28, None), span(172, 1))) is None
    never = first("no-steps", wanted, n0, Steps=span(200 + boot, None))
    assert never is not None
    assert MINUTES <= never - boot <= 1.5 * MINUTES
    assert first("nodes-missing", wanted, n0) is None


def test_lines_without_a_step_are_no_steps(first: Any) -> None:
    """The filter's default value: zeros as soon as anybody writes into the log group."""
    rung = first("no-steps", span(200, 1), span(200, 1), Steps=span(200, 0))
    assert MINUTES <= rung <= 1.5 * MINUTES


@pytest.mark.parametrize("silence", [None, 0.0])
def test_a_run_that_hangs_is_told_after_as_long_as_asked(first: Any, silence: float | None) -> None:
    steps = life(span(10, None), span(90, 3), span(100, silence))
    assert first("no-steps", span(200, 2), span(200, 2), Steps=steps) == 100 + MINUTES


@pytest.mark.parametrize(("up", "down"), [(5, 3), (8, 4), (10, 3), (6, 6), (15, 3), (4, 10)])
def test_nodes_that_give_up_again_and_again_are_told_within_an_hour(first: Any, up: int, down: int) -> None:
    """What a Minimum of the nodes (no-steps) and a Maximum (nodes-missing) never saw."""
    wanted, n0 = span(240, 1), loop(up, down, 240)
    assert first("no-steps", wanted, n0, Steps=span(240, None)) <= 60
    assert first("nodes-missing", wanted, n0) <= 90
    events: Series = [1.0 if before and not now else 0.0 for before, now in zip([0, *n0], n0, strict=False)]
    assert first("nodes-given-up", wanted, n0, NodesGivenUp=events) <= 2 * (up + down)


def test_one_of_several_nodes_that_gives_up_again_and_again_is_missing_while_the_run_goes_on(first: Any) -> None:
    n0: Series = [1 + (value or 0) for value in loop(8, 4, 240)]
    assert first("nodes-missing", span(240, 2), n0) <= 90
    assert first("no-steps", span(240, 2), n0, Steps=span(240, 3)) is None


@pytest.mark.parametrize("leaving", [0, 5, 14])
def test_a_run_that_is_done_is_quiet(states: Any, leaving: int) -> None:
    """Its nodes leave some minutes after the last step: evaluation, the last upload, the group's own pace."""
    nodes = life(span(120 + leaving, 2), span(200, 0))
    found = states(nodes, nodes, Steps=life(span(10, None), span(110, 3), span(200 + leaving, None)))
    assert found["no-steps"]
    assert not any(found["no-steps"])
    assert found["nodes-missing"]
    assert not any(found["nodes-missing"])


def test_nodes_that_stay_when_the_run_is_done_are_told(first: Any) -> None:
    nodes = span(320, 2)
    assert first("no-steps", nodes, nodes, Steps=life(span(120, 3), span(200, None))) == 120 + MINUTES


def test_before_there_is_a_node_nobody_is_told_of_missing_steps(first: Any) -> None:
    """No capacity for four hours is what nodes-missing is for."""
    assert first("no-steps", span(240, 2), span(240, 0), Steps=span(240, None)) is None
    assert first("no-steps", span(240, None), span(240, None), Steps=span(240, None)) is None
    assert 25 <= first("nodes-missing", span(240, 2), span(240, 0)) <= 30
    assert first("nodes-missing", span(240, None), span(240, None)) is None


def test_a_rung_that_fills_in_counts(first: Any) -> None:
    wanted, n0, n1 = span(240, 2), life(span(60, 2), span(180, 0)), life(span(75, 0), span(165, 2))
    assert first("nodes-missing", wanted, n0, n1) is None
    assert first("no-steps", wanted, n0, n1, Steps=life(span(80, 3), span(160, None))) == 80 + MINUTES


def test_one_interruption_is_no_missing_node(first: Any) -> None:
    n0 = life(span(60, 2), span(20, 1), span(160, 2))
    assert first("nodes-missing", span(240, 2), n0) is None
    assert first("nodes-missing", span(240, 2), life(span(60, 2), span(180, 1))) is not None


def test_one_node_that_gives_up_is_no_alarm_and_two_within_an_hour_are(first: Any) -> None:
    nodes = span(300, 2)
    assert first("nodes-given-up", nodes, nodes, NodesGivenUp=life([1], span(70, 0), [1], span(228, 0))) is None
    assert first("nodes-given-up", nodes, nodes, NodesGivenUp=life([1], span(50, None), [1], span(248, 0))) == 52


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("launches-held", "LaunchesHeld"),
        ("job-ended-badly", "JobsEndedBadly"),
        # It tries again for ever; the first failure is a deadline of ten minutes over.
        ("record-at-risk", "RecordsAtRisk"),
    ],
)
def test_what_does_not_mend_itself_is_told_at_once(first: Any, name: str, metric: str) -> None:
    nodes = span(60, 2)
    assert first(name, nodes, nodes, **{metric: span(60, 0)}) is None
    assert first(name, nodes, nodes, **{metric: life(span(30, 0), [1], span(29, None))}) == 31


@pytest.mark.parametrize(("busy", "expected"), [(None, None), (0.0, 11), (0.09, 11), (0.1, None), (0.9, None)])
def test_gpu_idle_needs_a_figure(first: Any, busy: float | None, expected: int | None) -> None:
    assert first("gpu-idle", span(60, 1), span(60, 1), GpuUtilisation=span(60, busy)) == expected


@pytest.mark.parametrize(("count", "expected"), [(None, None), (3, None), (4, 1)])
def test_interruptions_above_the_number_are_told(first: Any, count: float | None, expected: int | None) -> None:
    assert first("interruptions", span(60, 1), span(60, 1), Interruptions=[count]) == expected
    assert plans()["interruptions"].description.startswith("For information")


@given(groups=st.integers(1, MAX_GROUPS), minutes=st.sampled_from(STEPS_ALARM_MINUTES), gpu=st.booleans())
def test_every_alarm_is_one_that_aws_takes(groups: int, minutes: int, gpu: bool) -> None:
    names = [f"demo-{index}" for index in range(groups)]
    made = plan_alarms("/gangway/demo", minutes, 3, expect_gpu=gpu)
    assert len(made) == 8 + gpu
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
        whole = plan.period_sec * plan.periods
        assert whole <= (86_400 if plan.period_sec < 3600 else 604_800), "the longest an alarm may look back"
        assert whole >= 600, "late metrics are a small part of the window"
        assert plan.breaching is None or plan.breaching <= plan.periods
        assert 100 < len(plan.description) <= 1024
    composite = plan_no_steps("/gangway/demo", minutes)
    assert set(composite.parts) == {plan.name for plan in made if not plan.tells}
    assert 100 < len(composite.description) <= 1024


def test_every_description_says_what_to_do() -> None:
    words = {
        "gpu-idle": "Look at",
        "interruptions": "put another",
        "job-ended-badly": "look for job-ended: exit_status",
        "launches-held": "run `gangway breaker reset STACK`",
        "nodes-given-up": "the field reason says why",
        "nodes-missing": "resume-processes --auto-scaling-group-name",
        "record-at-risk": "head-not-ready",
    }
    assert words.keys() == {name for name, plan in plans().items() if plan.tells}
    for name, word in words.items():
        assert word in plans()[name].description
    assert "Read the log group /gangway/demo" in plan_no_steps("/gangway/demo", MINUTES).description


def test_metrics_are_asked_where_they_are_published() -> None:
    metrics: list[Any] = [query.metric for plan in plans().values() for query in plan.queries("demo", GROUPS)]
    asked = {(m.namespace, m.metric_name, tuple((m.dimensions or {}).values())) for m in metrics if m is not None}
    trainer = (
        "Steps",
        "GpuUtilisation",
        "Interruptions",
        "NodesGivenUp",
        "LaunchesHeld",
        "JobsEndedBadly",
        "RecordsAtRisk",
    )
    assert asked == {
        *(("Gangway/demo", name, ()) for name in trainer),
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
