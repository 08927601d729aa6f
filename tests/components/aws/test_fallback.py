"""The fallback: when a rung is filled and emptied, worked out minute by minute, and to how many nodes."""

from collections.abc import Callable
from itertools import chain, cycle, islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.node_pool import (
    EMPTY_MINUTES,
    FILL_MINUTES,
    FILL_WITHIN_MINUTES,
    EfaNodePool,
    plan_fill_steps,
)
from gangway.components.estimate.cost import CostComponent, estimate
from tests.components.fixture_types import Make

WANTED = 2
Series = list[float | None]
# Nodes in service on the first rung, minute by minute -> size the second rung is set to in each; None: left as it is.
Ladder = Callable[[Series], list[int | None]]


def size_after(num_nodes: int, missing: int) -> int:
    """What AWS would set the rung to: the step whose interval holds the breach of the threshold 1."""
    return next(size for beyond, size in reversed(plan_fill_steps(num_nodes)) if missing - 1 >= beyond)


@given(st.integers(1, 512), st.data())
def test_the_steps_always_fill_what_is_missing(num_nodes: int, data: st.DataObject) -> None:
    missing = data.draw(st.integers(1, num_nodes))
    steps = plan_fill_steps(num_nodes)
    assert len(steps) <= 20, "AWS's limit of adjustments a policy"
    assert steps[0][0] == 0
    assert steps[-1][1] == num_nodes
    assert [beyond for beyond, _ in steps] == sorted({beyond for beyond, _ in steps})
    size = size_after(num_nodes, missing)
    assert missing <= size <= num_nodes
    if num_nodes <= 20:
        assert size == missing


@given(
    num_nodes=st.integers(1, 512),
    prices=st.lists(st.floats(0.01, 100), min_size=1, max_size=4),
    data=st.data(),
)
def test_what_stands_by_costs_no_more_than_the_dearest_rung_full(
    num_nodes: int, prices: list[float], data: st.DataObject
) -> None:
    """Each rung is set to what those above it lack, of which it gets some: the estimate's `standby_hourly`. Beyond 20
    nodes a step covers several, and by so many there may be too many.
    """
    in_service, standby_hourly = data.draw(st.integers(0, num_nodes)), 0.0
    for usd_per_hour in prices:
        missing = max(0, num_nodes - in_service)
        size = size_after(num_nodes, missing) if missing else 0
        came = data.draw(st.integers(0, size))
        in_service, standby_hourly = in_service + came, standby_hourly + came * usd_per_hour
    lines = [
        CostComponent(f"demo-{at}-spot: nodes", "hours", num_nodes, usd, usd * num_nodes, "", "", "", standby=True)
        for at, usd in enumerate(prices, 1)
    ]
    beyond = (-(-num_nodes // 20) - 1) / num_nodes
    assert standby_hourly <= estimate(lines, 1).standby_hourly * (1 + beyond + 1e-9)


@pytest.fixture
def second_rung(make: Make, alarm_maths: Any) -> Ladder:
    """Runs the declared alarms of a ladder of two rungs; an alarm calls its policy in each minute that it lasts."""
    made = make(
        EfaNodePool, num_nodes_min=WANTED, num_nodes_max=WANTED, capacity=[{"kind": "spot"}, {"kind": "on-demand"}]
    )
    fill, empty = (
        alarm_maths(next(alarm.inputs for alarm in made.of("MetricAlarm") if alarm.name.endswith(end)))
        for end in ("-fill", "-empty")
    )

    def run(in_service: Series) -> list[int | None]:
        reported = {"GroupInServiceInstances ${Group.demo-0-spot.name}": in_service}
        sizes: list[int | None] = []
        for now, fills, empties in zip(in_service, fill.states(reported), empty.states(reported), strict=True):
            assert not (fills and empties), "the two pull at once"
            missing = WANTED - int(now or 0)
            # No step fits while no node is missing: the policy then does nothing.
            filled = size_after(WANTED, missing) if fills and missing else None
            sizes.append(0 if empties else filled)
        return sizes

    return run


def life(*parts: tuple[int, float]) -> Series:
    """(minutes, nodes in service), one after the other."""
    return list(chain.from_iterable([nodes] * minutes for minutes, nodes in parts))


def first(sizes: list[int | None], size: int) -> int | None:
    """The minute after which the rung is set to `size` for the first time."""
    return next((minute for minute, set_to in enumerate(sizes, start=1) if set_to == size), None)


@pytest.mark.parametrize("boot", [1, 5, 12, 14])
def test_nodes_that_are_still_coming_up_fill_no_rung(second_rung: Ladder, boot: int) -> None:
    sizes = second_rung(life((boot, 0), (240, WANTED)))
    assert sizes
    assert set(sizes) <= {None, 0}


def test_nodes_that_come_up_one_after_the_other_fill_no_rung(second_rung: Ladder) -> None:
    sizes = second_rung(life((8, 0), (6, 1), (240, WANTED)))
    assert sizes
    assert set(sizes) <= {None, 0}


def test_no_capacity_fills_the_rung_after_a_quarter_of_an_hour(second_rung: Ladder) -> None:
    sizes = second_rung(life((240, 0)))
    assert first(sizes, WANTED) == FILL_MINUTES <= 15
    assert set(sizes[FILL_MINUTES - 1 :]) == {WANTED}


def test_half_of_the_nodes_fill_the_other_half(second_rung: Ladder) -> None:
    sizes = second_rung(life((60, WANTED), (180, 1)))
    assert first(sizes, 1) == 60 + FILL_MINUTES
    assert set(sizes[60 + FILL_MINUTES :]) == {1}


def test_a_rung_that_has_recovered_empties_the_next_one_once_it_has_lasted(second_rung: Ladder) -> None:
    sizes = second_rung(life((60, 0), (120, WANTED)))
    assert first(sizes[60:], 0) == EMPTY_MINUTES
    assert set(sizes[60 + EMPTY_MINUTES :]) == {0}


@pytest.mark.parametrize(("there", "gone"), [(5, 5), (3, 12), (10, 20), (5, 15), (14, 16)])
def test_nodes_that_come_and_go_are_made_up_for_and_nothing_flaps(second_rung: Ladder, there: int, gone: int) -> None:
    """Missing half of the time or more: the next rung is filled once, and not emptied again in between."""
    pattern = [0.0] * gone + [float(WANTED)] * there
    sizes = second_rung(list(islice(cycle(pattern), 300)))
    begin = first(sizes, WANTED)
    assert begin is not None
    assert begin <= FILL_WITHIN_MINUTES + gone
    assert 0 not in sizes


def test_a_spot_node_replaced_now_and_then_is_not_made_up_for(second_rung: Ladder) -> None:
    assert WANTED not in second_rung(list(islice(cycle([2.0] * 50 + [1.0] * 10), 300)))
    assert 1 not in second_rung(list(islice(cycle([2.0] * 50 + [1.0] * 10), 300)))


def test_metrics_that_have_not_come_yet_fill_nothing(second_rung: Ladder) -> None:
    assert set(second_rung([None] * 60)) == {None}
