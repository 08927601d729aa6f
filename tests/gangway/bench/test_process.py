"""The real `gangway bench` in a process of its own, with a stand-in for Pulumi's CLI: run, Ctrl-C, kill, resume."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.trainer.records.run_record import RunRecord

SUITE: dict[str, Any] = {
    "name": "there", "preset": "dcgan-digits", "kimg": 1, "seeds": [0, 1], "deadline_hours": 0.5,
    "stacks": [{"stack": "aws-g5-dev", "label": "aws"}], "budget": {"usd": 20},
}  # fmt: skip


class Bench:
    """Suites in processes of their own, all of which end with the test.

    Attributes:
        out: where runs go.
        suite: the suite's file.
    """

    def __init__(self, folder: Path, fake: Any) -> None:
        self.out, self.suite, self.fake = folder / "runs", folder / "suite.yaml", fake
        self._processes: list[subprocess.Popen[str]] = []
        self.env = {**os.environ, "PULUMI_CONFIG_PASSPHRASE": "x"}

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "gangway.cli", "bench", *words],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._processes.append(process)
        return process

    def run(self) -> subprocess.Popen[str]:
        return self.start("run", str(self.suite), "--out", str(self.out), "--backend-url", "file:///state")

    @property
    def run_dir(self) -> Path:
        (found,) = self.out.glob("there-*")
        return found

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads((self.run_dir / "results.json").read_text("utf-8"))["items"]
        return rows

    def wait_for(self, command: str) -> None:
        """Until the stand-in has been asked for a command."""
        deadline = time.monotonic() + 60
        while not ((self.fake.home / "commands.log").exists() and command in self.fake.commands):
            assert time.monotonic() < deadline, command
            assert self._processes[-1].poll() is None, self._processes[-1].communicate()[0]
            time.sleep(0.05)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def bench(tmp_path: Path, fake: Any, make_record: Callable[..., RunRecord], repo: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, fake)
    made.suite.write_text(yaml.safe_dump(SUITE), "utf-8")
    (tmp_path / "record.json").write_text(make_record("x", 0).model_dump_json(), "utf-8")
    fake.orders(up={"record": str(tmp_path / "record.json")})
    made.env["PYTHONPATH"] = str(repo)
    yield made
    made.end()


@pytest.mark.slow
def test_a_suite_on_stacks_from_begin_to_end(bench: Bench, tmp_path: Path) -> None:
    process = bench.run()
    told, _ = process.communicate(timeout=120)
    assert process.returncode == 0, told
    rows = bench.rows()
    assert [row["status"] for row in rows] == ["recorded", "recorded"]
    assert [RunRecord.read(bench.run_dir / row["record"]).seed for row in rows] == [0, 1]
    assert rows[0]["usd"]["provenance"] == "estimated"
    assert "rung 0 (on-demand)" in rows[0]["usd"]["source"]
    assert bench.fake.stacks == []
    assert "Traceback" not in told


@pytest.mark.slow
def test_ctrl_c_in_up_destroys_and_resume_finishes(bench: Bench, tmp_path: Path) -> None:
    bench.fake.orders(up={"sleep": 60})
    process = bench.run()
    bench.wait_for("up")
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "SIGINT: stopping" in told
    assert bench.fake.stacks == []
    assert [row["status"] for row in bench.rows()] == ["stopped", "planned"]
    bench.fake.orders(up={"record": str(tmp_path / "record.json")})
    again = bench.start("resume", str(bench.run_dir))
    told, _ = again.communicate(timeout=120)
    assert again.returncode == 0, told
    assert [row["status"] for row in bench.rows()] == ["recorded", "recorded"]


@pytest.mark.slow
def test_ctrl_c_twice_leaves_at_once_and_says_how_to_go_on(bench: Bench) -> None:
    bench.fake.orders(up={"sleep": 10, "stubborn": True})
    process = bench.run()
    bench.wait_for("up")
    process.send_signal(signal.SIGINT)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "gangway bench resume" in told
    assert len(bench.fake.stacks) == 1
    bench.fake.orders()
    again = bench.start("resume", str(bench.run_dir), "--clean-only")
    told, _ = again.communicate(timeout=60)
    assert again.returncode == 0, told
    assert bench.fake.stacks == []


@pytest.mark.slow
@pytest.mark.parametrize("during", ["up", pytest.param("destroy", marks=pytest.mark.slow)])
def test_after_a_kill_resume_ends_what_was_left(bench: Bench, tmp_path: Path, during: str) -> None:
    """Pulumi's process outlives ours, and is ended before its stack is destroyed."""
    report = {"record": str(tmp_path / "record.json")}
    bench.fake.orders(**{"up": report, during: {**report, "sleep": 60}})
    process = bench.run()
    bench.wait_for(during)
    process.kill()
    process.communicate()
    assert len(bench.fake.stacks) == 1
    held = bench.start("resume", str(bench.run_dir), "--clean-only")
    bench.fake.orders(up=report)
    told, _ = held.communicate(timeout=90)
    assert held.returncode == 0, told
    assert bench.fake.stacks == []
    assert (bench.fake.home / "interrupted").exists()
    assert bench.rows()[0]["standing"] is False


@pytest.mark.slow
def test_another_login_than_the_suites_is_told(bench: Bench) -> None:
    bench.fake.orders(up={"sleep": 60})
    process = bench.run()
    bench.wait_for("up")
    process.kill()
    process.communicate()
    bench.fake.orders(backend="file:///elsewhere")
    again = bench.start("resume", str(bench.run_dir))
    told, _ = again.communicate(timeout=60)
    assert again.returncode == 2
    assert "not the state backend" in told
    assert "pulumi login file:///state" in told


@pytest.mark.slow
def test_a_suite_on_this_machine_goes_on_after_a_kill(tmp_path: Path, bench: Bench) -> None:
    """With the real trainer: killed in its second run, it goes on from the checkpoint there."""
    suite = {**SUITE, "kimg": 3, "checkpoint_kimg": 0.5, "stacks": ["local"], "settings": {"stats_kimg": 0.2}}
    bench.suite.write_text(yaml.safe_dump({**suite, "seeds": [0]}), "utf-8")
    process = bench.start("run", str(bench.suite), "--local", "--out", str(bench.out))
    deadline = time.monotonic() + 120
    while not list(bench.out.glob("there-*/local-*/checkpoints/*.pt")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.kill()
    process.communicate()
    again = bench.start("resume", str(bench.run_dir))
    told, _ = again.communicate(timeout=200)
    assert again.returncode == 0, told
    (row,) = bench.rows()
    record = RunRecord.read(bench.run_dir / row["record"])
    assert (record.status, record.seed, record.provider) == ("done", 0, "local")
    assert len(record.sessions) == 2
    assert "cores of" in record.machine_type
