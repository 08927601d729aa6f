"""The scale of fp16's losses: up and down again, a skipped step, and a run that resumes bit by bit."""

import signal
from pathlib import Path

import pytest
import torch

from gangway.trainer.checkpoint.store import load_newest_valid
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.world import start_world
from gangway.trainer.networks.precision import LossScale
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train


def _step(scale: LossScale, gradient: float) -> tuple[torch.Tensor, torch.Tensor | None]:
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    with start_world("gloo") as world:
        scale.backward(weight.sum() * gradient)
        scale.step(world, optimizer)
    return weight.detach(), weight.grad


def test_a_step_is_the_one_without_a_scale() -> None:
    scale = LossScale("cpu", enabled=True)
    weight, gradient = _step(scale, 0.25)
    assert weight.item() == 0.75
    assert gradient is not None
    assert gradient.item() == 0.25, "statistics see true gradients"
    assert _step(LossScale("cpu", enabled=False), 0.25)[0].item() == 0.75


def test_an_overflow_skips_the_step_and_halves_the_scale() -> None:
    scale = LossScale("cpu", enabled=True)
    _step(scale, 1.0)
    before = scale.state_dict()["scale"]
    weight, _ = _step(scale, float("inf"))
    assert weight.item() == 1.0
    assert scale.state_dict()["scale"] == before / 2
    again = LossScale("cpu", enabled=True)
    again.load_state_dict(scale.state_dict())
    assert again.state_dict() == scale.state_dict()


def test_without_fp16_there_is_nothing_to_save() -> None:
    scale = LossScale("cpu", enabled=False)
    scale.load_state_dict({"scale": 8.0})
    assert (scale.enabled, scale.state_dict()) == (False, {})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_an_interrupted_run_in_16_bits_ends_with_the_same_bits(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, name: str
) -> None:
    changes = {"kimg": 0.32, "checkpoint_kimg": 0.16, "sample_kimg": 100, "stats_kimg": 0.08, "precision": name}
    config = tiny_config.replace(changes)
    told = Interruption()
    told._on_signal(signal.SIGTERM, None)
    assert train(config, tmp_path / "run", digits_dir, RunContext(), told) == 75
    assert train(config, tmp_path / "run", digits_dir, RunContext(), Interruption()) == 0
    assert train(config, tmp_path / "through", digits_dir, RunContext(), Interruption()) == 0
    found, expected = (RunRecord.read(tmp_path / folder / "run.json") for folder in ("run", "through"))
    assert found.state_sha256 == expected.state_sha256
    assert found.choices["precision"].startswith(f"{name}: asked for")
    saved, _ = load_newest_valid(tmp_path / "run" / "checkpoints")
    assert saved is not None
    assert ("scale_g" in saved.state) == ("scale_d" in saved.state) == (name == "fp16")
