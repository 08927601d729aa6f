"""One session at a time in a run directory: refused, waited for, taken over from the dead; no trace of nothing done."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import InUseError, TrainerError
from gangway.trainer.core.files import try_lock
from gangway.trainer.distributed.world import World
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from gangway.trainer.run.run_lock import LOCK_FILE, Patience, run_lock

Lines = Callable[[Path], list[dict[str, Any]]]

ALONE = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "one process")
LONG = 3600.0
HOLDER = """
import sys
from pathlib import Path
import torch
from gangway.trainer.run import run_lock
from gangway.trainer.distributed.world import World

run_lock._BEAT_SEC = float(sys.argv[2])
world = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "one process")
with run_lock.run_lock(Path(sys.argv[1]), world, lambda: False):
    print("held", flush=True)
    sys.stdin.read()
"""


def never() -> bool:
    return False


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def hold_it(run_dir: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a process at work in the directory; it ends when its stdin is closed."""
    started = []

    def begin(beat_sec: float = LONG) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", HOLDER, str(run_dir), str(beat_sec)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process

    yield begin
    for process in started:
        process.kill()
        with process:  # closes its pipes
            pass


@pytest.fixture
def argv(train_argv: Callable[..., list[str]], tiny_config: TrainConfig, run_dir: Path, digits_dir: Path) -> list[str]:
    return train_argv(tiny_config.replace({"kimg": 8000}), run_dir, digits_dir)


@pytest.fixture
def has_trained(run_dir: Path, lines_of: Lines) -> Callable[[], bool]:
    return lambda: any(line["images"] >= 160 for line in lines_of(run_dir))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.trainer.run.run_lock.boot_id", lambda: "another")


def _end(holder: subprocess.Popen[bytes]) -> None:
    assert holder.stdin is not None
    holder.stdin.close()
    assert holder.wait(60) == 0


def _pid(run_dir: Path) -> int:
    return int(json.loads((run_dir / LOCK_FILE).read_text())["pid"])


def _refused(run_dir: Path, patience: Patience) -> TrainerError:
    with pytest.raises(InUseError, match="another session is at work there") as caught:  # noqa: SIM117
        with run_lock(run_dir, ALONE, never, patience):
            pytest.fail("not to be entered")
    return caught.value


