"""A generator divided over two workers trains as a whole one does, of two workers and of two pairs of them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gangway.trainer.checkpoint.store import load_newest_valid, state_digests
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.world import World
from gangway.trainer.networks.base import Generator
from gangway.trainer.networks.factory import build
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from gangway.trainer.steps.pipeline import FirstHalf, SecondHalf, feature_shape, first_units, parts_of_half

STEPS = """
import json, sys
import numpy as np, torch
from gangway.trainer.config.presets import PRESETS
from local_training import ImagesInMemory
from gangway.trainer.steps.sharding import divide
from gangway.trainer.steps.replica_check import check_same
from gangway.trainer.distributed.world import start_world
from gangway.trainer.steps.state import TrainState
from gangway.trainer.phases.batch import Batch
from gangway.trainer.networks.precision import choose
from gangway.trainer.steps.step import new_game, get_phases, step
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.telemetry.statistics_line import _grad_norm

def bytes_of(tensors):
    return sum(each.numel() * each.element_size() for each in tensors if each is not None and not each.is_meta)

def memory(role):
    weights = list(role.network.parameters())
    moments = [entry[name] for entry in role.learner.state.values() for name in ("exp_avg", "exp_avg_sq")]
    gradients = [each.grad for each in weights]
    averages = [] if role.ema is None else list(role.ema.parameters())
    named = {"weights": weights, "gradients": gradients, "moments": moments, "averages": averages}
    return {name: bytes_of(each) for name, each in named.items()}

def train(world, config, out):
    images = np.random.Generator(np.random.PCG64(0)).integers(0, 256, (64, *config.image_shape), dtype=np.uint8)
    data = ImagesInMemory(images, np.arange(64) % max(1, config.num_classes), config.num_classes)
    state = TrainState.create(config, world.device)
    for role in state.roles.values():
        drawn = torch.Generator().manual_seed(1)
        for parameter in role.network.parameters():  # none of them zero, or its gradients would say little
            parameter.data += 0.02 * torch.randn(parameter.shape, generator=drawn)
    said = divide(state, config, world)
    state.use(choose(config.precision, world.device))
    phases = get_phases(state)
    batch, game = Batch(config, world, data), new_game(phases, config, world)
    lines = []
    for _ in range(4):
        sums = Accumulator(phases, world.device)
        step(state, batch, game, sums)
        check_same(world, state)
        norms = {phase.key: _grad_norm([state.roles[name] for name in phase.roles], world) for phase in phases}
        lines.append({**sums.means(world.gather(sums.tolist())[world.last_stage]), **norms})
    kept = world.gather({role.key: memory(role) for role in state.roles.values()})
    whole = state.state_dict()
    weights = {name: torch.cat([each.flatten() for each in whole[name].values()]) for name in ("g", "d", "ema")}
    if world.rank == 0:
        torch.save(weights, f"{out}.pt")
        with open(f"{out}.json", "w") as file:
            json.dump({"lines": lines, "kept": kept, "said": said}, file)
    batch.close()

with start_world("gloo", pipeline_stages=2) as world:
    for name, preset, changes in json.loads(sys.argv[2]):
        config = PRESETS[preset].replace({**changes, "pipeline_stages": 2})
        train(world, config, f"{sys.argv[1]}/{name}-{world.world_size}")
"""
SMALL: dict[str, object] = {"batch_size": 8, "ngf": 16, "ndf": 16, "z_dim": 8, "resolution": 32, "schedules": {}}
R3GAN = {"num_classes": 3, "r1_interval": 2, "lr_g": 1e-3, "lr_d": 1e-3}
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "micro-batches, classes": ("r3gan-cifar10", {**R3GAN, "precision": "fp32", "batch_gpu": 2}),
    # Rows have another layout than the whole network's maps, and so other kernels: by so small a step size Adam does
    # not make much of a gradient that is zero but for rounding.
    "in one": ("wgan-gp-cifar10", {"d_steps": 2, "lr_g": 1e-5, "lr_d": 1e-5}),
    "recomputed": ("r3gan-cifar10", {**R3GAN, "precision": "fp32", "activation_checkpointing": True, "batch_gpu": 1}),
    "bfloat16": ("r3gan-cifar10", {**R3GAN, "precision": "bf16", "batch_gpu": 2}),
}
WORKERS = (1, 2, 4)
Told = dict[str, Any]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps of each case, in one process, on one pair and on two: what they told, and the weights."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "steps.py").write_text(STEPS)
    shutil.copy(Path(__file__).parents[1] / "local_training.py", folder)
    cases = json.dumps([(name, preset, {**SMALL, **changes}) for name, (preset, changes) in CASES.items()])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}
    for workers in WORKERS:
        several = ["-m", "gangway.trainer.launch", "--standalone", f"--nproc-per-node={workers}"]
        argv = [sys.executable, *(several if workers > 1 else ()), str(folder / "steps.py"), str(folder), cases]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr
    return folder


def _told(folder: Path, case: str, workers: int) -> Told:
    found: Told = json.loads((folder / f"{case}-{workers}.json").read_text())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS[1:])
@pytest.mark.parametrize("case", CASES)
def test_losses_gradients_and_weights_are_the_whole_networks(trained: Path, case: str, workers: int) -> None:
    """Features go from half to half in float32, which bfloat16's do not within a whole network."""
    near = 2e-2 if case == "bfloat16" else 1e-5
    whole, halves = _told(trained, case, 1)["lines"], _told(trained, case, workers)["lines"]
    for number, (expected, found) in enumerate(zip(whole, halves, strict=True)):
        for name, value in expected.items():
            same = found[name] is None if value is None else found[name] == pytest.approx(value, rel=near, abs=near)
            assert same, (number, name, value, found[name])
    expected, found = (torch.load(trained / f"{case}-{number}.pt") for number in (1, workers))
    for part, row in expected.items():
        # Adam's first steps go as far by a gradient that is almost zero as by a large one.
        assert float((found[part] - row).norm() / row.norm()) < max(1e-3, near), part


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS[1:])
@pytest.mark.parametrize("case", CASES)
def test_each_worker_keeps_about_half_of_the_generator(trained: Path, case: str, workers: int) -> None:
    [whole] = _told(trained, case, 1)["kept"]
    kept = _told(trained, case, workers)["kept"]
    for pair in range(0, workers, 2):
        for name, size in whole["g"].items():
            first, second = kept[pair]["g"][name], kept[pair + 1]["g"][name]
            assert first + second == size, name
            assert 0.35 * size < first < 0.65 * size, name
        assert not any(kept[pair]["d"].values())
        assert kept[pair + 1]["d"] == whole["d"]


