"""A controller in a run: what it decides is done, written down, and there again when the run goes on."""

import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import SWITCH_FILE, Bounds, ControlSettings
from gangway.trainer.control import controller, watch
from gangway.trainer.control.decide import next_decision
from gangway.trainer.control.interval import Decision, Interval, Value
from gangway.trainer.control.replay import recorded
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.loader import AS_SUITS, Reading
from gangway.trainer.distributed.world import World
from gangway.trainer.preemption.notices import Interruption, Request
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.records.stats_log import Line
from gangway.trainer.run.loop import train
from gangway.trainer.run.session_setup import RunOptions
from gangway.trainer.steps.compilation import Compilation, compile_losses
from gangway.trainer.steps.step_graph import StepGraph, step_graph

Lines = Callable[[Path], list[dict[str, Any]]]
Script = dict[int, tuple[str, Value]]
SETTINGS = ControlSettings(
    interval_sec=1e-6,
    bounds=Bounds(batch_size=(8, 64), precision=("fp32", "bf16"), loader_threads=(1, 4), threads=(1, 4)),
)
SCRIPT: Script = {48: ("loader_threads", 3), 96: ("batch_size", 32), 160: ("precision", "bf16"), 224: ("batch_gpu", 8)}


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], None]:
    """Has decided, from each of these images on, that a knob shall have a value."""

    def use(script: Script) -> None:
        def decide(history: list[Interval], *_: object, **__: object) -> SimpleNamespace:
            last = history[-1]
            for images, (knob, value) in script.items():
                was = getattr(last.knobs, knob)
                failed = last.failed is not None or any(each.failed for each in history)
                if last.images >= images and was != value and not failed:
                    decision = Decision(knob, value, was, "scripted", "the script says so", 0.1, "")
                    return SimpleNamespace(decision=decision, why="", warning=False, verdict=None)
            return SimpleNamespace(decision=None, why="", warning=False, verdict=None)

        monkeypatch.setattr(controller, "next_decision", decide)

    return use


@pytest.fixture
def config(tiny_config: TrainConfig) -> TrainConfig:
    often = {"stats_kimg": 0.016, "checkpoint_kimg": 100, "sample_kimg": 100}
    return tiny_config.replace({"kimg": 0.32, "batch_size": 16, **often, "augment": "none"})


def _train(
    config: TrainConfig,
    run_dir: Path,
    data: Path,
    control: ControlSettings | None = SETTINGS,
    reading: Reading = AS_SUITS,
) -> RunRecord:
    options = RunOptions(control=control, reading=reading)
    threads = torch.get_num_threads()
    try:
        assert train(config, run_dir, data, RunContext(run_id="r"), Interruption(), options) == 0
    finally:
        torch.set_num_threads(threads)
    return RunRecord.read(run_dir / "run.json")


@pytest.mark.slow
def test_what_is_decided_is_done_and_written_down(
    config: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines, scripted: Callable[[Script], None]
) -> None:
    scripted(SCRIPT)
    record = _train(config, tmp_path, digits_dir)
    assert [(each.knob, each.was, each.value, each.outcome) for each in record.decisions] == [
        ("loader_threads", 1, 3, "done"),
        ("batch_size", 16, 32, "done"),
        ("precision", "fp32", "bf16", "done"),
        ("batch_gpu", 0, 8, "done"),
    ]
    ticks = [line["knobs"] for line in lines_of(tmp_path) if "knobs" in line]
    assert ticks[0]["batch_size"] == 16
    assert (ticks[-1]["batch_size"], ticks[-1]["precision"], ticks[-1]["batch_gpu"]) == (32, "bf16", 8)
    assert ticks[-1]["loader_threads"] == 3
    spent = [line["controller_sec"] for line in lines_of(tmp_path) if "knobs" in line]
    assert spent[0] == 0 < spent[1]
    assert spent == sorted(spent), "since the session began"
    assert record.utilisation is not None
    assert record.utilisation.controller_share.value is not None
    assert [each.batch_size for each in record.segments] == [16, 32, 32, 32]
    assert [each.decided for each in record.config.segments] == [True] * 3
    assert TrainConfig.from_file(tmp_path / "config.json") == record.config
    assert record.segments[1].lr_factor == pytest.approx(2**0.5)
    own = recorded(lines_of(tmp_path), "stats.jsonl")
    assert own is not None
    assert (own.settings, own.seed, own.machine.workers) == (SETTINGS, config.seed, 1)