@pytest.mark.slow
def test_a_second_session_is_refused_and_told_of_the_first(
    hold_it: Callable[..., Any], run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holder = hold_it()
    error = _refused(run_dir, Patience(here=0.3))
    assert (error.place, error.value, error.exit_code) == ("--run-dir", str(run_dir), 1)
    assert f"process {holder.pid} on {os.uname().nodename}, since 20" in str(error)
    assert capsys.readouterr().err.count("waiting up to 0.3 s for it to end") == 1
    assert _pid(run_dir) == holder.pid


@pytest.mark.slow
def test_a_session_that_ends_in_time_is_waited_for(hold_it: Callable[..., Any], run_dir: Path) -> None:
    holder = hold_it()
    end = threading.Timer(0.5, holder.stdin.close)
    end.start()
    with run_lock(run_dir, ALONE, never, Patience(here=LONG)) as here:
        assert here
        assert _pid(run_dir) == os.getpid()
    assert holder.wait(60) == 0
    end.join()


@pytest.mark.slow
def test_a_killed_session_on_this_host_keeps_nobody_waiting(hold_it: Callable[..., Any], run_dir: Path) -> None:
    holder = hold_it()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (run_dir / LOCK_FILE).exists()
    with run_lock(run_dir, ALONE, never, Patience(0, 0, LONG)):
        assert _pid(run_dir) == os.getpid()
    assert not (run_dir / LOCK_FILE).exists()


@pytest.mark.slow
def test_a_signal_ends_the_wait(hold_it: Callable[..., Any], run_dir: Path) -> None:
    hold_it()
    with run_lock(run_dir, ALONE, lambda: True, Patience(here=LONG)) as here:
        assert not here


@pytest.mark.slow
def test_one_on_another_host_that_gives_signs_of_life_is_not_robbed(
    hold_it: Callable[..., Any], run_dir: Path, elsewhere: None
) -> None:
    holder = hold_it(beat_sec=0.05)
    assert f"process {holder.pid}" in str(_refused(run_dir, Patience(elsewhere=0.3, silent=LONG)))


@pytest.mark.slow
@pytest.mark.parametrize("locks", ["kept", "freed", "none", "unknown holder"])
def test_a_silent_host_is_taken_for_gone_whatever_the_file_system_makes_of_its_lock(
    hold_it: Callable[..., Any],
    run_dir: Path,
    elsewhere: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    locks: str,
) -> None:
    """NFSv3 keeps a dead host's lock for good, NFSv4 and Lustre for minutes; others know locks of one host alone."""
    holder = hold_it()
    if locks == "freed":
        holder.kill()
        holder.wait()
    if locks == "none":
        monkeypatch.setattr("gangway.trainer.core.files.fcntl.flock", _unsupported)
    if locks == "unknown holder":
        (run_dir / LOCK_FILE).write_text("")
    with run_lock(run_dir, ALONE, never, Patience(0, 0, silent=0.5)):
        assert _pid(run_dir) == os.getpid()
        if locks != "freed":
            _end(holder)
        assert _pid(run_dir) == os.getpid(), "not to be removed by one that wakes up"
    who = "another session" if locks == "unknown holder" else f"process {holder.pid} on"
    assert f"{who}" in capsys.readouterr().err
    assert not (run_dir / LOCK_FILE).exists()


@pytest.mark.slow
def test_without_locks_a_live_session_on_this_host_is_still_found(
    hold_it: Callable[..., Any], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_it(beat_sec=0.05)
    monkeypatch.setattr("gangway.trainer.core.files.fcntl.flock", _unsupported)
    _refused(run_dir, Patience(here=LONG, elsewhere=0.3, silent=LONG))


@pytest.mark.slow
def test_one_that_wakes_after_it_was_taken_for_gone_ends_and_says_so(
    hold_it: Callable[..., Any], run_dir: Path, elsewhere: None
) -> None:
    holder = hold_it(beat_sec=0.5)
    holder.send_signal(signal.SIGSTOP)
    with run_lock(run_dir, ALONE, never, Patience(0, 0, silent=1.0)):
        holder.send_signal(signal.SIGCONT)
        assert holder.wait(60) == 1
        assert f"was taken over by process {os.getpid()} on".encode() in holder.stderr.read()
        assert _pid(run_dir) == os.getpid()


def test_a_disk_that_fails_is_told(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("gangway.trainer.core.files.fcntl.flock", broken)
    with pytest.raises(TrainerError, match=r"\.lock: cannot be written: Input/output error"):
        run_lock(run_dir, ALONE, never).__enter__()


def test_a_file_that_its_holder_removes_meanwhile_is_asked_for_again(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened, then removed by a session that ends: its lock would be of no file that others see."""
    calls = []

    def late(file: Any) -> bool | None:
        calls.append(1)
        if len(calls) == 1:
            (run_dir / LOCK_FILE).unlink()
        if len(calls) == 2:
            (run_dir / LOCK_FILE).unlink()
            (run_dir / LOCK_FILE).touch()
        return try_lock(file)

    monkeypatch.setattr("gangway.trainer.run.run_lock.try_lock", late)
    with run_lock(run_dir, ALONE, never):
        assert len(calls) == 3
        assert _pid(run_dir) == os.getpid()


def test_a_directory_that_nothing_was_written_to_is_gone_again(tmp_path: Path) -> None:
    with run_lock(tmp_path / "runs" / "a", ALONE, never):
        (tmp_path / "runs" / "kept").write_text("")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["kept"]
    (tmp_path / "empty").mkdir()
    with run_lock(tmp_path / "empty", ALONE, never):
        pass
    assert (tmp_path / "empty").is_dir(), "made by the user"


def test_a_mistake_leaves_no_directory(tiny_config: TrainConfig, tmp_path: Path) -> None:
    config = tiny_config.replace({"dataset": "folder"})
    with pytest.raises(TrainerError, match="holds no data set"):
        train(config, tmp_path / "runs" / "a", tmp_path / "data", RunContext(), Interruption())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_both_of_two_workers_are_refused(
    hold_it: Callable[..., Any],
    torchrun: Callable[..., Any],
    argv: list[str],
    run_dir: Path,
) -> None:
    hold_it()
    code, text = torchrun(*argv).finish()
    assert code == 1, text
    assert text.count("--run-dir: another session is at work there") == 1, text
    assert "Traceback" not in text
    assert [path.name for path in run_dir.iterdir()] == [LOCK_FILE]


@pytest.mark.slow
def test_a_second_session_waits_for_the_first_to_save_and_goes_on_from_there(
    start: Callable[..., Any],
    argv: list[str],
    run_dir: Path,
    has_trained: Callable[[], bool],
) -> None:
    first = start(*argv)
    first.wait_for(has_trained)
    second = start(*argv)
    second.wait_for(lambda: "is in use by process" in second.printed())
    first.process.send_signal(signal.SIGTERM)
    assert first.finish()[0] == 75
    second.wait_for(lambda: "goes on from" in second.printed())
    second.process.send_signal(signal.SIGTERM)
    assert second.finish()[0] == 75
    record = RunRecord.read(run_dir / "run.json")
    assert [session.ended_by for session in record.sessions] == ["interrupt", "interrupt"]
    assert record.sessions[1].images_from == record.interruptions[0].images
    assert not (run_dir / LOCK_FILE).exists()


@pytest.mark.slow
def test_workers_whose_launcher_is_killed_save_and_let_the_directory_go(
    torchrun: Callable[..., Any],
    argv: list[str],
    run_dir: Path,
    lines_of: Lines,
    has_trained: Callable[[], bool],
) -> None:
    killed = torchrun(*argv)
    killed.wait_for(has_trained)
    killed.process.kill()
    killed.process.wait()
    following = torchrun(*argv, workers=1)
    following.wait_for(lambda: "goes on from" in following.printed())
    assert [line["cause"] for line in lines_of(run_dir) if line.get("event") == "interrupt"] == ["SIGTERM"]
    following.process.send_signal(signal.SIGTERM)
    assert following.finish()[0] == 75


def test_a_full_disk_leaves_no_lock(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("gangway.trainer.run.run_lock.os.fsync", full)
    with pytest.raises(TrainerError, match=r"\.lock: cannot be written: No space left"):
        run_lock(run_dir, ALONE, never).__enter__()
    assert not run_dir.exists()


@pytest.mark.slow
def test_a_signal_while_it_waits_ends_a_session_that_has_done_nothing(
    hold_it: Callable[..., Any],
    start: Callable[..., Any],
    argv: list[str],
    run_dir: Path,
) -> None:
    hold_it()
    waiting = start(*argv)
    waiting.wait_for(lambda: "is in use by process" in waiting.printed())
    waiting.process.send_signal(signal.SIGINT)
    code, text = waiting.finish()
    assert code == 75, text  # 1 had it waited on
    assert "interrupted by SIGINT before it began" in text
    assert [path.name for path in run_dir.iterdir()] == [LOCK_FILE]


def _unsupported(*_: object) -> None:
    raise OSError(errno.EOPNOTSUPP, "Operation not supported")
