"""ADA: p follows the sign of the logits within 0..1, is the same for every spread of the batch, and gates each part."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.world import World
from gangway.trainer.phases.augment import EVERY_STEPS, GATES, UNIFORMS, adapt_p, diffaugment, first_p, is_due
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import Game, adapt

ADAPTIVE = PRESETS["dcgan-cifar10"].replace({"ada_target": 0.6, "ada_kimg": 100, "batch_size": 50})
TINY = ADAPTIVE.replace({"resolution": 16, "ngf": 1, "ndf": 1, "z_dim": 1})


def next_p(p: float, sign: int, config: TrainConfig = ADAPTIVE) -> torch.Tensor:
    """As a step has it."""
    return adapt_p(torch.tensor(p, dtype=torch.float64), torch.tensor(sign), EVERY_STEPS * config.step_images, config)


def test_it_is_due_every_fourth_step_if_at_all() -> None:
    assert [step for step in range(1, 13) if is_due(ADAPTIVE, step)] == [4, 8, 12]
    assert not is_due(PRESETS["dcgan-cifar10"], 4)
    assert (first_p(ADAPTIVE), first_p(PRESETS["dcgan-cifar10"])) == (0, 1)


@pytest.mark.parametrize(
    ("sign", "p", "expected"), [(160, 0.5, 0.502), (80, 0.5, 0.498), (200, 1.0, 1.0), (0, 0.0, 0.0)]
)
def test_p_moves_by_its_speed_and_stays_a_probability(sign: int, p: float, expected: float) -> None:
    """4 steps of 50 images are 200 of 100,000."""
    assert float(next_p(p, sign)) == pytest.approx(expected)


@given(
    signs=st.lists(st.integers(-1, 1), min_size=50, max_size=50),
    cuts=st.lists(st.integers(0, 50), max_size=6),
    p=st.floats(0, 1),
)
def test_p_does_not_depend_on_how_the_batch_is_spread(signs: list[int], cuts: list[int], p: float) -> None:
    """As the loop sums them: each worker's float32 mean over a micro-batch, times its images."""
    edges = [0, *sorted(cuts), 50]
    parts = [signs[start:stop] for start, stop in itertools.pairwise(edges) if stop > start]
    spread = [float(torch.tensor(part, dtype=torch.float32).mean() * len(part)) for part in parts]
    assert next_p(p, sum(map(round, spread))) == next_p(p, sum(signs))


@pytest.mark.slow
@given(batches=st.lists(st.integers(-50, 50), min_size=8, max_size=8))
def test_r_t_is_the_mean_sign_of_the_batches_since_the_last_adjustment(batches: list[int]) -> None:
    """Karras et al. 2020, section 3.1: adjusted once every four minibatches, by the reals of all four; also where a
    checkpoint comes between.
    """
    state = TrainState.create(TINY, torch.device("cpu"))
    game = Game(TINY, World.alone(torch.device("cpu")), (), {})
    change, wanted = 4 * 50 / 100_000, 0.5
    state.augment_p = wanted
    for first in range(0, 8, 4):
        for sign in batches[first : first + 4]:
            state.step += 1
            adapt(state, game, torch.tensor(float(sign)))
            saved, state = state.state_dict(), TrainState.create(TINY, torch.device("cpu"))
            state.load_state_dict(saved)
        r_t = sum(batches[first : first + 4]) / (4 * 50)
        wanted += change if r_t > 0.6 else -change
        assert float(state.augment_p) == pytest.approx(wanted)


@given(signs=st.lists(st.integers(-50, 50), min_size=1, max_size=400))
def test_p_is_a_probability_for_ever(signs: list[int]) -> None:
    p = first_p(ADAPTIVE)
    for sign in signs:
        p = float(next_p(p, sign, ADAPTIVE.replace({"ada_kimg": 0.5})))
        assert 0 <= p <= 1


@pytest.mark.parametrize("shape", [(4, 3, 16, 16), (4, 3, 4, 16, 16)], ids=["images", "clips"])
def test_a_gate_leaves_its_part_out_of_its_image(shape: tuple[int, ...]) -> None:
    drawn = torch.Generator().manual_seed(0)
    images, uniforms = torch.rand(shape, generator=drawn), torch.rand(4, UNIFORMS, generator=drawn)
    gates = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]]).float()
    assert gates.shape[1] == GATES
    augmented = diffaugment(images, "color,translation,cutout", torch.cat([uniforms, gates], dim=1))
    for number, policy in enumerate(("none", "color", "translation", "color,translation,cutout")):
        one = slice(number, number + 1)
        torch.testing.assert_close(augmented[one], diffaugment(images[one], policy, uniforms[one]))


def test_every_frame_of_a_clip_is_augmented_alike() -> None:
    drawn = torch.Generator().manual_seed(0)
    frame, uniforms = torch.rand(2, 3, 1, 16, 16, generator=drawn), torch.rand(2, UNIFORMS, generator=drawn)
    still = frame.expand(-1, -1, 5, -1, -1)
    for policy in ("color", "translation", "cutout"):
        augmented = diffaugment(still, policy, uniforms)
        torch.testing.assert_close(
            augmented, diffaugment(frame[:, :, 0], policy, uniforms)[:, :, None].expand_as(still)
        )


def test_the_target_is_of_the_configuration(families: dict[str, tuple[TrainConfig, object]]) -> None:
    config, _ = families["dcgan-ada"]
    assert config.ada_target > 0
    assert EVERY_STEPS * config.step_images / (config.ada_kimg * 1000) == pytest.approx(0.48)
