"""When nothing of a stack is launched any more: the decision alone, and what it says."""

import ast
import io
import json
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.images.node import breaker

NOW = 1_760_000_000
TIMES = st.lists(st.integers(NOW - 20_000, NOW), max_size=12)


@pytest.mark.slow
@given(TIMES, st.integers(2, 6), st.integers(600, 10_000))
def test_it_opens_when_with_this_node_so_many_gave_up_lately(times: list[int], limit: int, seconds: int) -> None:
    names = {f"{time}-node-{number}" for number, time in enumerate(times)}
    lately = sum(time > NOW - seconds for time in times) + 1
    found = breaker.check_limit(names, limit, seconds, f"{NOW}-mine")
    assert (found is not None) == (lately >= limit)
    if found is not None:
        assert len(found) == lately
        assert "mine" in found


@pytest.mark.slow
@given(st.lists(st.text(max_size=40), max_size=30))
def test_names_that_no_node_writes_count_for_nothing(names: list[str]) -> None:
    assert breaker.recent_failures(names, NOW, 3600) == []


@pytest.mark.parametrize(
    "name",
    ["{}-", "-{}-a", "{}a-b", "{}-$(id)", "{}-a/b", "{}-.", "+{}-a", "{}-a\n", "\u0661{}-a", "{}1-a", "9999999999-a"],
)
def test_a_name_has_one_form(name: str) -> None:
    assert breaker.recent_failures([name.format(NOW)], NOW, 3600) == []


def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], listing: str, reason: str
) -> tuple[int, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO(listing))
    code = breaker.main(["3", "3600", "demo", "run-1", f"{NOW}-node-c", reason])
    return code, capsys.readouterr().out


def test_what_is_held_says_why_in_any_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines as `aws s3 ls` has them, and whole keys as the others do."""
    reason = 'no "space"\n$HOME\\ \u00fc'
    listing = f"2026-11-25 01:02:03  12 {NOW - 900}-node-a\n\ndemo/breaker/{NOW - 30}-node-b\n"
    code, text = said(monkeypatch, capsys, listing, reason)
    held = json.loads(text)
    assert code == 0
    assert text.count("\n") == 1
    assert datetime.fromisoformat(held.pop("time")).timestamp() == NOW
    assert held == {
        "version": 1,
        "run_id": "run-1",
        "stack": "demo",
        "node": "node-c",
        "reason": reason,
        "given_up": 3,
        "within_minutes": 60,
        "nodes": ["node-a", "node-b", "node-c"],
    }


def test_fewer_are_replaced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(monkeypatch, capsys, f"{NOW - 30}-node-b\n{NOW - 3600}-node-a\n", "no GPU") == (1, "")


def test_what_is_held_stays_held_and_keeps_its_first_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(monkeypatch, capsys, "demo/breaker/held.json\n", "no GPU") == (0, "")


def test_a_machine_needs_nothing_but_python() -> None:
    tree = ast.parse(Path(breaker.__file__).read_text("utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported == {"collections.abc", "datetime", "json", "re", "sys"}
