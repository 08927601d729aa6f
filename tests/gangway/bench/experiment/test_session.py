"""The table of an experiment, from a recorded folder: changes with intervals, noise, the paper's rows, the page."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.bench.experiment.session import COLUMNS, get_findings, write_page
from gangway.components.core.findings import InputError
from gangway.components.estimate.statistics import compare_pairs, correct

Times = dict[tuple[str, int], float]


@pytest.fixture
def recorded(tmp_path: Path, values: dict[str, Any]) -> Callable[..., Path]:
    """Writes the folder of an experiment whose runs took so long."""

    def write(
        times: Times,
        *,
        most_slower: float | None = None,
        quality: float = 90.0,
        static: str | None = None,
        scenarios: tuple[str, ...] = ("plain",),
    ) -> Path:
        names = {(scenario, *key): f"{scenario}-{key[0]}-s{key[1]}" for scenario in scenarios for key in times}
        found = [{**values["scenarios"][0], "name": scenario, "most_slower": most_slower} for scenario in scenarios]
        head = {
            "suite": "small", "title": "A small experiment", "paper": "P3", "control": "control",
            "static": static, "machine": "2 cores", "order": [*names.values(), "plain-lost-s9"], "scenarios": found,
        }  # fmt: skip
        (tmp_path / "experiment.json").write_text(json.dumps(head))
        for scenario, arm, seed in names:
            # The first is the largest.
            sec = times[arm, seed] / (1 + scenarios.index(scenario))
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
                "scenario": scenario, "arm": arm, "seed": seed, "position": 0, "time_sec": sec, "images": 100,
                "reached": False, "quality": {"FD-ENL0": 100.0 if arm == "control" else quality},
                "figures": {"joules": {"value": 2 * sec}, "cpu_use": {"value": 0.5}, "usd": {"value": None}},
                "neighbour_sec": [[sec / 3, sec / 2]], "decisions": [] if arm == "control" else [decided, kept],
                "curve": [[sec / 2, 50, 10.0], [sec, 100, 12.0]],
            }  # fmt: skip
            own = tmp_path / names[scenario, arm, seed]
            own.mkdir()
            (own / "result.json").write_text(json.dumps(result))
        return tmp_path

    return write


def _times(*pairs: tuple[float, float]) -> Times:
    return {
        (arm, seed): sec for seed, both in enumerate(pairs) for arm, sec in zip(("control", "rules"), both, strict=True)
    }


CLEAR = [(100 + n, 60 + n % 3) for n in range(6)]


def test_a_clear_gain_is_claimed_with_its_interval(recorded: Callable[..., Path]) -> None:
    findings = get_findings(recorded(_times(*CLEAR)))
    scenario = findings.scenarios[0]
    assert scenario.time is not None
    assert scenario.time.change == pytest.approx(math.prod(b / a for a, b in CLEAR) ** (1 / 6) - 1)
    assert scenario.time.high is not None
    assert scenario.time.high < 0
    assert scenario.verdict.startswith("rules against control: time")
    assert "6 pairs: faster" in scenario.verdict
    (total,) = findings.totals
    assert total.time == scenario.time
    assert total.text.endswith("all scenarios: " + scenario.time.text() + ": faster")
    control, treatment, change = scenario.rows
    place = [column.key for column in COLUMNS].index
    assert (control.cells[place("time_sec")], control.cells[place("joules")]) == ("102.5", "205")
    assert treatment.cells[place("cpu_use")] == "50"
    assert control.cells[place("usd")] == "absent"
    assert change.cells[place("usd")] == "-"
    assert change.cells[place("time_sec")].endswith("] *")
    assert findings.missing == ("plain-lost-s9",)


def test_no_difference_is_called_that(recorded: Callable[..., Path]) -> None:
    scenario = get_findings(recorded(_times(*((100, 90 + 4 * n) for n in range(6))))).scenarios[0]
    assert "no difference shown" in scenario.verdict
    assert not any("*" in cell for cell in scenario.rows[-1].cells)


def test_the_page_is_one_family_of_claims(recorded: Callable[..., Path]) -> None:
    """Of time, energy, its double, quality, CPU use and the total: what would be claimed alone is not claimed there."""
    times = _times(*((100, 100 + gain) for gain in (-1, -9, -3, -8, 1, -7)))
    time = get_findings(recorded(times)).scenarios[0].time
    assert time is not None
    assert time.high is not None
    assert time.high < 0
    assert time.direction == 0


@pytest.mark.parametrize("pairs", range(1, 6))
def test_fewer_than_six_pairs_prove_nothing(pairs: int, recorded: Callable[..., Path]) -> None:
    scenario = get_findings(recorded(_times(*CLEAR[:pairs]))).scenarios[0]
    assert scenario.time is not None
    assert (scenario.time.low, scenario.time.high, scenario.time.direction) == (None, None, 0)
    assert f"{pairs} of 6" in scenario.verdict


def test_runs_without_their_other_half_are_in_no_change(recorded: Callable[..., Path]) -> None:
    time = get_findings(recorded({("control", 0): 100, ("rules", 0): 80, ("control", 1): 300})).scenarios[0].time
    assert time is not None
    assert time.change == pytest.approx(-0.2)
    assert (time.pairs, time.missing) == (1, 1)


@pytest.mark.parametrize(("slower", "word"), [(101, "kept"), (105, "broken")])
def test_what_was_asked_of_a_right_run_is_judged(slower: float, word: str, recorded: Callable[..., Path]) -> None:
    folder = recorded(_times((100, slower), (100, slower)), most_slower=0.02)
    assert word in get_findings(folder).scenarios[0].verdict


@pytest.mark.parametrize(("pairs", "claimed"), [(5, False), (9, True)])
def test_quality_that_is_worse_is_said(pairs: int, claimed: bool, recorded: Callable[..., Path]) -> None:
    """The same in each pair, so that sign flips decide; the page has five changes."""
    times = _times(*((100 + n, 60 + n % 3) for n in range(pairs)))
    assert ("worse" in get_findings(recorded(times, quality=150.0)).scenarios[0].verdict) is claimed


def _three_arms(pairs: int = 8) -> Times:
    """Static takes 0.7 of the control's time, rules 0.6, with noise."""
    shares = {"control": 1.0, "static": 0.7, "rules": 0.6}
    return {
        (arm, seed): 100 * share * (1 + 0.01 * ((seed * step) % 5))
        for step, (arm, share) in enumerate(shares.items(), 1)
        for seed in range(pairs)
    }


