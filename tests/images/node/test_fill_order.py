"""Which groups the head fills, and how far: the decision alone, whichever cloud the groups are in."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.capacity import WINDOW
from gangway.images.node import fill_order
from gangway.images.node.fill_order import plan_fill

MIN = 4


@st.composite
def situations(draw: st.DrawFn) -> tuple[int, list[list[int]], list[int]]:
    groups = draw(st.integers(1, 4))
    counts = st.lists(st.integers(0, 8), min_size=groups, max_size=groups)
    return draw(st.integers(1, 8)), draw(st.lists(counts, min_size=1, max_size=WINDOW)), draw(counts)


@pytest.mark.slow
@given(situations())
def test_no_group_is_filled_beyond_what_is_missing(situation: tuple[int, list[list[int]], list[int]]) -> None:
    minimum, history, sizes = situation
    planned = plan_fill(minimum, history, sizes)
    assert len(planned) == len(sizes)
    assert planned[0] == sizes[0], "the first rung is `up`'s"
    for group in range(1, len(sizes)):
        needed = [max(0, minimum - sum(count[:group])) for count in history]
        assert planned[group] <= max(needed), "never more than was missing at some time"
        assert planned[group] <= max(minimum, 0)
        assert planned[group] <= sizes[group] or planned[group] == min(needed), "grows only to what always lacked"
    assert sum(new > old for new, old in zip(planned, sizes, strict=True)) <= 1, "one group grows at a time"


@given(situations())
def test_deciding_twice_changes_nothing_more(situation: tuple[int, list[list[int]], list[int]]) -> None:
    minimum, history, sizes = situation
    planned = sizes
    for _ in sizes:
        planned = list(plan_fill(minimum, history, planned))
    assert list(plan_fill(minimum, history, planned)) == planned


@given(st.integers(1, 8), st.integers(0, 3))
def test_an_unchanging_lack_is_filled_exactly(minimum: int, running: int) -> None:
    assert plan_fill(minimum, [[running, 0]] * WINDOW, [minimum, 0]) == (minimum, max(0, minimum - running))


def run(first: list[int], capacity: int = MIN) -> list[int]:
    """Sizes of the second group, minute by minute, as the first one's nodes come and go.

    The head's script in small: nodes of the second group run a minute after it is set, as far as it has capacity.
    """
    history: list[list[int]] = []
    sizes, shown = [MIN, 0], []
    for running in first:
        history = [*history, [running, min(sizes[1], capacity)]][-WINDOW:]
        if len(history) == WINDOW:
            planned = list(plan_fill(MIN, history, sizes))
            history = history if planned == sizes else []
            sizes = planned
        shown.append(sizes[1])
    return shown


def test_a_first_group_without_capacity_is_made_up_for() -> None:
    sizes = run([0] * 30)
    assert sizes.index(MIN) == WINDOW - 1
    assert set(sizes[WINDOW:]) == {MIN}


def test_nodes_that_boot_slowly_are_waited_for() -> None:
    assert set(run([0, 0, 1, *[MIN] * 40])) == {0}, "a node counts from its start, not from its job's"


def test_half_of_the_nodes_get_the_other_half() -> None:
    assert run([2] * 30)[-1] == 2


def test_a_group_that_flaps_moves_nothing() -> None:
    assert set(run([MIN, MIN, 0, MIN, 0] * 12)) == {0}
    filled = run([0] * 12 + [0, 0, MIN, 0] * 12)
    assert set(filled[WINDOW:]) == {MIN}


def test_when_the_first_group_is_back_the_second_goes() -> None:
    sizes = run([0] * 20 + [MIN] * 20)
    assert (sizes[19], sizes[-1]) == (MIN, 0)


def test_the_third_group_waits_until_the_second_has_had_its_chance() -> None:
    history = [[0, 0, 0]] * WINDOW
    assert plan_fill(MIN, history, [MIN, 0, 0]) == (MIN, MIN, 0)
    assert plan_fill(MIN, history, [MIN, MIN, 0]) == (MIN, MIN, MIN), "the second found nothing either"
    assert plan_fill(MIN, [[0, MIN, 0]] * WINDOW, [MIN, MIN, MIN]) == (MIN, MIN, 0)


def test_the_decision_runs_anywhere() -> None:
    """The file itself goes onto the head, which has Python and none of Gangway's packages beside it."""
    tree = ast.parse(Path(fill_order.__file__).read_text("utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"collections.abc", "typing"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
