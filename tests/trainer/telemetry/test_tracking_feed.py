"""Feeding trackers: nothing of theirs stops, delays or fails training, and it is told of once."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.telemetry.tracking import Feed, Feeds, scalars


class Recorder:
    """A tracker that remembers, and fails or waits when told to."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.failing = False
        self.gate = threading.Event()
        self.gate.set()

    def show(self, line: Mapping[str, Any]) -> None:
        self.gate.wait(60)
        if self.failing:
            raise ConnectionError("no route to host\nsecond line")
        self.seen.append(line["images"])

    def picture(self, path: Path, images: int) -> None:
        self.seen.append((path.name, images))

    def close(self, status: str) -> None:
        self.seen.append(status)


@pytest.fixture
def warnings() -> list[str]:
    return []


def test_everything_arrives_in_order(warnings: list[str]) -> None:
    recorder = Recorder()
    feeds = Feeds([Feed("recorder", lambda: recorder, warnings.append)])
    feeds.show({"images": 1})
    feeds.picture(Path("a/000001kimg.png"), 1)
    feeds.show({"images": 2})
    feeds.close("done")
    assert recorder.seen == [1, ("000001kimg.png", 1), 2, "done"]
    assert warnings == []


def test_a_failure_is_told_once_and_the_tracker_is_fed_on(warnings: list[str]) -> None:
    recorder = Recorder()
    recorder.failing = True
    feed = Feed("recorder", lambda: recorder, warnings.append)
    for images in range(3):
        feed.show({"images": images})
    while feed._tasks.qsize() or not warnings:
        time.sleep(0.01)
    feed.picture(Path("p.png"), 3)
    Feeds([feed]).close("done")
    assert recorder.seen == [("p.png", 3), "done"]
    assert warnings == ["tracker recorder failed (ConnectionError: no route to host); training goes on"]


def test_a_tracker_that_cannot_be_opened_is_tried_again(warnings: list[str]) -> None:
    recorder, attempts = Recorder(), []

    def make() -> Recorder:
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError("refused")
        return recorder

    feed = Feed("recorder", make, warnings.append)
    for images in range(4):
        feed.show({"images": images})
    Feeds([feed]).close("done")
    assert recorder.seen == [2, 3, "done"]
    assert len(warnings) == 1


def test_a_slow_one_delays_nobody_and_loses_lines_aloud(warnings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.trainer.telemetry.tracking._CLOSE_SEC", 0.05)
    recorder = Recorder()
    recorder.gate.clear()
    feed = Feed("recorder", lambda: recorder, warnings.append)
    for images in range(1000):
        feed.show({"images": images})
    Feeds([feed]).close("interrupted")
    assert warnings == [
        "tracker recorder is 256 lines behind; what does not fit is in stats.jsonl alone",
        "tracker recorder has not taken all lines in time; the rest is in stats.jsonl alone",
    ]
    recorder.gate.set()


def test_curves_are_made_of_numbers_and_quality() -> None:
    line = {"images": 16, "time": 1.0, "session": 0, "loss_g": 2, "r1": None, "energy": {"cpu": [1]}}
    assert scalars(line) == {"images": 16.0, "loss_g": 2.0}
    quality = {"name": "FD-ENL0", "trained": {"value": 36.5}}
    assert scalars({"event": "quality", "images": 16, "quality": quality}) == {"quality/FD-ENL0": 36.5}
    assert scalars({"event": "quality", "quality": {"name": "FID", "trained": {"value": None}}}) == {}
    assert scalars({"event": "checkpoint", "images": 16, "sec": 1.0}) == {}
