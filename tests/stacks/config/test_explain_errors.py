"""The translation of pydantic's findings, on a model made for it."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from gangway.components.core.findings import InputError
from gangway.stacks.config.explain_errors import explain


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Cat(_Strict):
    """One branch of a union."""

    kind: Literal["cat"]
    lives: int = Field(default=9, le=9)


class Dog(_Strict):
    """The other branch."""

    kind: Literal["dog"]
    tricks: tuple[str, ...] = ()


class Colour(StrEnum):
    """Words to choose from."""

    RED = "red"
    GREEN = "green"


class Zoo(_Strict):
    """The root."""

    animals: tuple[Annotated[Cat | Dog, Field(discriminator="kind")], ...] = Field(default=(), min_length=1)
    boss: Cat | None = None
    gate: Colour = Colour.RED
    name: str = "zoo"

    @field_validator("name")
    @classmethod
    def _short(cls, name: str) -> str:
        if len(name) > 3:
            raise ValueError("at most three letters; cut it")
        return name


def explained(values: dict[str, Any]) -> list[InputError]:
    with pytest.raises(ValidationError) as caught:
        Zoo.model_validate(values)
    return explain(caught.value, Zoo, "zoo.yaml")


def test_the_unions_tag_is_not_part_of_the_path() -> None:
    (error,) = explained({"animals": [{"kind": "cat", "lives": 10}]})
    assert error.place == "zoo.yaml: gangway:animals[0].lives"
    assert (error.value, error.allowed) == (10, "a whole number")


def test_a_user_key_that_is_spelled_like_a_tag_stays_in_the_path() -> None:
    (error,) = explained({"boss": {"kind": "cat", "cat": 1}})
    assert error.place == "zoo.yaml: gangway:boss.cat"
    assert error.allowed == "kind, lives"


def test_an_unknown_key_lists_those_of_its_model() -> None:
    (error,) = explained({"animls": []})
    assert (error.problem, error.value) == ("unknown key", "animls")
    assert error.allowed == "animals, boss, gate, name"
    assert error.fix == "did you mean 'animals'?"


def test_an_unknown_key_in_a_branch_lists_that_branchs_keys() -> None:
    (error,) = explained({"animals": [{"kind": "dog", "trick": ["sit"]}]})
    assert error.place == "zoo.yaml: gangway:animals[0].trick"
    assert error.allowed == "kind, tricks"
    assert error.fix == "did you mean 'tricks'?"
    # Another kind's key is no key of this one.
    (error,) = explained({"animals": [{"kind": "dog", "lives": 9}]})
    assert (error.problem, error.allowed) == ("unknown key", "kind, tricks")


def test_words_come_with_the_nearest_one() -> None:
    (error,) = explained({"gate": "gren"})
    assert (error.problem, error.value) == ("not one of the allowed words", "gren")
    assert (error.allowed, error.fix) == ("'red' or 'green'", "did you mean 'green'?")
    (error,) = explained({"animals": [{"kind": "dogg"}]})
    assert (error.value, error.fix) == ("dogg", "did you mean 'dog'?")


def test_our_own_rules_bring_their_fix() -> None:
    (error,) = explained({"name": "serengeti"})
    assert (error.allowed, error.fix, error.value) == ("at most three letters", "cut it", "serengeti")


def test_a_missing_tag_is_told_as_a_missing_key() -> None:
    (error,) = explained({"animals": [{"lives": 9}]})
    assert error.place == "zoo.yaml: gangway:animals[0].kind"
    assert (error.problem, error.allowed, error.fix) == ("missing", "one of cat, dog", "add kind: cat"), (
        "lives are a cat's"
    )


def test_a_list_of_bad_items_is_not_also_too_short() -> None:
    (error,) = explained({"animals": [{"kind": "cat", "lives": 10}]})
    assert error.place.endswith("lives")
    (error,) = explained({"animals": []})
    assert error.place == "zoo.yaml: gangway:animals"
    assert error.allowed == "a list of at least 1 entry"
    assert error.fix == "write a list of at least 1 entry"
