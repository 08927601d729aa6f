"""The record's interruptions from the diary's lines: cause, seconds to save and to stop, what is unknown and why."""

from typing import Any, Literal

import pytest

from gangway.trainer.records.run_record import SessionRecord
from gangway.trainer.records.summary import interruptions, stop_notes


def _session(start: float, end: float, ended_by: Literal["done", "interrupt", "killed"]) -> SessionRecord:
    return SessionRecord(
        start=f"2026-11-21T00:{start:02.0f}:00+00:00",
        end=f"2026-11-21T00:{end:02.0f}:00+00:00",
        world_size=2,
        num_nodes=1,
        images_from=0,
        images_to=320,
        ended_by=ended_by,
        wall_sec=60 * (end - start),
        backend="gloo",
        device="cpu",
    )


def _line(session: int, time: float, images: int, **more: Any) -> dict[str, Any]:
    return {"session": session, "time": time, "images": images, **more}


SAVED = (
    _line(0, 60, 160),
    _line(0, 61, 160, event="checkpoint", sec=0.5),
    _line(0, 120, 320),
    _line(0, 121, 320, event="checkpoint", sec=0.25),
)
STOPPED = _line(0, 122, 320, event="interrupt", cause="spot-interruption", stop_sec=1.5)


def test_an_agreed_stop_says_how_fast_it_was() -> None:
    sessions = {0: _session(0, 2, "interrupt"), 1: _session(3, 4, "done")}
    begun = _line(1, 180, 320, event="resume")
    (stop,) = interruptions(sessions, [_line(0, 0, 0, event="start"), begun], [*SAVED, STOPPED, begun])
    assert (stop.cause, stop.images) == ("spot-interruption", 320)
    assert (stop.save_sec.value, stop.stop_sec.value, stop.lost_sec.value) == (0.25, 1.5, 60)
    assert stop.save_sec.provenance == stop.stop_sec.provenance == "measured"
    assert stop_notes([stop], list(sessions.values())) == []


def test_a_killed_session_saved_nothing_at_its_end() -> None:
    begun = _line(1, 180, 160, event="resume")
    sessions = {0: _session(0, 2, "killed"), 1: _session(3, 4, "done")}
    (stop,) = interruptions(sessions, [begun], [*SAVED[:3], begun])
    assert (stop.cause, stop.images, stop.lost_sec.value) == ("killed", 160, 120)
    assert stop.save_sec.source == "not an agreed stop: nothing was saved at it"
    assert stop.stop_sec.source == "no signal was taken"


def test_what_an_older_or_damaged_diary_does_not_say_is_absent() -> None:
    told = {**STOPPED, "stop_sec": None}
    (stop,) = interruptions({0: _session(0, 2, "interrupt")}, [], [SAVED[0], told])
    assert stop.lost_sec.source == "not resumed yet"
    assert stop.save_sec.source == "the checkpoint's line is lost"
    assert stop.stop_sec.source == "the session did not say"
    begun = _line(1, 180, 640, event="resume")
    sessions = {0: _session(0, 2, "interrupt"), 1: _session(3, 4, "done")}
    (stop,) = interruptions(sessions, [begun], [*SAVED, told, begun])
    assert stop.lost_sec.source.startswith("the lines that say when")


@pytest.mark.parametrize(("stop_sec", "told"), [(19.0, False), (31.0, True)])
def test_a_stop_beyond_a_preemptions_notice_is_noted(stop_sec: float, told: bool) -> None:
    sessions = {0: _session(0, 2, "interrupt")}
    stops = list(interruptions(sessions, [], [*SAVED, {**STOPPED, "stop_sec": stop_sec}]))
    assert any("took 31 s" in note for note in stop_notes(stops, list(sessions.values()))) == told


def test_a_clock_that_went_back_between_sessions_is_noted() -> None:
    sessions = {0: _session(10, 12, "interrupt"), 1: _session(3, 4, "done")}
    begun = _line(1, 30, 320, event="resume")
    stops = list(interruptions(sessions, [begun], [*SAVED, STOPPED, begun]))
    assert stops[0].lost_sec.source == "the clock went back between the two sessions"
    (note,) = stop_notes(stops, list(sessions.values()))
    assert note.startswith("the clock of session 1 is behind the end of the one before")
