"""Schedules and frozen weights in the loop: each step has its values, whoever goes on with the run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from gangway.trainer.run.session_setup import check_layers
from gangway.trainer.steps.state import TrainState
from tests.shard_files import write_shards

CPU = torch.device("cpu")
SCHEDULES: dict[str, object] = {
    "lr_g": {"from": 1e-3, "to": 1e-4, "over_kimg": 0.32, "shape": "cosine"},
    "lr_d": {"steps": [[0, 1e-3], [0.16, 5e-4]]},
    "beta2": {"from": 0.9, "to": 0.99, "over_kimg": 0.32},
    "r1_gamma": {"from": 0.3, "to": 0.03, "over_kimg": 0.32},
    "ema_kimg": {"from": 0, "to": 0.1, "over_kimg": 0.32},
    "augment_p": {"from": 0, "to": 0.5, "over_kimg": 0.32},
}


@pytest.fixture
def scheduled(tiny_config: TrainConfig) -> TrainConfig:
    plain = {"kimg": 0.32, "stats_kimg": 0.016, "checkpoint_kimg": 0.16, "sample_kimg": 100, "r1_interval": 2}
    return tiny_config.replace({**plain, "schedules": SCHEDULES, "ema_kimg": 0.1, "ema_rampup": 0})


def _train(config: TrainConfig, run_dir: Path, data: Path) -> RunRecord:
    assert train(config, run_dir, data, RunContext(run_id="r"), Interruption()) == 0
    return RunRecord.read(run_dir / "run.json")


@pytest.mark.slow
def test_every_step_has_its_values_and_a_resumed_run_goes_on_to_the_bit(
    scheduled: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Callable[[Path], list[dict[str, Any]]]
) -> None:
    whole = _train(scheduled, tmp_path / "whole", digits_dir)
    _train(scheduled.replace({"kimg": 0.16}), tmp_path / "halves", digits_dir)
    halves = _train(scheduled, tmp_path / "halves", digits_dir)
    assert halves.state_sha256 == whole.state_sha256
    ticks = [line for line in lines_of(tmp_path / "whole") if "step" in line]
    for line in ticks:
        before = line["images"] - 16
        wanted = {name: schedule.at(before) for name, schedule in scheduled.schedules.given.items()}
        assert line["scheduled"] == wanted
        assert line["augment_p"] == wanted["augment_p"]
    assert [line["scheduled"]["lr_d"] for line in ticks] == [1e-3] * 10 + [5e-4] * 10


def test_the_optimisers_have_them(scheduled: TrainConfig) -> None:
    state = TrainState.create(scheduled, CPU)
    state.images = 160
    state.follow_schedules()
    for role in state.learners:
        (group,) = role.learner.param_groups
        assert group["lr"] == scheduled.at(role.lr or "lr_g", 160)
        assert group["betas"] == (scheduled.beta1, pytest.approx(0.945))


@pytest.mark.slow
def test_a_changing_penalty_compiles_no_new_program(
    scheduled: TrainConfig, tmp_path: Path, digits_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, graphs = nn.Module.compile, []

    def counted(graph: Any, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return lookup_backend("aot_eager")(graph, inputs)

    monkeypatch.setattr(nn.Module, "compile", lambda module, **options: honest(module, **options, backend=counted))
    record = _train(scheduled.replace({"compile": "on", "augment": "none", "schedules": {
        name: SCHEDULES[name] for name in ("r1_gamma", "lr_g", "beta2", "ema_kimg")
    }}), tmp_path, digits_dir)  # fmt: skip
    assert record.choices["compile"].startswith("on: asked for (on)")
    assert len(graphs) == 3, "with and without the penalty, and the generator's"


@pytest.mark.parametrize("name", ["dcgan", "progressive"])
def test_frozen_layers_stay_as_they_were_through_every_phase(
    name: str, families: dict[str, tuple[TrainConfig, Path]], tmp_path: Path
) -> None:
    config, data = families[name]
    kept = {"dcgan": "generator.layers.0.*,discriminator.layers.0.*", "progressive": "generator.blocks.4.*"}[name]
    config = config.replace({"freeze": kept})
    fresh = TrainState.create(config, CPU)
    _train(config, tmp_path, data)
    trained = torch.load(next((tmp_path / "checkpoints").glob("*72.pt")), weights_only=True)
    moved = 0
    for role in fresh.roles.values():
        assert role.network.frozen or role.name == "discriminator"
        for parts in (trained[role.key], trained["ema"] if role.ema is not None else {}):
            for parameter, found in parts.items():
                same = torch.equal(found, dict(role.network.named_parameters())[parameter].detach())
                assert same or parameter not in role.network.frozen, parameter
                moved += not same
        numbers = {n for n, (each, _) in enumerate(role.network.named_parameters()) if each in role.network.frozen}
        assert numbers.isdisjoint(trained[f"opt_{role.key}"]["state"]), "the optimiser never saw them"
    assert moved > 4


@pytest.mark.parametrize(
    ("freeze", "problem", "fix"),
    [
        (
            "generator.layer.0.*",
            "no weights of these networks have such a name",
            "did you mean 'generator.layers.0.*'?",
        ),
        ("generator.*", "freezes all weights of the generator", "name fewer layers"),
    ],
)
def test_freezing_what_does_not_exist_is_refused_before_data_is_touched(
    tiny_config: TrainConfig, tmp_path: Path, freeze: str, problem: str, fix: str
) -> None:
    config = tiny_config.replace({"freeze": freeze})
    with pytest.raises(TrainerError) as caught:
        train(config, tmp_path / "run", tmp_path / "data", RunContext(), Interruption())
    assert (caught.value.place, caught.value.exit_code) == ("TrainConfig.freeze", 2)
    assert problem in caught.value.problem
    assert fix in caught.value.fix
    assert not (tmp_path / "data").exists()
    check_layers(tiny_config.replace({"freeze": "discriminator.layers.0.weight"}))


def test_a_step_size_of_frozen_layers_alone_is_refused(tiny_config: TrainConfig) -> None:
    rates = [{"layers": layers, "lr_factor": 0.1} for layers in ("generator.*", "generator.layers.0.*")]
    frozen = tiny_config.replace({"freeze": "generator.layers.0.*,discriminator.*.bias"})
    with pytest.raises(TrainerError, match="all weights of such a name are frozen") as caught:
        check_layers(frozen.replace({"layer_rates": rates}))
    assert caught.value.place == "TrainConfig.layer_rates.1.layers"
    assert (caught.value.value, caught.value.exit_code) == ("generator.layers.0.*", 2)
    check_layers(frozen.replace({"layer_rates": rates[:1]}))


@pytest.mark.slow
def test_layers_may_have_step_sizes_of_their_own(scheduled: TrainConfig, tmp_path: Path, digits_dir: Path) -> None:
    """Those of the same factor are one group of the optimiser's; a schedule moves them all."""
    rates = [{"layers": "generator.layers.0.*", "lr_factor": 0.1}, {"layers": "*.bias", "lr_factor": 2}]
    config = scheduled.replace({"layer_rates": rates})
    state = TrainState.create(config, CPU)
    state.images = 160
    state.follow_schedules()
    groups = state.roles["generator"].learner.param_groups
    assert [group["lr"] / config.at("lr_g", 160) for group in groups] == pytest.approx([0.1, 1, 2])
    first = dict(state.generator.named_parameters())["layers.0.weight"]
    assert any(each is first for each in groups[0]["params"]), "the first pattern that fits counts"
    whole = _train(config, tmp_path / "whole", digits_dir)
    _train(config.replace({"kimg": 0.16}), tmp_path / "halves", digits_dir)
    assert _train(config, tmp_path / "halves", digits_dir).state_sha256 == whole.state_sha256
    assert whole.state_sha256["g"] != _train(scheduled, tmp_path / "plain", digits_dir).state_sha256["g"]
    with pytest.raises(TrainerError, match=r"TrainConfig\.layer_rates: no weights of these networks"):
        check_layers(scheduled.replace({"layer_rates": '[{"layers": "encoder.*", "lr_factor": 1}]'}))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["r3gan-ffhq256", "r3gan-imagenet64", "progan-celebahq512"])
