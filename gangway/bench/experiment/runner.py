"""Runs one experiment from its suite into its folder: prepares data once, runs every item, writes result.json."""

import json
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gangway.bench.experiment.suite import ExperimentConfig, Item, Neighbour, Reached
from gangway.bench.local import Hardware, describe, hardware
from gangway.bench.processes import Stop, last_words, writable_out
from gangway.bench.suite import LOCAL
from gangway.components.core.findings import GangwayError
from gangway.components.core.job import JobSpec
from gangway.components.core.whole_files import write_whole
from gangway.jobs.local.run import LocalRun, StatsTail, local_job, run_module
from gangway.stacks.config.job_settings import effective_config
from gangway.stacks.estimates.run_context import local_context
from gangway.trainer.core.errors import EXIT_INTERRUPTED
from gangway.trainer.core.regular_files import read_file
from gangway.trainer.records.decisions import OF_DECISIONS

RESULT, EXPERIMENT = "result.json", "experiment.json"
_POLL_SEC = 0.1
Say = Callable[[str, str, str], None]


class FailedRunError(GangwayError):
    """A run ended unexpectedly; the message says how, and where its log is."""


def new_folder(suite: ExperimentConfig, out: Path) -> Path:
    """Create a folder of the experiment below `out`. InputError: cannot be created."""
    folder = out.resolve() / f"{suite.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    with writable_out(out):
        folder.mkdir(parents=True)
    return folder


def run_experiment(
    suite: ExperimentConfig, path: Path, items: Sequence[Item], folder: Path, stop: Stop, say: Say
) -> bool:
    """Run all items in `folder`; return whether all finished. Finished runs survive a stop."""
    machine = hardware()
    shutil.copy(path, folder / "suite.yaml")
    head = {
        "suite": suite.name,
        "title": suite.title,
        "paper": suite.paper,
        "control": suite.arms[0].name,
        "static": None if suite.static is None else suite.static.name,
        "machine": describe(machine),
        "order": [item.name for item in items],
        "scenarios": [scenario.model_dump(mode="json") for scenario in suite.scenarios],
    }
    write_whole(folder / EXPERIMENT, (json.dumps(head, indent=2) + "\n").encode())
    whole = True
    for data in suite.data:
        if any(item.scenario.data == data.name for item in items):
            say(data.name, "preparing", "")
            log = folder / f"data-{data.name}.log"
            argv = ["data", "prepare", *data.prepare, "--out", str(folder / "data" / data.name)]
            for _ in run_module("gangway.trainer", argv, log, {}):
                if stop.asked:
                    return False
    for item in items:
        if stop.asked:
            return False
        say(item.name, "begun", f"{item.position + 1} of {len(items)}")
        try:
            result = run_item(item, folder, machine, stop)
        except FailedRunError as failure:
            say(item.name, "failed", str(failure))
            whole = False
            continue
        if result is None:
            return False
        write_whole(folder / item.name / RESULT, (json.dumps(result, indent=2) + "\n").encode())
        say(item.name, "recorded", f"{result['time_sec']:.1f} s, {result['images']:,} images")
    return whole


def get_job(item: Item, folder: Path, machine: Hardware) -> JobSpec:
    """The job of one run in the experiment's folder."""
    scenario, own = item.scenario, folder / item.name
    config = effective_config(scenario.preset, scenario.settings, {"kimg": item.kimg, "seed": item.seed})
    return local_job(
        item.name,
        config.document(),
        own,
        scenario.processes,
        on_gpus=bool(machine["gpus"]),
        threads=item.threads,
        data_dir=folder / "data" / scenario.data,
        context=local_context(LOCAL, item.name).model_copy(update={"machine_type": describe(machine)}),
        options=item.args,
    )


