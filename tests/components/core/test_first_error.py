"""What is said of a document that a model refuses."""

import pytest
from pydantic import BaseModel, Field, ValidationError, model_validator

from gangway.components.core.first_error import FirstWrong, first_wrong


class _Nodes(BaseModel):
    min: int = Field(ge=1)
    max: int

    @model_validator(mode="after")
    def _in_order(self) -> "_Nodes":
        if self.min > self.max:
            raise ValueError("min is above max")
        return self


class _Job(BaseModel):
    nodes: list[_Nodes]


def _wrong(document: str) -> FirstWrong:
    with pytest.raises(ValidationError) as refused:
        _Job.model_validate_json(document)
    return first_wrong(refused.value)


def test_the_first_place_is_named_as_a_path() -> None:
    wrong = _wrong('{"nodes": [{"min": 1, "max": 2}, {"min": 0, "max": "many"}]}')
    assert (wrong.where, wrong.value) == ("nodes.1.min", 0)
    assert wrong.within("job.json") == "job.json: nodes.1.min"
    assert str(wrong) == f"nodes.1.min: {wrong.what}"


def test_what_is_missing_has_no_value() -> None:
    assert _wrong("{}").value is None  # and not the whole document, which pydantic gives


def test_of_the_whole_document_no_place_is_said() -> None:
    wrong = _wrong("{")
    assert wrong.within("job.json") == "job.json"
    assert str(wrong) == wrong.what


def test_a_rule_of_ours_is_said_in_its_own_words() -> None:
    assert _wrong('{"nodes": [{"min": 3, "max": 2}]}').what == "min is above max"