def test_the_static_arm_is_compared_with_both(recorded: Callable[..., Path]) -> None:
    times = _three_arms()
    findings = get_findings(recorded(times, static="static"))
    assert (findings.control, findings.static, findings.treatment) == ("control", "static", "rules")
    rows = findings.scenarios[0].rows
    assert [row.label.partition(",")[0] for row in rows] == [
        "control", "static", "rules", "rules against control", "static against control", "rules against static"
    ]  # fmt: skip
    assert [(total.contrast.arm, total.contrast.base, total.without) for total in findings.totals] == [
        ("rules", "control", ""), ("static", "control", ""), ("rules", "static", "")
    ]  # fmt: skip
    for total in findings.totals:
        arm, base = total.contrast
        ratios = [times[arm, seed] / times[base, seed] for seed in range(8)]
        assert total.time is not None
        assert total.time.change == pytest.approx(math.prod(ratios) ** (1 / 8) - 1)


def test_totals_are_given_without_the_largest_scenario_too(recorded: Callable[..., Path]) -> None:
    findings = get_findings(recorded(_three_arms(), static="static", scenarios=("large", "little")))
    assert [total.without for total in findings.totals] == ["", "large"] * 3
    times = {one.name: one.time for one in findings.scenarios}
    whole, rest = (total.time for total in findings.totals[:2])
    assert whole is not None
    assert rest is not None
    assert times["little"] is not None
    assert (rest.change, rest.pairs, whole.pairs) == (times["little"].change, 8, 16)
    assert "without large, the largest" in findings.totals[1].text


def test_all_contrasts_and_totals_are_one_family(recorded: Callable[..., Path]) -> None:
    """The same treatment and control claim less beside a third arm."""
    times = _three_arms()
    three = get_findings(recorded(times, static="static")).totals[0].time
    assert three is not None
    assert three.p_value is not None
    alone = compare_pairs([[(times["control", seed], times["rules", seed]) for seed in range(8)]])
    assert alone is not None
    assert alone.p_value is not None
    smaller = correct(dict.fromkeys(range(5), alone))[0]
    assert smaller is not None
    assert smaller.p_value is not None
    assert three.p_value > smaller.p_value


def test_an_experiment_that_is_stopped_after_its_first_run_has_a_page(recorded: Callable[..., Path]) -> None:
    html = write_page(recorded({("static", 0): 100.0}, static="static")).read_text()
    assert "no pair of runs is complete" in html


def test_the_papers_rows_are_theirs(recorded: Callable[..., Path]) -> None:
    theirs = get_findings(recorded(_times((100, 60)))).theirs
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
        get_findings(tmp_path)
