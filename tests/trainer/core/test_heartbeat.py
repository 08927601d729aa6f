"""A worker's sign of life: what the launcher reads of it, and nothing where nobody watches."""

import time
from pathlib import Path

import pytest

from gangway.trainer.core.heartbeat import WATCH_VARIABLE, Beat, ask_for_evidence, beat_file, beating
from gangway.trainer.core.host import BUSY_VARIABLE


def test_a_beat_tells_of_steps_made_and_of_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WATCH_VARIABLE, str(tmp_path))
    told: list[tuple[int, int, bool]] = []
    path = beat_file(tmp_path, 3)
    with beating(7, 3) as heartbeat:
        for makes_step in (False, True, True, False, True):
            if makes_step:
                heartbeat.step(0)
            else:
                heartbeat.busy()
            beat = Beat.read(path)
            assert beat is not None
            assert 0 <= time.monotonic() - beat.at_sec < 60
            told.append((beat.rank, beat.steps, beat.training))
    assert told == [(7, 0, False), (7, 0, True), (7, 1, True), (7, 2, False), (7, 2, True)]
    assert Beat.read(path) is None, "who has ended does not hang"


def test_networks_that_have_grown_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WATCH_VARIABLE, str(tmp_path))
    told = []
    with beating(0, 0) as heartbeat:
        for images, resolution in enumerate((4, 4, 8, 8, 8), 100):
            heartbeat.step(images, resolution)
            beat = Beat.read(beat_file(tmp_path, 0))
            assert beat is not None
            told.append((beat.steps, beat.images))
    assert told == [(0, 100), (1, 101), (0, 102), (1, 103), (2, 104)]


def test_half_a_beat_is_none(tmp_path: Path) -> None:
    path = beat_file(tmp_path, 0)
    path.write_bytes(b"\0" * 7)
    assert Beat.read(path) is None


def test_who_is_asked_tells_its_last_collectives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WATCH_VARIABLE, str(tmp_path))
    with beating(1, 0):
        ask_for_evidence(tmp_path)
        deadline = time.monotonic() + 60
        while not (tmp_path / "collectives-1.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    assert (tmp_path / "collectives-1.json").read_text().startswith("{")


def test_outside_the_launcher_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WATCH_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with beating(0, 0) as heartbeat:
        heartbeat.step(0)
        heartbeat.busy()
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_works_without_its_device_says_so_and_one_that_trains_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = tmp_path / "run" / ".busy"
    busy.parent.mkdir()
    monkeypatch.setenv(WATCH_VARIABLE, str(tmp_path))
    monkeypatch.setenv(BUSY_VARIABLE, str(busy))
    with beating(0, 0) as heartbeat:
        deadline = time.monotonic() + 60
        while not busy.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert abs(busy.stat().st_mtime - time.time()) < 60
        for step in range(21):
            heartbeat.step(step)
            assert heartbeat.may_leave_device_idle == (step < 20), "the first steps may compile"
        assert not heartbeat.may_leave_device_idle
        heartbeat.busy()
        assert heartbeat.may_leave_device_idle
