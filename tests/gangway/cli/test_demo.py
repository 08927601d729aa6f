"""`gangway demo --quick`: the whole story, run as a stranger would, and what happens when it is cut short."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from PIL import Image

from gangway.cli import demo
from gangway.components.core.findings import InputError
from gangway.trainer.records.run_record import RunRecord


def _gangway(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    # A shell starts what it puts in the background with SIGINT ignored, and children inherit that: not so a terminal.
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    started = f"{listening}; from gangway.cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", started, *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_the_quick_demo_tells_the_whole_story(tmp_path: Path) -> None:
    with _gangway("demo", "--quick", cwd=tmp_path) as process:
        output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    latest = tmp_path / "runs/demo/latest"
    record = RunRecord.model_validate_json((latest / "run.json").read_text())
    assert record.status == "done"
    assert [session.ended_by for session in record.sessions] == ["interrupt", "done"]
    assert record.sessions[1].images_from == record.sessions[0].images_to > 0
    assert [session.world_size for session in record.sessions] == [2, 2]
    assert record.images >= 4000
    quality = record.quality[-1]
    assert quality.name == "FD-ENL0"
    values = {k: getattr(quality, k).value for k in ("untrained", "trained", "real_vs_real")}
    assert values["real_vs_real"] < min(values["untrained"], values["trained"])
    plan = json.loads((latest / "plan.json").read_text())
    assert json.loads((latest / "job.json").read_text())["backend"] == "gloo"
    assert plan["stack"] == "aws-demo"
    with Image.open(latest / "samples.png") as grid:
        assert min(grid.size) >= 200
    page = (latest / "report.html").read_text()
    assert "Simulated" in page
    for words in ("SIMULATED", "REAL", "resumed from the checkpoint", "read back equal", "FD-ENL0, untrained"):
        assert words in output


@contextmanager
def _killed_at_last(process: subprocess.Popen[str]) -> Iterator[None]:
    """A test that fails leaves nothing for others to trip over."""
    try:
        yield
    finally:
        process.kill()


@pytest.mark.slow
def test_ctrl_c_during_training_leaves_no_process_and_no_half_result(tmp_path: Path) -> None:
    with _gangway("demo", "--out", "out", cwd=tmp_path) as process, _killed_at_last(process):
        deadline = time.monotonic() + 200
        while not list(tmp_path.glob("out/*/stats.jsonl")):
            assert process.poll() is None, process.stdout.read() if process.stdout else ""
            assert time.monotonic() < deadline, "training did not begin"
            time.sleep(0.2)
        workers = psutil.Process(process.pid).children(recursive=True)
        assert workers
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert "Traceback" not in output
    assert not [worker for worker in workers if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]
    assert not (tmp_path / "out/latest").exists()


def test_no_room_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "NEEDED_DISK_MIB", 2**50)
    with pytest.raises(InputError, match="not enough disk space"):
        demo.run_demo(tmp_path / "out", quick=True)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"file/out: cannot be written"):
        demo.run_demo(tmp_path / "file/out", quick=True)


def test_latest_moves_to_the_newer_run_in_one_step(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        link = demo._link_latest(tmp_path, tmp_path / name)
        assert link.readlink() == Path(name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "latest", "second"]
