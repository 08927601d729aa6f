"""Notes of GPU settings: a run that was killed is undone, one that lives is left alone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.distributed.world import World
from gangway.trainer.power.energy import Gpu
from gangway.trainer.power.limits import PowerAsked, limiting
from gangway.trainer.power.saved_limits import BoardState, Note, saved_limits_folder, undo_left_over

BEFORE = {"limit_mw": 700_000, "clocks": None}

# A run in a process of its own: the trainer's signals, limits, and a loop that asks for interruptions.
RUN = """
import sys, time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

spec = spec_from_file_location("stand_in", sys.argv[1])
stand_in = module_from_spec(spec)
spec.loader.exec_module(stand_in)

from gangway.trainer.power.energy import Gpu
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.power.limits import PowerAsked, limiting

interruption = Interruption().install()
nvml = stand_in.StatefulNvml(Path(sys.argv[2]))
with limiting(stand_in.ALONE, PowerAsked(watts=450.0, clock_mhz=1500), Gpu("H200", "GPU-0", 0), nvml) as limiter:
    limiter.begin(lambda event, **details: print(event, flush=True))
    while not interruption.requested:
        time.sleep(0.02)
sys.exit(75)
"""


@pytest.fixture
def run(tmp_path: Path, nvml: Any, notes: Path) -> Iterator[Callable[[], "subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []

    def begin() -> "subprocess.Popen[str]":
        conftest = Path(__file__).with_name("conftest.py")
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(conftest), str(nvml.path)], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "power-limit\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.slow
def test_sigterm_in_the_middle_restores(run: Callable[[], Any], nvml: Any, notes: Path) -> None:
    process = run()
    assert nvml.state("GPU-0") == {"limit_mw": 450_000, "clocks": [345, 1500]}
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 75
    assert nvml.state("GPU-0") == BEFORE
    assert list(notes.iterdir()) == []


@pytest.mark.slow
def test_a_killed_run_is_undone_by_whoever_comes_next_and_a_living_one_is_not(
    run: Callable[[], Any], nvml: Any, notes: Path
) -> None:
    process = run()
    assert undo_left_over(notes, nvml) == [], "its run goes on"
    assert nvml.state("GPU-0")["limit_mw"] == 450_000
    process.kill()
    process.wait(20)
    assert undo_left_over(notes, nvml) == [
        "restored the GPU settings that a killed run had left: GPU-0 to 700 W and unlocked clocks"
    ]
    assert nvml.state("GPU-0") == BEFORE
    assert list(notes.iterdir()) == []
    assert undo_left_over(notes, nvml) == []


@pytest.mark.slow
def test_the_next_run_restores_before_it_notes_what_was_set(
    run: Callable[[], Any], nvml: Any, alone: World, gpu: Gpu, capsys: pytest.CaptureFixture[str]
) -> None:
    process = run()
    process.kill()
    process.wait(20)
    with limiting(alone, PowerAsked(watts=500.0), gpu, nvml) as limiter:
        assert limiter is not None
        limiter.begin(lambda event, **details: None)
        assert nvml.state("GPU-0") == {"limit_mw": 500_000, "clocks": None}
    assert nvml.state("GPU-0") == BEFORE, "not the 450 W that the killed run had left"
    assert "a killed run had left" in capsys.readouterr().err


def _left(folder: Path, **changes: Any) -> Path:
    note = Note.write(folder, [BoardState("GPU-0", 700_000, clocks=False)])
    os.close(note.handle)
    note.path.write_text(json.dumps({**json.loads(note.path.read_text()), **changes}))
    return note.path


def test_what_cannot_be_restored_stays_noted(nvml: Any, notes: Path) -> None:
    path = _left(notes)
    nvml.refuse["nvmlDeviceSetPowerManagementLimit"] = nvml.NVMLError_NoPermission("Insufficient Permissions")
    (sentence,) = undo_left_over(notes, nvml)
    assert "could not be restored: GPU-0: Insufficient Permissions" in sentence
    nvml.refuse = {"nvmlInit": nvml.NVMLError("Driver Not Loaded")}
    (sentence,) = undo_left_over(notes, nvml)
    assert "Driver Not Loaded" in sentence
    assert path.exists()


def test_a_reboot_has_undone_everything_already(nvml: Any, notes: Path) -> None:
    path = _left(notes, boot_id="another")
    (sentence,) = undo_left_over(notes, nvml)
    assert "from before the last boot" in sentence
    assert (nvml.calls, path.exists()) == ([], False)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"gpus": [{}], "boot_id": ""}', '{"gpus": 3}'])
def test_a_damaged_note_is_told_and_removed(nvml: Any, notes: Path, content: str) -> None:
    path = _left(notes)
    path.write_text(content)
    (sentence,) = undo_left_over(notes, nvml)
    assert "damaged note" in sentence
    assert (nvml.calls, path.exists()) == ([], False)


def test_nobody_elses_note_is_followed(nvml: Any, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _left(notes)
    monkeypatch.setattr("os.geteuid", lambda: path.stat().st_uid + 1)
    (sentence,) = undo_left_over(notes, nvml)
    assert "another user's" in sentence
    target = notes / "target.json"
    path.rename(target)
    (notes / "power-1.json").symlink_to(target)
    (sentence,) = undo_left_over(notes, nvml)
    assert "cannot be opened" in sentence
    assert nvml.calls == []


def test_notes_are_where_root_alone_writes_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GANGWAY_POWER_DIR", raising=False)
    assert saved_limits_folder() == Path("/run/gangway")


@pytest.mark.slow
def test_the_launcher_restores_when_its_workers_are_gone(
    notes: Path, start: Callable[..., Any], tmp_path: Path
) -> None:
    """No driver here, so it says that it cannot: it has looked, and the note stays for the next start."""
    path = _left(notes)
    argv = ("-m", "gangway.trainer.launch", "--standalone", "--nproc-per-node=1", "-m", "gangway.trainer", "presets")
    code, text = start(*argv, GANGWAY_POWER_DIR=str(notes)).finish()
    assert code == 0, text
    assert "could not be restored" in text
    assert path.exists()


def test_a_note_that_cannot_be_finished_leaves_nothing(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        Note.write(notes, [BoardState("GPU-0", 700_000, clocks=False)])
    assert list(notes.iterdir()) == []
