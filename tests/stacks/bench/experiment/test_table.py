"""The table of an experiment, from a recorded folder: changes with intervals, noise, the paper's rows, the page."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.findings import InputError
from stacks.bench.experiment.page import write_page
from stacks.bench.experiment.statistics import change_of
from stacks.bench.experiment.table import COLUMNS, findings_of

Times = dict[tuple[str, int], float]


@pytest.fixture
def recorded(tmp_path: Path, values: dict[str, Any]) -> Callable[..., Path]:
    """Writes the folder of an experiment whose runs took so long."""

    def write(times: Times, *, most_slower: float | None = None, quality: float = 90.0) -> Path:
        names = {key: f"plain-{key[0]}-s{key[1]}" for key in times}
        scenario = {**values["scenarios"][0], "most_slower": most_slower}
        head = {
            "suite": "small", "title": "A small experiment", "paper": "P3", "control": "control",
            "machine": "2 cores", "order": [*names.values(), "plain-lost-s9"], "scenarios": [scenario],
        }  # fmt: skip
        (tmp_path / "experiment.json").write_text(json.dumps(head))
        for (arm, seed), sec in times.items():
            decided = {
                "event": "decision",
                "session": 0,
                "time": 1.8e9,
                "images": 50,
                "knob": "loader_threads",
                "value": 2,
                "was": 1,
                "policy": "rules",
                "reason": "<w>",
                "expected_gain": 0.1,
                "outcome": "done",
            }
            kept = {
                "event": "decision-kept",
                "session": 0,
                "images": 70,
                "knob": "loader_threads",
                "value": 2,
                "why": "it brought +9%",
            }
            result = {
                "scenario": "plain", "arm": arm, "seed": seed, "position": 0, "time_sec": sec, "images": 100,
                "reached": False, "quality": {"FD-ENL0": 100.0 if arm == "control" else quality},
                "figures": {"joules": {"value": 2 * sec}, "cpu_use": {"value": 0.5}, "usd": {"value": None}},
                "neighbour_sec": [[sec / 3, sec / 2]], "decisions": [] if arm == "control" else [decided, kept],
                "curve": [[sec / 2, 50, 10.0], [sec, 100, 12.0]],
            }  # fmt: skip
            (tmp_path / names[arm, seed]).mkdir()
            (tmp_path / names[arm, seed] / "result.json").write_text(json.dumps(result))
        return tmp_path

    return write


def _times(*pairs: tuple[float, float]) -> Times:
    return {
        (arm, seed): sec for seed, both in enumerate(pairs) for arm, sec in zip(("control", "rules"), both, strict=True)
    }


def test_a_clear_gain_is_told_with_its_interval(recorded: Callable[..., Path]) -> None:
    findings = findings_of(recorded(_times((100, 60), (110, 70), (90, 55))))
    scenario = findings.scenarios[0]
    assert scenario.time is not None
    assert scenario.time.percent == pytest.approx(100 * (185 / 300 - 1))
    assert scenario.time.high is not None
    assert scenario.time.high < 0
    assert "faster" in scenario.verdict
    assert findings.total == scenario.time
    control, treatment, change = scenario.rows
    place = [column.key for column in COLUMNS].index
    assert (control.cells[place("time_sec")], control.cells[place("joules")]) == ("100", "200")
    assert treatment.cells[place("cpu_use")] == "50"
    assert control.cells[place("usd")] == "absent"
    assert change.cells[place("usd")] == "-"
    assert findings.missing == ("plain-lost-s9",)


def test_noise_is_called_noise(recorded: Callable[..., Path]) -> None:
    findings = findings_of(recorded(_times((100, 90), (100, 115), (100, 99))))
    assert findings.scenarios[0].time is not None
    assert findings.scenarios[0].time.is_noise
    assert "noise" in findings.scenarios[0].verdict


def test_one_pair_has_no_interval_and_proves_nothing(recorded: Callable[..., Path]) -> None:
    time = findings_of(recorded(_times((100, 50)))).scenarios[0].time
    assert time is not None
    assert (time.low, time.high, time.is_noise) == (None, None, True)


def test_runs_without_their_other_half_are_in_no_change(recorded: Callable[..., Path]) -> None:
    findings = findings_of(recorded({("control", 0): 100, ("rules", 0): 80, ("control", 1): 300}))
    assert findings.scenarios[0].time is not None
    assert findings.scenarios[0].time.percent == pytest.approx(-20)


@pytest.mark.parametrize(("slower", "word"), [(101, "kept"), (105, "broken")])
def test_what_was_asked_of_a_right_run_is_judged(slower: float, word: str, recorded: Callable[..., Path]) -> None:
    folder = recorded(_times((100, slower), (100, slower)), most_slower=0.02)
    assert word in findings_of(folder).scenarios[0].verdict


def test_quality_that_is_worse_is_said(recorded: Callable[..., Path]) -> None:
    findings = findings_of(recorded(_times((100, 60), (110, 70)), quality=150.0))
    assert "worse" in findings.scenarios[0].verdict


def test_the_papers_rows_are_theirs(recorded: Callable[..., Path]) -> None:
    theirs = findings_of(recorded(_times((100, 60)))).theirs
    assert {row.kind for row in theirs} == {"theirs"}
    assert any("48 h" in row.cells for row in theirs)


def test_the_page_shows_rows_and_decisions_and_escapes(recorded: Callable[..., Path]) -> None:
    html = write_page(recorded(_times((100, 60), (100, 70)))).read_text()
    assert "&lt;w&gt;" in html
    assert "<w>" not in html
    assert "1 decision: 1 kept" in html
    assert "it brought +9%" in html
    assert html.count("<tbody>") == 2, "a table of decisions, and no second for the control"
    assert "plain-lost-s9" in html
    assert "<svg" in html


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"experiment\.json"):
        findings_of(tmp_path)


@pytest.mark.slow
@given(st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=2, max_size=8))
def test_the_interval_holds_the_change_of_some_pair(pairs: list[tuple[float, float]]) -> None:
    change = change_of({"a": pairs})
    assert change is not None
    assert change.low is not None
    assert change.high is not None
    ratios = [100 * (other / one - 1) for one, other in pairs]
    assert min(ratios) - 1e-6 <= change.low <= change.high <= max(ratios) + 1e-6
    assert change_of({"a": pairs}) == change, "the same draw"


def test_the_total_says_why_it_has_no_interval() -> None:
    """Many pairs, but one scenario with one alone: its spread is not known, so neither is the total's."""
    groups = {"digits": [(100.0, 80.0), (100.0, 90.0), (100.0, 85.0)], "video": [(50.0, 40.0)]}
    change, lone = change_of(groups), change_of({"video": groups["video"]})
    assert change is not None
    assert lone is not None
    assert (change.low, change.high, change.pairs, change.is_noise) == (None, None, 4, True)
    assert "one pair:" not in change.words
    assert "4 pairs" in change.words
    assert "a scenario" in change.words
    assert "one pair:" in lone.words


def test_each_scenario_weighs_as_its_controls_time() -> None:
    change = change_of({"long": [(100, 50), (100, 50)], "short": [(10, 10)] * 4})
    assert change is not None
    assert change.percent == pytest.approx(100 * (60 / 110 - 1))
    assert change_of({}) is None
    assert change_of({"a": []}) is None
