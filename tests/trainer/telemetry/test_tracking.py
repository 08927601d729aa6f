"""Feeding trackers: nothing of theirs stops, delays or fails training, and it is told of once."""

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.telemetry.tracking import TARGETS, Feed, Feeds, TrackedRun, check_targets, open_feeds, scalars


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


@pytest.fixture
def session(tmp_path: Path) -> Callable[[str, int], list[str]]:
    """Shows a session of a run to a target and returns the warnings."""
    picture = tmp_path / "000000kimg.png"
    Image.new("L", (8, 8), 128).save(picture)

    def show(target: str, number: int) -> list[str]:
        warnings: list[str] = []
        run = TrackedRun("run:1", number, 160 * number, tmp_path, {"preset": "p", "kimg": 8 + number})
        feeds = open_feeds([target], run, warnings.append)
        for images in (80, 160):
            line = {"images": images + run.images, "time": 1e9 + images, "loss_g": images / 100, "r1": None}
            feeds.show({**line, "session": number})
        feeds.show({"event": "checkpoint", "images": 160, "time": 1e9, "session": number})
        feeds.picture(picture, run.images)
        for feed in feeds._feeds:  # importing a client library takes longer than the end of a run would wait
            while feed._tasks.qsize():
                feed._thread.join(0.01)
        feeds.close("done" if number else "interrupted")
        feeds._feeds[0]._thread.join(60)
        return warnings

    return show


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.trainer.telemetry.tracking._CLOSE_SEC", 60.0)


@pytest.mark.parametrize(
    ("names", "problem", "fix"),
    [
        (["tensorbord"], "no such target", "--track tensorboard"),
        (["wandb", "wandb"], "named twice", "--track wandb"),
        ([""], "no such target", "--track tensorboard"),
    ],
)
def test_a_wrong_name_is_refused(names: list[str], problem: str, fix: str) -> None:
    with pytest.raises(TrainerError, match=f"--track: {problem}") as caught:
        check_targets(names)
    assert caught.value.fix == fix
    assert all(name in caught.value.allowed for name in TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_a_missing_package_is_named_with_the_line_that_installs_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.trainer.telemetry.tracking.importlib.util.find_spec", lambda package: None)
    with pytest.raises(TrainerError, match=f"{name} needs the package {name}, which is not installed") as caught:
        check_targets([name])
    assert re.match(r"(in Gangway's checkout, )?pip install ", caught.value.fix)


def test_mlflow_without_a_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(TrainerError, match=r"\$MLFLOW_TRACKING_URI: is not set"):
        check_targets(["mlflow"])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    check_targets(["mlflow", "wandb", "tensorboard"])


@pytest.mark.usefixtures("patient")
def test_tensorboard_has_curves_and_grids_of_both_sessions(
    session: Callable[[str, int], list[str]], tmp_path: Path
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]  # has no types

    assert [session("tensorboard", number) for number in (0, 1)] == [[], []]
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    curve = [(event.step, round(event.value, 6)) for event in events.Scalars("loss_g")]
    assert curve == [(80, 0.8), (160, 1.6), (240, 0.8), (320, 1.6)]
    assert events.Scalars("loss_g")[0].wall_time == 1e9 + 80
    assert [image.step for image in events.Images("samples")] == [0, 160]


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_mlflow_goes_on_in_the_same_run(
    session: Callable[[str, int], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert [session("mlflow", number) for number in (0, 1)] == [[], []]
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("gangway")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.tags["gangway.run_id"] == "run:1"
    assert (run.data.params["kimg"], run.info.status) == ("8", "FINISHED")
    history = client.get_metric_history(run.info.run_id, "loss_g")
    assert [(metric.step, metric.value) for metric in history] == [(80, 0.8), (160, 1.6), (240, 0.8), (320, 1.6)]
    assert [file.path for file in client.list_artifacts(run.info.run_id, "samples")] == ["samples/000000kimg.png"]


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_a_server_that_refuses_is_told_of_once(
    session: Callable[[str, int], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    (warning,) = session("mlflow", 0)
    assert warning.startswith("tracker mlflow failed (MlflowException: The filesystem tracking backend")
    assert warning.endswith("; training goes on")


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_wandb_keeps_the_runs_id_offline(
    session: Callable[[str, int], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert [session("wandb", number) for number in (0, 1)] == [[], []]
    runs = list((tmp_path / "wandb").glob("offline-run-*/run-run-1.wandb"))
    assert len(runs) >= 1, "both sessions are of the run whose id is run-1"
    content = b"".join(run.read_bytes() for run in runs)
    assert b"loss_g" in content
    assert json.dumps("samples").encode()[1:-1] in content
