"""The watchdog: its bound is learned and ends no run by itself; a stopped worker is found, told and replaced."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.heartbeat import Beat
from gangway.trainer.launch.failures import MAX_FAILURES, WINDOW_SEC, is_bad_luck
from gangway.trainer.launch.launcher import main
from gangway.trainer.launch.watchdog import StepBound, Watchdog

STEP = st.floats(1e-4, 1e4)


def beat(steps: int, *, training: bool = True) -> Beat:
    return Beat(1, 0, steps, steps, 0.0, training)


@given(st.lists(STEP, min_size=1), st.integers(21, 10**6), st.integers(0, 9))
def test_no_step_like_those_before_hangs(steps: list[float], made: int, hangs: int) -> None:
    bound = StepBound()
    for sec in steps:
        bound = bound.after_steps(sec, made, made)
    for _ in range(hangs):
        bound = bound.after_hang()
    seconds, _ = bound.get_bound(beat(made), "S")
    assert seconds >= 10 * max(steps)
    assert seconds >= 180
    after = bound.after_hang().get_bound(beat(made), "S")[0]
    assert after == max(seconds, min(2 * seconds, 1800)), "what is slow for good gets more time, up to a point"
    assert bound.after_steps(steps[0], made, made + 1).hangs == 0
    assert bound.after_steps(steps[0], made, made).hangs == hangs, "what was done before is done again: nothing is won"


@given(st.lists(st.tuples(STEP, st.integers(0, 20))), st.integers(0, 10**6), st.booleans())
def test_first_steps_have_half_an_hour_and_what_is_none_has_any_time(
    steps: list[tuple[float, int]], made: int, training: bool
) -> None:
    bound = StepBound()
    for sec, early in steps:
        bound = bound.after_steps(sec, early, early)
    expected = 1800 if training else math.inf
    assert bound.get_bound(beat(made, training=training), "S")[0] == expected, "first steps teach nothing: they compile"
    assert bound.get_bound(beat(made, training=training), "T")[0] == 60, "nothing goes on in a stopped process"


def test_a_bound_that_is_asked_for_holds_for_steps_alone() -> None:
    bound = StepBound(7.0).after_steps(99.0, 50, 50)
    assert bound.get_bound(beat(50), "R")[0] == 7
    assert bound.get_bound(beat(50, training=False), "R")[0] == math.inf
    assert StepBound(math.inf).get_bound(beat(50), "R")[0] == math.inf


@given(st.floats(1e-4, 180), st.integers(1, 10**6))
def test_what_hangs_at_the_same_image_each_time_comes_to_an_end(step_sec: float, steps: int) -> None:
    """As the launcher has it: each failure is the end of one, and the next knows nothing of the bound before."""
    now, failed = 0.0, list[float]()
    while len(failed) < MAX_FAILURES:
        bound = StepBound().after_steps(step_sec, steps, images=steps)
        while True:
            now += bound.get_bound(beat(steps), "S")[0]
            bound = bound.after_hang()
            if not is_bad_luck(bound.hangs, len(failed)):
                break
            bound = bound.after_steps(step_sec, steps, images=steps)
        failed.append(now)
    assert failed[0] > 0
    assert failed[-1] - failed[0] < WINDOW_SEC, "five failures that nothing counts together"


WORKER = """
import sys, time
import torch.distributed  # as a trainer has it by then: loading it takes longer than evidence is waited for
from gangway.trainer.core.heartbeat import beating
with beating(int(sys.argv[1]), int(sys.argv[1])) as heartbeat:
    for step in range(int(sys.argv[2])):
        heartbeat.step(step)
        time.sleep(0.01)
    print("quiet", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[[int, int], subprocess.Popen[str]]]:
    """Starts a worker of this process that makes so many steps and then none until it is sent a line."""
    begun: list[subprocess.Popen[str]] = []

    def start(rank: int, steps: int) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", WORKER, str(rank), str(steps)]
        env = {**os.environ, "GANGWAY_WATCH": str(tmp_path)}
        process = subprocess.Popen(argv, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        begun.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "quiet\n"
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_all_workers_of_a_node_are_ended_with_the_one_that_hangs(
    worker: Callable[[int, int], subprocess.Popen[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    watchdog = Watchdog(tmp_path, run_dir, 1.5)
    workers = [worker(rank, 30) for rank in (0, 1)]
    workers[1].send_signal(signal.SIGSTOP)
    watchdog.start()
    assert [process.wait(60) for process in workers] == [-signal.SIGKILL] * 2
    watchdog.close()
    assert (watchdog.consume_hang(), watchdog.consume_hang(), watchdog.hangs) == (True, False, 1)
    (folder,) = (run_dir / "hangs").iterdir()
    hang = json.loads((folder / "hang.json").read_text())
    assert hang["bound"] == "asked for"
    assert [(one["rank"], one["steps"], one["state"]) for one in hang["workers"]] == [(0, 29, "S"), (1, 29, "T")]
    assert "most recent call first" in (folder / "stacks-0.txt").read_text()
    assert json.loads((folder / "collectives-0.json").read_text())["version"]
    assert not (folder / "collectives-1.json").exists(), "a stopped process says nothing"
    told = capsys.readouterr().err
    assert "stopped by a signal: worker 1" in told
    assert str(folder) in told


@pytest.mark.slow
def test_workers_that_leave_are_not_hurried(
    worker: Callable[[int, int], subprocess.Popen[str]], tmp_path: Path
) -> None:
    watchdog = Watchdog(tmp_path, None, 0.5)
    process = worker(0, 3)
    watchdog.pause()
    watchdog.start()
    time.sleep(2)
    process.communicate("go on\n")
    watchdog.close()
    assert (process.returncode, watchdog.consume_hang()) == (0, False)


@pytest.mark.slow
def test_evidence_that_cannot_be_kept_lets_no_job_hang(
    worker: Callable[[int, int], subprocess.Popen[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    run_dir.write_text("a file where the folder would be")
    watchdog = Watchdog(tmp_path, run_dir, 0.5)
    process = worker(0, 3)
    watchdog.start()
    assert process.wait(60) == -signal.SIGKILL
    watchdog.close()
    assert "the evidence could not be kept" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["soon", "0", "-3", "nan"])
def test_a_bound_that_is_none_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hang-after", text, "--standalone"]) == 2
    told = capsys.readouterr().err
    assert "--hang-after: " in told
    assert "auto, off, or seconds above 0" in told


@pytest.mark.slow
def test_a_job_goes_on_after_a_worker_was_stopped(
    tiny_config: TrainConfig,
    digits_dir: Path,
    train_argv: Callable[..., list[str]],
    torchrun: Callable[..., Any],
    lines_of: Callable[[Path], list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    config = tiny_config.replace({"kimg": 6.0, "stats_kimg": 0.1, "checkpoint_kimg": 0.2})
    run_dir = tmp_path / "run"
    command = torchrun(*train_argv(config, run_dir, digits_dir), launcher=("--hang-after=4",))
    command.wait_for(lambda: len(list((run_dir / "checkpoints").glob("*.pt"))) > 1)
    os.kill(_last_worker(command.process.pid), signal.SIGSTOP)
    code, text = command.finish()
    assert code == 0, text
    assert "the workers hung and were ended: waiting for peers" in text
    lines = lines_of(run_dir)
    assert [line["event"] for line in lines if "event" in line and line["event"] in ("start", "resume")][-1] == "resume"
    assert max(line["images"] for line in lines) == config.total_images
    (folder,) = (run_dir / "hangs").iterdir()
    states = [one["state"] for one in json.loads((folder / "hang.json").read_text())["workers"]]
    assert states.count("T") == 1
    answered = json.loads(next(folder.glob("collectives-*.json")).read_text())
    assert "gloo:all_reduce" in {entry["profiling_name"] for entry in answered["entries"]}


def _last_worker(launcher: int) -> int:
    return int(Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()[-1])


@pytest.mark.slow
def test_a_worker_that_the_kernel_holds_is_one_hang_and_is_told_once(
    worker: Callable[[int, int], subprocess.Popen[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGKILL waits for the driver's call to come back; here for the test."""
    kill, run_dir = os.kill, tmp_path / "run"
    monkeypatch.setattr(os, "kill", lambda pid, number: None if number == signal.SIGKILL else kill(pid, number))
    monkeypatch.setattr("gangway.trainer.launch.watchdog._SURVIVES_SEC", 1.0)
    watchdog = Watchdog(tmp_path, run_dir, 0.5)
    worker(0, 30)
    watchdog.start()
    said = ""
    deadline = time.monotonic() + 60
    while "the kernel holds it" not in said and time.monotonic() < deadline:
        time.sleep(0.1)
        said += capsys.readouterr().err
    time.sleep(3)
    watchdog.close()
    said += capsys.readouterr().err
    assert said.count("the kernel holds it") == 1
    assert said.count("no sign of life") == watchdog.hangs == len(list((run_dir / "hangs").iterdir())) == 1
