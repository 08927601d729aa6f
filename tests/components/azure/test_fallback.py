"""What the head is told, and the sizes it sets: the first group's always, the others' as on every cloud."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.fallback import HEAD_ACTIONS, FallbackConfig, FallbackGroup, plan_fallback
from gangway.components.azure.policies import head_actions
from gangway.components.core.capacity import PERIOD_SEC, WINDOW, OnDemand, Spot, plan_ladder
from gangway.images.node.fill_order import plan_fill, reconcile

MIN, MAX = 2, 4


def ladder(groups: int, *, together: bool = True) -> FallbackConfig:
    names = tuple(FallbackGroup(f"g{n}", "spot", "m") for n in range(groups))
    return FallbackConfig("s", "g", together, names)


Situation = tuple[FallbackConfig, tuple[int, int], list[list[int]], list[int]]


@st.composite
def situations(draw: st.DrawFn, together: bool) -> Situation:
    groups, least = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    counts = st.lists(st.integers(0, 8), min_size=groups, max_size=groups)
    history = draw(st.lists(counts, min_size=1, max_size=WINDOW + 2))
    most = least + draw(st.integers(0, 3))
    return ladder(groups, together=together), (least, most), history, draw(counts)


@given(situations(True))
def test_over_ethernet_the_first_group_is_asked_for_every_node_and_the_others_fill_up(
    situation: Situation,
) -> None:
    config, (least, most), history, sizes = situation
    look = reconcile(config, (least, most), history, sizes)
    assert look.sizes[0] == most, "evicted nodes are not replaced by Azure"
    if len(history) < WINDOW:
        assert look.sizes[1:] == tuple(sizes[1:]), "too soon to tell"
    else:
        assert look.sizes[1:] == plan_fill(least, history[-WINDOW:], sizes)[1:]
    assert look.forget is (look.sizes[1:] != tuple(sizes[1:]))


def test_a_first_group_without_capacity_is_made_up_for_though_it_is_asked_again() -> None:
    config = ladder(2)
    history: list[list[int]] = []
    sizes = [0, 0]
    for _ in range(WINDOW):
        history.append([0, 0])
        # Azure refuses the first group each time: its size stays at 0.
        sizes = [0, reconcile(config, (MIN, MAX), history, sizes).sizes[1]]
    assert sizes == [0, MIN]


@given(situations(False), st.integers(0, 3))
def test_over_infiniband_one_group_has_all_nodes(situation: Situation, active: int) -> None:
    config, (least, most), history, sizes = situation
    active %= len(sizes)
    look = reconcile(config, (least, most), history, sizes, active)
    assert look.sizes[look.active] == most
    assert sum(look.sizes) == most, "nodes of two scale sets cannot talk"
    assert look.forget is (look.active != active)
    held = any(count[active] >= least for count in history[-WINDOW:])
    if held or len(history) < WINDOW:
        assert look.active == active, "a job that runs is not moved"
    else:
        assert look.active == (active + 1) % len(sizes)


def minutes(offers: list[list[int]]) -> list[int]:
    """The active group, minute by minute, as each group has that many nodes to give: the head's script in small."""
    history: list[list[int]] = []
    active, sizes, shown = 0, [0] * len(offers[0]), []
    for offered in offers:
        history = [*history, [min(size, there) for size, there in zip(sizes, offered, strict=True)]][-WINDOW:]
        look = reconcile(ladder(len(offered), together=False), (MIN, MAX), history, sizes, active)
        history, active, sizes = [] if look.forget else history, look.active, list(look.sizes)
        shown.append(active)
    return shown


def test_the_next_group_has_its_turn_when_the_first_has_too_few() -> None:
    shown = minutes([[1, 4]] * 30)
    assert shown.index(1) == WINDOW - 1
    assert set(shown[WINDOW:]) == {1}


def test_after_the_last_comes_the_first_again() -> None:
    shown = minutes([[0, 1]] * 3 * WINDOW)
    assert [shown[0], shown[WINDOW], shown[2 * WINDOW]] == [0, 1, 0]


def test_a_job_stays_where_it_runs_though_the_first_group_is_back() -> None:
    assert minutes([[0, 4]] * 20 + [[4, 4]] * 20)[-1] == 1


def test_a_group_that_flaps_is_not_given_up() -> None:
    assert set(minutes(([[4, 4]] + [[0, 4]] * (WINDOW - 2)) * 5)) == {0}


def test_the_head_is_told_everything_but_the_number_of_nodes_as_json() -> None:
    rungs = plan_ladder((Spot(kind="spot"), OnDemand(kind="on-demand")))
    config = plan_fallback("sub", "gangway-demo", "Standard_ND96isr_H100_v5", rungs, ["a", "b"], together=False)
    machine = {"machine_type": "Standard_ND96isr_H100_v5"}
    assert json.loads(json.dumps(config.to_json())) == {
        "version": 1, "subscription_id": "sub", "resource_group_name": "gangway-demo",
        "together": False, "period_sec": PERIOD_SEC, "window": WINDOW,
        "groups": [{"name": "a", "kind": "spot", **machine}, {"name": "b", "kind": "on-demand", **machine}],
    }  # fmt: skip


def test_the_heads_identity_may_do_it() -> None:
    assert HEAD_ACTIONS
    assert set(HEAD_ACTIONS) <= set(head_actions(fills_groups=True, scrapes=False))
