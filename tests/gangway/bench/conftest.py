"""A suite without a cloud: a clock that the test moves, environments that keep state, and crash where they are told."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gangway.bench.journal import Journal
from gangway.bench.processes import Stop
from gangway.bench.reproduce import Rerun, _job
from gangway.bench.results import Caps, Rate
from gangway.bench.runner import Environment, Guard, Runner
from gangway.bench.suite import Item, SuiteConfig, get_items
from gangway.jobs.local.run import LocalRun, StatsTail
from gangway.runs.run_store import RunFailedError, StoreFailedError
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import (
    CarbonRecord,
    CostRecord,
    DatasetRecord,
    EnergyRecord,
    RunContext,
    RunRecord,
)

Facts = Mapping[str, Any]


class CrashError(BaseException):
    """The process is gone; nothing of it is executed any more."""


class Clock:
    """A time that only passes when somebody sleeps."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class FakeCloud(Environment):
    """An Environment that remembers what stands, over every process that works with it.

    Attributes:
        clock: passes while stacks come up.
        up_sec: how long that takes.
        train_sec: from then to the record.
        fail: by item's name, what goes wrong: up, store, ended, never, destroy, bug.
        standing: items whose resources exist.
        touched: items that were ever begun.
        destroys_left: failures of destroy until it works.
        on_call: called at each step; may crash.
    """

    clock: Clock
    up_sec: float = 600
    train_sec: float = 1800
    fail: dict[str, str] = field(default_factory=dict)
    standing: dict[str, datetime] = field(default_factory=dict)
    touched: list[str] = field(default_factory=list)
    collected: list[str] = field(default_factory=list)
    destroys_left: int = 0
    on_call: Callable[[], None] = lambda: None
    poll_sec: tuple[float, float] = (10.0, 60.0)

    def up(self, item: Item, note: Callable[..., None], guard: Guard) -> Facts:
        self.touched.append(item.name)
        self.on_call()
        self.standing[item.name] = self.clock.now()
        self.on_call()
        note(process={"pid": 1})
        until = self.clock.now() + timedelta(seconds=self.up_sec)
        while self.clock.now() < until:
            if reason := guard():
                raise RunFailedError(reason)
            self.clock.sleep(30)
        if self.fail.get(item.name) == "up":
            raise RunFailedError("InsufficientInstanceCapacity")
        if self.fail.get(item.name) == "bug":
            raise KeyError("run_bucket")
        return {"url": f"s3://{item.name}"}

    def attach(self, item: Item, facts: Facts, note: Callable[..., None]) -> Facts:
        self.on_call()
        assert item.name in self.standing
        return {}

    def record(self, item: Item, facts: Facts) -> RunRecord | None:
        self.on_call()
        assert facts["url"] == f"s3://{item.name}"
        if (how := self.fail.get(item.name)) in ("store", "ended"):
            raise StoreFailedError("s3://runs: no permission to read it") if how == "store" else RunFailedError("ended")
        if how == "never":
            return None
        ready = self.standing[item.name] + timedelta(seconds=self.up_sec + self.train_sec)
        return a_record(item.name, item.seed) if self.clock.now() >= ready else None

    def collect(self, item: Item, facts: Facts) -> None:
        self.on_call()
        if "url" not in facts:
            raise RunFailedError("its stack was never up")
        self.collected.append(item.name)

    def destroy(self, item: Item, facts: Facts, note: Callable[..., None]) -> list[str]:
        self.on_call()
        self.clock.sleep(300)
        if self.fail.get(item.name) == "destroy" or self.destroys_left:
            self.destroys_left = max(self.destroys_left - 1, 0)
            raise RunFailedError("DependencyViolation")
        self.standing.pop(item.name, None)
        self.on_call()
        return [f"bucket of {item.name}"]

    def doing(self, item: Item) -> str:
        return "training"


def a_record(run_id: str, seed: int, **changes: Any) -> RunRecord:
    """A complete record with the figures that tables read."""
    absent = Quantity.absent("x", "not measured")
    config: TrainConfig = PRESETS["dcgan-digits"]
    values: dict[str, Any] = {
        "id": run_id,
        "status": "done",
        "stack": "s",
        "provider": "aws",
        "region": "us-east-1",
        "machine_type": "g5.xlarge",
        "capacity": ("on-demand",),
        "num_nodes": 1,
        "sessions": (),
        "interruptions": (),
        "code_sha256": "0" * 64,
        "image_digest": "",
        "seed": seed,
        "dataset": DatasetRecord(name="digits", sha256="0" * 64, images=1797),
        "config": config,
        "images": 2048,
        "wall_sec": absent,
        "images_per_sec": Quantity.measured(321.0, "images/s", "test"),
        "sec_per_kimg": absent,
        "scaling_efficiency": absent,
        "summaries": {},
        "quality": (),
        "energy": EnergyRecord(devices={}, it_joules=absent, pue=absent, facility_joules=absent),
        "carbon": CarbonRecord(gco2e=absent, intensity_g_per_kwh=absent, method="none"),
        "cost": CostRecord(components={}, total_usd=absent),
        "peak_memory_gib": absent,
        "state_sha256": {},
        "versions": {},
    }
    return RunRecord.model_validate({**values, **changes})


