"""How many nodes: never outside what there may be, never fewer for a nearer deadline, and no changing of minds."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.estimate.autoscale import HEADROOM, Decision, State, decide
from gangway.components.estimate.statistics import Band

LINE = {nodes: Band(90.0 * nodes, 100.0 * nodes, 110.0 * nodes) for nodes in range(1, 9)}
FLAT = {1: Band(90, 100, 110), 2: Band(160, 180, 200), 3: Band(180, 200, 220), 4: Band(150, 170, 190)}


@st.composite
def curves(draw: st.DrawFn) -> Mapping[int, Band]:
    """Of any shape, falling ones too."""
    least = draw(st.integers(1, 4))
    rates = draw(st.lists(st.floats(1, 1000), min_size=1, max_size=8))
    spread = draw(st.floats(0, 0.6))
    return {least + at: Band(rate * (1 - spread), rate, rate * (1 + spread)) for at, rate in enumerate(rates)}


STATES = st.builds(
    State,
    images_left=st.floats(1, 1e7),
    nodes=st.none() | st.integers(1, 12),
    left_sec=st.floats(1, 1e6),
    left_usd=st.just(math.inf) | st.floats(0.01, 1e5),
    node_usd_per_hour=st.none() | st.floats(0.1, 100),
    around_usd_per_hour=st.floats(0, 10),
    paid_nodes=st.integers(0, 12),
    since_change_sec=st.sampled_from([0.0, math.inf]),
    restart_sec=st.floats(0, 1000),
    images_per_sec=st.none() | st.floats(1, 5000),
    least_images_per_usd=st.none() | st.floats(1, 1e6),
    hold_sec=st.sampled_from([0.0, 600.0]),
)


@given(curve=curves(), state=STATES)
def test_never_outside_what_may_be_chosen(curve: Mapping[int, Band], state: State) -> None:
    found = decide(curve, state)
    assert found.nodes in curve
    assert found.possible or not found.reached, "what is expected is possible"
    assert f"{found.nodes} node" in found.reason


@given(curve=curves(), state=STATES, nearer=st.floats(0, 1))
def test_a_nearer_deadline_never_wants_fewer(curve: Mapping[int, Band], state: State, nearer: float) -> None:
    late = decide(curve, state)
    soon = decide(curve, replace(state, left_sec=state.left_sec * nearer))
    assert soon.nodes >= late.nodes


@given(curve=curves(), state=STATES)
def test_what_was_decided_is_kept_while_nothing_changes(curve: Mapping[int, Band], state: State) -> None:
    """Two steps settle it: the first may be held back to what the change costs."""
    state = replace(state, since_change_sec=math.inf, restart_sec=0.0)
    for _ in range(3):
        state = replace(state, nodes=decide(curve, state).nodes)
    assert decide(curve, state).nodes == state.nodes


@given(noise=st.lists(st.floats(0.96, 1.04), min_size=20, max_size=20), left_sec=st.floats(500, 4000))
def test_speeds_that_scatter_change_no_mind_back(noise: list[float], left_sec: float) -> None:
    """The measured speed goes up and down by 4 %: it never adds what it has taken away, or takes what it has added."""
    state, numbers = State(images_left=360_000, nodes=4, left_sec=left_sec), [4]
    for factor in noise:
        scaled = {nodes: Band(rate.low * factor, rate.mid * factor, rate.high * factor) for nodes, rate in LINE.items()}
        state = replace(state, nodes=decide(scaled, state).nodes)
        numbers.append(state.nodes or 0)
    steps = [after - before for before, after in pairwise(numbers) if after != before]
    assert all(step > 0 for step in steps) or all(step < 0 for step in steps)


def wants(curve: Mapping[int, Band], **state: float | int | None) -> Decision:
    return decide(curve, State(**{"images_left": 360_000, **state}))  # type: ignore[arg-type]


def test_out_until_the_deadline_is_expected_with_room_and_in_only_where_fewer_surely_do() -> None:
    assert wants(LINE, nodes=1, left_sec=3600).nodes == 1, "just enough, as expected"
    assert wants(LINE, nodes=1, left_sec=3599).nodes == 2
    assert wants(LINE, nodes=1, left_sec=900).nodes == math.ceil(4 / HEADROOM)
    assert wants(LINE, nodes=5, left_sec=1800).nodes == 3, "two would do as expected, and not surely"
    late = wants(LINE, nodes=1, left_sec=100)
    assert (late.nodes, late.reached, late.possible) == (8, False, False)


def test_what_a_change_costs_is_counted_where_there_is_one() -> None:
    assert wants(LINE, nodes=2, left_sec=1800, restart_sec=600).nodes == 2
    assert wants(LINE, nodes=2, left_sec=1790, restart_sec=600).nodes == 4


def test_nodes_that_make_nothing_faster_are_given_up() -> None:
    found = wants(FLAT, nodes=4, left_sec=100)
    assert found.nodes == 3
    assert "fewer" not in found.reason


def test_the_last_nodes_have_to_be_worth_their_dollars_unless_they_are_needed() -> None:
    """At $3.60 an hour a node costs $0.001 a second: the second brings 80,000 images for a dollar, the third 20,000."""
    thrifty = {"nodes": 3, "node_usd_per_hour": 3.6, "left_usd": 1e6, "least_images_per_usd": 50_000}
    assert wants(FLAT, **thrifty).nodes == 2
    assert wants(FLAT, **thrifty, images_per_sec=180).nodes == 3
    assert wants(FLAT, **thrifty, paid_nodes=3).nodes == 3


def test_as_fast_as_the_budget_pays_and_the_cheapest_where_it_pays_nothing() -> None:
    """One node takes an hour of $3.60 and $1 around it; more take less of the latter, and less well of the former."""
    money = {"node_usd_per_hour": 3.6, "around_usd_per_hour": 1.0}
    assert wants(FLAT, **money, left_usd=100).nodes == 3
    assert wants(FLAT, **money, left_usd=5.6).nodes == 2
    poor = wants(FLAT, **money, left_usd=1)
    assert (poor.nodes, poor.reached, poor.possible) == (2, False, False)
    assert wants(FLAT, **money, left_usd=5.6, images_per_sec=1000).nodes == 2, "money counts more"


@pytest.mark.parametrize("left_sec", [1.0, 3600.0, 1e9])
def test_nothing_is_changed_soon_after_a_change(left_sec: float) -> None:
    assert wants(LINE, nodes=3, left_sec=left_sec, since_change_sec=60, hold_sec=900.0).nodes == 3


def test_fewer_nodes_are_not_cheaper_where_all_else_costs_by_the_hour() -> None:
    """Enough for the deadline is one node for ten hours; two keep the budget, as does any more."""
    money = {"node_usd_per_hour": 1.0, "around_usd_per_hour": 10.0}
    for nodes, left_usd in ((None, 70.0), (4, 80.0)):
        found = wants(LINE, images_left=3_600_000, nodes=nodes, left_sec=72_000, left_usd=left_usd, **money)
        assert (found.nodes, found.reached) == (2, True)


@pytest.mark.parametrize("around_usd_per_hour", [1.0, 5.0, 20.0])
@pytest.mark.parametrize("budget_share", [0.9, 0.95, 1.0])
def test_at_the_edge_of_the_budget_it_does_not_go_there_and_back(
    around_usd_per_hour: float, budget_share: float
) -> None:
    """Two nodes make images cheaper than one; each change stands still for seven minutes of what they cost."""
    curve = {1: Band(97, 100, 103), 2: Band(192, 198, 204)}
    state = State(
        3_600_000,
        1,
        60 * 3600.0,
        node_usd_per_hour=1.0,
        around_usd_per_hour=around_usd_per_hour,
        restart_sec=420.0,
        hold_sec=900.0,
    )
    state, changes = replace(state, left_usd=budget_share * state.usd(1, 100)), 0
    while state.images_left > 0 and state.nodes is not None:
        found = decide(curve, state).nodes
        is_other = found != state.nodes
        changes += is_other
        sec = 300.0 + (420.0 if is_other else 0.0)
        state = replace(
            state,
            nodes=found,
            images_left=state.images_left - 300 * curve[found].mid,
            left_sec=state.left_sec - sec,
            left_usd=state.left_usd - sec / 3600 * state.usd_per_hour(found),
            since_change_sec=0.0 if is_other else state.since_change_sec + sec,
        )
    assert changes <= 2


@given(curve=curves(), state=STATES)
def test_a_budget_that_some_number_keeps_is_kept(curve: Mapping[int, Band], state: State) -> None:
    """At the start, where nothing that is there holds back a choice."""
    state = replace(state, nodes=None, paid_nodes=0)
    if not state.has_budget:
        return
    found = decide(curve, state)
    keep = [nodes for nodes in curve if state.usd(nodes, curve[nodes].mid) <= HEADROOM * state.left_usd]
    assert not keep or state.usd(found.nodes, curve[found.nodes].mid) <= state.left_usd