@pytest.mark.slow
def test_what_was_done_is_told(trained: Path) -> None:
    assert _told(trained, "in one", 1)["said"].startswith("ddp: ")
    assert "2 pairs" in _told(trained, "in one", 4)["said"]


@pytest.mark.slow
def test_a_run_goes_on_divided_and_whole(
    torchrun: Callable[..., Any],
    tiny_config: TrainConfig,
    digits_dir: Path,
    tmp_path: Path,
    lines_of: Callable[[Path], list[dict[str, Any]]],
) -> None:
    """Begun by a pair of workers, gone on with by one process, then by two pairs: the lines and bits of one process."""
    changes = {"kimg": 0.24, "checkpoint_kimg": 0.08, "sample_kimg": 100, "stats_kimg": 0.08, "batch_gpu": 4}
    r3gan = {"architecture": "r3gan", "ngf": 16, "ndf": 16}
    config = tiny_config.replace({**changes, **r3gan, "check_gradients_steps": 2, "pipeline_stages": 2})
    assert train(config, tmp_path / "whole", digits_dir, RunContext(), Interruption()) == 0
    (tmp_path / "config.json").write_text(config.to_json())
    words = ["--config", str(tmp_path / "config.json"), "--run-dir", str(tmp_path / "run"), "--data", str(digits_dir)]
    code, text = torchrun("-m", "gangway.trainer", "train", *words, "--kimg", "0.08").finish()
    assert code == 0, text
    first = load_newest_valid(tmp_path / "run" / "checkpoints")[0]
    assert first is not None
    assert len(first.manifest.parts) == 2
    digests = RunRecord.read(tmp_path / "run" / "run.json").state_sha256
    assert state_digests(first.read()) == digests, "what the record says is of the whole tensors"
    further = config.replace({"kimg": 0.16})
    assert train(further, tmp_path / "run", digits_dir, RunContext(), Interruption()) == 0
    code, text = torchrun("-m", "gangway.trainer", "train", *words, workers=4).finish()
    assert code == 0, text
    assert "goes on from 160 of 240 images" in text
    ticks = [
        {line["images"]: line for line in lines_of(tmp_path / name) if "step" in line} for name in ("whole", "run")
    ]
    assert list(ticks[0]) == list(ticks[1]) == [80, 160, 240]
    for images, line in ticks[0].items():
        for name in ("loss_g", "loss_d", "r1", "grad_norm_g", "grad_norm_d"):
            assert ticks[1][images][name] == pytest.approx(line[name], rel=1e-4, abs=1e-5), (images, name)
        assert ticks[1][images]["order"] == line["order"], "each image counts once"
    assert [each.world_size for each in RunRecord.read(tmp_path / "run" / "run.json").sessions] == [2, 1, 4]


@pytest.mark.slow
def test_an_odd_number_of_workers_is_refused(
    torchrun: Callable[..., Any], tiny_config: TrainConfig, digits_dir: Path, tmp_path: Path
) -> None:
    config = tiny_config.replace({"architecture": "resnet", "pipeline_stages": 2})
    (tmp_path / "config.json").write_text(config.to_json())
    words = ["--config", str(tmp_path / "config.json"), "--run-dir", str(tmp_path / "run"), "--data", str(digits_dir)]
    code, text = torchrun("-m", "gangway.trainer", "train", *words, workers=3).finish()
    assert code == 2, text
    assert "pipeline_stages: 3 workers" in text


@pytest.mark.parametrize("preset", ["r3gan-cifar10", "wgan-gp-cifar10"])
def test_the_halves_are_the_whole(preset: str) -> None:
    config = PRESETS[preset].replace({**SMALL, "num_classes": 3, "precision": "fp32"})
    generator, _ = build(config)
    shape = feature_shape(_on_meta(config), config.z_dim, config.num_classes)
    latents, labels = torch.randn(2, config.z_dim, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 2])
    with torch.no_grad():
        rows = FirstHalf(generator)(latents, labels)
        assert rows.shape == (2, torch.Size(shape).numel())
        made = SecondHalf(generator, shape)(rows)
        assert torch.allclose(made, generator(latents, labels), rtol=1e-5, atol=1e-6)  # kernels go by memory layout
    parts = [{id(each) for each in parts_of_half(generator, half)} for half in (0, 1)]
    assert parts[0].isdisjoint(parts[1])
    assert parts[0] | parts[1] == {id(each) for each in generator.parameters()}
    assert 1 <= first_units(generator) < len(generator.units())


def _on_meta(config: TrainConfig) -> Generator:
    with torch.device("meta"):
        return build(config)[0]


def test_without_a_pipeline_all_workers_judge() -> None:
    world = World.alone(torch.device("cpu"))
    assert [7, 8][world.last_stage] == [7, 8]
    assert world.norm_over_stages(3.0) == 3.0
    assert not world.is_pipelined
