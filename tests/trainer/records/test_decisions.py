"""Decisions in the record: what the log tells of each, and what came of it."""

from typing import Any

import pytest

from gangway.trainer.config.values.control import JUDGE
from gangway.trainer.records.decisions import decisions

Line = dict[str, Any]


def made(images: int, was: int, value: int, *, policy: str = "rules", outcome: str = "done", **more: Any) -> Line:
    return {
        **{"event": "decision", "time": 1.8e9 + images, "images": images, "session": 0},
        **{"knob": "threads", "was": was, "value": value, "policy": policy, "reason": "it waits"},
        **{"expected_gain": 0.1, "undone_if": "it does not pay", "outcome": outcome, **more},
    }


def kept(images: int, value: int) -> Line:
    return {"event": "decision-kept", "time": 1.8e9, "images": images, "knob": "threads", "value": value, "why": "+9%"}


def undone(images: int, was: int, value: int, **more: Any) -> Line:
    return made(images, was, value, policy=JUDGE, reason=f"undoes threads {was}: it brought -5%", **more)


def fatal(images: int, value: int, *, session: int = 0) -> Line:
    of = {"of_session": session, "of_images": images, "was": 4, "why": "killed"}
    return {
        "event": "decision-fatal",
        "time": 1.8e9,
        "session": 1,
        "images": 90,
        "knob": "threads",
        "value": value,
        **of,
    }


def resumed(images: int) -> Line:
    return {"event": "resume", "time": 1.8e9, "images": images, "session": 1}


@pytest.mark.parametrize(
    ("lines", "fates"),
    [
        ([made(1, 4, 3)], ["unjudged"]),
        ([made(1, 4, 3), kept(2, 3)], ["kept"]),
        ([made(1, 4, 3), kept(2, 3), made(3, 3, 2), kept(4, 2)], ["kept", "kept"]),
        ([made(1, 4, 3), undone(2, 3, 4)], ["undone", "undoing"]),
        ([made(1, 4, 3), kept(2, 3), undone(9, 3, 4)], ["undone", "undoing"]),  # by the guard, however late
        ([made(1, 4, 3), undone(2, 3, 4), made(5, 4, 3), kept(6, 3)], ["undone", "undoing", "kept"]),
        ([made(1, 4, 3), undone(2, 3, 4, outcome="failed")], ["unjudged", "failed"]),
        ([made(1, 4, 3, outcome="observed"), made(2, 4, 3, outcome="failed")], ["observed", "failed"]),
        ([made(1, 4, 3), made(8, 3, 2), kept(9, 2), resumed(1)], ["unjudged", "dropped"]),
        ([made(8, 4, 3), resumed(1), made(5, 4, 3), kept(6, 3)], ["dropped", "kept"]),
        ([made(8, 4, 3, outcome="failed"), resumed(1)], ["failed"]),
        ([made(8, 4, 3), resumed(8), fatal(8, 3), undone(8, 3, 4)], ["failed", "undoing"]),
        ([made(8, 4, 3), resumed(5), fatal(8, 3)], ["failed"]),
        ([made(1, 4, 3), made(8, 4, 3), resumed(8), fatal(8, 3)], ["unjudged", "failed"]),
        ([made(1, 4, 3), made(8, 4, 3), resumed(8), fatal(8, 3), fatal(8, 3)], ["unjudged", "failed"]),
        ([made(1, 4, 3), kept(2, 3), made(8, 4, 3), fatal(8, 3), undone(8, 3, 4)], ["kept", "failed", "undoing"]),
        ([made(8, 4, 3), resumed(8), made(8, 4, 3, session=1), fatal(8, 3)], ["failed", "unjudged"]),
        ([kept(2, 3)], []),
    ],
)
def test_what_came_of_each(lines: list[Line], fates: list[str]) -> None:
    assert [one.fate for one in decisions(lines)] == fates


def test_the_judges_words_stand_with_what_it_judged() -> None:
    first, back = decisions([made(1, 4, 3), undone(2, 3, 4)])
    assert (first.verdict, first.brought) == ("undone", "it brought -5%")
    assert first.sentence == "threads 4 to 3, by rules: it waits; undone: it brought -5%"
    assert (back.verdict, back.sentence) == ("", "threads 3 to 4, by judge: undoes threads 3: it brought -5%")
    (failed,) = decisions([made(1, 4, 3, outcome="failed", why="nobody's to turn")])
    assert failed.sentence.endswith("failed: nobody's to turn")
