"""A run as a list of segments, in each of which batch, precision and workers stay as they are. Imports no torch.

    segments:
      - {from_image: 200000, batch_size: 256, lr_factor: 2}
      - {from_image: 800000, precision: bf16, workers: 8}

What a segment does not name stays as in the one before; the first begins with the configuration's own fields.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trainer.config.schedules import from_text


class Segment(BaseModel):
    """What is otherwise from some image on.

    Attributes:
        from_image: real images shown before it; it begins with the first whole step from there on.
        batch_size: global batch.
        batch_gpu: images a worker takes at once, 0 for all.
        precision: of the forward passes.
        lr_factor: both step sizes are the run's times this.
        workers: how many it takes; another number is refused, and ends a session that comes to it. Null for any.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    from_image: int = Field(ge=0)
    batch_size: int | None = Field(default=None, ge=1)
    batch_gpu: int | None = Field(default=None, ge=0)
    precision: Literal["fp32", "bf16", "fp16"] | None = None
    lr_factor: float | None = Field(default=None, gt=0)
    workers: int | None = Field(default=None, ge=1)


SegmentsField = Annotated[tuple[Segment, ...], BeforeValidator(from_text)]


class Values(NamedTuple):
    """What one segment has, the ones before it taken into account; `number` is its place in the configuration's list,
    None for what is before the first of them.
    """

    number: int | None
    from_image: int
    batch_size: int
    batch_gpu: int
    precision: str
    lr_factor: float
    workers: int | None

    def changes(self) -> dict[str, Any]:
        """The fields of TrainConfig that it sets as they are."""
        return {name: getattr(self, name) for name in ("batch_size", "batch_gpu", "precision")}


def in_turn(first: Values, segments: Sequence[Segment]) -> Iterator[Values]:
    """Every segment's values, from the first image on. A segment that begins with the run takes `first`'s place."""
    values = first
    for number, segment in enumerate(segments):
        if segment.from_image > values.from_image or number > 0:
            yield values
        named = {name: value for name, value in segment.model_dump().items() if value is not None}
        values = values._replace(**named, number=number)
    yield values


class Bounds(NamedTuple):
    """Where a segment really begins and ends, in images shown, and the steps made before it."""

    first: int
    end: int
    first_step: int


def bounds(planned: Sequence[Values], d_steps: int, goal: int) -> list[Bounds]:
    """Of each segment that a run reaches that ends with the first whole step from `goal` images on. One is empty where
    the step before it ran beyond all of it.
    """
    found, images, step = list[Bounds](), 0, 0
    for number, values in enumerate(planned):
        is_last = number + 1 == len(planned)
        until = goal if is_last else min(goal, planned[number + 1].from_image)
        size = values.batch_size * d_steps
        steps = max(0, -(-(until - images) // size))
        found.append(Bounds(images, images + steps * size, step))
        images, step = images + steps * size, step + steps
        if images >= goal:
            break
    return found
