"""Fixtures of the trainer's tests: a tiny run, its data, real torchrun processes that never outlive a test."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.packaged_data import prepare_digits
from gangway.trainer.rendezvous.tunnel import MemberKey
from tests.shard_files import write_shards
from tools.drill.cluster import make_key

TIMEOUT_SEC = 120
FULL_DISK = """
import errno, os
from pathlib import Path

fsync = os.fsync


def fail(handle):
    if Path(f"/proc/self/fd/{handle}").readlink().name.endswith(os.environ.get("FULL_DISK", " ")):
        del os.environ["FULL_DISK"]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    fsync(handle)


os.fsync = fail
"""
"""A sitecustomize: the next file whose name ends with $FULL_DISK cannot be written, as on a full disk."""
TRAIN_EACH = """
import contextlib, sys
from pathlib import Path
from gangway.trainer.distributed.world import start_world
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.run import loop
from gangway.trainer.records.run_record import RunContext

with start_world("gloo") as world:
    loop.start_world = lambda *_: contextlib.nullcontext(world)  # a process joins but once
    for config, run_dir, data in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3]):
        code = loop.train(TrainConfig.from_file(Path(config)), Path(run_dir), Path(data), RunContext(), Interruption())
        assert code == 0, config
"""

HELD_WORKER = """
import os, sys, time
from gangway.trainer.run import loop
from gangway.trainer.preemption import notices
from gangway.trainer.__main__ import run

# WORKERSxIMAGES:REQUEST, ...: where the run waits to be asked for that much or more, however fast the machine is.
holds = {}
for hold in os.environ["HOLDS"].split(","):
    place, request = hold.split(":")
    holds[tuple(map(int, place.split("x")))] = notices.Request[request]
batch_of, installed = loop.Batch, []
install = notices.Interruption.install
notices.Interruption.install = lambda self: installed.append(self) or install(self)

def held(config, world, data, *more):
    batch = batch_of(config, world, data, *more)
    reals = batch.reals
    def waiting(images):
        request = holds.get((world.world_size, images))
        while request and not world.agree(installed[0].request() >= request):
            time.sleep(0.02)
        return reals(images)
    batch.reals = waiting
    return batch

loop.Batch = held
run(sys.argv[1:])
"""
TELLING_WORKER = """
import json, os, sys
from pathlib import Path
import torch
from gangway.trainer.run import loop
from gangway.trainer.checkpoint.store import state_digests
from gangway.trainer.__main__ import run

states, tick = Path(os.environ["STATES"]), loop.Reporter.tick

def telling(reporter, state, *arguments, **named):  # lines are written of states that are whole
    kept = state.state_dict()
    if os.environ["RANK"] == "0":
        with (states / "digests.jsonl").open("a") as file:
            file.write(json.dumps([state.images, state_digests(kept)]) + "\\n")
        if state.images == int(os.environ["KEPT"]):
            torch.save(kept, states / "kept.pt")
    return tick(reporter, state, *arguments, **named)

