"""Enumerations and pydantic field types that all providers' components share."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError


class Egress(StrEnum):
    """Route to the provider's services: private endpoints for what the nodes need, or a NAT gateway."""

    ENDPOINTS = "endpoints"
    NAT = "nat"


class LustreDeployment(StrEnum):
    """Scratch is cheaper, has one fixed throughput and loses data with a failed server; persistent replicates."""

    SCRATCH = "scratch"
    PERSISTENT = "persistent"


def _not_bool(value: Any) -> Any:
    """Rejects True, which pydantic would read as 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("not_a_number", "true or false is no number")
    return value


Number = Annotated[float, BeforeValidator(_not_bool)]
Whole = Annotated[int, BeforeValidator(_not_bool)]
PositiveNumber = Annotated[float, Field(gt=0), BeforeValidator(_not_bool)]
Amount = Annotated[float, Field(ge=0), BeforeValidator(_not_bool)]
PercentBelow100 = Annotated[float, Field(ge=0, lt=100), BeforeValidator(_not_bool)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1), BeforeValidator(_not_bool)]
Several = Annotated[int, Field(ge=2, le=1024), BeforeValidator(_not_bool)]
PositiveWhole = Annotated[int, Field(gt=0), BeforeValidator(_not_bool)]
# An alarm above ten times the limit is a mistake.
Percent = Annotated[float, Field(gt=0, le=1000), BeforeValidator(_not_bool)]
