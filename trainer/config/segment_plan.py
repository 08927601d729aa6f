"""The segments of a run with their configurations."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.segments import Span
from gangway.trainer.core.errors import TrainerError


class Stretch(NamedTuple):
    """One segment of a run: `step` steps precede it, its `config` has no segments.

    Attributes:
        place: such as segments.0; empty before the first of the list.
        first: real images shown before it; `end` after it.
        workers: None for any number.
    """

    place: str
    first: int
    end: int
    step: int
    workers: int | None
    lr_factor: float
    config: TrainConfig

    @property
    def span(self) -> Span:
        """Its part of the run."""
        return Span(self.first, self.end)

    def described(self) -> dict[str, object]:
        """The values for the record."""
        fields = ("batch_size", "batch_gpu", "precision")
        named = {name: getattr(self.config, name) for name in fields}
        return {"from_image": self.first, "step": self.step, **named, "lr_factor": self.lr_factor}


def stretches(config: TrainConfig) -> list[Stretch]:
    """All segments of the run that have steps, in order."""
    return [
        Stretch(
            "" if values.number is None else f"segments.{values.number}",
            *(limits.first, limits.end, limits.first_step),
            values.workers,
            values.lr_factor,
            config.within(values),
        )
        for values, limits in zip(config.planned, config.bounds, strict=False)
        if limits.end > limits.first
    ]


def stretches_from(config: TrainConfig, images: int) -> Iterator[Stretch]:
    """The segments after so many images, the present one first; at the run's end the last."""
    all_stretches = stretches(config)
    ahead = [stretch for stretch in all_stretches if stretch.end > images]
    yield from ahead or all_stretches[-1:]


def decided_values(config: TrainConfig, images: int) -> Mapping[str, int | float | str]:
    """Values by field that a controller has decided so far and no later planned segment replaces."""
    place = next(stretches_from(config, images)).place
    begun = config.segments[: int(place.rpartition(".")[2]) + 1] if place else ()
    found = dict[str, int | float | str]()
    for segment in begun:
        for name in ("batch_size", "batch_gpu", "precision"):
            value = getattr(segment, name)
            if value is not None and segment.decided:
                found[name] = value
            elif value is not None:
                found.pop(name, None)
    return found


class Plan:
    """The segments of a run that continues after so many images; a controller may add more. `now` ends at `end`."""

    def __init__(self, config: TrainConfig, images: int) -> None:
        self.config = config
        self.now = next(stretches_from(config, images))
        self.end = self.now.end

    def __iter__(self) -> Iterator[Stretch]:
        """Each segment in turn; ask for the next one at `end`."""
        while True:
            yield self.now
            if self.end >= self.config.total_images:
                return
            self.now = next(stretches_from(self.config, self.end))
            self.end = self.now.end

    @property
    def ahead(self) -> Sequence[Stretch]:
        """The segments planned after the present one."""
        return list(stretches_from(self.config, self.now.first))[1:]

    def decide(self, images: int, changes: Mapping[str, object]) -> None:
        """Start another segment after so many images, replacing one decided there (TrainerError: invalid values)."""
        segment = {"from_image": images, "decided": True, **changes}
        before = [each for each in self.config.segments if each.from_image < images]
        after = [
            each for each in self.config.segments[len(before) :] if not (each.decided and each.from_image == images)
        ]
        self.config = self.config.replace({"segments": (*before, segment, *after)})
        self.end = images


def with_decided(config: TrainConfig, saved: TrainConfig) -> TrainConfig:
    """The command's configuration with the decided segments of the checkpoint's."""
    planned = [segment for segment in config.segments if not segment.decided]
    decided = [segment for segment in saved.segments if segment.decided]
    if not decided and len(planned) == len(config.segments):
        return config
    return config.replace({"segments": tuple(sorted([*planned, *decided], key=lambda segment: segment.from_image))})


def unreached(config: TrainConfig) -> list[str]:
    """A sentence on each segment without steps. Not an error: the plan may be for a longer run."""
    reached, end = {stretch.place for stretch in stretches(config)}, config.total_images
    return [
        f"segments.{number} (from_image {segment.from_image:,}) has no step: "
        + (f"the run ends after {end:,} images" if segment.from_image >= end else "the next one begins first")
        for number, segment in enumerate(config.segments)
        if f"segments.{number}" not in reached
    ]


def check_workers(config: TrainConfig, images: int, world_size: int, *, equal_shares: bool = False) -> None:
    """TrainerError, naming it, for a segment that so many workers cannot train, or one planned for another number."""
    ahead = list(stretches_from(config, images))
    now = ahead[0]
    if now.workers not in (None, world_size):
        raise TrainerError(
            place=f"TrainConfig.{now.place}.workers",
            problem=f"images {now.first:,} to {now.end:,} are planned for another number of workers",
            value=f"{world_size} workers, {images:,} images seen",
            allowed=f"{now.workers} workers",
            fix=f'start {now.workers} processes, or write "workers": 0 in that segment for any number',
        )
    for stretch in ahead:
        if stretch.workers is None:  # a planned number was checked with the configuration
            try:
                stretch.config.check_workers(world_size, equal_shares=equal_shares)
            except TrainerError as error:
                if not stretch.place:
                    raise
                raise error.at(f"TrainConfig.{stretch.place}.batch_size") from None


def check_begun(saved: TrainConfig, current: TrainConfig, images: int) -> None:
    """TrainerError if segments that a run has begun changed."""

    def begun(config: TrainConfig) -> list[tuple[str, tuple[object, ...]]]:
        return [
            (each.place, (each.first, each.config.batch_size, each.config.precision, each.lr_factor))
            for each in stretches(config)
            if each.first < images or not each.first
        ]

    for (was, values), (place, others) in zip_longest(begun(saved), begun(current), fillvalue=("", ())):
        if values != others:
            number = int(was.rpartition(".")[2]) if was else None
            raise TrainerError(
                place="TrainConfig.segments",
                problem=f"the first {images:,} images were trained in other segments",
                value=current.shown("segments"),
                allowed=f"{saved.shown('segments')} up to there; segments that begin later may change",
                fix=f"leave {place} out, or have it begin from image {images} on"
                if number is None
                else f"write {was} as it was, {saved.segments[number].model_dump_json(exclude_none=True)}, "
                "or start a new run in another --run-dir",
            )


def refused_workers(config: TrainConfig, workers: int, *, equal_shares: bool) -> TrainerError | None:
    """The error that `TrainConfig.check_workers` raises, if any."""
    try:
        config.check_workers(workers, equal_shares=equal_shares)
    except TrainerError as error:
        return error
    return None