loop.Reporter.tick = telling
run(sys.argv[1:])
"""


@pytest.fixture(scope="session")
def tiny_config() -> TrainConfig:
    """A run of a few hundred steps of a few milliseconds."""
    return PRESETS["dcgan-digits"].replace(
        {
            "z_dim": 8,
            "ngf": 4,
            "ndf": 4,
            "batch_size": 16,
            "kimg": 8,
            "r1_interval": 4,
            "stats_kimg": 0.16,
            "checkpoint_kimg": 2,
            "sample_kimg": 4,
            "metrics_samples": 32,
        }
    )


FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "dcgan": ("dcgan-cifar10", {"r1_interval": 2}),
    "dcgan-ada": ("dcgan-cifar10", {"r1_interval": 2, "ada_target": 0.01, "ada_kimg": 0.1, "lr_d": 2e-3}),
    "resnet": ("wgan-gp-cifar10", {"d_steps": 2}),
    "r3gan": ("r3gan-cifar10", {"num_classes": 3, "lr_g": 1e-3, "lr_d": 1e-3, "schedules": {}, "precision": "fp32"}),
    # 1 step at 4x4; 8x8 and 16x16 fade in over 2 steps and last 1.
    "progressive": (
        "progan-celeba128",
        {"stable_kimg": 0.012, "fade_kimg": 0.024, "num_classes": 3, "minibatch_std": 2},
    ),
    "video": ("progan-video-ucf101", {"stable_kimg": 0.012, "fade_kimg": 0.024, "frames": 8, "minibatch_std": 2}),
    "cyclegan": ("cyclegan-photos", {"z_dim": 1, "schedules": {}}),
}
"""By name: the preset that a tiny run of the family is made from, and what else is otherwise than there."""
LONG_FAMILIES = ("r3gan", "video")
"""Those whose steps take longest."""


@pytest.fixture(scope="session")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[TrainConfig, Path]]:
    """By name: a run of each family of networks that takes milliseconds a step, and its shards, read only."""
    drawn = np.random.Generator(np.random.PCG64(0))
    folders = {}
    for name, shape in (("images", (3, 16, 16)), ("clips", (3, 8, 16, 16))):
        folders[name] = tmp_path_factory.mktemp(name)
        pixels = drawn.integers(0, 256, (40, *shape), dtype=np.uint8)
        labels = drawn.integers(0, 3, 40)
        write_shards(folders[name], "folder", pixels, labels=labels, classes=("a", "b", "c"))
    folders["domains"] = tmp_path_factory.mktemp("domains")
    pixels, labels = drawn.integers(0, 256, (40, 3, 16, 16), dtype=np.uint8), np.arange(40) % 3 // 2
    write_shards(folders["domains"], "folder", pixels, labels=labels, classes=("a", "b"))
    small: dict[str, object] = {"dataset": "folder", "resolution": 16, "ngf": 8, "ndf": 8, "z_dim": 6, "batch_size": 12}
    short = {"kimg": 0.072, "stats_kimg": 0.012, "checkpoint_kimg": 0.036, "sample_kimg": 1.0, "ema_kimg": 0.1}
    runs = {}
    for name, (preset, more) in FAMILIES.items():
        config = PRESETS[preset].replace({**small, **short, **more})
        images = "domains" if config.translates else "images"
        runs[name] = config, folders[images if config.frames == 1 else "clips"]
    return runs


@pytest.fixture(scope="session", params=["quick", pytest.param("long", marks=pytest.mark.slow)])
def some_families(
    request: pytest.FixtureRequest, families: dict[str, tuple[TrainConfig, Path]]
) -> dict[str, tuple[TrainConfig, Path]]:
    """As `families`, in two parts, for tests that train all in one job of several processes."""
    return {name: run for name, run in families.items() if (name in LONG_FAMILIES) == (request.param == "long")}


@pytest.fixture(scope="session")
def train_each() -> str:
    """A worker's script that trains one run after the other: their configurations, folders and shards, in turn."""
    return TRAIN_EACH


@pytest.fixture(scope="session")
def digits_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits' shards; read only."""
    folder = tmp_path_factory.mktemp("digits")
    prepare_digits(folder)
    return folder


@dataclass(frozen=True)
class Uninterrupted:
    """A run of two workers that nothing disturbed, a line for each step.

    Attributes:
        config: of the run, and of those that are compared with it: a run that ends earlier comes by the same states.
        digests: of the state's parts after each step, by the images seen.
        kept: the state after KEPT_IMAGES.
    """

    config: TrainConfig
    run_dir: Path
    digests: dict[int, dict[str, str]]
    kept: dict[str, Any]


KEPT_IMAGES = 80


