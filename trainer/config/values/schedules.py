"""Values that change during a run, as functions of the images seen. No torch."""

import itertools
import json
import math
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from gangway.trainer.config.values.strict_numbers import LrFactor, Number, Written
from gangway.trainer.core.errors import broken_rule


class _Schedule(Written):
    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)


class Ramp(_Schedule):
    """From one value to another, linearly or along half a cosine.

    Attributes:
        start: value until `after_kimg`; `from` in files.
        to: value at the end.
        over_kimg: length of the ramp, thousands of images.
        after_kimg: start of the ramp, thousands of images.
        shape: linear; or cosine, slow at both ends.
        then: hold keeps the last value to the end of the run; without it the ramp must last as long as the run.
    """

    start: float = Field(alias="from")
    to: float
    over_kimg: float = Field(gt=0)
    after_kimg: float = Field(default=0, ge=0)
    shape: Literal["linear", "cosine"] = "linear"
    then: Literal["hold"] | None = None

    @property
    def values(self) -> tuple[float, ...]:
        """Both ends; all other values are between them."""
        return self.start, self.to

    @property
    def covers_kimg(self) -> float:
        """Length in thousands of images; infinite if it holds its last value."""
        return math.inf if self.then == "hold" else self.after_kimg + self.over_kimg

    def at(self, images: int) -> float:
        """The value of the step after so many images."""
        share = min(1.0, max(0.0, (images / 1000 - self.after_kimg) / self.over_kimg))
        if self.shape == "cosine":
            share = 1 - 0.5 * (1 + math.cos(math.pi * share))
        return self.start + share * (self.to - self.start)

    def scaled(self, factor: float) -> Self:
        """The same times a factor."""
        return self.model_copy(update={"start": self.start * factor, "to": self.to * factor})


class Steps(_Schedule):
    """Values that change at given points.

    Attributes:
        steps: pairs of thousands of images and the value from there on; the first at 0.
    """

    steps: tuple[tuple[Number, Number], ...] = Field(min_length=1)

    covers_kimg: ClassVar[float] = math.inf

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        places = [kimg for kimg, _ in self.steps]
        if places[0] != 0 or any(later <= earlier for earlier, later in itertools.pairwise(places)):
            raise broken_rule("steps at rising thousands of images, the first at 0", field="steps", value=places)
        return self

    @property
    def values(self) -> tuple[float, ...]:
        """All values."""
        return tuple(value for _, value in self.steps)

    def at(self, images: int) -> float:
        """The value of the step after so many images."""
        return [value for kimg, value in self.steps if kimg * 1000 <= images][-1]

    def scaled(self, factor: float) -> Self:
        """The same times a factor."""
        return self.model_copy(update={"steps": tuple((kimg, value * factor) for kimg, value in self.steps)})


def _kind(value: object) -> str:
    is_steps = isinstance(value, Steps) or (isinstance(value, dict) and "steps" in value)
    return (Steps if is_steps else Ramp).__name__


Schedule = Annotated[Annotated[Ramp, Tag(Ramp.__name__)] | Annotated[Steps, Tag(Steps.__name__)], Discriminator(_kind)]


def from_text(value: object) -> object:
    """Parse a flag's JSON; other values as they are."""
    if not isinstance(value, str) or not value.strip():
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise broken_rule("JSON, as a configuration's file has it", value=value) from None


class Schedules(_Schedule):
    """Schedules of values that change during a run. Values without a schedule are constant.

    Attributes:
        lr_g: learning rate of the generator.
        lr_d: learning rate of the discriminator.
        beta2: Adam's decay of the second moment.
        r1_gamma: weight of the R1 penalty.
        r2_gamma: weight of the R2 penalty.
        ema_kimg: half-life of the averaged generator, thousands of images.
        augment_p: share of images that each augmentation changes; all images without a schedule.
    """

    lr_g: Schedule | None = None
    lr_d: Schedule | None = None
    beta2: Schedule | None = None
    r1_gamma: Schedule | None = None
    r2_gamma: Schedule | None = None
    ema_kimg: Schedule | None = None
    augment_p: Schedule | None = None

    @property
    def given(self) -> dict[str, Ramp | Steps]:
        """The set schedules by name."""
        found = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: schedule for name, schedule in found if schedule is not None}


SchedulesField = Annotated[Schedules, BeforeValidator(from_text)]

_ALLOWED: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "lr_g": (lambda value: value > 0, "values above 0"),
    "lr_d": (lambda value: value > 0, "values above 0"),
    "beta2": (lambda value: 0 <= value < 1, "values from 0 up to, but not, 1"),
    "r1_gamma": (lambda value: value >= 0, "values of at least 0"),
    "r2_gamma": (lambda value: value >= 0, "values of at least 0"),
    "ema_kimg": (lambda value: value >= 0, "values of at least 0"),
    "augment_p": (lambda value: 0 <= value <= 1, "values from 0 to 1"),
}


def misfit(schedules: Schedules, kimg: float, plain: Mapping[str, float]) -> PydanticCustomError | None:
    """The broken rule of the first schedule with a forbidden value, shorter than `kimg` or unlike its `plain` value."""
    for name, schedule in schedules.given.items():
        field, (fits, allowed) = f"schedules.{name}", _ALLOWED[name]
        if wrong := [value for value in schedule.values if not fits(value)]:
            return broken_rule(allowed, value=wrong[0], field=field, fix="change it to an allowed value")
        if schedule.covers_kimg < kimg:
            ends = f"it ends after {schedule.covers_kimg:g} of the run's {kimg:g} kimg"
            allowed = f"a schedule that lasts {kimg:g} kimg, or then: hold, which keeps its last value to the end"
            fix = ""
            if isinstance(schedule, Ramp):
                fix = f'"then": "hold", or "over_kimg": {schedule.over_kimg + kimg - schedule.covers_kimg:g}'
            return broken_rule(allowed, value=ends, field=field, fix=fix)
        first, last = schedule.values[0], schedule.values[-1]
        if name in plain and plain[name] not in (first, last):
            return broken_rule(
                f"{name} of {first:g} or {last:g}, where the schedule begins or ends, which decides",
                value=f"{name} {plain[name]:g} beside a schedule from {first:g} to {last:g}",
                field=field,
                fix=f"--{name.replace('_', '-')} {first:g}, or another schedule: --schedules {{}} has none",
            )
    return None


class LayerRate(Written):
    """A different learning rate for some weights.

    Attributes:
        layers: pattern of their names, such as generator.layers.0.*; the first pattern that matches applies.
        lr_factor: factor on the learning rate of their network, with its schedule.
    """

    layers: str = Field(min_length=1)
    lr_factor: LrFactor


LayerRatesField = Annotated[tuple[LayerRate, ...], BeforeValidator(from_text)]