def test_a_presets_wiring_holds_at_its_size(
    name: str, tmp_path: Path, lines_of: Callable[[Path], list[dict[str, Any]]]
) -> None:
    config = PRESETS[name]
    size = (12, config.channels, config.resolution, config.resolution)
    pixels = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    classes = ("cat", "dog", "eel") if config.num_classes else ()
    labels = np.arange(12) % len(classes) if classes else None
    write_shards(tmp_path / "data", "folder", pixels, labels=labels, classes=classes)
    width = 64 if config.architecture == "r3gan" else 4
    small = {"ngf": width, "ndf": width, "batch_size": 2, "kimg": 0.004, "stats_kimg": 0.002, "precision": "fp32"}
    # Schedules and segments of millions of images are refused in a run of four; growing networks are at their size.
    short = {"schedules": {}, "segments": (), "ema_kimg": 0.01, "minibatch_std": 2 if config.minibatch_std else 0}
    short |= {"num_classes": len(classes), "batch_gpu": min(config.batch_gpu, 1)}
    grown = {"stable_kimg": 1e-6, "fade_kimg": 1e-6} if config.architecture == "progressive" else {}
    run = config.replace({**small, **short, **grown, "preset": "small"})
    assert train(run, tmp_path / "run", tmp_path / "data", RunContext(), Interruption()) == 0
    lines = [line for line in lines_of(tmp_path / "run") if "event" not in line]
    assert [line["images"] for line in lines] == [2, 4]
    assert [line["resolution"] for line in lines] == [config.resolution] * 2
    penalties = ("r1", "r2") if config.r1_gamma else ("gp",)
    assert all(np.isfinite(line[key]) for line in lines for key in ("loss_d", "loss_g", *penalties))