def run_item(
    item: Item, folder: Path, machine: Hardware, stop: Stop, instead: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Run one item; None if stopped by the user. `instead`: replaces the trainer's launcher. Raises FailedRunError."""
    own = folder / item.name
    own.mkdir(exist_ok=True)
    lines: list[dict[str, Any]] = []
    reached: dict[str, Any] | None = None
    with (
        closing(BusyNeighbour(item.scenario.neighbour)) as neighbour,
        LocalRun.start(get_job(item, folder, machine), own / "train.log", instead) as run,
    ):
        tail = StatsTail(own / "stats.jsonl")
        while (code := run.exit_code) is None and not stop.asked:
            for line in tail.new_lines():
                lines.append(line)
                if "event" not in line:
                    neighbour.at(line["images"] / (1000 * item.kimg), _training_sec(line))
                if reached is None and is_reached(line, item.scenario.stop):
                    reached = line
                    run.interrupt()
            time.sleep(_POLL_SEC)
    if stop.asked:
        return None
    lines += tail.new_lines()
    if code != 0 and not (code == EXIT_INTERRUPTED and reached is not None):
        raise FailedRunError(f"the trainer ended with {code}: {last_words(run.log)} ({run.log})")
    return get_result(item, lines, own, neighbour.spans, reached)


_BUSY = """
import os
parent = os.getppid()
while os.getppid() == parent:  # until the parent dies
    for _ in range(1_000_000):
        pass
"""


class BusyNeighbour:
    """The neighbour of one run, until `close`. `spans`: its lifetimes in the run's seconds of training."""

    def __init__(self, config: Neighbour | None) -> None:
        self._config = config
        self._processes: list[subprocess.Popen[bytes]] = []
        self._began = self._now = 0.0
        self.spans: list[tuple[float, float]] = []

    @property
    def pids(self) -> tuple[int, ...]:
        """Of living processes."""
        return tuple(process.pid for process in self._processes)

    def at(self, share: float, training_sec: float) -> None:
        """Start or end them at that share of the run's images and second of training."""
        self._now = training_sec
        if self._config is None:
            return
        low, high = self._config.between
        is_active = low <= share < high
        if is_active and not self._processes:
            self._began = training_sec
            for _ in range(self._config.cores):
                # Its own session: Ctrl-C reaches only the runner, which ends them.
                command = [sys.executable, "-c", _BUSY]
                self._processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True))
        elif not is_active:
            self.close()

    def close(self) -> None:
        """End them."""
        if not self._processes:
            return
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self._processes.clear()
        self.spans.append((self._began, self._now))


def is_reached(line: Mapping[str, Any], rule: Reached | None) -> bool:
    """Whether a line of stats.jsonl fulfils the stopping rule."""
    if rule is None or line.get("event") != "quality" or line["quality"]["name"] != rule.metric:
        return False
    value = line["quality"]["trained"]["value"]
    return value is not None and value <= rule.at_most


def get_result(
    item: Item,
    lines: Sequence[Mapping[str, Any]],
    own: Path,
    spans: Sequence[Sequence[float]],
    reached: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """A run's result. Time excludes metrics and ends at the images of the stopping metric. Raises FailedRunError."""
    until = reached["images"] if reached is not None else float("inf")
    ticks = [line for line in lines if "event" not in line and line["images"] <= until]
    if not ticks:
        raise FailedRunError(f"no line of statistics in {own / 'stats.jsonl'}")
    qualities = [line["quality"] for line in lines if line.get("event") == "quality"]
    record = own / "run.json"
    figures = json.loads(read_file(record)) if record.is_file() else {}
    qualities += [] if reached is not None else figures.get("quality", [])
    return {
        "scenario": item.scenario.name,
        "arm": item.arm.name,
        "seed": item.seed,
        "position": item.position,
        "time_sec": _training_sec(ticks[-1]),
        "images": ticks[-1]["images"],
        "reached": reached is not None,
        "quality": {one["name"]: one["trained"]["value"] for one in qualities},
        "figures": _figures(figures),
        "neighbour_sec": [list(span) for span in spans],
        "decisions": [dict(line) for line in lines if line.get("event") in OF_DECISIONS],
        "curve": [[_training_sec(line), line["images"], line["images_per_sec"]] for line in ticks],
    }


def _training_sec(line: Mapping[str, Any]) -> float:
    return float(line["wall_sec"]) - float(line.get("metrics_sec", 0.0))


def _figures(record: Mapping[str, Any]) -> dict[str, Any]:
    places = {
        "gpu_use": ("utilisation", "gpu_utilisation"),
        "cpu_use": ("utilisation", "cpu_utilisation"),
        "memory_gib": ("peak_memory_gib",),
        "joules": ("energy", "it_joules"),
        "usd": ("cost", "total_usd"),
        "gco2e": ("carbon", "gco2e"),
        "controller_share": ("utilisation", "controller_share"),
    }
    found: dict[str, Any] = {}
    for name, path in places.items():
        value: Any = record
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            found[name] = value
    return found
