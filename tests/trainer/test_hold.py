"""One session at a time in a run directory: refused, waited for, freed by a kill; no trace where nothing was done."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.config import TrainConfig
from trainer.errors import TrainerError
from trainer.hold import LOCK_FILE, Patience, held
from trainer.interruptions.interruption import Interruption
from trainer.loop import train
from trainer.record import RunContext, RunRecord
from trainer.workers.distributed import World

Lines = Callable[[Path], list[dict[str, Any]]]

ALONE = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "one process")
SHORT = Patience(alive=0.3, silent=0.6)
HOLDER = """
import sys
from pathlib import Path
import torch
from trainer.hold import held
from trainer.workers.distributed import World

with held(Path(sys.argv[1]), World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "one process")):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process at work in run/; it ends when its stdin is closed."""
    argv = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process's host is another than the holder's."""
    monkeypatch.setattr("trainer.hold.socket.gethostname", lambda: "another")


def test_a_second_session_is_refused_and_told_of_the_first(
    holder: subprocess.Popen[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        pytest.raises(TrainerError, match="another session is at work there") as caught,
        held(_dir(tmp_path), ALONE, SHORT),
    ):
        pytest.fail("not to be entered")
    assert (caught.value.place, caught.value.value) == ("--run-dir", str(_dir(tmp_path)))
    assert f"process {holder.pid} on {os.uname().nodename}, since 20" in str(caught.value)
    assert capsys.readouterr().err.count("waiting for it to end") == 1
    assert json.loads((_dir(tmp_path) / LOCK_FILE).read_text())["pid"] == holder.pid


def test_a_lock_of_a_silent_host_is_taken_over_and_the_silent_one_does_no_harm(
    holder: subprocess.Popen[bytes], tmp_path: Path, elsewhere: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on NFSv3, whose locks outlive their hosts."""
    assert holder.stdin is not None
    with held(_dir(tmp_path), ALONE, SHORT):
        assert f"process {holder.pid} on" in capsys.readouterr().err
        assert json.loads((_dir(tmp_path) / LOCK_FILE).read_text())["pid"] == os.getpid()
        holder.stdin.close()
        assert holder.wait(60) == 0
        assert (_dir(tmp_path) / LOCK_FILE).exists(), "ours, not to be removed by the one that woke up"
    assert list(_dir(tmp_path).iterdir()) == []


def test_one_on_another_host_that_shows_signs_of_life_is_not_robbed(
    holder: subprocess.Popen[bytes], tmp_path: Path, elsewhere: None
) -> None:
    path, ended = _dir(tmp_path) / LOCK_FILE, threading.Event()

    def beat() -> None:
        while not ended.wait(0.05):
            os.utime(path)

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        with pytest.raises(TrainerError, match="another session is at work"), held(_dir(tmp_path), ALONE, SHORT):
            pytest.fail("not to be entered")
    finally:
        ended.set()
        beating.join()


def test_a_holder_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.hold._BEAT_SEC", 0.01)
    path = _dir(tmp_path) / LOCK_FILE
    with held(_dir(tmp_path), ALONE):
        first = path.stat().st_mtime_ns
        deadline = time.monotonic() + 60
        while path.stat().st_mtime_ns == first:
            assert time.monotonic() < deadline


def test_a_session_that_ends_in_time_is_waited_for(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert holder.stdin is not None
    end = threading.Timer(0.5, holder.stdin.close)
    end.start()
    with held(_dir(tmp_path), ALONE, Patience(alive=60)):
        assert json.loads((_dir(tmp_path) / LOCK_FILE).read_text())["pid"] == os.getpid()
        assert holder.wait(60) == 0
    end.join()


def test_a_killed_session_holds_nothing(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (_dir(tmp_path) / LOCK_FILE).exists()
    with held(_dir(tmp_path), ALONE, Patience(alive=0)):
        assert json.loads((_dir(tmp_path) / LOCK_FILE).read_text())["pid"] == os.getpid()
    assert not (_dir(tmp_path) / LOCK_FILE).exists()


def test_a_directory_that_nothing_was_written_to_is_gone_again(tmp_path: Path) -> None:
    with held(tmp_path / "runs" / "a", ALONE):
        (tmp_path / "runs" / "kept").write_text("")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["kept"]
    (tmp_path / "empty").mkdir()
    with held(tmp_path / "empty", ALONE):
        pass
    assert (tmp_path / "empty").is_dir(), "made by the user"


def test_a_mistake_leaves_no_directory(tiny_config: TrainConfig, tmp_path: Path) -> None:
    config = tiny_config.replace({"dataset": "folder"})
    with pytest.raises(TrainerError, match="holds no data set"):
        train(config, tmp_path / "runs" / "a", tmp_path / "data", RunContext(), Interruption())
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_will_do_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("trainer.hold.fcntl.lockf", unsupported)
    with held(_dir(tmp_path), ALONE):
        assert "cannot be locked (Function not implemented)" in capsys.readouterr().err


def test_a_second_session_waits_for_the_first_to_save_and_goes_on_from_there(
    start: Callable[..., Any],
    train_argv: Callable[..., list[str]],
    tiny_config: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Lines,
) -> None:
    argv = train_argv(tiny_config, _dir(tmp_path), digits_dir)
    first = start(*argv)
    first.wait_for(lambda: any(line["images"] >= 160 for line in lines_of(_dir(tmp_path))))
    second = start(*argv)
    first.wait_for(lambda: "is in use by process" in second.printed())
    first.process.send_signal(signal.SIGTERM)
    assert first.finish()[0] == 75
    code, text = second.finish()
    assert code == 0, text
    record = RunRecord.read(_dir(tmp_path) / "run.json")
    (stop,) = record.interruptions
    assert [session.ended_by for session in record.sessions] == ["interrupt", "done"]
    assert record.sessions[1].images_from == stop.images < tiny_config.total_images
    assert not (_dir(tmp_path) / LOCK_FILE).exists()


def _dir(tmp_path: Path) -> Path:
    return tmp_path / "run"
