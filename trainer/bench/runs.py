"""Runs of the trainer as a user starts them, and the textbook's loop: commands, and what their diaries say."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trainer.bench.turns import Loop
from trainer.config import TrainConfig
from trainer.records.diary import STATS_FILE, read_diary

__all__ = ["environment", "textbook_loop", "train_for", "train_preset", "train_whole", "trainer_loop"]

_WARM_UP_LINES = 2
"""The first lines hold what happens once: kernels are chosen, memory is fetched."""
_LIMIT_SEC = 600.0


def environment(threads: int) -> dict[str, str]:
    """Of a process with so many threads for its arithmetic."""
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}


def train_for(
    config: TrainConfig, run_dir: Path, data_dir: Path, seconds: float, *, threads: int
) -> list[dict[str, Any]]:
    """Trains until it has measured for `seconds`, interrupts it, and returns its statistics lines. The first is the
    warm-up's last, with which the clock starts. RuntimeError, with its output: it ended otherwise.
    """
    argv = _prepared(config, run_dir, data_dir, processes=1)
    log = run_dir.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(argv, env=_at_home(run_dir, threads), stdout=output, stderr=subprocess.STDOUT)
        try:
            _until(process, run_dir, seconds)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    lines = statistics(run_dir)[_WARM_UP_LINES - 1 :]
    if len(lines) < 2:
        raise RuntimeError(f"the trainer wrote no statistics:\n{log.read_text()[-2000:]}")
    return lines


def train_whole(config: TrainConfig, run_dir: Path, data_dir: Path, *, threads: int) -> list[dict[str, Any]]:
    """Trains to the configuration's end in one process; returns all statistics lines."""
    argv = _prepared(config, run_dir, data_dir, processes=1)
    subprocess.run(argv, env=_at_home(run_dir, threads), check=True, stdout=subprocess.DEVNULL)
    return statistics(run_dir)


def train_preset(name: str, run_dir: Path, *, processes: int, threads: int) -> None:
    """Trains a preset as it is, to its end, in so many processes."""
    argv = [*_trainer(processes), "--preset", name, "--run-dir", str(run_dir)]
    subprocess.run(argv, env=_at_home(run_dir, threads), check=True, stdout=subprocess.DEVNULL)


def _prepared(config: TrainConfig, run_dir: Path, data_dir: Path, processes: int) -> list[str]:
    """Makes the run's folder and returns the command."""
    file = _written(config, run_dir)
    return [*_trainer(processes), "--config", str(file), "--run-dir", str(run_dir), "--data", str(data_dir)]


def _written(config: TrainConfig, run_dir: Path) -> Path:
    """Makes the run's folder and returns the file beside it that holds the configuration."""
    run_dir.mkdir(parents=True)
    file = run_dir.with_suffix(".json")
    file.write_text(config.to_json())
    return file


def _trainer(processes: int) -> list[str]:
    launcher = [] if processes == 1 else ["trainer.launch", "--standalone", "--nproc-per-node", str(processes), "-m"]
    return [sys.executable, "-m", *launcher, "trainer", "train"]


def _until(process: subprocess.Popen[bytes], run_dir: Path, seconds: float) -> None:
    deadline = time.monotonic() + _LIMIT_SEC
    while process.poll() is None and time.monotonic() < deadline:
        lines = statistics(run_dir) if (run_dir / STATS_FILE).exists() else []
        if len(lines) > _WARM_UP_LINES and lines[-1]["wall_sec"] - lines[_WARM_UP_LINES - 1]["wall_sec"] > seconds:
            return
        time.sleep(0.2)


def statistics(run_dir: Path) -> list[dict[str, Any]]:
    """The statistics lines of a run."""
    return [line for line in read_diary(run_dir).lines if "event" not in line]


def trainer_loop(config: TrainConfig, run_dir: Path, data_dir: Path, *, processes: int, threads: int) -> Loop:
    """The trainer, as a loop that takes turns."""
    argv = _prepared(config, run_dir, data_dir, processes)
    return Loop(argv, _at_home(run_dir, threads), run_dir / STATS_FILE)


def textbook_loop(config: TrainConfig, run_dir: Path, data_dir: Path, *, threads: int, reuse: bool = False) -> Loop:
    """The textbook's loop; `config` says how often it writes a line, `reuse` is `trainer.bench.textbook.steps`'."""
    file, stats = _written(config, run_dir), run_dir / STATS_FILE
    argv = [sys.executable, "-m", "trainer.bench.textbook", str(file), str(data_dir), str(stats)]
    return Loop([*argv, "reuse"] if reuse else argv, _at_home(run_dir, threads), stats)


def _at_home(run_dir: Path, threads: int) -> dict[str, str]:
    """Of a process that is killed: what it leaves is beside its folder."""
    return {**environment(threads), "TMPDIR": str(run_dir.parent)}
