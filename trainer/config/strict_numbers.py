"""The base of what people write in a configuration: frozen, without unknown keys, in which true is no number.
Imports no torch.
"""

from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError


def _no_true(value: object, kind: Any) -> object:
    """Refuses true and false, which pydantic takes for 1 and 0, where a number is wanted."""
    kinds = (kind, *get_args(kind))
    if isinstance(value, bool) and any(each in (int, float) or type(each) is int for each in kinds):
        raise PydanticKnownError("float_type" if float in kinds else "int_type")
    return value


Number = Annotated[float, BeforeValidator(lambda value: _no_true(value, float))]
"""Inside a list, where no field's own check comes to."""


class Written(BaseModel):
    """A part of a configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_number_is_true(cls, value: object, field: ValidationInfo) -> object:
        return _no_true(value, cls.model_fields[str(field.field_name)].annotation)
