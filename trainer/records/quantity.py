"""A number with its provenance."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

Provenance = Literal["measured", "estimated", "list-price", "assumed", "absent"]


class Frozen(BaseModel):
    """A part of a record or of another file: immutable, and strict about its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Quantity(Frozen):
    """A number that says where it came from.

    Attributes:
        value: None exactly when provenance is absent.
        unit: such as J, USD, gCO2e/kWh, images/s.
        provenance: measured here, estimated by a model, a list price, assumed, or absent.
        source: instrument, model or document behind the value; for an absent one, why there is none.
        as_of: date the source was valid, ISO 8601.
        note: what a reader must know before comparing it.
    """

    value: float | None
    unit: str
    provenance: Provenance
    source: str
    as_of: str | None = None
    note: str = ""

    @model_validator(mode="after")
    def _absent_has_no_value(self) -> Self:
        if (self.value is None) != (self.provenance == "absent"):
            raise ValueError("value is null exactly when provenance is absent")
        return self

    @classmethod
    def measured(cls, value: float, unit: str, source: str, note: str = "") -> Self:
        """A figure that this run measured."""
        return cls(value=value, unit=unit, provenance="measured", source=source, note=note)

    @classmethod
    def absent(cls, unit: str, why: str) -> Self:
        """A missing figure with the reason."""
        return cls(value=None, unit=unit, provenance="absent", source=why)
