"""What the benchmark starts ends with it, also by SIGKILL: whatever it does by then, and nothing else."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tools.bench.guard import guarded_folder

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
LAUNCHER = f"""
import subprocess, sys
worker = subprocess.Popen({SLEEPER!r}, start_new_session=True)
print(worker.pid, flush=True)
if "leaves" not in sys.argv:
    worker.wait()
"""
BENCH = f"""
import os, signal, subprocess, sys, time
from tools.bench.guard import guarded_folder

def launched(*how):
    launcher = subprocess.Popen([sys.executable, "-c", {LAUNCHER!r}, *how], stdout=subprocess.PIPE, close_fds=False)
    return launcher, int(launcher.stdout.readline())

with guarded_folder() as folder:
    (folder / "run").mkdir()
    (folder / "run" / "stats.jsonl").write_text("a line")
    awake, worker = launched()
    asleep, stopped_worker = launched()
    os.kill(stopped_worker, signal.SIGSTOP)
    os.kill(asleep.pid, signal.SIGSTOP)
    left, orphan = launched("leaves")
    left.wait()
    print(folder, awake.pid, worker, asleep.pid, stopped_worker, orphan, flush=True)
    time.sleep(600)
"""
DEADLINE_SEC = 60.0


def guards_of(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children() if "tools.bench.guard" in _cmdline(child)]


def _cmdline(process: psutil.Process) -> list[str]:
    """Nothing for one that has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


class Bench:
    """A small benchmark: it has two launchers and three workers, of which one launcher and its worker sleep."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        folder, *numbers = process.stdout.readline().split()
        self.process, self.folder = process, Path(folder)
        self.started = [psutil.Process(int(number)) for number in numbers]
        (self.guard,) = guards_of(psutil.Process(process.pid))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", BENCH], env=environment, stdout=subprocess.PIPE, text=True) as process:
        begun = Bench(process)
        yield begun
        process.kill()
        for each in [*begun.started, begun.guard]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


def gone(process: psutil.Process) -> bool:
    """Also when nobody has asked for its exit code yet."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def comes(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_SEC
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_a_killed_benchmark_leaves_nothing(bench: Bench, tmp_path: Path) -> None:
    assert len(bench.started) == 5
    assert not any(map(gone, bench.started))
    assert bench.folder.parent == tmp_path
    bench.process.kill()
    assert comes(lambda: all(map(gone, bench.started)))
    assert comes(lambda: gone(bench.guard))
    assert list(tmp_path.iterdir()) == []


def test_what_ends_a_benchmark_does_not_end_its_guard(bench: Bench, tmp_path: Path) -> None:
    """Whoever sends a signal to a whole session or to all that `ps` shows; here SIGTERM is not heard by Python."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        bench.guard.send_signal(number)
    assert os.getsid(bench.guard.pid) == bench.guard.pid
    bench.process.terminate()
    assert comes(lambda: all(map(gone, [*bench.started, bench.guard])))
    assert list(tmp_path.iterdir()) == []


def test_without_its_guard_a_benchmark_clears_up_itself() -> None:
    with guarded_folder() as folder:
        (guard,) = guards_of(psutil.Process())
        guard.kill()
        sleeper = subprocess.Popen(SLEEPER)
    assert sleeper.wait(DEADLINE_SEC) == -signal.SIGKILL
    assert not folder.exists()


def test_an_orderly_end_leaves_nothing_and_touches_nobody_else() -> None:
    before = dict(os.environ)
    with contextlib.ExitStack() as bystanders:

        def bystander(environment: dict[str, str]) -> subprocess.Popen[bytes]:
            process = bystanders.enter_context(subprocess.Popen(SLEEPER, env=environment))
            bystanders.callback(process.kill)
            return process

        others = [bystander(before)]
        with guarded_folder() as folder:
            (folder / "data").mkdir()
            left = subprocess.Popen(SLEEPER)
            (name,) = os.environ.keys() - before.keys()
            others.append(bystander({**before, name: f"{folder}2"}))
            guards = guards_of(psutil.Process())
        assert left.wait(DEADLINE_SEC) == -signal.SIGKILL
        assert not folder.exists()
        assert [process.poll() for process in others] == [None, None]
    assert dict(os.environ) == before
    assert len(guards) == 1
    assert gone(guards[0])


def test_an_error_passes_the_guard() -> None:
    with pytest.raises(ZeroDivisionError), guarded_folder() as folder:
        _ = 1 / 0
    assert not folder.exists()


def test_without_a_folder_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(RuntimeError, match="guard ended with 1"), guarded_folder():
        pass


def test_the_guard_is_small() -> None:
    """It should be the last that a machine without memory ends, and costs a benchmark no second."""
    script = "import sys, tools.bench.guard; print(sys.modules.keys() & {'torch', 'numpy', 'psutil', 'pydantic'})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
