"""Presets: each is found by its name, tells its source, and has the numbers that its paper prints."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

import pytest

from gangway.trainer.config.presets import CATALOGUE, PRESETS, preset
from gangway.trainer.config.sources import get_value, in_words
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.schedules import Ramp, Steps
from gangway.trainer.config.values.segments import Segment
from gangway.trainer.core.errors import TrainerError

NAMES = [
    "dcgan-digits",
    "few-images",
    "dcgan-cifar10",
    "dcgan-celeba64",
    "dcgan-celeba64-paper",
    "wgan-gp-cifar10",
    "r3gan-cifar10",
    "r3gan-ffhq256",
    "r3gan-imagenet64",
    "progan-celeba128",
    "progan-celebahq512",
    "progan-video-ucf101",
    "cyclegan-photos",
]

EVERY_STEPS = {"z_dim", "batch_size", "d_steps", "loss", "lr_g", "lr_d", "beta1", "beta2", "ngf", "ndf", "r1_gamma"}
"""What every table has to say, default or not: it decides what a step computes."""
WITHOUT_SOURCE: Mapping[str, str] = MappingProxyType(
    {
        "preset": "its own name",
        "dataset": "the name of a recipe of ours; where the data are others than the source's, departures say so",
        "channels": "the data's",
        "checkpoint_kimg": "how often something is written decides nothing that is computed",
        "stats_kimg": "likewise",
        "sample_kimg": "likewise",
    }
)
"""Fields that no table has to have, and why."""


def test_all_that_were_asked_for_are_there() -> None:
    assert list(PRESETS) == NAMES
    assert all(preset(name).preset == name for name in PRESETS)
    with pytest.raises(TrainerError, match="dcgan-digits"):
        preset("biggan")


def unsourced(config: TrainConfig, rows: Collection[str]) -> set[str]:
    """What a preset sets and its table does not have: each schedule by itself."""
    chosen = {
        name
        for name, field in TrainConfig.model_fields.items()
        if field.is_required() or getattr(config, name) != field.get_default()
    }
    schedules = {f"schedules.{name}" for name in config.schedules.given}
    return (chosen - {"schedules"} | schedules | EVERY_STEPS) - {*WITHOUT_SOURCE} - {*rows}


@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_preset_sets_has_a_row_with_its_source(name: str) -> None:
    rows, config = CATALOGUE[name].published, PRESETS[name]
    assert unsourced(config, rows) == set()
    needed = unsourced(config, ())
    assert {*needed} >= {"kimg", "resolution"}
    for field in needed:
        assert unsourced(config, {*rows} - {field}) == {field}, "a row that is missing is found"


def test_schedules_and_segments_are_rows_of_their_own() -> None:
    scheduled = ("lr_g", "lr_d", "beta2", "r1_gamma", "r2_gamma", "ema_kimg", "augment_p")
    assert unsourced(PRESETS["r3gan-cifar10"], ()) >= {f"schedules.{name}" for name in scheduled}
    assert unsourced(PRESETS["progan-celebahq512"], ()) >= {"schedules.lr_g", "schedules.lr_d", "segments"}


def test_fields_without_a_source_are_fields() -> None:
    assert set(WITHOUT_SOURCE) <= set(TrainConfig.model_fields)


@pytest.mark.parametrize("name", NAMES)
def test_each_value_is_the_sources_or_a_departure_says_why_not(name: str) -> None:
    config, entry = PRESETS[name], CATALOGUE[name]
    assert entry.published
    for field, known in entry.published.items():
        assert known.source
        value = get_value(config, field)
        same = value == known.value and type(value) in {type(known.value), float, int}
        assert same != bool(known.instead), f"{field}: a reason where the preset differs, and only there"
        if known.instead:
            told = f"{field} is {in_words(value)} instead of {in_words(known.value)}: {known.instead}"
            assert told in entry.departures


def test_quality_is_measured_with_as_many_samples_as_the_papers_take_but_in_demos() -> None:
    samples = {name: config.metrics_samples for name, config in PRESETS.items()}
    assert samples == {
        **dict.fromkeys(NAMES, 50_000),
        "dcgan-digits": 1797,
        "few-images": 1000,
        "progan-video-ucf101": 2048,
        "cyclegan-photos": 1797,  # and no metric that would take any
    }
    for demo in ("dcgan-digits", "few-images"):
        assert any("proxies" in departure for departure in CATALOGUE[demo].departures)


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
    assert ("minibatch deviation" in told) == (config.architecture == "progressive")


def test_a_growing_run_ends_at_full_size() -> None:
    from gangway.trainer.networks.progressive_schedule import fade_at

    for config in PRESETS.values():
        assert fade_at(config, config.total_images) == (config.resolution, 1.0)


def test_cyclegan_has_its_papers_weights_and_the_step_size_falls_in_the_second_half() -> None:
    config = PRESETS["cyclegan-photos"]
    assert (config.cycle_weight, config.cycle_weight * config.identity_weight) == (10, 5)
    for name in ("lr_g", "lr_d"):
        schedule = config.schedules.given[name]
        found = [schedule.at(images) for images in (0, 2500, 3750, 5000, 20_000)]
        assert found == pytest.approx([2e-4, 2e-4, 1.01e-4, 2e-6, 2e-6]), name
    told = " ".join(CATALOGUE["cyclegan-photos"].departures)
    assert "no buffer of the last 50 fakes" in told
    assert "the discriminators learn first" in told


@pytest.mark.parametrize(
    ("name", "images", "gamma", "ema_kimg", "augment_p"),
    [
        ("r3gan-cifar10", 20_000_000, (0.05, 0.005), (0, 5000), (0, 0.55)),
        ("r3gan-ffhq256", 20_000_000, (150, 15), (0, 500), (0, 0.3)),
        ("r3gan-imagenet64", 200_000_000, (1, 0.1), (0, 50_000), (0, 0.4)),
    ],
)
def test_r3gan_follows_its_authors_schedules(
    name: str, images: int, gamma: tuple[float, float], ema_kimg: tuple[float, float], augment_p: tuple[float, float]
) -> None:
    """github.com/brownvc/R3GAN, train.py: all along half a cosine of so many images, then held."""
    config = PRESETS[name]
    published = {
        "lr_g": (2e-4, 5e-5), "lr_d": (2e-4, 5e-5), "beta2": (0.9, 0.99), "r1_gamma": gamma,
        "r2_gamma": gamma, "ema_kimg": ema_kimg, "augment_p": augment_p,
    }  # fmt: skip
    assert {name: schedule.values for name, schedule in config.schedules.given.items()} == published
    for field, (first, last) in published.items():
        schedule = config.schedules.given[field]
        found = [schedule.at(images) for images in (0, images // 2, images, 4 * images)]
        assert found == pytest.approx([first, (first + last) / 2, last, last]), field
    assert (config.g_reals, config.tf32, config.precision, config.ema_rampup) == ("fresh", False, "bf16", 0)


def test_the_averages_ramp_is_where_the_source_has_it() -> None:
    """StyleGAN2's code has it; ProGAN's and R3GAN's have none, and the others' sources average nothing."""
    assert [name for name, config in PRESETS.items() if not config.ema_rampup] == [
        "r3gan-cifar10",
        "r3gan-ffhq256",
        "r3gan-imagenet64",
        "progan-celeba128",
        "progan-celebahq512",
        "progan-video-ucf101",
    ]


def test_progan_at_512_has_its_authors_batches_and_step_sizes_at_each_size() -> None:
    """github.com/tkarras/progressive_growing_of_gans, config.py, preset-v2-8gpus: by resolution, from the first image
    of its fading in.
    """
    from gangway.trainer.networks.progressive_schedule import fade_at

    config = PRESETS["progan-celebahq512"]
    batches = {4: 512, 8: 256, 16: 128, 32: 64, 64: 32, 128: 32, 256: 32, 512: 32}
    rates = dict.fromkeys(batches, 1e-3) | {128: 1.5e-3, 256: 2e-3, 512: 3e-3}
    for number, resolution in enumerate(batches):
        images = max(0, 1200 * number - 600) * 1000 + 1000
        assert fade_at(config, images)[0] == resolution
        assert (config.at("lr_g", images), config.at("lr_d", images)) == (rates[resolution], rates[resolution])
        (batch,) = [values.batch_size for values, bounds in zip(config.planned, config.bounds, strict=True)
                    if bounds.first <= images < bounds.end]  # fmt: skip
        assert batch == batches[resolution]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "none"),
        ((), "none"),
        (True, "True"),
        ("bf16", "bf16"),
        (512, "512"),
        (10_000_000.0, "10000000"),
        (22.2, "22.2"),
        (Ramp(start=2e-4, to=5e-5, over_kimg=20_000, shape="cosine"), "0.0002 to 5e-05, cosine, 20000 kimg"),
        (Ramp(start=1, to=0.1, over_kimg=2.5, after_kimg=2.5), "1 to 0.1, linear, 2.5 kimg after 2.5"),
        (Steps(steps=((0, 1e-3), (5400, 3e-3))), "0.001, 0.003 from 5400 kimg"),
        (
            (Segment(from_image=0, batch_size=64), Segment(from_image=500_500, batch_size=32)),
            "batch_size 64, 32 from 500.5 kimg",
        ),
        (
            (Segment(from_image=1000, batch_size=64), Segment(from_image=2000, precision="bf16", lr_factor=2)),
            "batch_size 64 from 1 kimg, precision bf16 and lr_factor 2 from 2 kimg",
        ),
    ],
)
def test_a_value_in_words(value: object, words: str) -> None:
    assert in_words(value) == words