@pytest.fixture(scope="session")
def uninterrupted(
    tiny_config: TrainConfig, digits_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Uninterrupted:
    """Made once: the files that use it are on one worker (UNINTERRUPTED in tests/conftest.py)."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    config = tiny_config.replace({"kimg": 1.6, "stats_kimg": 0.016, "checkpoint_kimg": 4, "sample_kimg": 4})
    (folder / "config.json").write_text(config.to_json())
    (folder / "telling.py").write_text(TELLING_WORKER)
    words = ["--config", str(folder / "config.json"), "--run-dir", str(folder / "run"), "--data", str(digits_dir)]
    launcher = ["-m", "gangway.trainer.launch", "--standalone", "--nproc-per-node=2"]
    env = {"PYTHONPATH": str(Path.cwd()), "STATES": str(folder), "KEPT": str(KEPT_IMAGES)}
    command = Command([*launcher, str(folder / "telling.py"), "train", *words], folder / "log", env)
    try:
        code, output = command.finish()
    finally:
        command.kill()
    assert code == 0, output
    digests = dict(json.loads(line) for line in (folder / "digests.jsonl").read_text().splitlines())
    assert list(digests) == list(range(16, 1616, 16))
    return Uninterrupted(config, folder / "run", digests, torch.load(folder / "kept.pt"))


def _listen() -> None:
    """A shell has SIGINT ignored in what it puts in the background, and children inherit that; no terminal does so."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Command:
    """A running command line with its output in a file.

    Attributes:
        process: leader of a session of its own, so that all its children can be ended with it.
    """

    def __init__(self, argv: list[str], log: Path, env: dict[str, str]) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **env},
                start_new_session=True,
                preexec_fn=_listen,
            )

    def finish(self, limit_sec: float = TIMEOUT_SEC) -> tuple[int, str]:
        """Exit code and everything it printed."""
        code = self.process.wait(limit_sec)
        return code, self._log.read_text()

    def printed(self) -> str:
        """What it has printed so far."""
        return self._log.read_text()

    def kill(self) -> None:
        """Ends it with its children, where it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Waits until the condition holds; fails when the command ends before."""
        deadline = time.monotonic() + TIMEOUT_SEC
        while not condition():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts `python ...`; whatever still runs at the end of the test is killed with its children."""
    commands: list[Command] = []

    def begin(*argv: str, **env: str) -> Command:
        command = Command(list(argv), tmp_path / f"command-{len(commands)}.log", env)
        commands.append(command)
        return command

    yield begin
    for command in commands:
        command.kill()


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Fails the next write of a file whose name ends so, as a full disk does."""

    def fill(name: str) -> None:
        monkeypatch.setattr(os, "fsync", os.fsync)
        monkeypatch.setenv("FULL_DISK", name)
        exec(FULL_DISK, {})

    return fill


@pytest.fixture
def train_argv(tmp_path: Path) -> Callable[[TrainConfig, Path, Path], list[str]]:
    """`-m gangway.trainer train ...` of a configuration, a run directory and shards."""

    def argv(config: TrainConfig, run_dir: Path, data: Path) -> list[str]:
        path = tmp_path / "config.json"
        path.write_text(config.to_json())
        return ["-m", "gangway.trainer", "train", "--config", str(path), "--run-dir", str(run_dir), "--data", str(data)]

    return argv


@pytest.fixture
def torchrun(start: Callable[..., Command]) -> Callable[..., Command]:
    """Starts gloo workers on this machine, two unless told otherwise."""

    def begin(*argv: str, launcher: tuple[str, ...] = (), workers: int = 2, **env: str) -> Command:
        return start(
            "-m", "gangway.trainer.launch", *launcher, "--standalone", f"--nproc-per-node={workers}", *argv, **env
        )

    return begin


@pytest.fixture
def held_script(tmp_path: Path) -> Path:
    """Of workers that wait at the places named in HOLDS until they are asked for something; see HELD_WORKER."""
    script = tmp_path / "held.py"
    script.write_text(HELD_WORKER)
    return script


@pytest.fixture
def held(torchrun: Callable[..., Command], held_script: Path) -> Callable[..., Command]:
    """Starts such workers, as `torchrun` does."""

    def begin(*argv: str, holds: str, **options: Any) -> Command:
        return torchrun(str(held_script), *argv, HOLDS=holds, PYTHONPATH=str(Path.cwd()), **options)

    return begin


@pytest.fixture
def lines_of() -> Callable[[Path], list[dict[str, Any]]]:
    """Reads a run directory's stats.jsonl."""

    def read(run_dir: Path) -> list[dict[str, Any]]:
        path = run_dir / "stats.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    return read


@pytest.fixture(scope="session")
def job_pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job's key; read only."""
    path = tmp_path_factory.mktemp("key") / "job.pem"
    make_key(path)
    return path


@pytest.fixture(scope="session")
def other_pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another job's."""
    path = tmp_path_factory.mktemp("other-key") / "job.pem"
    make_key(path)
    return path


@pytest.fixture(scope="session")
def key(job_pem: Path) -> MemberKey:
    return MemberKey.read(job_pem)


@pytest.fixture(scope="session")
def other_key(other_pem: Path) -> MemberKey:
    return MemberKey.read(other_pem)
