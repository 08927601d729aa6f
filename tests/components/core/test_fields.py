"""Numbers in files: true and false are none, and bounds are in the schema that speaks of mistakes."""

from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from gangway.components.core.capacity import CapacityBlock, Spot
from gangway.components.core.fields import Number, Percent, PositiveNumber, PositiveWhole, Whole


@pytest.mark.parametrize("kind", [Number, Whole, PositiveNumber, PositiveWhole, Percent])
@pytest.mark.parametrize("value", [True, False])
def test_true_and_false_are_no_numbers(kind: Any, value: bool) -> None:
    with pytest.raises(ValidationError, match="true or false is no number"):
        TypeAdapter(kind).validate_python(value)


def test_numbers_are() -> None:
    number: TypeAdapter[float] = TypeAdapter(Number)
    whole: TypeAdapter[int] = TypeAdapter(Whole)
    assert (number.validate_python(2), number.validate_python(0.5), whole.validate_python(2)) == (2.0, 0.5, 2)
    with pytest.raises(ValidationError):
        whole.validate_python(0.5)


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        (PositiveNumber, {"type": "number", "exclusiveMinimum": 0}),
        (PositiveWhole, {"type": "integer", "exclusiveMinimum": 0}),
        (Percent, {"type": "number", "exclusiveMinimum": 0, "maximum": 1000}),
    ],
)
def test_the_schema_knows_the_bounds_also_of_what_may_be_absent(kind: Any, bounds: dict[str, Any]) -> None:
    class Model(BaseModel):
        field: kind | None = None
        fields: tuple[kind, ...] = ()

    properties = Model.model_json_schema()["properties"]
    assert properties["field"]["anyOf"][0] == properties["fields"]["items"] == bounds
    with pytest.raises(ValidationError):
        Model(field=0)


def test_a_rungs_prices_are_such_numbers() -> None:
    with pytest.raises(ValidationError, match="no number"):
        Spot.model_validate({"kind": "spot", "max_usd_per_hour": True})
    with pytest.raises(ValidationError, match="no number"):
        CapacityBlock.model_validate({"kind": "capacity-block", "purchase": True, "upfront_usd": True})
