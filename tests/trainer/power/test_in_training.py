"""Limits in a run that trains: on the CPU, with a stand-in for the GPU and its meter."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.power import limits, saved_limits
from gangway.trainer.power.energy import EnergyReading, Gpu
from gangway.trainer.power.limits import PowerAsked
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.run import loop
from gangway.trainer.run.loop import train
from gangway.trainer.run.session_setup import RunOptions
from gangway.trainer.telemetry import statistics_line


class Meter:
    """A GPU that draws its limit, whatever it computes."""

    def __init__(self, nvml: Any) -> None:
        self._nvml, self._joules, self._at = nvml, 0.0, time.monotonic()

    def read(self) -> dict[str, EnergyReading]:
        now = time.monotonic()
        self._joules += (now - self._at) * self._nvml.state("GPU-0")["limit_mw"] / 1000
        self._at = now
        return {"gpu0": EnergyReading(self._joules, "measured", "stand-in")}


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch, nvml: Any, gpu: Gpu, notes: Path) -> None:
    """Makes the trainer believe that it has the stand-in's GPU, and the search content with moments."""
    monkeypatch.setattr(loop, "find_gpu", lambda _: gpu)
    monkeypatch.setattr(saved_limits, "load_nvml", lambda _: nvml)
    monkeypatch.setattr(statistics_line, "choose_readers", lambda *_: [Meter(nvml)])
    monkeypatch.setattr(limits, "_SETTLE_SEC", 0.0)
    monkeypatch.setattr(limits, "_SAMPLE_SEC", 0.0)


def _run(config: TrainConfig, tmp_path: Path, data: Path, asked: PowerAsked) -> tuple[list[dict[str, Any]], str]:
    run_dir = tmp_path / "run"
    assert train(config, run_dir, data, RunContext(run_id="r"), Interruption(), RunOptions(power=asked)) == 0
    lines = [json.loads(text) for text in (run_dir / "stats.jsonl").read_text().splitlines()]
    choices: str = json.loads((run_dir / "run.json").read_text())["choices"]["power"]
    return [line for line in lines if str(line.get("event")).startswith("power")], choices


@pytest.mark.slow
@pytest.mark.usefixtures("on_a_gpu")
def test_the_search_ends_in_the_record_and_everything_is_undone(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, nvml: Any
) -> None:
    config = tiny_config.replace({"kimg": 2.4, "stats_kimg": 0.016, "checkpoint_kimg": 4, "sample_kimg": 4})
    asked = PowerAsked(auto=True, max_slowdown=0.99, window_sec=0.0)
    events, choice = _run(config, tmp_path, digits_dir, asked)
    names = [event["event"] for event in events]
    # 1.0 to 0.5, then the best of them
    assert names == [*["power-limit"] * 7, "power-search", "power-restored"]
    assert choice == events[-2]["why"]
    assert len(events[-2]["measured"]) == 6
    assert nvml.state("GPU-0") == {"limit_mw": 700_000, "clocks": None}


@pytest.mark.usefixtures("on_a_gpu")
def test_a_fixed_limit_holds_while_it_trains(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, nvml: Any
) -> None:
    config = tiny_config.replace({"kimg": 0.16, "stats_kimg": 0.08, "checkpoint_kimg": 4, "sample_kimg": 4})
    events, choice = _run(config, tmp_path, digits_dir, PowerAsked(watts=300.0, clock_mhz=900))
    assert [event["event"] for event in events] == ["power-limit", "power-restored"]
    assert choice == "clocks up to 900 MHz and power up to 300 W: asked for"
    assert nvml.state("GPU-0") == {"limit_mw": 700_000, "clocks": None}
