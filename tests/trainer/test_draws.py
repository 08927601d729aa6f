"""Random numbers are functions of seed, images seen and purpose, and of nothing else."""

import itertools

import torch

from trainer.draws import Purpose, latents, uniforms


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
