"""TrainerError reads the same everywhere and survives the way from one rank to another."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.core.errors import TrainerError, broken_rule, diverged, from_rule, from_validation


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
    schedules = config.schedules.model_dump(exclude={field}, exclude_none=True)
    config.replace({field: 2 * getattr(config, field), "schedules": schedules})  # no rule forbids it


def test_the_fields_rebuild_the_error() -> None:
    error = TrainerError(place="p", problem="q", value=["a list"], allowed="x", fix="y")
    again = TrainerError(**error.fields())
    assert again.value == "['a list']"
    assert (again.place, again.problem, again.allowed, again.fix) == ("p", "q", "x", "y")


class _Part(BaseModel):
    share: float = Field(ge=0, le=1)
    kind: Literal["red", "green"] = "red"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 1
    kind: Literal["red", "green"] = "red"
    part: _Part | None = None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"size": "big"}, "f.json: size: not an accepted value\n  got:     'big'\n  allowed: a whole number\n"),
        ({"size": None}, "f.json: size: is null\n  allowed: a whole number\n"),
        ({"kind": "gren"}, "f.json: kind: not an accepted value\n  got:     'gren'\n  allowed: red or green\n  fix: "),
        (
            {"part": {"share": 2}},
            "f.json: part.share: not an accepted value\n  got:     2\n  allowed: a number from 0 on and up to 1",
        ),
        (
            {"part": {"share": "x"}},
            "f.json: part.share: not an accepted value\n  got:     'x'\n  allowed: a number from 0 on and up to 1\n",
        ),
        (
            {"part": {"share": 0, "kind": "blue"}},
            "f.json: part.kind: not an accepted value\n  got:     'blue'\n  allowed: red or green\n",
        ),
        ({"sise": 1}, "f.json: sise: unknown field\n  got:     1\n  fix:     did you mean 'size'? otherwise remove it"),
        ({"colour": 1}, "f.json: colour: unknown field\n  got:     1\n  fix:     remove it"),
    ],
)
def test_a_validation_error_names_file_field_and_value(values: dict[str, object], expected: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Model.model_validate(values)
    assert str(from_validation(caught.value, "f.json", known=_Model.model_fields)).startswith(expected)


class _Round(BaseModel):
    model_config = ConfigDict(extra="forbid")
    radius: float = Field(alias="r", gt=0)


class _Square(BaseModel):
    model_config = ConfigDict(extra="forbid")
    sides: tuple[float, ...] = Field(min_length=2)
    name: str = Field(default="s", min_length=1)


def _shape(value: object) -> str:
    return "_Square" if isinstance(value, dict) and "sides" in value else "_Round"


class _Shapes(BaseModel):
    model_config = ConfigDict(extra="forbid")
    shapes: list[
        Annotated[
            Annotated[_Round, Tag("_Round")] | Annotated[_Square, Tag("_Square")],
            Discriminator(_shape),
        ]
    ]


@pytest.mark.parametrize(
    ("shape", "place", "allowed", "fix"),
    [
        ({"r": 0}, "r", "a number above 0", "change it"),
        ({"sides": [1, 2], "r": 1}, "r", "sides, name", "remove it"),
        ({"r": 1, "name": "x"}, "name", "r", "remove it"),
        ({"side": 1}, "side", "r", "remove it"),
        ({"sides": [1, 2], "nane": "x"}, "nane", "sides, name", "did you mean 'name'?"),
        ({"sides": [1]}, "sides", "a list of 2 or more", "change it"),
        ({"sides": [1, 2], "name": ""}, "name", "a text of 1 or more characters", "change it"),
    ],
)
def test_a_part_of_one_kind_or_another_is_named_as_it_is_written(
    shape: dict[str, object], place: str, allowed: str, fix: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        _Shapes.model_validate({"shapes": [{"r": 1}, shape]})
    error = from_validation(caught.value, "f.json", known=_Shapes.model_fields)
    assert (error.place, error.allowed) == (f"f.json: shapes.1.{place}", allowed)
    assert error.fix.startswith(fix)


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


def test_the_nearest_of_a_few_words_is_offered() -> None:
    with pytest.raises(ValidationError) as caught:
        _Model.model_validate({"kind": "gren"})
    assert from_validation(caught.value, "f.json").fix == "did you mean 'green'?"


def test_broken_json_shows_the_line_and_what_the_parser_met_there() -> None:
    for text, problem, value in (
        ('{\n "size": 1,\n}', "is not JSON: line 3, column 1: trailing comma", "}"),
        (b'{"size": \xff}', "is not JSON: line 1, column 10: expected value", '{"size": \ufffd}'),
        (" \n", "is empty", ""),
    ):
        with pytest.raises(ValidationError) as caught:
            _Model.model_validate_json(text)
        error = from_validation(caught.value, "f.json")
        assert (error.problem, error.value, error.allowed) == (problem, value, "a JSON object")


def test_a_rule_tells_the_same_with_a_model_and_without() -> None:
    error = from_rule(broken_rule("two"), "--much", value="x", fix="take two")
    assert str(error) == "--much: not an accepted value\n  got:     'x'\n  allowed: two\n  fix:     take two"
    error = from_rule(broken_rule("two", value=0, fix="--much 2"), "--much", value="x", fix="take two")
    assert str(error) == "--much: not an accepted value\n  got:     0\n  allowed: two\n  fix:     --much 2"


def test_an_error_moves_to_the_place_the_user_knows() -> None:
    error = TrainerError(place="TrainConfig.kimg", problem="p", value=1, allowed="a", fix="f")
    assert str(error.at("--kimg")) == str(error).replace("TrainConfig.kimg", "--kimg")
    assert error.headline == "TrainConfig.kimg: p"
