"""Schedules as people write them: values by images seen, and what is refused, with the way out."""

import json

import pytest

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError

RAMP = '{"lr_g": {"from": 1e-3, "to": 1e-4, "over_kimg": 200}}'


@pytest.fixture
def config() -> TrainConfig:
    return PRESETS["dcgan-digits"]


def test_a_value_goes_from_one_to_the_other(config: TrainConfig) -> None:
    linear = config.replace({"schedules": RAMP})
    found = [linear.at("lr_g", kimg * 1000) for kimg in (0, 50, 100, 200, 300)]
    assert found == pytest.approx([1e-3, 7.75e-4, 5.5e-4, 1e-4, 1e-4])
    assert linear.at("lr_d", 100_000) == config.lr_d, "has none"
    cosine = config.replace({"schedules": RAMP.replace("200", '200, "shape": "cosine"')})
    found = [cosine.at("lr_g", kimg * 1000) for kimg in (0, 50, 100, 150, 200)]
    # 1 - (1 + cos(pi share)) / 2, by hand.
    assert found == pytest.approx([1e-3, 8.68198e-4, 5.5e-4, 2.31802e-4, 1e-4])


def test_it_may_begin_later_and_hold(config: TrainConfig) -> None:
    held = '{"lr_d": {"from": 1e-3, "to": 5e-4, "over_kimg": 10, "after_kimg": 100, "then": "hold"}}'
    late = config.replace({"schedules": held})
    assert [late.at("lr_d", kimg * 1000) for kimg in (0, 100, 105, 110, 200)] == pytest.approx(
        [1e-3, 1e-3, 7.5e-4, 5e-4, 5e-4]
    )


def test_steps_hold_until_the_next(config: TrainConfig) -> None:
    steps = config.replace({"schedules": {"r1_gamma": {"steps": [[0, 0.3], [50, 0.1], [120, 0.0]]}}, "r1_gamma": 0.3})
    assert [steps.at("r1_gamma", round(kimg * 1000)) for kimg in (0, 49.9, 50, 119, 121)] == [0.3, 0.3, 0.1, 0.1, 0.0]


def test_a_file_gives_back_what_was_written(config: TrainConfig) -> None:
    both = config.replace({"schedules": RAMP, "freeze": "generator.layers.0.*,discriminator.*.bias"})
    text = both.to_json()
    assert '"from": 0.001' in text
    assert TrainConfig.from_json(text) == both
    assert hash(both) != hash(config)
    assert TrainConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("schedules", "place", "allowed", "fix"),
    [
        (RAMP.replace("200", "150"), "lr_g", "a schedule that lasts 200 kimg", '"over_kimg": 200'),
        (RAMP.replace("1e-4", "0"), "lr_g", "values above 0", "change it"),
        (RAMP.replace("1e-3", "2e-3"), "lr_g", "lr_g of 0.002 or 0.0001", "--lr-g 0.002"),
        (
            '{"beta2": {"from": 0.99, "to": 1, "over_kimg": 200}}',
            "beta2",
            "values from 0 up to, but not, 1",
            "change it",
        ),
        ('{"augment_p": {"from": 0, "to": 2, "over_kimg": 200}}', "augment_p", "values from 0 to 1", "change it"),
        ('{"lr_g": {"from": 1e-3, "over_kimg": 200}}', "lr_g.to", "", "add it"),
        (
            '{"lr_g": {"from": 1e-3, "to": 1e-4, "over_kimg": 0}}',
            "lr_g.over_kimg",
            "a number above 0",
            "allowed value",
        ),
        ('{"lr_g": {"steps": [[5, 1e-3]]}}', "lr_g.steps", "the first at 0", "allowed value"),
        ('{"lr_g": {"steps": []}}', "lr_g.steps", "a list of at least 1 entry", "allowed value"),
        ('{"lr_g": {"steps": [[0, 1, 2]]}}', "lr_g.steps.0", "a list of at most 2 entries", "allowed value"),
        ('{"lr_g": {"steps": [[0, true]]}}', "lr_g.steps.0.1", "a number", "allowed value"),
        ('{"lr_g": 3}', "lr_g", "a JSON object", "allowed value"),
        ('{"lr_g": {"from": 1, "to": 2, "shape": "sine"}}', "lr_g.over_kimg", "", "add it"),
        ('{"lr_g": {"form": 1, "to": 2}}', "lr_g.form", "from, to, over_kimg, after_kimg, shape, then", "'from'"),
        ('{"lr_x": {}}', "lr_x", "lr_g, lr_d, beta2, r1_gamma, r2_gamma, ema_kimg, augment_p", "mean 'lr_g'?"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(
    config: TrainConfig, schedules: str, place: str, allowed: str, fix: str
) -> None:
    with pytest.raises(TrainerError) as caught:
        config.replace({"schedules": schedules})
    assert caught.value.place == f"TrainConfig.schedules.{place}"
    assert allowed in caught.value.allowed
    assert fix in caught.value.fix
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({"schedules": "{lr_g"}, "JSON"),
        ({"schedules": '{"augment_p": {"steps": [[0, 0.5]]}}', "augment": "none"}, "does not adapt by itself"),
        ({"schedules": '{"r2_gamma": {"steps": [[0, 0.5]]}}'}, "penalties that the run has"),
        ({"freeze": "generator.*", "shard": "fsdp2"}, "none with sharded networks"),
    ],
)
def test_what_does_not_go_together_is_refused(config: TrainConfig, changes: dict[str, object], allowed: str) -> None:
    with pytest.raises(TrainerError) as caught:
        config.replace(changes)
    assert allowed in caught.value.allowed


@pytest.mark.parametrize("names", ["generator.layers.0.*,discriminator.*.bias", ""])
def test_what_is_frozen_is_shown_as_its_flag_takes_it(config: TrainConfig, names: str) -> None:
    frozen = config.replace({"freeze": names})
    assert frozen.shown("freeze") == f'"{names}"'
    assert config.replace({"freeze": json.loads(frozen.shown("freeze"))}) == frozen
