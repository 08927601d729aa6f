"""The base of configuration models: frozen, without unknown keys, true is not a number. No torch."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError


def _numbers(kind: Any) -> Iterator[Any]:
    if kind in (int, float) or type(kind) is int:
        yield kind
    elif get_origin(kind) in (Union, UnionType, Annotated, Literal):
        for each in get_args(kind):
            yield from _numbers(each)


def _no_true(value: object, kind: Any) -> object:
    """Refuse booleans for numbers: pydantic reads them as 1 and 0."""
    if isinstance(value, bool) and (wanted := [*_numbers(kind)]):
        raise PydanticKnownError("float_type" if float in wanted else "int_type")
    return value


Number = Annotated[float, BeforeValidator(lambda value: _no_true(value, float))]
"""A number inside a list, which field validators do not reach."""


NoTrue = BeforeValidator(lambda value: _no_true(value, int))
"""For whole numbers inside a list."""


LrFactor = Annotated[float, Field(gt=0, le=1e6)]
"""Factor of step sizes; the bound keeps them finite."""


class Written(BaseModel):
    """A part of a configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_number_is_true(cls, value: object, field: ValidationInfo) -> object:
        return _no_true(value, cls.model_fields[str(field.field_name)].annotation)
