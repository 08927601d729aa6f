"""The noise scale against gradients whose own is known, through torch's Adam."""

import pytest
import torch
from torch import nn

from trainer.telemetry.noise_scale import Moments, NoiseScale, moments_of

SIZE = 4000
TRUE = 60.0
"""tr(Sigma) / |G|^2 of the gradients below."""


class Drawn:
    """Adam over weights whose gradients are drawn as N(G, Sigma / B)."""

    def __init__(self, beta1: float = 0.5, beta2: float = 0.99, seed: int = 0) -> None:
        self._random = torch.Generator().manual_seed(seed)
        self.weights = [nn.Parameter(torch.zeros(SIZE // 2)), nn.Parameter(torch.zeros(SIZE // 2))]
        self.mean = [torch.full((SIZE // 2,), each) for each in (0.01, -0.02)]
        squares = sum(float(each.square().sum()) for each in self.mean)
        self._sigma = (TRUE * squares / SIZE) ** 0.5
        self.adam = torch.optim.Adam(self.weights, 1e-3, (beta1, beta2))

    def step(self, batch_size: int, steps: int) -> None:
        for _ in range(steps):
            for weight, mean in zip(self.weights, self.mean, strict=True):
                noise = torch.randn(weight.shape, generator=self._random)
                weight.grad = mean + self._sigma / batch_size**0.5 * noise
            self.adam.step()


def lines(drawn: Drawn, scale: NoiseScale, batch_size: int, number: int = 20, steps: int = 30) -> float | None:
    """What the last of so many lines says."""
    found = None
    for _ in range(number):
        drawn.step(batch_size, steps)
        found = scale.after([moments_of(drawn.adam)], batch_size)
    return found


@pytest.mark.parametrize("batch_size", [8, 32, 128])
@pytest.mark.parametrize("betas", [(0.5, 0.99), (0.9, 0.999)])
def test_it_is_found_whatever_the_batch(batch_size: int, betas: tuple[float, float]) -> None:
    assert lines(Drawn(*betas), NoiseScale(), batch_size) == pytest.approx(TRUE, rel=0.15)


def test_the_bias_of_the_first_steps_is_none_of_it() -> None:
    found = lines(Drawn(0.9, 0.999), NoiseScale(), 32, number=3, steps=8)
    assert found == pytest.approx(TRUE, rel=0.15)


def test_a_change_of_batch_does_not_show_as_one_of_noise() -> None:
    drawn, scale = Drawn(0.9, 0.999), NoiseScale()
    lines(drawn, scale, 16)
    for _ in range(6):  # second moments still have steps of the smaller batch in them
        assert lines(drawn, scale, 128, number=1) == pytest.approx(TRUE, rel=0.15)


def test_nobody_knows_it_without_moments_or_a_first_decay() -> None:
    fresh = Drawn()
    assert moments_of(fresh.adam) is None
    undecayed = Drawn(beta1=0.0)
    undecayed.step(8, 3)
    assert moments_of(undecayed.adam) is None
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = torch.ones(2)
    sgd = torch.optim.SGD([weight], 0.1, momentum=0.9)
    sgd.step()
    assert moments_of(sgd) is None
    assert NoiseScale().after([None], 8) is None


def test_it_is_none_after_one_step_where_the_gradient_is_lost_and_where_one_is_no_number() -> None:
    drawn = Drawn()
    drawn.step(8, 1)
    assert NoiseScale().after([moments_of(drawn.adam)], 8) is None, "two equations that are the same"
    lost = Moments(mean_square=0.3, square=1.0, steps=1000, beta1=0.5, beta2=0.9)
    assert NoiseScale().after([lost], 8) is None, "less than noise alone would give"
    scale = NoiseScale()
    known = scale.after([lost._replace(mean_square=0.9)], 8)
    assert known is not None
    assert scale.after([lost._replace(mean_square=float("nan"), steps=1010)], 8) == known


def test_parts_add_up_to_the_whole() -> None:
    drawn = Drawn()
    drawn.step(8, 50)
    whole = moments_of(drawn.adam)
    assert whole is not None
    parts = [whole._replace(mean_square=whole.mean_square / 2, square=whole.square / 2)] * 2
    assert NoiseScale().after(parts, 8) == pytest.approx(NoiseScale().after([whole], 8))
    assert NoiseScale().after([parts[0], None], 8) is None


def test_weights_that_have_learned_less_long_are_left_out() -> None:
    drawn = Drawn()
    drawn.step(8, 50)
    before = moments_of(drawn.adam)
    drawn.weights[1].grad, drawn.weights[0].grad = None, drawn.mean[0]
    drawn.adam.step()
    after = moments_of(drawn.adam)
    assert before is not None
    assert after is not None
    assert (before.steps, after.steps) == (50, 51)
    assert after.square < 0.8 * before.square


def test_a_new_optimiser_begins_anew() -> None:
    scale = NoiseScale()
    lines(Drawn(), scale, 8)
    assert lines(Drawn(seed=1), scale, 32, number=5) == pytest.approx(TRUE, rel=0.2)
