"""Compiled losses: tried first, with their penalties in the graph; what fails or differs is left out, and said."""

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.shards import open_matching
from gangway.trainer.distributed.world import World, start_world
from gangway.trainer.networks.factory import build
from gangway.trainer.phases.batch import Batch
from gangway.trainer.phases.losses import DLossOnFakes, GLoss
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from gangway.trainer.steps import compilation
from gangway.trainer.steps.compilation import check_graphs, compile_losses
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import get_phases, new_game, step

Tried = tuple[str, DLossOnFakes, GLoss, TrainState]


class _Group:
    """A process group that nothing is sent over."""


@pytest.fixture
def _traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces into one graph as ever, and lets autograd run it: generating code takes a minute."""
    honest = nn.Module.compile

    def traced(module: nn.Module, **options: Any) -> None:
        honest(module, **options, backend="aot_eager")

    monkeypatch.setattr(nn.Module, "compile", traced)


@pytest.fixture
def attempt(digits_dir: Path) -> Callable[[TrainConfig], Tried]:
    def compile_for(config: TrainConfig) -> Tried:
        with start_world("gloo") as world:
            state = TrainState.create(config, world.device)
            batch = Batch(config, world, open_matching(config, digits_dir))
            phases = get_phases(state)
            d_loss, g_loss = (phase.loss for phase in phases)
            assert isinstance(d_loss, DLossOnFakes)
            assert isinstance(g_loss, GLoss)
            return compile_losses(phases, state, batch, config, world).choice, d_loss, g_loss, state

    return compile_for


@pytest.mark.slow
@pytest.mark.usefixtures("_traced")
def test_one_graph_with_the_penalty_gives_the_same_run(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    config = tiny_config.replace({"kimg": 0.16, "sample_kimg": 100, "stats_kimg": 0.08})
    for name, mode in (("on", "on"), ("off", "off")):
        assert train(config.replace({"compile": mode}), tmp_path / name, digits_dir, RunContext(), Interruption()) == 0
    on, off = (RunRecord.read(tmp_path / name / "run.json") for name in ("on", "off"))
    assert on.choices["compile"].startswith("on: asked for (on)")
    assert off.choices["compile"] == "off: not asked for"
    for name, summary in off.summaries.items():
        assert on.summaries[name].last.value == pytest.approx(summary.last.value, rel=1e-4), name


def test_auto_is_off_on_a_cpu_and_says_why(attempt: Callable[[TrainConfig], Tried], tiny_config: TrainConfig) -> None:
    reason, d_loss, _, _ = attempt(tiny_config.replace({"compile": "auto"}))
    assert reason.startswith("off: on a CPU it was measured slower")
    assert d_loss._compiled_call_impl is None


def test_what_does_not_compile_runs_uncompiled_and_leaves_nothing_behind(
    attempt: Callable[[TrainConfig], Tried], tiny_config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(module: nn.Module, **options: Any) -> None:
        def fails(*inputs: Any) -> None:
            raise RuntimeError("no C++ compiler\nlong trace")

        module._compiled_call_impl = fails

    monkeypatch.setattr(nn.Module, "compile", broken)
    reason, d_loss, g_loss, state = attempt(tiny_config.replace({"compile": "on"}))
    expected = "off: tried, and the discriminator's loss with penalties does not compile: RuntimeError: no C++ compiler"
    assert reason == expected
    assert d_loss._compiled_call_impl is g_loss._compiled_call_impl is None
    assert not d_loss.judge.functional
    parameters = [*state.generator.parameters(), *state.discriminator.parameters()]
    assert all(parameter.requires_grad and parameter.grad is None for parameter in parameters)


def test_other_gradients_are_not_trusted(
    attempt: Callable[[TrainConfig], Tried], tiny_config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(module: nn.Module, **options: Any) -> None:
        module._compiled_call_impl = lambda *inputs: (
            2 * module.forward(*inputs) if isinstance(module, GLoss) else module.forward(*inputs)
        )

    monkeypatch.setattr(nn.Module, "compile", wrong)
    reason, *_ = attempt(tiny_config.replace({"compile": "on"}))
    assert reason == "off: tried, and the generator's loss then has other gradients (relative difference 1.0e+00)"


def _wrong_from(call: int, of: type[nn.Module]) -> Callable[..., None]:
    """A compiler whose loss is doubled from that call on, as a replay that reads what has been written over."""
    calls: list[int] = []

    def compiles(module: nn.Module, **options: Any) -> None:
        def compiled(*inputs: Any) -> Any:
            found = module.forward(*inputs)
            if not isinstance(module, of):
                return found
            calls.append(1)
            factor = 2 if len(calls) >= call else 1
            return factor * found if isinstance(found, torch.Tensor) else found._replace(total=factor * found.total)

        module._compiled_call_impl = compiled

    return compiles


@pytest.mark.parametrize(("of", "name"), [(DLossOnFakes, "the discriminator's loss"), (GLoss, "the generator's loss")])
def test_every_micro_batch_of_the_step_is_tried(
    attempt: Callable[[TrainConfig], Tried],
    tiny_config: TrainConfig,
    monkeypatch: pytest.MonkeyPatch,
    of: type[nn.Module],
    name: str,
) -> None:
    monkeypatch.setattr(nn.Module, "compile", _wrong_from(4, of))
    config = tiny_config.replace({"compile": "on", "batch_gpu": 4})
    reason, *_ = attempt(config)
    assert reason.startswith(f"off: tried, and {name}")
    assert "other gradients" in reason
    assert attempt(config.replace({"batch_gpu": 0, "r1_interval": 1}))[0].startswith("off"), "the calls go on"


def test_penalties_are_tried_as_the_run_has_them(
    attempt: Callable[[TrainConfig], Tried], tiny_config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def watched(module: nn.Module, **options: Any) -> None:
        def compiled(*inputs: Any) -> Any:
            seen.extend(inputs[1:2] if isinstance(module, DLossOnFakes) else [])
            return module.forward(*inputs)

        module._compiled_call_impl = compiled

    monkeypatch.setattr(nn.Module, "compile", watched)
    for interval, expected in ((1, [True]), (4, [True, False])):
        seen.clear()
        assert attempt(tiny_config.replace({"compile": "on", "r1_interval": interval}))[0].startswith("on")
        assert seen == expected


def test_graphs_are_tried_until_they_are_replayed(
    attempt: Callable[[TrainConfig], Tried], tiny_config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph's first pass warms up, its second is recorded: the third is the first of those that training makes."""
    config = tiny_config.replace({"compile": "on", "r1_interval": 1})
    for graphs, verdict in ((False, "on"), (True, "off: tried, and the generator's loss then has other gradients")):
        monkeypatch.setattr(nn.Module, "compile", _wrong_from(3, GLoss))
        assert attempt(config.replace({"cuda_graphs": graphs}))[0].startswith(verdict)


