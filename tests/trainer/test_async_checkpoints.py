"""Checkpoints beside training, in the real loop: slow and full disks, a stop while one is being written, bugs."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gangway.trainer.checkpoint import store as checkpoint
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from gangway.trainer.run.session_setup import RunOptions
from tests.trainer.conftest import FULL_DISK

Lines = Callable[[Path], list[dict[str, Any]]]


@pytest.fixture
def short(tiny_config: TrainConfig) -> TrainConfig:
    return tiny_config.replace({"kimg": 0.32, "checkpoint_kimg": 0.08, "sample_kimg": 4, "stats_kimg": 0.08})


def _train(config: TrainConfig, run_dir: Path, data: Path, interruption: Interruption | None = None) -> int:
    return train(config, run_dir, data, RunContext(run_id="r"), interruption or Interruption())


def _slow_disk(monkeypatch: pytest.MonkeyPatch, sec: float, at_first: Callable[[], None] = lambda: None) -> None:
    """Every fsync takes so long; `at_first` is called in the first of a checkpoint's."""
    fsync, calls = os.fsync, []

    def slow(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().suffix == ".pt":
            calls.append(handle)
            if len(calls) == 1:
                at_first()
            time.sleep(sec)
        fsync(handle)

    monkeypatch.setattr("gangway.trainer.core.files.os.fsync", slow)


def test_a_full_disk_stops_the_run_soon_and_keeps_the_checkpoint_before(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines, full_disk: Callable[[str], None]
) -> None:
    full_disk("000000000160.pt")
    with pytest.raises(TrainerError, match=r"000000000160\.pt: cannot be written: No space left on device"):
        _train(short.replace({"kimg": 8}), tmp_path, digits_dir)
    assert lines_of(tmp_path)[-1]["images"] < 8_000, "it did not train on to the end"
    found, passed_over = checkpoint.load_newest_valid(tmp_path / "checkpoints")
    assert found is not None
    assert (found.manifest.images, passed_over) == (80, [])
    assert _train(short, tmp_path, digits_dir) == 0
    assert RunRecord.read(tmp_path / "run.json").sessions[1].images_from == 80


def test_a_disk_that_is_full_at_the_very_end_is_told(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, full_disk: Callable[[str], None]
) -> None:
    full_disk("000000000320.pt")
    with pytest.raises(TrainerError, match=r"000000000320\.pt: cannot be written"):
        _train(short, tmp_path, digits_dir)
    assert not (tmp_path / "run.json").exists(), "a run whose end is not on disk is not done"


@pytest.mark.slow
def test_two_workers_stop_together_when_the_disk_is_full(
    torchrun: Callable[..., Any], short: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FULL_DISK)
    env = {"FULL_DISK": "000000000080.pt", "PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    (tmp_path / "config.json").write_text(short.replace({"kimg": 8}).to_json())
    flags = ["--run-dir", str(tmp_path / "run"), "--data", str(digits_dir)]
    words = ("-m", "gangway.trainer", "train", "--config", str(tmp_path / "config.json"), *flags)
    code, output = torchrun(*words, **env).finish()
    assert code == 2, output
    assert output.count("000000000080.pt: cannot be written: No space left on device") == 1, output
    assert "Traceback" not in output
    assert checkpoint.newest(tmp_path / "run/checkpoints") is None


@pytest.mark.slow
def test_a_slow_disk_changes_no_number_and_its_time_is_told(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    _train(short, tmp_path / "fast", digits_dir)
    _slow_disk(monkeypatch, 0.3)
    _train(short, tmp_path / "slow", digits_dir)
    fast, slow = (RunRecord.read(tmp_path / name / "run.json") for name in ("fast", "slow"))
    assert fast.state_sha256 == slow.state_sha256
    saved = [line for line in lines_of(tmp_path / "slow") if line.get("event") == "checkpoint"]
    assert [line["images"] for line in saved] == [80, 160, 240, 320]
    assert all(line["sec"] > 0.3 for line in saved)
    ticks = [line["checkpoint_stall_sec"] for line in lines_of(tmp_path / "slow") if "step" in line]
    assert ticks == sorted(ticks)
    assert slow.utilisation is not None
    assert slow.utilisation.checkpoint_stall_share.value is not None
    assert 0 < slow.utilisation.checkpoint_stall_share.value < 1


def test_a_stop_while_a_checkpoint_is_being_written_saves_both(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption = Interruption()
    _slow_disk(monkeypatch, 0.3, at_first=lambda: interruption._on_signal(signal.SIGTERM, None))
    assert _train(short.replace({"kimg": 8}), tmp_path, digits_dir, interruption) == 75
    events = [line for line in lines_of(tmp_path) if "event" in line]
    saved = [line["images"] for line in events if line["event"] == "checkpoint"]
    # The signal comes while the first is written: training may be a checkpoint ahead by then, not further.
    assert saved[0] == 80
    assert 80 < saved[-1] < 8_000
    assert len(saved) <= 3
    assert events[-1]["event"] == "interrupt", "said when the state is on disk, not before"
    found, passed_over = checkpoint.load_newest_valid(tmp_path / "checkpoints")
    assert found is not None
    assert (found.manifest.images, passed_over) == (saved[-1], [])


def test_a_bug_in_the_saving_thread_ends_the_run_with_its_cause(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("gangway.trainer.checkpoint.async_saver.store.save", broken)
    with pytest.raises(ZeroDivisionError, match="a bug") as caught:
        _train(short, tmp_path, digits_dir)
    assert any("broken" in str(entry.name) for entry in caught.traceback)


def test_a_run_that_fails_for_another_reason_waits_for_its_save_and_tells_of_both(
    short: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed_elsewhere = threading.Event()

    def late(*_: object) -> None:
        assert failed_elsewhere.wait(60)
        raise TrainerError(place="000000000080.pt", problem="cannot be written")

    def fails(*_: object) -> None:
        failed_elsewhere.set()
        raise TrainerError(place="elsewhere", problem="failed")

    monkeypatch.setattr("gangway.trainer.checkpoint.async_saver.store.save", late)
    monkeypatch.setattr("gangway.trainer.run.loop.Reporter.samples", fails)
    with pytest.raises(TrainerError, match="elsewhere"):
        _train(short.replace({"checkpoint_kimg": 0.08, "sample_kimg": 0.16}), tmp_path, digits_dir)
    assert "the last checkpoint failed too: 000000000080.pt: cannot be written" in capsys.readouterr().out


def test_trackers_get_the_run_and_cannot_stop_it(
    short: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Lines,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://")
    interruption, context = Interruption(), RunContext(run_id="r")
    code = train(short, tmp_path, digits_dir, context, interruption, RunOptions(track=("tensorboard", "mlflow")))
    assert code == 0
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]  # has no types

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    ticks = [line for line in lines_of(tmp_path) if "step" in line]
    curve = [(event.step, event.value) for event in events.Scalars("loss_g")]
    assert curve == [(line["images"], pytest.approx(line["loss_g"])) for line in ticks]
    assert [image.step for image in events.Images("samples")] == [0, 320]
    assert capsys.readouterr().out.count("tracker mlflow failed") == 1
    json.loads((tmp_path / "run.json").read_text())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_run_goes_on_from_a_cpu_to_a_gpu_and_back(short: TrainConfig, tmp_path: Path, digits_dir: Path) -> None:
    for kimg, backend in ((0.16, "gloo"), (0.32, "nccl"), (0.48, "gloo")):
        assert _train(short.replace({"kimg": kimg, "backend": backend}), tmp_path, digits_dir) == 0
    record = RunRecord.read(tmp_path / "run.json")
    assert [session.images_to for session in record.sessions] == [160, 320, 480]
    assert [session.device.startswith("cpu") for session in record.sessions] == [True, False, True]
    state = checkpoint.load(tmp_path / "checkpoints/000000000480.pt").state
    assert all(tensor.device.type == "cpu" for tensor in state["ema"].values())
