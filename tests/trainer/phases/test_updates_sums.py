"""Sums between two lines: means over steps, over the steps with a penalty, and over workers of unequal shares."""

import pytest
import torch

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.phases.phase import Terms
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import get_phases

CPU = torch.device("cpu")


def _terms(*means: float) -> Terms:
    return Terms(torch.zeros(()), torch.tensor(means))


def _sums(config: TrainConfig) -> Accumulator:
    small = config.replace({"ngf": 8, "ndf": 8, "z_dim": 2})
    return Accumulator(get_phases(TrainState.create(small, CPU)), CPU)


def test_means_are_per_step_and_penalties_per_step_that_has_one() -> None:
    config = PRESETS["dcgan-digits"]
    sums = _sums(config)
    for step in range(4):
        penalised = step == 0
        sums.add(sums.phases[0], 1.0, _terms(step, 8.0 if penalised else 0.0, 0, 0, 0.5))
        sums.add(sums.phases[1], 1.0, _terms(2.0))
        sums.close_step(penalised=penalised)
    means = sums.cpu().means([sums.tolist()])
    assert means == {"loss_g": 2, "loss_d": 1.5, "r1": 8, "r2": None, "gp": None, "real_sign": 0.5}


def test_a_penalty_is_none_where_no_step_had_it() -> None:
    sums = _sums(PRESETS["dcgan-digits"])
    sums.add(sums.phases[0], 1.0, _terms(1, 0, 0, 0, 0))
    sums.close_step(penalised=False)
    assert sums.means([sums.tolist()])["r1"] is None


def test_steps_of_the_discriminator_and_micro_batches_are_averaged() -> None:
    config: TrainConfig = PRESETS["wgan-gp-cifar10"].replace({"d_steps": 2})
    sums = _sums(config)
    for loss in (1.0, 3.0):
        for weight in (0.25, 0.75):
            sums.add(sums.phases[0], weight, _terms(loss, 0, 0, loss, 0))
    sums.add(sums.phases[1], 1.0, _terms(7.0))
    sums.close_step(penalised=True)
    means = sums.means([sums.tolist()])
    assert (means["loss_d"], means["gp"], means["loss_g"]) == (2, 2, 7)


def test_workers_are_averaged_plainly_because_their_weights_are_in() -> None:
    """5 images over two workers, of losses 1 and 6: the mean of the batch is (3 * 1 + 2 * 6) / 5."""
    config = PRESETS["dcgan-digits"]
    rows = []
    for images, loss in ((3, 1.0), (2, 6.0)):
        sums = _sums(config)
        sums.add(sums.phases[0], images * 2 / 5, _terms(loss, 0, 0, 0, 0))
        sums.close_step(penalised=False)
        rows.append(sums.tolist())
    assert sums.means(rows)["loss_d"] == pytest.approx(3.0)
