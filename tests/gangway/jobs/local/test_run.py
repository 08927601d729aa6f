"""Running a JobSpec here: following its statistics, interrupting it, and leaving no process behind."""

import os
import subprocess
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from gangway.components.core.job import JobSpec, Rendezvous, Training
from gangway.jobs.local.run import LocalRun, StatsTail, run_module

_STUBBORN = """
import pathlib, signal, sys, time
{handler}
pathlib.Path(sys.argv[-1]).write_text("ready")
time.sleep(60)
"""


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    """A job whose launcher is a little program of the test's, found through PYTHONPATH."""
    package = tmp_path / "fakejob"
    package.mkdir()
    (package / "__init__.py").write_text("")
    return JobSpec(
        name="test",
        backend="gloo",
        num_nodes_min=1,
        num_nodes_max=1,
        processes_per_node=1,
        rendezvous=Rendezvous(standalone=True),
        module="fakejob",
        training=Training(config={}, config_file=str(tmp_path / "train.json"), run_dir=str(tmp_path / "ready")),
        env={"PYTHONPATH": str(tmp_path)},
        shutdown_timeout_sec=1,
    )


def _launcher(tmp_path: Path, handler: str) -> None:
    (tmp_path / "fakejob/launch.py").write_text(textwrap.dedent(_STUBBORN).format(handler=handler))


def _wait_ready(tmp_path: Path) -> None:
    deadline = time.monotonic() + 30
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < deadline, "the job did not start"
        time.sleep(0.05)


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_a_line_still_being_written_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "stats.jsonl"
    tail = StatsTail(path)
    assert tail.new_lines() == []
    path.write_text('{"images": 1}\n{"ima')
    assert tail.new_lines() == [{"images": 1}]
    assert tail.new_lines() == []
    path.write_text('{"images": 1}\n{"images": 2}\n')
    assert tail.new_lines() == [{"images": 2}]


def test_interrupt_reaches_the_job_and_its_exit_code_comes_back(tmp_path: Path, job: JobSpec) -> None:
    _launcher(tmp_path, "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))")
    with LocalRun.start(job, tmp_path / "log") as run:
        _wait_ready(tmp_path)
        run.interrupt()
        deadline = time.monotonic() + 30
        while (code := run.exit_code) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert code == 75


def test_leaving_early_ends_even_a_job_that_ignores_sigterm(tmp_path: Path, job: JobSpec) -> None:
    _launcher(tmp_path, "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    before = _children()
    with LocalRun.start(job, tmp_path / "log"):
        _wait_ready(tmp_path)
        assert not _children() <= before
    assert _children() <= before


def test_a_job_is_shielded_from_ctrl_c_in_the_terminal(tmp_path: Path, job: JobSpec) -> None:
    _launcher(tmp_path, "")
    with LocalRun.start(job, tmp_path / "log"):
        _wait_ready(tmp_path)
        (pid,) = (child.pid for child in psutil.Process().children() if "fakejob.launch" in child.cmdline())
        assert os.getsid(pid) == pid != os.getsid(0)


def test_run_module_reports_time_and_raises_on_failure(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert all(sec >= 0 for sec in run_module("json.tool", ["--help"], log, {}))
    assert "usage" in log.read_text()
    with pytest.raises(subprocess.CalledProcessError) as failed:
        list(run_module("json.tool", [str(tmp_path / "missing.json")], log, {}))
    assert failed.value.returncode != 0
