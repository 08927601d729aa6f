"""Group hours: who may hold nodes before a block begins, what is declared when, and what an `up` after it changes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.capacity import BEHIND_BLOCK_DELAY, opening_times, rung_from_args
from gangway.components.aws.node_pool import START_MARGIN, EfaNodePool, plan_sizes
from gangway.components.core.capacity import RungPlan, plan_ladder

START = datetime(2035, 7, 1, 11, 30, tzinfo=UTC)
BLOCK: dict[str, Any] = {
    "kind": "capacity-block",
    "id": "cr-0123456789abcdef0",
    "starts_at": "2035-07-01T13:30:00+02:00",
    "ends_at": "2035-07-02T11:30:00Z",
}
RUNNING = {**BLOCK, "starts_at": "2020-07-01T11:30:00Z"}
SPOT: dict[str, Any] = {"kind": "spot"}
ON_DEMAND: dict[str, Any] = {"kind": "on-demand"}


def ladder(*rungs: dict[str, Any]) -> tuple[RungPlan, ...]:
    return plan_ladder(tuple(rung_from_args(rung) for rung in rungs))


@pytest.mark.parametrize(
    ("rungs", "opens"),
    [
        ([SPOT, ON_DEMAND], [None, None]),
        ([BLOCK], [START]),
        ([BLOCK, SPOT, ON_DEMAND], [START, START + BEHIND_BLOCK_DELAY, START + BEHIND_BLOCK_DELAY]),
        # What stands behind spot makes up for spot, whenever the block begins.
        ([SPOT, BLOCK, ON_DEMAND], [None, START, None]),
    ],
)
def test_a_rung_waits_for_its_block_and_for_one_above_it(
    rungs: list[dict[str, Any]], opens: list[datetime | None]
) -> None:
    assert opening_times(ladder(*rungs)) == tuple(opens)


@given(st.integers(-120, 120))
def test_a_group_is_open_from_shortly_before_its_time(minutes: int) -> None:
    """Shortly before, because AWS refuses an action for what is past by the time it is asked."""
    first, second = plan_sizes(ladder(BLOCK, ON_DEMAND), 2, 4, START + timedelta(minutes=minutes))
    closed = timedelta(minutes=minutes) < -START_MARGIN
    assert (first.most_now, first.wanted_now, first.opens_at) == ((0, 0, START) if closed else (4, 4, None))
    behind = timedelta(minutes=minutes) < BEHIND_BLOCK_DELAY - START_MARGIN
    assert (second.most_now, second.wanted_now) == (0 if behind else 2, None)
    assert behind or not closed, "nobody makes up for a block that has not begun"


def test_before_the_start_every_group_waits_for_an_action(make: Callable[..., Any]) -> None:
    made = make(EfaNodePool, capacity=[BLOCK, ON_DEMAND])
    groups = {group.name: group for group in made.of("Group")}
    sizes = {
        name: (g.inputs["minSize"], g.inputs["maxSize"], g.inputs.get("desiredCapacity")) for name, g in groups.items()
    }
    assert sizes == {"demo-0-capacity-block": (0, 0, 0), "demo-1-on-demand": (0, 0, None)}
    schedules = {schedule.name: schedule.inputs for schedule in made.of("Schedule")}
    assert schedules.pop("demo-0-capacity-block")["startTime"] == "2035-07-02T10:50:00Z", "and it is emptied in time"
    assert schedules == {
        "demo-0-capacity-block-start": {
            "scheduledActionName": "demo-0-capacity-block-start",
            "autoscalingGroupName": groups["demo-0-capacity-block"].id,
            "startTime": "2035-07-01T11:30:00Z",
            "minSize": 0, "maxSize": 4, "desiredCapacity": 4,
        },
        "demo-1-on-demand-start": {
            "scheduledActionName": "demo-1-on-demand-start",
            "autoscalingGroupName": groups["demo-1-on-demand"].id,
            "startTime": "2035-07-01T12:30:00Z",
            "minSize": 0, "maxSize": 2, "desiredCapacity": 0,
        },
    }  # fmt: skip


def test_after_the_start_the_groups_are_declared_as_the_actions_have_left_them(make: Callable[..., Any]) -> None:
    made = make(EfaNodePool, capacity=[RUNNING, ON_DEMAND])
    sizes = [(g.inputs["maxSize"], g.inputs.get("desiredCapacity")) for g in made.of("Group")]
    assert sizes == [(4, 4), (2, None)]
    assert [schedule.name for schedule in made.of("Schedule")] == ["demo-0-capacity-block"], "AWS refuses a past start"
    plain = make(EfaNodePool, capacity=[{k: v for k, v in BLOCK.items() if k != "starts_at"}, ON_DEMAND])
    assert [g.inputs for g in plain.of("Group")] == [g.inputs for g in made.of("Group")]