@pytest.mark.slow
def test_a_run_that_goes_on_has_what_was_decided_and_ends_equal(
    config: TrainConfig, tmp_path: Path, digits_dir: Path, scripted: Callable[[Script], None]
) -> None:
    scripted(SCRIPT)
    whole = _train(config, tmp_path / "whole", digits_dir)
    cut = config.replace({"checkpoint_kimg": 0.016})
    _train(cut.replace({"kimg": 0.26}), tmp_path / "cut", digits_dir)
    scripted({})
    _train(cut.replace({"kimg": 0.29}), tmp_path / "cut", digits_dir)
    again = _train(cut, tmp_path / "cut", digits_dir, None)
    assert [each.batch_size for each in again.segments] == [16, 32, 32, 32]
    assert again.config.segments == whole.config.segments
    assert again.state_sha256 == whole.state_sha256


@pytest.mark.slow
@pytest.mark.parametrize("control", [SETTINGS, SETTINGS.model_copy(update={"mode": "observe"})])
def test_a_run_that_goes_on_has_what_it_is_started_with_where_nothing_was_decided(
    config: TrainConfig,
    control: ControlSettings,
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Lines,
    scripted: Callable[[Script], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And what was decided beside it stands, which is said."""
    scripted({48: ("prefetch", 4)})
    _train(config.replace({"kimg": 0.16}), tmp_path, digits_dir, reading=Reading(threads=1, prefetch=2))
    scripted({})
    _train(config, tmp_path, digits_dir, control, reading=Reading(threads=3, prefetch=8))
    knobs = [line["knobs"] for line in lines_of(tmp_path) if "knobs" in line]
    assert [(each["loader_threads"], each["prefetch"]) for each in (knobs[0], knobs[-1])] == [(1, 2), (3, 4)]
    assert "prefetch is 4, as an earlier session decided, not 8" in capsys.readouterr().out


@pytest.mark.slow
def test_compiled_losses_are_switched_off_and_stay_so_when_the_run_goes_on(
    config: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Lines,
    scripted: Callable[[Script], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What compiles here is the losses' own forward: whether a graph is as good is compilation's own test."""

    def honest(module: nn.Module, **_: Any) -> None:
        module._compiled_call_impl = module.forward

    monkeypatch.setattr(nn.Module, "compile", honest)
    scripted({96: ("compile", "off")})
    compiled = config.replace({"compile": "on", "checkpoint_kimg": 0.016})
    first = _train(compiled.replace({"kimg": 0.16}), tmp_path, digits_dir)
    assert first.choices["compile"].startswith("off: switched off by the run's controller")
    scripted({})
    again = _train(compiled, tmp_path, digits_dir)
    assert again.choices["compile"].startswith("off: switched off")
    told = [line["knobs"]["compile"] for line in lines_of(tmp_path) if "knobs" in line]
    assert told == ["on"] * 6 + ["off"] * 14


@pytest.mark.slow
def test_planned_with_what_was_decided_a_new_run_is_the_same(
    config: TrainConfig, tmp_path: Path, digits_dir: Path, scripted: Callable[[Script], None]
) -> None:
    scripted(SCRIPT)
    first = _train(config, tmp_path / "first", digits_dir)
    again = _train(TrainConfig.from_file(tmp_path / "first" / "config.json"), tmp_path / "again", digits_dir, None)
    assert again.state_sha256 == first.state_sha256


@pytest.mark.slow
def test_observed_decisions_change_nothing(
    config: TrainConfig, tmp_path: Path, digits_dir: Path, scripted: Callable[[Script], None]
) -> None:
    scripted(SCRIPT)
    plain = _train(config, tmp_path / "plain", digits_dir, None)
    observed = _train(config, tmp_path / "observed", digits_dir, SETTINGS.model_copy(update={"mode": "observe"}))
    assert [(each.knob, each.outcome) for each in observed.decisions] == [("loader_threads", "observed")]
    assert observed.state_sha256 == plain.state_sha256
    assert plain.decisions == ()


@pytest.mark.slow
def test_what_cannot_be_done_is_told_and_the_run_goes_on(
    config: TrainConfig, tmp_path: Path, digits_dir: Path, scripted: Callable[[Script], None]
) -> None:
    scripted({48: ("power_share", 0.8)})
    plain = _train(config, tmp_path / "plain", digits_dir, None)
    found = _train(config, tmp_path / "failed", digits_dir)
    (decision,) = found.decisions
    assert (decision.outcome, decision.why) == ("failed", "power is nobody's to limit here: 0.8")
    assert found.state_sha256 == plain.state_sha256


@pytest.mark.slow
@pytest.mark.parametrize("part", ["next_decision", "shorten", "Watch.see", "Controller._is_off"])
def test_a_controller_that_dies_leaves_the_run_as_it_is(
    config: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug of its own, or a folder that does not answer")

    monkeypatch.setattr(f"gangway.trainer.control.controller.{part}", broken)
    plain = _train(config, tmp_path / "plain", digits_dir, None)
    found = _train(config, tmp_path / "dies", digits_dir)
    assert found.state_sha256 == plain.state_sha256
    told = [line for line in lines_of(tmp_path / "dies") if line.get("event") == "controller-failed"]
    assert [line["times"] for line in told] == [1, 2, 3]
    assert "ZeroDivisionError" in told[0]["why"]


class TooSmall:
    """A machine that has no memory for a batch of 32, be it for a step or for what is compiled before, while it is
    `on`; told to stop, it does so with the first such step.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch, self.on, self.stops = monkeypatch, True, list[Interruption]()

    def graph(self, config: TrainConfig, world: World) -> StepGraph:
        graph = step_graph(config, world)
        step = graph.step

        def tried(*inputs: Any, **more: Any) -> None:
            if config.batch_size == 32 and self.stops:
                self.stops.pop()._on_signal(signal.SIGTERM, None)
            elif config.batch_size == 32 and self.on:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
            step(*inputs, **more)

        if config.batch_size == 32:
            self._monkeypatch.setattr(graph, "step", tried)
        return graph

    def compiled(self, phases: Any, state: Any, batch: Any, config: TrainConfig, *more: Any) -> Compilation:
        if config.batch_size == 32 and self.on and not self.stops:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        return compile_losses(phases, state, batch, config, *more)


@pytest.fixture
def too_small(monkeypatch: pytest.MonkeyPatch) -> TooSmall:
    found = TooSmall(monkeypatch)
    monkeypatch.setattr("gangway.trainer.run.loop.step_graph", found.graph)
    monkeypatch.setattr("gangway.trainer.run.loop.compile_losses", found.compiled)
    return found


@pytest.fixture
def often(config: TrainConfig, scripted: Callable[[Script], None]) -> TrainConfig:
    """Saved with each line, so that a checkpoint has what was decided."""
    scripted({48: ("batch_size", 32)})
    return config.replace({"checkpoint_kimg": 0.016})


def _sizes(lines: list[dict[str, Any]]) -> list[int]:
    return [line["knobs"]["batch_size"] for line in lines if "knobs" in line]


@pytest.mark.slow
def test_a_change_that_ends_its_session_is_made_once_and_undone_where_a_checkpoint_has_it(
    often: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines, too_small: TooSmall
) -> None:
    with pytest.raises(TrainerError, match="memory does not hold a step"):
        _train(often, tmp_path, digits_dir)
    record = _train(often, tmp_path, digits_dir)
    tried, undone = record.decisions
    assert (tried.value, tried.fate, undone.value, undone.fate) == (32, "failed", 16, "undoing")
    assert "memory does not hold a step" in tried.why
    assert _sizes(lines_of(tmp_path)) == [16] * 20
    assert [each.batch_size for each in record.segments] == [16, 16], "none of it was begun"
    own = recorded(lines_of(tmp_path), "stats.jsonl")
    assert own is not None
    assert own.machine.fatal == (("batch_size", 16, 32),)


@pytest.mark.slow
def test_a_stop_before_its_first_interval_does_not_have_it_tried_for_ever(
    often: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Lines,
    too_small: TooSmall,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def has_lasted(trial: watch._Trial, line: Line, _: float) -> bool:
        begun = trial.begun
        return trial.after(line) is not None and begun is not None and line["images"] - begun["images"] >= 64

    monkeypatch.setattr(watch._Trial, "has_lasted", has_lasted)
    interruption = Interruption()
    too_small.stops.append(interruption)
    assert train(often, tmp_path, digits_dir, RunContext(run_id="r"), interruption, RunOptions(control=SETTINGS)) == 75
    with pytest.raises(TrainerError, match="memory does not hold a step"):
        _train(often, tmp_path, digits_dir)
    record = _train(often, tmp_path, digits_dir)
    assert [session.ended_by for session in record.sessions] == ["interrupt", "failed", "done"]
    assert [each.fate for each in record.decisions] == ["failed", "undoing"]
    assert _sizes(lines_of(tmp_path))[3:5] == [32, 16]


@pytest.mark.slow
def test_nothing_is_decided_with_the_last_step_before_a_stop(
    config: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Lines,
    scripted: Callable[[Script], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted({})
    _train(config.replace({"kimg": 0.032, "checkpoint_kimg": 0.016}), tmp_path, digits_dir)
    scripted({0: ("batch_size", 32)})
    interruption = Interruption()
    later = iter([Request.NOTHING, Request.STOP, Request.STOP])
    monkeypatch.setattr(interruption, "request", lambda: next(later, Request.STOP))
    options = RunOptions(control=SETTINGS)
    assert train(config, tmp_path, digits_dir, RunContext(run_id="r"), interruption, options) == 75
    assert not [line for line in lines_of(tmp_path) if line.get("event", "").startswith("decision")]


@pytest.mark.slow
@pytest.mark.parametrize("who", ["off", "fixed", "observe"])
def test_whoever_changes_nothing_undoes_nothing_and_says_what_may_end_the_run(
    often: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Lines,
    too_small: TooSmall,
    capsys: pytest.CaptureFixture[str],
    who: str,
) -> None:
    with pytest.raises(TrainerError, match="memory does not hold a step"):
        _train(often, tmp_path, digits_dir)
    too_small.on = False
    switch, changes = tmp_path / SWITCH_FILE, {"fixed": {"policy": "fixed"}, "observe": {"mode": "observe"}}
    if who == "off":
        switch.touch()
    capsys.readouterr()
    record = _train(often.replace({"kimg": 0.2}), tmp_path, digits_dir, SETTINGS.model_copy(update=changes.get(who)))
    assert "batch_size stays 32, and may end the run again" in capsys.readouterr().out
    assert [each.fate for each in record.decisions if each.outcome != "observed"] == ["failed"]
    assert set(_sizes(lines_of(tmp_path))[3:]) == {32}
    # Trained with it, it is no danger, and the log says once what had happened.
    switch.unlink(missing_ok=True)
    record = _train(often, tmp_path, digits_dir)
    assert "may end the run again" not in capsys.readouterr().out
    assert [each.fate for each in record.decisions if each.outcome != "observed"] == ["failed"]
    assert len([line for line in lines_of(tmp_path) if line.get("event") == "decision-fatal"]) == 1
    assert set(_sizes(lines_of(tmp_path))[3:]) == {32}


def _switched(lines: list[dict[str, Any]]) -> list[str]:
    """Not what a meter without a figure has told: intervals here are shorter than the kernel's ticks."""
    return [line["event"] for line in lines if line.get("why", "").startswith("switched o")]


def test_switched_off_nothing_is_decided(
    config: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines, scripted: Callable[[Script], None]
) -> None:
    _train(config.replace({"kimg": 0.032}), tmp_path, digits_dir)
    scripted(SCRIPT)
    (tmp_path / SWITCH_FILE).touch()
    assert _train(config, tmp_path, digits_dir).decisions == ()
    assert _switched(lines_of(tmp_path)) == ["controller-idle"]


def test_switched_on_again_is_told(
    config: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide, switch, asked = next_decision, tmp_path / SWITCH_FILE, list[int]()

    def switching(history: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(len(history))
        if len(asked) == 1:
            switch.touch()
        return decide(history, *args, **kwargs)

    is_off = controller.Controller._is_off

    def for_one_line(self: controller.Controller, images: int) -> bool:
        off = is_off(self, images)
        if off:
            switch.unlink()
        return off

    monkeypatch.setattr(controller, "next_decision", switching)
    monkeypatch.setattr(controller.Controller, "_is_off", for_one_line)
    _train(config, tmp_path, digits_dir)
    assert _switched(lines_of(tmp_path)) == ["controller-idle", "controller-on"]
    assert asked[:3] == [1, 3, 4], "what was trained meanwhile is known"


DECIDES = """
import sys
from types import SimpleNamespace
from gangway.trainer.control import controller
from gangway.trainer.control.interval import Decision
from gangway.trainer.__main__ import run

WANTED = {48: ("batch_gpu", 4), 96: ("batch_size", 32), 160: ("loader_threads", 2)}

def decide(history, *_, **__):
    last = history[-1]
    for images, (knob, value) in WANTED.items():
        was = getattr(last.knobs, knob)
        if last.images >= images and was != value:
            return SimpleNamespace(decision=Decision(knob, value, was, "rules", "asked for", 0.1, ""), why="",
                                   warning=False, verdict=None)
    return SimpleNamespace(decision=None, why="", warning=False, verdict=None)

controller.next_decision = decide
run(sys.argv[1:])
"""


@pytest.mark.slow
def test_what_is_decided_is_done_by_all_workers(
    tiny_config: TrainConfig,
    torchrun: Callable[..., Any],
    train_argv: Callable[[TrainConfig, Path, Path], list[str]],
    tmp_path: Path,
    digits_dir: Path,
) -> None:
    config = tiny_config.replace(
        {"kimg": 0.32, "batch_size": 16, "stats_kimg": 0.016, "checkpoint_kimg": 0.064, "augment": "none"}
    )
    (tmp_path / "decides.py").write_text(DECIDES)
    control = '{"interval_sec": 1e-6, "bounds": {"batch_size": [8, 64], "batch_gpu": [2, 32]}}'
    argv = [*train_argv(config, tmp_path / "run", digits_dir)[2:], "--controller", "act", "--control", control]
    code, output = torchrun(str(tmp_path / "decides.py"), *argv, PYTHONPATH=str(Path.cwd())).finish()
    assert code == 0, output
    record = RunRecord.read(tmp_path / "run" / "run.json")
    assert [(each.knob, each.value, each.outcome) for each in record.decisions] == [
        ("batch_gpu", 4, "done"),
        ("batch_size", 32, "done"),
        ("loader_threads", 2, "done"),
    ]
    assert [each.batch_size for each in record.segments] == [16, 16, 32]
    assert record.sessions[0].world_size == 2


@pytest.mark.slow
def test_a_pipeline_keeps_the_batch_that_it_was_built_for(
    tiny_config: TrainConfig,
    torchrun: Callable[..., Any],
    train_argv: Callable[[TrainConfig, Path, Path], list[str]],
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Callable[[Path], list[dict[str, Any]]],
) -> None:
    divided = {"architecture": "r3gan", "ngf": 16, "ndf": 16, "pipeline_stages": 2}
    config = tiny_config.replace({**divided, "kimg": 0.048, "batch_size": 16, "stats_kimg": 0.016})
    control = '{"interval_sec": 1e-6, "bounds": {"batch_size": [8, 64], "batch_gpu": [2, 16], "precision": ["fp32"]}}'
    argv = [*train_argv(config, tmp_path / "run", digits_dir), "--controller", "act", "--control", control]
    code, output = torchrun(*argv).finish()
    assert code == 0, output
    (begun,) = [line for line in lines_of(tmp_path / "run") if line.get("event") == "controller"]
    assert begun["idle_bounds"].keys() == {"batch_size", "batch_gpu", "precision"}
    assert output.count("it cannot be changed in this session") == 3
