"""Random numbers are functions of seed, images seen and purpose, and of nothing else."""

import itertools

import pytest
import torch

from trainer.config.presets import PRESETS
from trainer.steps.rng import Purpose, StepRng, latents, uniforms


def test_draws_repeat_whatever_was_drawn_between() -> None:
    first = latents(4, 3, seed=1, images=64, purpose=Purpose.G_LATENTS)
    torch.rand(100)
    assert torch.equal(first, latents(4, 3, seed=1, images=64, purpose=Purpose.G_LATENTS))


def test_seeds_moments_and_purposes_have_streams_of_their_own() -> None:
    drawn = [
        latents(8, 8, seed=seed, images=images, purpose=purpose)
        for seed, images, purpose in itertools.product((0, 1), (0, 64), Purpose)
    ]
    assert all(not torch.equal(first, second) for first, second in itertools.combinations(drawn, 2))


def test_drawing_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    drawn = uniforms(1000, seed=0, images=0, purpose=Purpose.REAL_AUGMENT)
    assert torch.equal(state, torch.get_rng_state())
    assert 0 <= drawn.min() <= drawn.max() < 1


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"augment": "none"}, {"latents", "g_latents"}),
        ({}, {"latents", "g_latents", "real", "fake", "g"}),
        (
            {"ada_target": 0.6},
            {"latents", "g_latents", "real", "fake", "g", "real_gates", "fake_gates", "g_gates"},
        ),
        (
            {"augment": "none", "loss": "wgan-gp", "gp_weight": 10, "r1_gamma": 0, "r1_interval": 1},
            {"latents", "g_latents", "mix"},
        ),
    ],
)
def test_only_what_is_used_is_drawn(changes: dict[str, object], names: set[str]) -> None:
    config = PRESETS["dcgan-cifar10"].replace({"batch_size": 8, "d_steps": 3, **changes})
    mine = slice(2, 5)
    first, second = (StepRng(config, mine)(images) for images in (48, 56))
    assert set(first) == names
    assert set(second) == {name for name in names if not name.startswith("g")}, "G steps once in three batches"
    expected = latents(8, config.z_dim, seed=config.seed, images=56, purpose=Purpose.D_LATENTS)[mine]
    assert torch.equal(second["latents"], expected)
    purposes = {"real": Purpose.REAL_AUGMENT, "fake": Purpose.FAKE_AUGMENT, "g": Purpose.G_AUGMENT}
    for name, purpose in purposes.items():
        if name in first:
            assert torch.equal(first[name], uniforms(8, seed=config.seed, images=48, purpose=purpose)[mine])
