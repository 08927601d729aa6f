"""A state is loaded where this trainer's networks take it; else the next older one is, and what differs is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gangway.trainer.checkpoint import store
from gangway.trainer.checkpoint.compatibility import misfit
from gangway.trainer.checkpoint.resume import restore
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.digest import RunIdentity
from gangway.trainer.steps.state import TrainState

IDENTITY = RunIdentity(run_id="r", session=0, dataset_sha256="ab")
CPU = torch.device("cpu")


def _stepped(config: TrainConfig) -> TrainState:
    """A state whose optimisers have moments."""
    state = TrainState.create(config, CPU)
    for role in state.learners:
        for parameter in role.network.parameters():
            parameter.grad = torch.zeros_like(parameter)
        role.learner.step()
    return state


SMALL = {"resolution": 16, "ngf": 8, "ndf": 8, "z_dim": 8, "batch_size": 8}


@pytest.mark.parametrize("name", ["dcgan-digits", "wgan-gp-cifar10", "r3gan-cifar10", "progan-celeba128"])
def test_every_familys_own_states_fit(name: str) -> None:
    config = PRESETS[name].replace(SMALL)
    assert misfit(config, _stepped(config).state_dict()) == ""
    assert misfit(config, TrainState.create(config, CPU).state_dict()) == "", "no step yet, so no moments"


def _without_weights(state: store.State) -> None:
    del state["g"][next(iter(state["g"]))]


def _with_an_unknown_layer(state: store.State) -> None:
    state["d"]["minibatch.weight"] = torch.zeros(3)


def _with_another_width(state: store.State) -> None:
    name = next(iter(state["ema"]))
    state["ema"][name] = torch.zeros(7)


def _with_other_moments(state: store.State) -> None:
    state["opt_d"]["state"][0]["exp_avg"] = torch.zeros(7)


def _with_a_list(state: store.State) -> None:
    state["g"] = [torch.zeros(3)]


UNLIKE: dict[Callable[[store.State], None], str] = {
    _without_weights: "is nothing where this trainer has of shape",
    _with_an_unknown_layer: "d.minibatch.weight is of shape [3] where this trainer has nothing",
    _with_another_width: "is of shape [7] where this trainer has of shape",
    _with_other_moments: "opt_d, parameter 0, exp_avg, is of shape [7]",
    lambda state: state["opt_g"]["state"][0].update(exp_avg=5): "opt_g, parameter 0, exp_avg, is nothing",
    lambda state: state["opt_g"]["state"][0].pop("exp_avg_sq"): "opt_g, parameter 0, exp_avg_sq, is nothing",
    lambda state: state["opt_g"]["state"][0].pop("step"): "opt_g, parameter 0, has no count of steps",
    lambda state: state["g"].update({name: each.double() for name, each in state["g"].items()}): "in float64 where",
    lambda state: state.update(images="x"): "images is 'x', not a number of images from 0 to ",
    lambda state: state.update(images=-32): "images is -32, not a number of images from 0 to ",
    lambda state: state.update(images=10**9): "images is 1000000000, not a number of images from 0 to ",
    lambda state: state.pop("images"): "images is None, not a number of images from 0 to ",
    lambda state: state.update(step=None): "step is None, not a number of steps from 0 to ",
    lambda state: state.update(augment_p="high"): "augment_p is 'high', not a share from 0 to 1",
    lambda state: state.update(signs=[0.5, 12]): "signs is [0.5, 12], not a sum and a number of images",
    _with_a_list: "g is a list, not the tensors of a network",
    lambda state: state.pop("ema"): "ema is missing",
    lambda state: state.pop("opt_g"): "opt_g is missing",
}


@pytest.mark.slow
@pytest.mark.parametrize(("change", "why"), UNLIKE.items())
def test_a_state_of_other_networks_is_passed_over_for_the_next_older_one(
    tmp_path: Path, tiny_config: TrainConfig, change: Callable[[store.State], Any], why: str
) -> None:
    folder, state = tmp_path / "checkpoints", _stepped(tiny_config)
    state.images = 100
    store.save(folder, state.state_dict(), tiny_config, 100, IDENTITY)
    other = _stepped(tiny_config).state_dict()
    change(other)
    assert why in misfit(tiny_config, other)
    newest = store.save(folder, other, tiny_config, 200, IDENTITY)

    going_on = TrainState.create(tiny_config, CPU)
    restored = restore(going_on, tiny_config, tmp_path, tmp_path, "ab", resume=True)
    assert going_on.images == 100
    assert torch.equal(going_on.state_dict()["opt_g"]["state"][0]["step"], torch.tensor(1.0))
    (sentence,) = restored.passed_over
    assert sentence.startswith(f"{newest}: is of another version of the trainer: ")
    assert why in sentence
    assert store.newest_of_run(tmp_path, aloud=False).manifest.images == 100

    (folder / "000000000100.pt").unlink()
    with pytest.raises(TrainerError, match="all 1 checkpoints are whole, but of another version"):
        restore(going_on, tiny_config, tmp_path, tmp_path, "ab", resume=True)
