"""Runs a JobSpec on this machine: torchrun in its own process group, followed through its stats file, with the
launcher, arguments and exit codes of a node's systemd unit.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gangway.components.core.job import JobSpec, Rendezvous, Training
from gangway.components.core.whole_files import write_whole
from gangway.jobs.node_command import TRAIN_FILE
from gangway.stacks.config.paths import module_environment
from gangway.trainer.core.regular_files import open_file
from gangway.trainer.records.run_record import RunContext


def local_job(
    name: str,
    config: Mapping[str, Any],
    run_dir: Path,
    processes: int,
    *,
    on_gpus: bool,
    threads: int | None,
    data_dir: Path | None = None,
    context: RunContext | None = None,
    fabric_min_gbps: float | None = None,
    options: Sequence[str] = (),
) -> JobSpec:
    """A one-node job in this Python environment. `threads`: per process; `data_dir`: None for the run folder's own."""
    env = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return JobSpec(
        name=name,
        backend="nccl" if on_gpus else "gloo",
        num_nodes_min=1,
        num_nodes_max=1,
        processes_per_node=processes,
        rendezvous=Rendezvous(standalone=True),
        env={**env, **({} if context is None else {"GANGWAY_CONTEXT": context.model_dump_json(exclude_unset=True)})},
        max_restarts=0,
        training=Training(
            config=dict(config),
            config_file=str(run_dir / TRAIN_FILE),
            run_dir=str(run_dir),
            data_dir="" if data_dir is None else str(data_dir),
            fabric_min_gbps=fabric_min_gbps,
            options=tuple(options),
        ),
    )


class StatsTail:
    """The lines of a growing stats.jsonl, each once; an incomplete line is left for the next call."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def new_lines(self) -> list[dict[str, Any]]:
        """Complete lines since the last call; empty if there is no file."""
        if not self._path.exists():
            return []
        with open_file(self._path) as file:
            file.seek(self._offset)
            complete = file.read().rpartition(b"\n")[0]
        if complete:
            self._offset += len(complete) + 1
        return [json.loads(line) for line in complete.splitlines() if line.strip()]


class LocalRun:
    """One launch of the job. Use `start`; on exit every process it began is ended."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self.log = process, log

    @classmethod
    @contextmanager
    def start(cls, job: JobSpec, log: Path, instead: Sequence[str] = ()) -> Iterator["LocalRun"]:
        """Starts `job` under the trainer's launcher. `instead`: a command that runs it elsewhere, as in a container."""
        if job.training is not None:
            write_whole(Path(job.training.config_file), job.training.document.encode())
        argv = [sys.executable, "-m", f"{job.module}.launch", *job.torchrun_argv()]
        process = _begin(instead, log, os.environ) if instead else _begin_module(argv, log, job.env)
        try:
            yield cls(process, log)
        finally:
            _end(process, job.shutdown_timeout_sec)

    @property
    def pid(self) -> int:
        """Of the launcher, which leads its own session and group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def interrupt(self) -> None:
        """Sends SIGTERM, as a cloud does to a spot node."""
        self._process.send_signal(signal.SIGTERM)


def _begin_module(command: Sequence[str], log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return _begin(command, log, {**module_environment(os.environ), **env})


def _begin(command: Sequence[str], log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A new session: Ctrl-C in the terminal reaches only this process, which ends the workers in order."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, start_new_session=True
        )


def _end(process: subprocess.Popen[bytes], timeout_sec: float) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout_sec)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_module(module: str, argv: Sequence[str], log: Path, env: Mapping[str, str]) -> Iterator[float]:
    """Yields the elapsed seconds twice a second. CalledProcessError: it failed; `log` has its output."""
    began = time.monotonic()
    command = [sys.executable, "-m", module, *argv]
    process = _begin_module(command, log, env)
    try:
        while process.poll() is None:
            yield time.monotonic() - began
            time.sleep(0.5)
    finally:
        _end(process, timeout_sec=10)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
