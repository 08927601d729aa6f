"""A family of four networks in one file: the trainer goes by roles and phases, and knows of no generator beside them.

It regresses latents (a baseline of Donahue et al. 2017, arXiv:1605.09782): an encoder learns, in one phase and one loss
with the generator, to give back the latents that an image was made of. A fixed network stands in front of it.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gangway.trainer.checkpoint import store
from gangway.trainer.checkpoint.store import state_digests
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.families import gan
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run import loop
from gangway.trainer.steps import replica_check
from gangway.trainer.steps.state import TrainState

FAMILY = '''
import torch
from torch import nn
from torch.nn import functional as F
from gangway.trainer.families import gan
from gangway.trainer.families import Family
from gangway.trainer.networks.base import Network
from gangway.trainer.steps import state
from gangway.trainer.steps import step
from gangway.trainer.phases.losses import GLoss
from gangway.trainer.phases.losses import Terms
from gangway.trainer.phases.phase import Phase
from gangway.trainer.phases.phase import RoleSpec


class Encoder(Network):
    def __init__(self, channels, width, z_dim):
        super().__init__()
        self.conv, self.last = nn.Conv2d(channels, width, 4, 2, 1), nn.Linear(width, z_dim)

    def forward(self, images):
        return self.last(F.leaky_relu(self.conv(images), 0.2).mean(dim=(2, 3)))

    def __call__(self, images):
        return self._run(images, twice=False)


class Blur(Encoder):
    def forward(self, images):
        return F.avg_pool2d(images + 0 * self.conv(images).mean(), 2)


def roles(config):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed + 1)
        encoder, fixed = (kind(config.channels, 8, config.z_dim) for kind in (Encoder, Blur))
    return (
        *gan.roles(config),
        RoleSpec("encoder", "e", encoder, "lr_g", averaged=True),
        RoleSpec("blur", "b", fixed.requires_grad_(False), None),
    )


class Loss(nn.Module):
    """The generator's and the encoder's: both registered, the discriminator and the fixed network not."""

    def __init__(self, config, networks):
        super().__init__()
        self.gan = GLoss(networks["generator"], networks["discriminator"], config)
        self.encoder, self.fixed = networks["encoder"], (networks["blur"],)

    def forward(self, inputs, settle=None):
        fakes = self.gan.generator(inputs.latents, inputs.labels)
        regression = F.mse_loss(self.encoder(self.fixed[0](fakes)), inputs.latents)
        loss = self.gan(inputs, settle)
        return loss + regression, torch.stack([loss, regression]).detach()


class Together(Phase):
    key, label = "g", "the generator's and the encoder's loss"
    roles, resting, means, overlaps = ("generator", "encoder"), ("discriminator",), ("loss_g", "loss_latents"), True

    def __init__(self, config, networks):
        self.loss = Loss(config, networks)

    def inputs(self, batch, moment, images):
        return batch.for_generator(moment)

    def run(self, loss, inputs, *, penalised, settle):
        return Terms(*loss(inputs, settle))


def phases(config, networks):
    first, _ = gan.phases(config, networks)
    return first, Together(config, networks)


state.get_family = step.get_family = lambda config: Family(roles, phases)
'''
PARTS = ["images", "step", "augment_p", "g", "d", "e", "b", "ema", "ema_e", "opt_g", "opt_d", "opt_e"]


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "family.py"
    path.write_text(FAMILY)
    monkeypatch.setattr("gangway.trainer.steps.state.get_family", None)
    monkeypatch.setattr("gangway.trainer.steps.step.get_family", None)  # so that both are put back
    spec = importlib.util.spec_from_file_location("family", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return path


@pytest.fixture
def config(families: dict[str, tuple[TrainConfig, Path]]) -> TrainConfig:
    return families["dcgan"][0].replace({"check_gradients_steps": 2, "batch_gpu": 4})


def _train(config: TrainConfig, run_dir: Path, data: Path) -> RunRecord:
    assert loop.train(config, run_dir, data, RunContext(run_id="r"), Interruption()) == 0
    return RunRecord.read(run_dir / "run.json")


@pytest.mark.slow
@pytest.mark.usefixtures("family")
def test_it_trains_and_goes_on_bit_by_bit(
    config: TrainConfig,
    families: dict[str, tuple[TrainConfig, Path]],
    tmp_path: Path,
    lines_of: Callable[[Path], list[dict[str, Any]]],
) -> None:
    data = families["dcgan"][1]
    whole = _train(config, tmp_path / "whole", data)
    _train(config.replace({"kimg": 0.036}), tmp_path / "halves", data)
    halves = _train(config, tmp_path / "halves", data)
    assert list(whole.state_sha256) == PARTS
    assert halves.state_sha256 == whole.state_sha256
    before = state_digests(TrainState.create(config, torch.device("cpu")).state_dict())
    moved = {part for part in PARTS if before[part] != whole.state_sha256[part]}
    assert moved == set(PARTS) - {"augment_p", "b"}, "what does not learn is saved, and stays"
    (start, *_), ticks = lines_of(tmp_path / "whole"), [line for line in lines_of(tmp_path / "whole") if "step" in line]
    assert list(start["gradient_bytes"]) == ["g", "d", "e"]
    assert all(line["loss_latents"] > 0 and line["grad_norm_g"] > 0 and line["grad_norm_d"] > 0 for line in ticks)
    assert ticks[-1]["loss_latents"] != ticks[0]["loss_latents"]
    assert {line["grad_norm_e"] for line in ticks if "grad_norm_e" in line} == set(), "norms are of a phase"


@pytest.mark.usefixtures("family")
def test_every_role_is_compared_between_workers(config: TrainConfig) -> None:
    names = [name for name, _ in replica_check._named_tensors(TrainState.create(config, torch.device("cpu")))]
    for role in ("generator", "discriminator", "encoder", "blur", "averaged generator", "averaged encoder"):
        assert any(name.startswith(f"weight {role}.") for name in names), role


@pytest.mark.slow
def test_two_workers_are_as_one(
    family: Path,
    config: TrainConfig,
    families: dict[str, tuple[TrainConfig, Path]],
    tmp_path: Path,
    lines_of: Callable[[Path], list[dict[str, Any]]],
    torchrun: Callable[..., Any],
    train_each: str,
) -> None:
    data = families["dcgan"][1]
    (tmp_path / "config.json").write_text(config.to_json())
    (tmp_path / "two.py").write_text(FAMILY + train_each)
    argv = [str(tmp_path / "two.py"), str(tmp_path / "config.json"), str(tmp_path / "two"), str(data)]
    code, output = torchrun(*argv).finish()
    assert code == 0, output
    assert "Warning" not in output
    assert family.exists()
    _train(config, tmp_path / "one", data)
    one, two = ([line for line in lines_of(tmp_path / run) if "step" in line] for run in ("one", "two"))
    assert len(one) == len(two) == 6
    for mine, theirs in zip(one, two, strict=True):
        for key in ("loss_g", "loss_d", "loss_latents"):
            # Float32 sums in another order, magnified by Adam's first steps.
            assert mine[key] == pytest.approx(theirs[key], rel=2e-2, abs=2e-3), key


def test_a_checkpoint_of_before_has_two_networks_and_no_steps(
    families: dict[str, tuple[TrainConfig, Path]], tmp_path: Path
) -> None:
    """Keys g, d, ema, opt_g, opt_d and images: what earlier versions saved."""
    config, data = families["resnet"]
    _train(config.replace({"kimg": 0.048}), tmp_path, data)
    newest = store.newest(tmp_path / "checkpoints")
    assert newest is not None
    saved = store.load(newest).state
    old = {name: part for name, part in saved.items() if name != "step"}
    assert list(old) == ["images", "augment_p", "g", "d", "ema", "opt_g", "opt_d"]
    state = TrainState.create(config, torch.device("cpu"))
    state.load_state_dict(old)
    assert (state.images, state.step) == (48, 2), "two batches a step"
    assert state_digests(state.state_dict()) == state_digests(saved)
    assert list(state.roles) == [gan.GENERATOR, gan.DISCRIMINATOR]