@pytest.mark.slow
def test_a_later_shape_that_does_not_compile_is_computed_without_and_said(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial sees 16 images at once; later steps have a piece of 3, which this compiler has no kernels for."""
    honest, micros, tried = nn.Module.compile, Batch._micros, list[int]()

    def picky(graph: Any, inputs: list[Any]) -> Any:
        if any(isinstance(each, torch.Tensor) and each.dim() == 4 and len(each) == 3 for each in inputs):
            raise RuntimeError("no kernels for three")
        return lookup_backend("aot_eager")(graph, inputs)

    def uneven(batch: Batch, share: Any) -> Any:
        tried.append(1)
        if len(tried) > 6:  # three kinds of pass, uncompiled and compiled
            batch._parts = [slice(0, 13), slice(13, 16)]
        return micros(batch, share)

    monkeypatch.setattr(nn.Module, "compile", lambda module, **options: honest(module, **options, backend=picky))
    monkeypatch.setattr(Batch, "_micros", uneven)
    config = tiny_config.replace({"kimg": 0.16, "sample_kimg": 100, "stats_kimg": 0.032})
    for name, mode in (("on", "on"), ("off", "off")):
        assert train(config.replace({"compile": mode}), tmp_path / name, digits_dir, RunContext(), Interruption()) == 0
    on, off = (RunRecord.read(tmp_path / name / "run.json") for name in ("on", "off"))
    expected = "off: given up before 32 images, since the discriminator's loss does not compile at a later shape: "
    assert on.choices["compile"] == f"{expected}RuntimeError: no kernels for three"
    for name, summary in off.summaries.items():
        assert on.summaries[name].last.value == pytest.approx(summary.last.value, rel=1e-4), name


def test_what_was_compiled_can_be_switched_off_and_on_again(
    tiny_config: TrainConfig, digits_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled calls are counted; what is off computes by its own forward."""
    called: list[nn.Module] = []

    def counted(module: nn.Module, **_: Any) -> None:
        def call(*inputs: Any) -> Any:
            called.append(module)
            return module.forward(*inputs)

        module._compiled_call_impl = call

    monkeypatch.setattr(nn.Module, "compile", counted)
    config = tiny_config.replace({"compile": "on"})
    with start_world("gloo") as world:
        state, images = TrainState.create(config, world.device), open_matching(config, digits_dir)
        phases = get_phases(state)
        batch = Batch(config, world, images)
        compiled = compile_losses(phases, state, batch, config, world)
        game, sums = new_game(phases, config, world)._replace(losses=compiled.losses), Accumulator(phases, world.device)
        first, seen = compiled.choice, []
        for on in (True, False, True):
            if on != compiled.on:
                compiled.switch(on=on)
            assert compiled.on is on
            called.clear()
            step(state, batch, game, sums)
            seen.append(len(called))
        assert seen == [2, 0, 2], "a pass of each phase"
        assert compiled.choice == first
        compiled.switch(on=False)
        assert "controller" in compiled.choice
        assert not compiled.given_up(world, 0)
        batch.close()


def test_what_runs_uncompiled_cannot_be_switched(tiny_config: TrainConfig, digits_dir: Path) -> None:
    with start_world("gloo") as world:
        state = TrainState.create(tiny_config, world.device)
        batch = Batch(tiny_config, world, open_matching(tiny_config, digits_dir))
        assert not compile_losses(get_phases(state), state, batch, tiny_config, world).can_switch
        batch.close()


@pytest.mark.parametrize(
    ("changes", "device", "reason"),
    [
        ({"compile": "auto"}, "xla", "PyTorch/XLA compiles by itself"),
        ({"compile": "auto", "shard": "fsdp2"}, "cuda", "sharded networks run uncompiled"),
        (
            {"compile": "auto", "activation_checkpointing": True, "architecture": "resnet"},
            "cuda",
            "blocks that are recomputed run uncompiled",
        ),
        ({"compile": "auto"}, "cuda", ""),
        ({"compile": "on"}, "cpu", ""),
    ],
)
def test_who_compiles(tiny_config: TrainConfig, changes: dict[str, str], device: str, reason: str) -> None:
    group: Any = _Group()
    world = World(0, 0, 2, 0, 1, torch.device(device), "gloo", "a test's", weakref.ref(group))
    assert compilation._why_not(tiny_config.replace(changes), world) == reason


@pytest.mark.parametrize(
    ("changes", "later", "inside"),
    [
        ({}, {}, True),
        ({"batch_gpu": 4}, {}, False),
        ({}, {"batch_gpu": 4}, False),
        ({"cuda_graphs": True, "compile": "on"}, {}, False),
    ],
)
def test_graphs_average_where_every_worker_makes_one_backward_a_step_in_all_segments(
    tiny_config: TrainConfig, changes: dict[str, Any], later: dict[str, Any], inside: bool
) -> None:
    """A worker with a larger share may have a micro-batch more, and nobody would answer its message."""
    group: Any = _Group()
    config = tiny_config.replace(changes)
    for reference, expected in ((weakref.ref(group), inside), (None, False)):
        world = World(0, 0, 2, 0, 1, torch.device("cpu"), "gloo", "a test's", reference)
        assert compilation._averages_inside((config, config.replace(later)), world) is expected


def test_cuda_graphs_elsewhere_are_refused(tiny_config: TrainConfig) -> None:
    config = tiny_config.replace({"cuda_graphs": True, "compile": "on"})
    with pytest.raises(TrainerError, match=r"cuda_graphs: this worker computes on cpu[\s\S]*--cuda-graphs false"):
        check_graphs(config, torch.device("cpu"))
    check_graphs(config, torch.device("cuda"))
    with pytest.raises(TrainerError, match=r"TrainConfig\.cuda_graphs[\s\S]*--compile on"):
        tiny_config.replace({"cuda_graphs": True})


GROWING = """
import sys
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from gangway.trainer.__main__ import run

honest = nn.Module.compile
nn.Module.compile = lambda module, **options: honest(module, **options, backend="aot_eager")
run(sys.argv[1:])
"""


@pytest.mark.slow
def test_networks_of_more_than_one_bucket_compile_at_shapes_that_come_later_too(
    torchrun: Callable[..., Any], families: dict[str, tuple[TrainConfig, Path]], tmp_path: Path
) -> None:
    """Two workers; the gradients of a network of more than 1 MiB travel in several pieces, and it grows from 4x4."""
    config, folder = families["progressive"]
    config = config.replace({"ngf": 128, "ndf": 128, "compile": "on", "num_classes": 0, "kimg": 0.048})
    generator, _ = build(config)
    assert sum(parameter.numel() * 4 for parameter in generator.parameters()) > 2 << 20
    (tmp_path / "config.json").write_text(config.to_json())
    (tmp_path / "growing.py").write_text(GROWING)
    argv = ["train", "--config", str(tmp_path / "config.json"), "--run-dir", str(tmp_path / "run")]
    code, text = torchrun(
        str(tmp_path / "growing.py"), *argv, "--data", str(folder), PYTHONPATH=str(Path.cwd())
    ).finish()
    assert code == 0, text
    assert RunRecord.read(tmp_path / "run" / "run.json").choices["compile"].startswith("on: asked for (on)"), text


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("graphs", [False, True])
def test_on_a_gpu_it_compiles_in_truth(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, graphs: bool
) -> None:
    config = tiny_config.replace({"kimg": 0.32, "sample_kimg": 100, "compile": "auto", "cuda_graphs": graphs})
    assert train(config, tmp_path, digits_dir, RunContext(), Interruption()) == 0
    assert RunRecord.read(tmp_path / "run.json").choices["compile"].startswith("on")
