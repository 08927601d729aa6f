"""The base of what people write in a configuration: frozen, without unknown keys, in which true is no number.
Imports no torch.
"""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError


def _numbers(kind: Any) -> Iterator[Any]:
    """The kinds of number that an annotation takes, and the numbers where it takes a few."""
    if kind in (int, float) or type(kind) is int:
        yield kind
    elif get_origin(kind) in (Union, UnionType, Annotated, Literal):
        for each in get_args(kind):
            yield from _numbers(each)


def _no_true(value: object, kind: Any) -> object:
    """Refuses true and false, which pydantic takes for 1 and 0, where a number is wanted."""
    if isinstance(value, bool) and (wanted := [*_numbers(kind)]):
        raise PydanticKnownError("float_type" if float in wanted else "int_type")
    return value


Number = Annotated[float, BeforeValidator(lambda value: _no_true(value, float))]
"""Inside a list, where no field's own check comes to."""


NoTrue = BeforeValidator(lambda value: _no_true(value, int))
"""Of whole numbers inside a list, likewise."""


LrFactor = Annotated[float, Field(gt=0, le=1e6)]
"""What step sizes are multiplied by; the bound keeps them numbers."""


class Written(BaseModel):
    """A part of a configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_number_is_true(cls, value: object, field: ValidationInfo) -> object:
        return _no_true(value, cls.model_fields[str(field.field_name)].annotation)
