"""The table of what was tried: a way that went through is never called refused."""

from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture
def table(load_module: Any, repo: Any) -> Any:
    return load_module(repo / "tests" / "attack_table.py").table


def report(what: str) -> SimpleNamespace:
    return SimpleNamespace(user_properties=[("attack", ["a neighbour", what])])


def test_a_row_for_each_thing_that_is_tried(table: Any) -> None:
    ways = {"passed": [report("a"), report("a"), report("b")], "failed": [report("b")], "skipped": [report("c")]}
    ways["passed"].append(SimpleNamespace(user_properties=[]))
    assert table(ways)[3:] == [
        "| a neighbour | a | 2 | refused |",
        "| a neighbour | b | 2 | **1 went through** |",
        "| a neighbour | c | 1 | not tried here |",
    ]


def test_an_error_is_no_refusal(table: Any) -> None:
    assert "**1 went through**" in table({"error": [report("a")], "skipped": [report("a")]})[-1]
    assert table({"passed": [report("a")], "skipped": [report("a")]})[-1].endswith("refused, 1 not tried here |")
