"""Units that are recomputed train as ever, through penalties too, and keep less from the forward to the backward."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from gangway.trainer.checkpoint.store import state_digests
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.networks.base import recompute
from gangway.trainer.networks.factory import build
from gangway.trainer.steps.state import TrainState
from tests.trainer.local_training import local_train

CPU = torch.device("cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet", "r3gan", "progressive", "cyclegan"])
def test_a_run_is_the_same(families: dict[str, tuple[TrainConfig, Path]], name: str) -> None:
    """Of R3GAN with both penalties, of WGAN-GP with its own."""
    config, _ = families[name]
    images = np.random.Generator(np.random.PCG64(1)).integers(0, 256, (24, *config.image_shape), dtype=np.uint8)
    labels = np.arange(24) % max(2, config.num_labels) if config.num_labels else None
    digests = []
    for recomputed in (False, True):
        state = TrainState.create(config.replace({"activation_checkpointing": recomputed, "r1_interval": 1}), CPU)
        units = [unit for role in state.roles.values() for unit in role.network.units()]
        assert all(("forward" in vars(unit)) == recomputed for unit in units)
        local_train(state, images, labels, steps=2)
        digests.append(state_digests(state.state_dict()))
    assert digests[0] == digests[1]


def test_less_is_kept() -> None:
    _, discriminator = build(PRESETS["r3gan-cifar10"].replace({"ngf": 16, "ndf": 16}))
    images, labels = torch.randn(4, 3, 32, 32), torch.zeros(4, dtype=torch.int64)
    plain = copy.deepcopy(discriminator)
    recompute(discriminator)
    kept = [_kept_bytes(network, images, labels) for network in (plain, discriminator)]
    assert kept[1] < kept[0] / 5
    for one, other in zip(plain.parameters(), discriminator.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None and other.grad is not None:
            torch.testing.assert_close(one.grad, other.grad)


def _kept_bytes(network: nn.Module, images: Tensor, labels: Tensor) -> int:
    """By the graph of a forward, without weights; then makes its backward."""
    weights = {id(parameter.untyped_storage()) for parameter in network.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def seen(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if id(storage) not in weights:
            kept[id(storage)] = storage
        return tensor.detach() if not tensor.is_leaf else tensor

    with saved_tensors_hooks(seen, lambda tensor: tensor):
        loss = network(images, labels).sum()
    loss.backward()
    return sum(storage.nbytes() for storage in kept.values())
