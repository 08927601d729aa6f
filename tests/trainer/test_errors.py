"""TrainerError reads the same everywhere and survives the way from one rank to another."""

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from trainer.errors import TrainerError, diverged, from_validation
from trainer.presets import PRESETS


def test_an_error_shows_place_problem_value_allowed_and_fix() -> None:
    error = TrainerError(place="a.json: kimg", problem="too small", value=-1, allowed="> 0", fix="set it to 1")
    assert str(error) == "a.json: kimg: too small\n  got:     -1\n  allowed: > 0\n  fix:     set it to 1"


def test_lines_without_content_are_left_out() -> None:
    assert str(TrainerError(place="here", problem="gone")) == "here: gone"


@pytest.mark.parametrize("name", ["wgan-gp-cifar10", "dcgan-digits", "r3gan-cifar10"])
def test_a_diverged_run_is_offered_a_penalty_that_its_loss_has(name: str) -> None:
    fix = diverged("loss_g", "nan").fix
    assert "--gp-weight with the wgan-gp loss, --r1-gamma with any other" in fix
    config = PRESETS[name]
    field = "gp_weight" if config.loss == "wgan-gp" else "r1_gamma"
    config.replace({field: 2 * getattr(config, field)})  # no rule forbids it


def test_the_fields_rebuild_the_error() -> None:
    error = TrainerError(place="p", problem="q", value=["a list"], allowed="x", fix="y")
    again = TrainerError(**error.fields())
    assert again.value == "['a list']"
    assert (again.place, again.problem, again.allowed, again.fix) == ("p", "q", "x", "y")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"size": "big"}, "f.json: size: not an accepted value\n  got:     'big'\n  allowed: a valid"),
        ({"sise": 1}, "f.json: sise: unknown field\n  got:     1\n  fix:     did you mean 'size'? otherwise remove it"),
        ({"colour": 1}, "f.json: colour: unknown field\n  got:     1\n  fix:     remove it"),
    ],
)
def test_a_validation_error_names_file_field_and_value(values: dict[str, object], expected: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Model.model_validate(values)
    assert str(from_validation(caught.value, "f.json", known=_Model.model_fields)).startswith(expected)


class _Needing(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int


def test_a_misspelt_field_is_told_of_before_the_one_that_it_leaves_missing() -> None:
    for values, expected in (
        ({"sise": 1}, "f.json: sise: unknown field\n  got:     1\n  fix:     did you mean 'size'? otherwise remove it"),
        ({}, "f.json: size: is missing\n  fix:     add it"),
    ):
        with pytest.raises(ValidationError) as caught:
            _Needing.model_validate(values)
        assert str(from_validation(caught.value, "f.json", known=_Needing.model_fields)) == expected


def test_every_validation_error_has_a_fix() -> None:
    for text in ("{", '{"size": "big"}', '{"colour": 1}'):
        with pytest.raises(ValidationError) as caught:
            _Model.model_validate_json(text)
        assert from_validation(caught.value, "f.json").fix


def test_an_error_moves_to_the_place_the_user_knows() -> None:
    error = TrainerError(place="TrainConfig.kimg", problem="p", value=1, allowed="a", fix="f")
    assert str(error.at("--kimg")) == str(error).replace("TrainConfig.kimg", "--kimg")
    assert error.headline == "TrainConfig.kimg: p"
