"""Which segment a run is in, with the configuration that it computes by; what cannot be served is refused."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from trainer.config.train_config import TrainConfig
from trainer.config.values.segments import Span
from trainer.core.errors import TrainerError


class Stretch(NamedTuple):
    """One segment of a run.

    Attributes:
        place: its name in messages, such as segments.0; empty before the first of the list.
        first: real images shown before it; `end` after it.
        step: steps made before it.
        workers: that it takes; None for any number.
        lr_factor: of the run's step sizes.
        config: what its steps compute by, without segments of its own.
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
        """For the record."""
        fields = ("batch_size", "batch_gpu", "precision")
        named = {name: getattr(self.config, name) for name in fields}
        return {"from_image": self.first, "step": self.step, **named, "lr_factor": self.lr_factor}


def stretches(config: TrainConfig) -> list[Stretch]:
    """All that the run comes through, in order."""
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
    """Those that a run has before it after so many images, the one that it is in first; at its end the last."""
    every = stretches(config)
    ahead = [stretch for stretch in every if stretch.end > images]
    yield from ahead or every[-1:]


def decided_values(config: TrainConfig, images: int) -> Mapping[str, int | float | str]:
    """By field, what a run has after so many images that was decided in its course: a later segment of its own plan
    that names the field counts instead.
    """
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
    """The segments of a run that goes on after so many images, while a controller may decide further ones.

    Attributes:
        config: of the run, with what was decided so far among its segments.
        now: the segment that it is in.
        end: images at which that one ends.
    """

    def __init__(self, config: TrainConfig, images: int) -> None:
        self.config = config
        self.now = next(stretches_from(config, images))
        self.end = self.now.end

    def __iter__(self) -> Iterator[Stretch]:
        """Each in its turn; the next one is asked for when `end` is reached."""
        while True:
            yield self.now
            if self.end >= self.config.total_images:
                return
            self.now = next(stretches_from(self.config, self.end))
            self.end = self.now.end

    @property
    def ahead(self) -> Sequence[Stretch]:
        """What is planned behind the present one."""
        return list(stretches_from(self.config, self.now.first))[1:]

    def decide(self, images: int, changes: Mapping[str, object]) -> None:
        """Begins another segment after so many images, of the run's present end at most, in the place of one that was
        decided there and in which no step was made. TrainerError: the configuration does not take these values.
        """
        segment = {"from_image": images, "decided": True, **changes}
        before = [each for each in self.config.segments if each.from_image < images]
        after = [
            each for each in self.config.segments[len(before) :] if not (each.decided and each.from_image == images)
        ]
        self.config = self.config.replace({"segments": (*before, segment, *after)})
        self.end = images


def with_decided(config: TrainConfig, saved: TrainConfig) -> TrainConfig:
    """What a command says, with what was decided in the run that it goes on with, as a checkpoint has it."""
    planned = [segment for segment in config.segments if not segment.decided]
    decided = [segment for segment in saved.segments if segment.decided]
    if not decided and len(planned) == len(config.segments):
        return config
    return config.replace({"segments": tuple(sorted([*planned, *decided], key=lambda segment: segment.from_image))})


def unreached(config: TrainConfig) -> list[str]:
    """A sentence on each segment in which the run makes no step. It is not refused: the same plan may be for a longer
    run, of which this is a part.
    """
    reached, end = {stretch.place for stretch in stretches(config)}, config.total_images
    return [
        f"segments.{number} (from_image {segment.from_image:,}) has no step: "
        + (f"the run ends after {end:,} images" if segment.from_image >= end else "the next one begins first")
        for number, segment in enumerate(config.segments)
        if f"segments.{number}" not in reached
    ]


def check_workers(config: TrainConfig, images: int, world_size: int, *, equal_shares: bool = False) -> None:
    """TrainerError, naming the segment, where one that is still to come cannot be trained by that many workers, or the
    present one is planned for another number.
    """
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
        if stretch.workers is None:  # or the configuration itself was refused with workers that its batch is not for
            try:
                stretch.config.check_workers(world_size, equal_shares=equal_shares)
            except TrainerError as error:
                if not stretch.place:
                    raise
                raise error.at(f"TrainConfig.{stretch.place}.batch_size") from None


def check_begun(saved: TrainConfig, current: TrainConfig, images: int) -> None:
    """TrainerError where the segments that a run has begun were other ones: what is to come may change."""

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
    """What `TrainConfig.check_workers` raises for so many."""
    try:
        config.check_workers(workers, equal_shares=equal_shares)
    except TrainerError as error:
        return error
    return None
