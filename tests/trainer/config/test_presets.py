"""Presets: each is found by its name, tells its source, and has the numbers that its paper prints."""

import pytest

from trainer.config.presets import CATALOGUE, PRESETS, preset
from trainer.core.errors import TrainerError

NAMES = [
    "dcgan-digits",
    "few-images",
    "dcgan-cifar10",
    "dcgan-celeba64",
    "wgan-gp-cifar10",
    "r3gan-cifar10",
    "progan-celeba128",
    "progan-video-ucf101",
]

PUBLISHED: dict[str, dict[str, float]] = {
    # Radford et al. 2016, section 4: batch 128, Adam 2e-4 and 0.5, z of 100.
    "dcgan-cifar10": {"batch_size": 128, "lr_g": 2e-4, "beta1": 0.5, "z_dim": 100, "resolution": 32},
    "dcgan-celeba64": {"batch_size": 128, "lr_g": 2e-4, "beta1": 0.5, "z_dim": 100, "resolution": 64},
    # Karras et al. 2020, section 3: p starts at 0, r_t is kept at 0.6; small sets are mirrored, section 4.
    "few-images": {"ada_target": 0.6, "mirror": 1},
    # Gulrajani et al. 2017, appendix F: batch 64, Adam 2e-4, 0 and 0.9, 5 critic steps, lambda 10, 128 channels.
    "wgan-gp-cifar10": {"batch_size": 64, "lr_d": 2e-4, "beta1": 0, "beta2": 0.9, "d_steps": 5, "gp_weight": 10},
    # Karras et al. 2018, appendix A: Adam 1e-3, 0 and 0.99, one critic step, drift 1e-3, 800 kimg and 800 kimg.
    # Their code's experiments on CelebA at 128x128 mirror the reals.
    "progan-celeba128": {"lr_g": 1e-3, "beta2": 0.99, "drift": 1e-3, "fade_kimg": 800, "stable_kimg": 800, "mirror": 1},
    # Huang et al. 2024: batch 512, Adam's beta1 0, R1 and R2 of equal weight in every step; their command mirrors.
    "r3gan-cifar10": {"batch_size": 512, "beta1": 0, "r1_gamma": 0.05, "r2_gamma": 0.05, "r1_interval": 1, "mirror": 1},
    "progan-video-ucf101": {"frames": 16, "resolution": 64},
}


def test_all_that_were_asked_for_are_there() -> None:
    assert list(PRESETS) == NAMES
    assert all(preset(name).preset == name for name in PRESETS)
    with pytest.raises(TrainerError, match="dcgan-digits"):
        preset("biggan")


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_numbers_are_kept(name: str) -> None:
    values = PRESETS[name].model_dump()
    assert {field: values[field] for field in PUBLISHED[name]} == PUBLISHED[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_source_is_a_paper_and_departures_are_told(name: str) -> None:
    entry = CATALOGUE[name]
    assert "arXiv:" in entry.source
    assert entry.departures
    assert len(entry.summary) <= 70


@pytest.mark.parametrize("name", NAMES)
def test_departures_of_the_trainer_are_told_where_they_bear(name: str) -> None:
    """What the losses and the augmentation do otherwise than the papers that they are from."""
    config, told = PRESETS[name], " ".join(CATALOGUE[name].departures)
    lazy = config.r1_gamma > 0 and config.r1_interval > 1
    assert ("scales the step size" in told) == lazy
    penalised = config.r1_gamma > 0 and config.augment != "none"
    assert ("at the augmented images" in told) == penalised
    assert ("repeats the border" in told) == ("translation" in config.augment)
    assert ("minibatch statistics" in told) == (config.architecture == "progressive")
    assert ("wider filter" in told) == (config.architecture == "r3gan")


def test_a_growing_run_ends_at_full_size() -> None:
    from trainer.steps.progressive_schedule import fade_at

    for config in PRESETS.values():
        assert fade_at(config, config.total_images) == (config.resolution, 1.0)


def test_r3gan_follows_its_authors_schedules() -> None:
    """github.com/brownvc/R3GAN, train.py, preset CIFAR10: all along half a cosine of 20 million images, then held."""
    config = PRESETS["r3gan-cifar10"]
    published = {
        "lr_g": (2e-4, 5e-5), "lr_d": (2e-4, 5e-5), "beta2": (0.9, 0.99), "r1_gamma": (0.05, 0.005),
        "r2_gamma": (0.05, 0.005), "ema_kimg": (0, 5000), "augment_p": (0, 0.55),
    }  # fmt: skip
    assert {name: schedule.values for name, schedule in config.schedules.given.items()} == published
    for name, (first, last) in published.items():
        schedule = config.schedules.given[name]
        found = [schedule.at(images) for images in (0, 10_000_000, 20_000_000, 90_000_000)]
        assert found == pytest.approx([first, (first + last) / 2, last, last]), name
    assert (config.g_reals, config.tf32, config.precision, config.ema_rampup) == ("fresh", False, "bf16", 0)


def test_the_averages_ramp_is_where_the_source_has_it() -> None:
    """StyleGAN2's code has it; ProGAN's and R3GAN's have none, and the others' sources average nothing."""
    assert [name for name, config in PRESETS.items() if not config.ema_rampup] == [
        "r3gan-cifar10",
        "progan-celeba128",
        "progan-video-ucf101",
    ]
