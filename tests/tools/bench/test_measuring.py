"""What the cases let run: which sides, with which configurations."""

import dataclasses
import math
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.config.train_config import TrainConfig
from tools.bench import cases, measuring, speed
from tools.bench.cases import waiting
from tools.bench.feature_speed import FeatureSpeed, feature_speed
from tools.bench.measuring import ROUNDS, SECONDS, Bench
from tools.bench.runs import Side, rates_in_turn
from tools.bench.speed import convolution_gflops


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Side]:
    """The sides that were to take turns; each is as fast as its name is long."""
    sides: list[Side] = []

    def rates(given: Sequence[Side], seconds: float, rounds: int, tell: Any) -> dict[str, list[float]]:
        sides.extend(given)
        return {side.name: [float(len(side.name))] * rounds for side in given}

    monkeypatch.setattr(measuring, "rates_in_turn", rates)
    return sides


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "work", tmp_path / "data", SECONDS, ROUNDS, 7, lambda _: None)


def configs(side: Side) -> list[TrainConfig]:
    return [TrainConfig.from_file(loop.stats.parent.with_suffix(".json")) for loop in side.loops]


def test_two_processes_share_a_batch_and_silent_ones_do_too(bench: Bench, seen: list[Side]) -> None:
    together, each, apart = cases.two_processes(bench)
    assert (together.value, together.met) == (len("two processes") / len("one process"), False)
    assert (each.met, apart.met) == (None, None), "neither has a target"
    sizes = {side.name: [config.batch_size for config in configs(side)] for side in seen}
    assert sizes == {
        "one process": [128],
        "two processes": [128],
        "two processes, batch 128 each": [256],
        "two silent processes": [64, 64],
    }
    loops = {side.name: loop for side in seen for loop in side.loops}
    for name, loop in loops.items():
        assert loop.environment["OMP_NUM_THREADS"] == "1"
        launched = "gangway.trainer.launch" in loop.argv
        assert launched == (name in ("two processes", "two processes, batch 128 each"))
    assert len({loop.stats for side in seen for loop in side.loops}) == 5


def test_the_textbook_has_the_same_work(bench: Bench, seen: list[Side]) -> None:
    list(speed.narrow(bench))
    found = {side.name: configs(side)[0] for side in seen}
    ours = found["ours"]
    assert (ours.batch_size, ours.ngf, ours.ndf) == (64, 32, 32)
    assert found["textbook"] == ours
    assert found["ours, contiguous"] == ours.replace({"channels_last": False})
    assert found["ours, bf16"] == ours.replace({"precision": "bf16"})
    assert {loop.environment["OMP_NUM_THREADS"] for side in seen for loop in side.loops} == {"7"}


def test_threads_wait_alone_and_beside_a_busy_process_that_shows_no_images(bench: Bench, seen: list[Side]) -> None:
    found = list(waiting(dataclasses.replace(bench, threads=2)))
    assert [result.name for result in found] == list(measuring.TITLES["waiting"])
    assert found[2].value == len("passive, beside a busy process") / len("spinning, beside a busy process")
    variables = {
        side.name: [
            side.loops[0].environment.get(name) for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
        ]
        for side in seen
    }
    for place in ("alone", "beside a busy process"):
        assert variables[f"passive, {place}"] == ["2", "PASSIVE", "0"]
        assert variables[f"spinning, {place}"][::2] == ["2", "300000"]
        assert variables[f"one thread, {place}"][0] == "1"
    assert [len(side.loops) for side in seen] == [1, 1, 1, 2, 2, 2]
    busy = Side("busy", seen[-1].loops[1:])
    assert rates_in_turn([busy], 0.05, 1, lambda _: None) == {"busy": [0.0]}


def test_a_single_core_has_no_waiting_threads(bench: Bench, seen: list[Side]) -> None:
    found = list(waiting(dataclasses.replace(bench, threads=1)))
    assert {result.value for result in found} == {None}
    assert not seen


def test_what_takes_no_turns_is_judged_by_rounds_or_by_seconds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    line = {"time": time.time() + 3600, "wall_sec": 60.0, "checkpoint_stall_sec": 0.1, "telemetry_sec": 6.0}
    monkeypatch.setattr(cases, "train_whole", lambda *_, **__: [line])
    monkeypatch.setattr(measuring, "train_for", lambda *_, **__: [line])
    monkeypatch.setattr("tools.bench.feature_speed.feature_speed", lambda rounds: FeatureSpeed(2.0, 1.0, 2.0, 0.0))

    def verdicts(bench: Bench) -> list[list[bool | None]]:
        return [[result.met for result in case(bench)] for case in (cases.start, cases.features, cases.overheads)]

    assert verdicts(bench) == [[False], [True], [True, False]]
    assert verdicts(dataclasses.replace(bench, rounds=ROUNDS - 1)) == [[None], [None], [True, False]]
    assert verdicts(dataclasses.replace(bench, seconds=SECONDS / 2)) == [[False], [True], [None, None]]


def test_a_line_is_as_many_steps_whatever_the_batch(bench: Bench) -> None:
    for batch_size in (64, 128, 256):
        config = bench.sized(batch_size)
        steps = round(config.stats_kimg * 1000) / batch_size
        assert steps % config.r1_interval == 0, "each line's steps are the same work"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_ends_what_is_measured(number: signal.Signals, code: int) -> None:
    script = """
import os, signal, sys, time
from tools.bench import __main__ as bench
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
def run(names, arguments):
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(60)
bench._run = run
sys.exit(bench.main(["--only", "start"]))
"""
    done = subprocess.run([sys.executable, "-c", script, str(int(number))], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "stopped: nothing was written\n")


@pytest.mark.slow
def test_both_sides_compute_the_same_features() -> None:
    speed = feature_speed(num_images=3, rounds=1, resolution=16)
    assert speed.largest_difference < 1e-4
    assert speed.ratio == pytest.approx(speed.ours / speed.torch_fidelity)
    assert min(speed) > 0


@pytest.mark.slow
def test_convolutions_have_a_speed() -> None:
    found = convolution_gflops(1)
    assert math.isfinite(found)
    assert found > 0.1, "GFLOP/s: even an interpreter reaches that"
