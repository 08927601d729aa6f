"""A run as a list of segments with constant batch, precision and workers; each inherits what it does not set."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from gangway.trainer.config.values.schedules import from_text
from gangway.trainer.config.values.strict_numbers import LrFactor, Written
from gangway.trainer.core.errors import broken_rule


class Segment(Written):
    """Settings that change from some image on. Omitted values are the previous segment's.

    Attributes:
        from_image: real images shown before the segment; it starts with the next whole step.
        batch_size: global batch.
        batch_gpu: images that a worker processes at once; 0 for all.
        precision: precision of the forward passes.
        lr_factor: factor on both learning rates.
        workers: required number of workers; a session with another number ends at the segment. 0 for any.
        decided: whether a controller decided it during the run; written by the trainer.
    """

    from_image: int = Field(ge=0)
    batch_size: int | None = Field(default=None, ge=1)
    batch_gpu: int | None = Field(default=None, ge=0)
    precision: Literal["fp32", "bf16", "fp16"] | None = None
    lr_factor: LrFactor | None = None
    workers: int | None = Field(default=None, ge=0)
    decided: bool | None = None


SegmentsField = Annotated[tuple[Segment, ...], BeforeValidator(from_text)]


class Values(NamedTuple):
    """One segment's values with inherited ones. `number` is its index in the list, None before the first; `workers`
    None means any number, else set by segment `workers_of`.
    """

    number: int | None
    from_image: int
    batch_size: int
    batch_gpu: int
    precision: str
    lr_factor: float
    workers: int | None
    workers_of: int | None = None

    def changes(self) -> dict[str, Any]:
        """The fields of TrainConfig that it sets directly."""
        return {name: getattr(self, name) for name in ("batch_size", "batch_gpu", "precision")}


def workers_misfit(values: Values, group: int, *, equal_shares: bool) -> PydanticCustomError | None:
    """The broken rule of a segment's planned workers, which need images or whole groups; None if they fit."""
    workers, size = values.workers, values.batch_size
    if workers is None:
        return None
    groups = size // group
    if workers > groups:
        most, images = groups, f"at least {workers * group}"
        one = "image of a step" if group == 1 else f"group of {group} images (minibatch_std)"
        why = f"each worker needs {'an' if group == 1 else 'a'} {one}"
    elif equal_shares and size % (workers * group):
        most = max(each for each in range(1, workers + 1) if groups % each == 0)
        images = f"a multiple of {workers * group}"
        why = "XLA's workers all have the same share"
    else:
        return None
    if values.workers_of != values.number:
        named = f"segments.{values.workers_of}"
        allowed = f"{images} with the {workers} workers of {named}: {why}"
        fix = f'"workers": {most} in this segment, or 0 for any number; or a larger batch_size'
        return broken_rule(allowed, value=size, field=f"segments.{values.number}.batch_size", fix=fix)
    amount = "at most" if workers > groups else "such as"
    bound = f"the segment's batch_size, {size}" if group == 1 and workers > groups else f"{most}, of a batch of {size}"
    fix = f'"workers": {most}, or a larger batch_size'
    place = f"segments.{values.number}.workers"
    return broken_rule(f"{amount} {bound}: {why}", value=workers, field=place, fix=fix)


def resolve(first: Values, segments: Sequence[Segment]) -> Iterator[Values]:
    """Every segment's values in order. A segment that starts with the run replaces `first`."""
    values = first
    for number, segment in enumerate(segments):
        if segment.from_image > values.from_image or number > 0:
            yield values
        named = {
            name: value
            for name, value in segment.model_dump(exclude={"workers", "decided"}).items()
            if value is not None
        }
        values = values._replace(**named, number=number)
        if segment.workers is not None:
            values = values._replace(workers=segment.workers or None, workers_of=number)
    yield values


class Span(NamedTuple):
    """A part of a run, in images shown."""

    first: float
    end: float


class Bounds(NamedTuple):
    """Actual bounds of a segment in images shown, and the steps before it."""

    first: int
    end: int
    first_step: int


def bounds(planned: Sequence[Values], d_steps: int, goal: int) -> list[Bounds]:
    """Bounds of each segment until the first whole step from `goal` on; empty if the step before ran past its end."""
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
