"""Random numbers are functions of seed, images seen and purpose, and of nothing else."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.phases.rng import Purpose, StepRng, latents, uniforms


def test_draws_repeat_whatever_was_drawn_between() -> None:
    config = PRESETS["dcgan-digits"]
    first = latents(4, config, seed=1, images=64, purpose=Purpose.G_LATENTS)
    torch.rand(100)
    assert torch.equal(first, latents(4, config, seed=1, images=64, purpose=Purpose.G_LATENTS))


def test_seeds_moments_and_purposes_have_streams_of_their_own() -> None:
    drawn = [
        latents(8, PRESETS["dcgan-digits"], seed=seed, images=images, purpose=purpose)
        for seed, images, purpose in itertools.product((0, 1), (0, 64), Purpose)
    ]
    assert all(not torch.equal(first, second) for first, second in itertools.combinations(drawn, 2))


@given(
    first=st.integers(0, 2**40),
    num=st.integers(1, 40),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    z_dim=st.integers(1, 130),
    kind=st.sampled_from(["normal", "uniform"]),
)
def test_an_images_numbers_are_its_own_whoever_draws_them(
    first: int, num: int, cuts: list[int], z_dim: int, kind: str
) -> None:
    """To the bit: a worker draws for its share alone."""
    config = PRESETS["dcgan-digits"].replace({"z_dim": z_dim, "latents": kind})
    whole = latents(num, config, images=first, purpose=Purpose.D_LATENTS)
    gates = uniforms(num, seed=3, images=first, purpose=Purpose.REAL_GATE, columns=z_dim)
    edges = sorted({0, num, *(cut for cut in cuts if cut < num)})
    for start, stop in itertools.pairwise(edges):
        place = {"images": first + start, "num": stop - start}
        assert torch.equal(latents(config=config, purpose=Purpose.D_LATENTS, **place), whole[start:stop])
        assert torch.equal(uniforms(seed=3, purpose=Purpose.REAL_GATE, columns=z_dim, **place), gates[start:stop])


def test_normal_numbers_are_normal() -> None:
    """By Kolmogorov and Smirnov's distance from the distribution, in columns of either half, and uncorrelated."""
    config = PRESETS["dcgan-digits"].replace({"z_dim": 3})
    drawn = latents(100_000, config, images=7, purpose=Purpose.G_LATENTS).double()
    for column in drawn.T:
        reached = torch.special.ndtr(column.sort().values)
        ranks = torch.arange(len(reached) + 1, dtype=torch.float64) / len(reached)
        distance = max(float((reached - ranks[:-1]).max()), float((ranks[1:] - reached).max()))
        assert distance < 1.95 / len(reached) ** 0.5, "one in a thousand of true ones lies beyond"
    assert float((torch.corrcoef(drawn.T) - torch.eye(3)).abs().max()) < 0.015


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
        ({"augment": "none", "dequantise": True}, {"latents", "g_latents", "noise"}),
    ],
)
def test_only_what_is_used_is_drawn(changes: dict[str, object], names: set[str]) -> None:
    config = PRESETS["dcgan-cifar10"].replace({"batch_size": 8, "d_steps": 3, **changes})
    mine = slice(2, 5)
    first, second = (StepRng(config, mine)(images) for images in (48, 56))
    assert set(first) == names
    assert set(second) == {name for name in names if not name.startswith("g")}, "G steps once in three batches"
    expected = latents(8, config, images=56, purpose=Purpose.D_LATENTS)[mine]
    assert torch.equal(second["latents"], expected)
    purposes = {"real": Purpose.REAL_AUGMENT, "fake": Purpose.FAKE_AUGMENT, "g": Purpose.G_AUGMENT}
    for name, purpose in purposes.items():
        if name in first:
            assert torch.equal(first[name], uniforms(8, seed=config.seed, images=48, purpose=purpose)[mine])


def test_latents_are_normal_or_uniform_as_the_configuration_says() -> None:
    config = PRESETS["dcgan-celeba64"].replace({"z_dim": 50})
    uniform = latents(4000, config, images=0, purpose=Purpose.D_LATENTS)
    assert -1 <= uniform.min() < -0.999
    assert 0.999 < uniform.max() <= 1
    assert float(uniform.std()) == pytest.approx(3**-0.5, rel=0.01)
    normal = latents(4000, config.replace({"latents": "normal"}), images=0, purpose=Purpose.D_LATENTS)
    assert float(normal.std()) == pytest.approx(1, rel=0.01)
    assert normal.max() > 3


def test_an_images_noise_is_its_own_whoever_draws_it() -> None:
    config = PRESETS["wgan-gp-cifar10"].replace({"batch_size": 8})
    whole = StepRng(config, slice(0, 8))(16)["noise"]
    assert whole.shape == (8, 3 * 32 * 32)
    assert 0 <= whole.min() <= whole.max() < 1
    assert torch.equal(StepRng(config, slice(3, 5))(16)["noise"], whole[3:5])
    assert not torch.equal(whole[0], whole[1])
    assert not torch.equal(StepRng(config, slice(0, 8))(24)["noise"], whole), "the next batch has its own"
