"""What a page shows of a controller: each decision at its moment, with what came of it; nothing without one."""

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from matplotlib.figure import Figure as Sheet

from gangway.render.drawing import PAGE
from gangway.report.comparison.exports import figures_csv
from gangway.report.comparison.groups import Member
from gangway.report.decisions import Pace, counted, decisions_drawing, find_decided, find_pace
from gangway.trainer.records.decisions import DecisionRecord, Fate
from gangway.trainer.records.run_record import RunRecord

BEGUN = datetime(2026, 3, 1, 8, 15, tzinfo=UTC).timestamp()
HOW: dict[str, dict[str, Any]] = {
    "kept": {"verdict": "kept", "brought": "it brought +9%"},
    "undone": {"verdict": "undone", "brought": "it brought -5%"},
    "dropped": {"verdict": "dropped"},
    "failed": {"outcome": "failed", "why": "nobody's to turn"},
    "observed": {"outcome": "observed"},
    "undoing": {"policy": "judge"},
    "unjudged": {},
}


def made(sec: float, images: int, fate: str = "kept", **more: Any) -> DecisionRecord:
    at = datetime.fromtimestamp(BEGUN + sec, UTC).isoformat(timespec="milliseconds")
    plain = {"policy": "rules", "reason": "it waits", "expected_gain": 0.19, "outcome": "done"}
    return DecisionRecord.model_validate(
        {**plain, "at": at, "images": images, "knob": "threads", "was": 4, "value": 3, **HOW[fate], **more}
    )


def ticks(session: int, begun: float, images: Sequence[int]) -> list[dict[str, Any]]:
    """A line a second, from a second after the session's begin on, half of which quality metrics took at first."""
    return [
        {
            **{"time": begun + sec + 0.0004, "session": session, "images": each, "kimg": each / 1000},
            **{"wall_sec": float(sec), "metrics_sec": 0.5, "images_per_sec": 100.0 * sec},
        }
        for sec, each in enumerate(images, 1)
    ]


@pytest.fixture
def decided(record: RunRecord) -> Callable[..., RunRecord]:
    """The record with these decisions."""
    return lambda *decisions: record.model_copy(
        update={"decisions": decisions, "choices": {"controller": "rules for time, act: asked for"}}
    )


def test_a_decision_stands_at_its_line_also_where_a_run_went_back(decided: Callable[..., RunRecord]) -> None:
    stats = [*ticks(0, BEGUN, [10, 20, 30]), {"event": "resume", "images": 10}, *ticks(1, BEGUN + 100, [20, 30, 40])]
    pace = find_pace(decided(made(1.0, 10), made(3.0, 30, "dropped"), made(102.0, 30)), stats)
    assert pace is not None
    assert [pace.seconds[place] for place in pace.places] == [0.5, 2.5, 4.0]
    assert [pace.images_per_sec[place] for place in pace.places] == [100.0, 300.0, 200.0]
    assert sum(map(math.isnan, pace.images_per_sec)) == 1, "a gap between the sessions"


def test_without_a_controller_nothing_is_shown(page: Any, record: RunRecord, stats: list[dict[str, Any]]) -> None:
    assert find_decided(record, stats, "x") is None
    assert not page.find("section", **{"aria-labelledby": "controller"})
    assert not page.find("a", href="#controller")


@pytest.mark.slow
def test_the_page_has_the_picture_and_every_decision(
    decided: Callable[..., RunRecord], inputs: dict[str, Any], page_of: Callable[[dict[str, Any]], Any], out: Path
) -> None:
    record = decided(made(9, 9000), made(20, 20_000, "undone", reason="<script>"), made(30, 30_000, "undoing"))
    page = page_of({**inputs, "record": record})
    section = page.section("controller")
    assert "Policy rules for time, act: asked for." in section
    assert "1 2026-03-01 08:15:09 UTC 9 threads 4 → 3 rules it waits +19% kept it brought +9%" in section
    assert "<script> +19% undone it brought -5%" in section
    assert page.find("svg", role="img")
    assert page.find("a", href="#controller")
    assert (out / "plots" / "decisions.svg").read_bytes().startswith(b"<?xml")
    ids = [element.attrs["id"] for element in page.elements if "id" in element.attrs]
    assert len(ids) == len(set(ids))


def test_a_controller_that_decided_nothing_says_so(decided: Callable[..., RunRecord]) -> None:
    shown = find_decided(decided(), (), "x")
    assert shown is not None
    assert (shown.rows, shown.drawing, shown.svg) == ((), None, "")


def test_each_fate_has_a_mark_of_its_own() -> None:
    fates = get_args(Fate)
    assert set(HOW) == set(fates)
    every = [made(place, place, fate) for place, fate in enumerate(fates)]
    assert [one.fate for one in every] == list(fates)
    pace = Pace("a", range(len(fates)), [100.0] * len(fates), range(len(fates)), every)
    drawing = decisions_drawing("x", "Run a", (pace,))
    sheet = Sheet()
    drawing.paint(sheet, [sheet.subplots()], PAGE)
    lines = [line for line in sheet.axes[0].get_lines() if line.get_marker() != "None"]
    marks = {(str(line.get_marker()), str(line.get_color())) for line in lines}
    assert len(marks) == len(fates)
    assert len({marker for marker, _ in marks}) == len(fates), "colour alone tells not everybody"
    assert counted(every).startswith("7 decisions: 1 kept, 1 undone, ")
    assert counted(()) == "0 decisions"


@pytest.mark.slow
@pytest.mark.usefixtures("faults")
@pytest.mark.parametrize("count", [0, 1, 12, 150])
def test_numbers_and_legend_can_be_read_however_many_there_are(count: int) -> None:
    fates = [*get_args(Fate)]
    every = [made(place, place, fates[place % 7]) for place in range(count)]
    seconds = [float(place * 3) for place in range(200)]
    runs = [
        Pace("control", seconds, [300.0 + place % 7 for place in range(200)], (), (), [[90.0, 200.0]]),
        Pace("rules", seconds, [float("nan")] * 100 + [500.0] * 100, range(count), every),
    ]
    for paces in (runs, runs[1:]):
        drawing = decisions_drawing("x", "Seed 0", paces)
        assert drawing.as_file("pdf").startswith(b"%PDF-")
        assert f"{count} decision" in drawing.alt


def test_a_table_of_runs_has_a_controllers_figures_where_there_was_one(
    decided: Callable[..., RunRecord], record: RunRecord
) -> None:
    runs = [record.model_copy(update={"id": "plain"}), decided(made(9, 9000), made(20, 20_000, "undone"))]
    members = [Member(one, Path(), (), "local") for one in runs]
    plain, controlled = csv.DictReader(io.StringIO(figures_csv(members)))
    assert plain["controller"] == plain["decisions"] == plain["decisions_kept"] == ""
    assert (controlled["decisions_kept"], controlled["decisions_undone"], controlled["decisions_failed"]) == (
        *("1", "1", "0"),
    )
    assert len(controlled["decisions"].splitlines()) == 2
    assert re.search(r"threads 4 to 3, by rules: it waits; undone: it brought -5%$", controlled["decisions"])
    assert "controller" not in figures_csv(members[:1])
