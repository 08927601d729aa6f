"""Saving beside training: what was handed over is what is on disk, slow disks are waited for, failures come out."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gangway.trainer.checkpoint import async_saver, store
from gangway.trainer.checkpoint.async_saver import Saved, Saver, copy_to_cpu
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.digest import RunIdentity

IDENTITY = RunIdentity(run_id="r", session=0, dataset_sha256="ab")
State = dict[str, object]


def _state(value: float) -> State:
    return {"images": 1, "g": {"weight": torch.full((64, 64), value)}, "opt": [{"step": torch.tensor(value)}]}


@pytest.fixture
def saved() -> list[Saved]:
    return []


@pytest.fixture
def saver(tmp_path: Path, tiny_config: TrainConfig, saved: list[Saved]) -> Saver:
    return Saver(tmp_path, tiny_config, IDENTITY, saved.append)


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """No fsync returns before this event is set."""
    released = threading.Event()
    fsync = os.fsync

    def waiting(handle: int) -> None:
        assert released.wait(60)
        fsync(handle)

    monkeypatch.setattr("gangway.trainer.core.files.os.fsync", waiting)
    return released


def test_what_changes_after_the_hand_over_is_not_saved(
    saver: Saver, tmp_path: Path, slow_disk: threading.Event
) -> None:
    weights = torch.ones(8)
    saver.save({"g": weights}, 100)
    weights.fill_(2)
    slow_disk.set()
    saver.wait()
    assert store.load(tmp_path / "000000000100.pt").state["g"].tolist() == [1] * 8


def test_a_save_is_reported_when_it_is_on_disk_and_not_before(
    saver: Saver, tmp_path: Path, saved: list[Saved], slow_disk: threading.Event
) -> None:
    saver.save(_state(1), 100, "rebalance")
    assert saved == []
    assert store.newest(tmp_path) is None
    slow_disk.set()
    saver.wait()
    (report,) = saved
    assert (report.path, report.images, report.why) == (tmp_path / "000000000100.pt", 100, "rebalance")
    assert report.sec >= report.stall_sec > 0
    assert saver.stall_sec == report.stall_sec


def test_the_next_save_waits_for_a_slow_disk(
    saver: Saver, saved: list[Saved], slow_disk: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver.save(_state(1), 100)
    threading.Timer(0.2, slow_disk.set).start()
    saver.save(_state(2), 200)
    assert slow_disk.is_set(), "it came back before the first save was on disk"
    saver.wait()
    assert [report.images for report in saved] == [100, 200]
    assert saver.stall_sec == pytest.approx(sum(report.stall_sec for report in saved))
    for report, value in zip(saved, (1, 2), strict=True):
        assert store.load(report.path).state["g"]["weight"][0, 0] == value


@pytest.mark.parametrize("ask", ["wait", "save"])
def test_a_full_disk_is_told_by_the_next_that_asks_and_once(
    saver: Saver, tmp_path: Path, ask: str, full_disk: Callable[[str], None]
) -> None:
    saver.save(_state(1), 100)
    saver.wait()
    full_disk("000000000200.pt")
    saver.save(_state(2), 200)
    asking: dict[str, Callable[[], None]] = {"wait": saver.wait, "save": lambda: saver.save(_state(3), 300)}
    with pytest.raises(TrainerError, match=r"000000000200\.pt: cannot be written: No space left on device") as caught:
        asking[ask]()
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert not saver.failed
    saver.wait()
    found, passed_over = store.load_newest_valid(tmp_path)
    assert found is not None
    assert (found.manifest.images, passed_over) == (100, [])


def test_a_failure_is_known_without_waiting(saver: Saver, full_disk: Callable[[str], None]) -> None:
    full_disk("000000000100.pt")
    saver.save(_state(1), 100)
    assert saver._thread is not None
    saver._thread.join()
    assert saver.failed
    with pytest.raises(TrainerError):
        saver.wait()


def test_what_is_told_of_a_save_and_fails_counts_as_a_failure(tmp_path: Path, tiny_config: TrainConfig) -> None:
    def fails(saved: Saved) -> None:
        raise TrainerError(place="stats.jsonl", problem="cannot be written")

    saver = Saver(tmp_path, tiny_config, IDENTITY, fails)
    saver.save(_state(1), 100)
    with pytest.raises(TrainerError, match=r"stats\.jsonl: cannot be written"):
        saver.wait()


def test_a_process_that_ends_completes_its_save(saver: Saver, slow_disk: threading.Event) -> None:
    saver.save(_state(1), 100)
    assert saver._thread is not None
    assert not saver._thread.daemon, "the interpreter waits for it"
    slow_disk.set()
    saver.wait()


def test_copies_keep_values_and_layout_and_use_their_buffers_again() -> None:
    wide = torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    value = {"images": 5, "parts": [wide, (torch.ones(2), "text")]}
    first = copy_to_cpu(value)
    assert first["parts"][0].stride() == wide.stride()
    assert torch.equal(first["parts"][0], wide)
    assert first["parts"][0].data_ptr() != wide.data_ptr()
    wide.zero_()
    second = copy_to_cpu({**value, "images": 6, "more": torch.ones(1)}, first)
    assert second["parts"][0].data_ptr() == first["parts"][0].data_ptr()
    assert (second["images"], second["parts"][1][1], second["parts"][0].sum()) == (6, "text", 0)


@pytest.mark.parametrize("other", [torch.zeros(3), torch.zeros(2, dtype=torch.float64), torch.zeros(2, 1), None])
def test_a_buffer_that_does_not_fit_is_made_anew(other: torch.Tensor | None) -> None:
    copied = copy_to_cpu([torch.tensor([1.0, 2.0])], [other])
    assert copied[0].tolist() == [1, 2]
    assert copied[0].dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpus_tensors_go_through_page_locked_memory() -> None:
    value = {"g": torch.rand(64, 64, device="cuda")}
    first = copy_to_cpu(value)
    assert first["g"].is_pinned()
    assert torch.equal(first["g"], value["g"].cpu())
    value["g"].add_(1)
    second = copy_to_cpu(value, first)
    assert second["g"].data_ptr() == first["g"].data_ptr()
    assert torch.equal(second["g"], value["g"].cpu())


def test_another_devices_tensors_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(torch.Tensor):
        """A tensor that says it is on XLA."""

        @property
        def device(self) -> torch.device:  # type: ignore[override]  # the point of it
            return torch.device("xla")

    moved = []

    def cpu(self: torch.Tensor) -> torch.Tensor:
        moved.append(self)
        return torch.zeros(1)

    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    assert async_saver.copy_to_cpu([torch.ones(1).as_subclass(Elsewhere)])[0].tolist() == [0]
    assert len(moved) == 1
