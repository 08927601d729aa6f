"""A tiny run, trained once for all of these tests, and copies of it that a test may spoil."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.bench.reproduce import Rerun, _job
from gangway.jobs.local.run import LocalRun, StatsTail
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.records.run_record import RunContext, RunRecord


@pytest.fixture(scope="session")
def tiny_config() -> TrainConfig:
    """A run of a few dozen steps of a few milliseconds."""
    return PRESETS["dcgan-digits"].replace(
        {
            "z_dim": 8, "ngf": 4, "ndf": 4, "batch_size": 16, "kimg": 0.48, "r1_interval": 4,
            "stats_kimg": 0.16, "checkpoint_kimg": 0.16, "sample_kimg": 4,
        }
    )  # fmt: skip


def started(config: TrainConfig, folder: Path, until_lines: int) -> None:
    """Trains in `folder`, to the end or until so many lines of statistics are there; then it is interrupted."""
    folder.mkdir()
    job = _job(Rerun(config, 1, 1, None, "", False, ()), folder, RunContext(run_id="first"))
    tail, lines = StatsTail(folder / "stats.jsonl"), 0
    deadline = time.monotonic() + 120
    with LocalRun.start(job, folder / "train.log") as run:
        while run.exit_code is None and lines < until_lines:
            lines += sum("loss_g" in line for line in tail.new_lines())
            assert time.monotonic() < deadline
            time.sleep(0.02)
        if lines >= until_lines:
            run.interrupt()
        while run.exit_code is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert run.exit_code in (0, 75), run.log.read_text()


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_config: TrainConfig) -> Path:
    """A whole run, read only."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    started(tiny_config, folder, until_lines=1000)
    return folder


@pytest.fixture(scope="session")
def interrupted(tmp_path_factory: pytest.TempPathFactory, tiny_config: TrainConfig) -> Path:
    """A run that was stopped on its way, read only."""
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    started(tiny_config.replace({"kimg": 200, "keep_checkpoints": 100}), folder, until_lines=2)
    return folder


@pytest.fixture
def run_dir(trained: Path, tmp_path: Path) -> Path:
    """A copy of the whole run."""
    shutil.copytree(trained, tmp_path / "runs" / "a")
    return tmp_path / "runs" / "a"


@pytest.fixture
def rewrite() -> Callable[..., RunRecord]:
    """Changes a run's record as its own program would, sealed."""

    def change(folder: Path, **values: Any) -> RunRecord:
        data = {**json.loads((folder / "run.json").read_text()), **values}
        RunRecord.model_validate(data).write(folder / "run.json")
        return RunRecord.read(folder / "run.json")

    return change


@pytest.fixture
def gangway() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`gangway reproduce` in a process of its own."""

    def call(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gangway.cli", "reproduce", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return call