@pytest.fixture(scope="session")
def make_record() -> Callable[..., RunRecord]:
    return a_record


def suite_of(**changes: Any) -> SuiteConfig:
    values: dict[str, Any] = {
        "name": "test",
        "preset": "dcgan-digits",
        "kimg": 2,
        "seeds": [0, 1],
        "stacks": ["aws-g5-dev", "azure-nc-dev"],
        "budget": {"usd": 100, "stack_usd": 60},
        "deadline_hours": 4,
    }
    return SuiteConfig.model_validate({**values, **changes})


@pytest.fixture(scope="session")
def make_suite() -> Callable[..., SuiteConfig]:
    """Makes a suite of four items, with changes."""
    return suite_of


@dataclass
class Stage:
    """A suite on a FakeCloud, and everything that a Runner needs beside it.

    Attributes:
        said: what a person was told, without the time.
    """

    folder: Path
    cloud: FakeCloud
    clock: Clock
    suite: SuiteConfig
    stop: Stop = field(default_factory=lambda: Stop(""))
    usd_per_hour: float = 2.0
    said: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def items(self) -> tuple[Item, ...]:
        return get_items(self.suite, local=False)

    def rates(self) -> dict[str, Rate]:
        hours = self.suite.deadline_hours
        rate = Rate(self.usd_per_hour, 0.0, self.usd_per_hour * hours, "the plan")
        return {entry.name: rate for entry in self.suite.stacks}

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        """The journal, begun or gone on with."""
        if (self.folder / "journal.jsonl").exists():
            with Journal.open(self.folder, self.clock.now) as journal:
                yield journal
        else:
            with Journal.create(self.folder, {"stamp": "t", "local": False, "rates": {}}, self.clock.now) as journal:
                yield journal

    def run(self, *, clean_only: bool = False) -> Journal:
        """Runs or resumes the suite in a process of its own, so to speak."""
        with self.journal() as journal:
            Runner(
                items=self.items,
                journal=journal,
                get_environment=lambda item: self.cloud,
                rates=self.rates(),
                caps=Caps.of(self.suite),
                get_hours=lambda item: item.stack.deadline_hours or self.suite.deadline_hours,
                stop=self.stop,
                pause=self.clock.sleep,
                say=lambda *words: self.said.append(words),
                show=lambda item, doing: None,
                log_dir=self.folder,
            ).run(clean_only=clean_only)
            return journal


@pytest.fixture(scope="session")
def new_stage() -> Callable[..., Stage]:
    """Makes a Stage in a folder."""

    def make(folder: Path, **changes: Any) -> Stage:
        clock = Clock()
        return Stage(folder, FakeCloud(clock), clock, suite_of(**changes))

    return make


@pytest.fixture
def stage(tmp_path: Path, new_stage: Callable[..., Stage]) -> Stage:
    """A Stage in a folder of its own."""
    return new_stage(tmp_path)


@pytest.fixture(scope="session")
def crash_error() -> type[BaseException]:
    return CrashError


class FakePulumi:
    """The stand-in's home."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def orders(self, **orders: Any) -> None:
        (self.home / "orders.json").write_text(json.dumps(orders), "utf-8")

    @property
    def commands(self) -> list[str]:
        return [line.rpartition(" ")[0] for line in (self.home / "commands.log").read_text("utf-8").splitlines()]

    @property
    def stacks(self) -> list[str]:
        return sorted(path.name.removesuffix(".stack.json") for path in self.home.glob("*.stack.json"))


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePulumi:
    """`pulumi` on PATH is the stand-in."""
    home = tmp_path / "fake"
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "pulumi"
    source = Path(__file__).with_name("fake_pulumi.py").read_text("utf-8").partition("\n")[2]
    script.write_text(f"#!{sys.executable} -S\n{source}", "utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_PULUMI", str(home))
    return FakePulumi(home)


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
