"""Pydantic's errors, worded for users."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from gangway.trainer.core.validation import Mistake, first_mistake, from_validation


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
        ({"size": None}, "f.json: size: has no value\n  allowed: a whole number\n"),
        ({"kind": "gren"}, "f.json: kind: not an accepted value\n  got:     'gren'\n  allowed: red or green\n  fix: "),
        (
            {"part": {"share": 2}},
            "f.json: part.share: not an accepted value\n  got:     2\n  allowed: a number from 0 to 1",
        ),
        (
            {"part": {"share": "x"}},
            "f.json: part.share: not an accepted value\n  got:     'x'\n  allowed: a number from 0 to 1\n",
        ),
        (
            {"part": {"share": 0, "kind": "blue"}},
            "f.json: part.kind: not an accepted value\n  got:     'blue'\n  allowed: red or green\n",
        ),
        ({"sise": 1}, "f.json: sise: unknown key\n  got:     1\n  fix:     did you mean 'size'? otherwise remove it"),
        ({"colour": 1}, "f.json: colour: unknown key\n  got:     1\n  fix:     remove it"),
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
        ({"sides": [1]}, "sides", "a list of at least 2 entries", "change it"),
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
        ({"sise": 1}, "f.json: sise: unknown key\n  got:     1\n  fix:     did you mean 'size'? otherwise remove it"),
        ({}, "f.json: size: missing\n  fix:     add it"),
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


class _Nodes(BaseModel):
    min: int = Field(ge=1)
    max: int

    @model_validator(mode="after")
    def _in_order(self) -> "_Nodes":
        if self.min > self.max:
            raise ValueError("min is above max")
        if self.max > 9:
            raise ValueError("up to 9 nodes; write max: 9")
        return self


class _Job(BaseModel):
    nodes: list[_Nodes]


def _mistake(document: str) -> Mistake:
    with pytest.raises(ValidationError) as refused:
        _Job.model_validate_json(document)
    return first_mistake(refused.value)


def test_the_first_place_is_named_as_a_path() -> None:
    found = _mistake('{"nodes": [{"min": 1, "max": 2}, {"min": 0, "max": "many"}]}')
    assert (found.path, found.value) == ("nodes.1.min", 0)
    assert found.within("job.json") == "job.json: nodes.1.min"
    assert str(found) == "nodes.1.min: not an accepted value; allowed: a whole number, at least 1"


def test_a_missing_key_has_no_value() -> None:
    assert _mistake("{}").value is None  # and not the whole document, which pydantic gives


def test_an_error_of_the_whole_document_has_no_path() -> None:
    found = _mistake("{")
    assert found.within("job.json") == "job.json"
    assert str(found).startswith("not JSON: line 1")


def test_a_rule_names_the_problem_or_what_is_allowed_and_the_fix() -> None:
    assert _mistake('{"nodes": [{"min": 3, "max": 2}]}').problem == "min is above max"
    found = _mistake('{"nodes": [{"min": 3, "max": 12}]}')
    assert (found.problem, found.allowed, found.fix) == ("not an accepted value", "up to 9 nodes", "write max: 9")
