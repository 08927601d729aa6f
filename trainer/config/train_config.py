"""TrainConfig: everything that decides what a training run computes, as a human writes it, and what follows from it.
Imports no torch: plans read it, too.
"""

import json
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict, ValidationError, model_validator

from trainer.config.parts.fields import ConfigFields
from trainer.config.parts.rules import first_broken
from trainer.config.replicas import replicas, unpaired
from trainer.config.values.flag_names import as_keys
from trainer.config.values.schedules import Ramp, Steps, misfit
from trainer.config.values.segments import Bounds, Values, bounds, in_turn, unserved
from trainer.core.errors import TrainerError, broken_rule, from_validation
from trainer.core.files import read_text_input

ScheduledField = Literal["lr_g", "lr_d", "beta2", "r1_gamma", "r2_gamma", "ema_kimg"]


class TrainConfig(ConfigFields):
    """One training run, frozen. Progress is counted in images, so nothing here depends on the number of workers."""

    model_config = ConfigDict(defer_build=False)

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if broken := first_broken(self):
            value = getattr(self, broken.field)
            raise broken_rule(broken.allowed, value=value, field=broken.field, fix=broken.advice(self))
        plain = {name: getattr(self, name) for name in self.schedules.given if name in type(self).model_fields}
        if found := misfit(self.schedules, self.kimg, plain):
            raise broken_rule(found.allowed, value=found.value, field=f"schedules.{found.name}", fix=found.fix)
        self._segments_can_be()
        return self

    def _segments_can_be(self) -> None:
        """Raises what is wrong with a segment, in the words of what it sets."""
        places = [segment.from_image for segment in self.segments]
        for number, (before, after) in enumerate(pairwise(places), 1):
            if after <= before:
                where = f"segments.{number}.from_image"
                allowed = f"above {before}, where the one before begins"
                raise broken_rule(allowed, value=after, field=where, fix="write the segments in the run's order")
        for values in self.planned if self.segments else ():
            try:
                self.within(values)
            except ValidationError as error:
                told = from_validation(error, "", separator="")
                raise broken_rule(
                    told.allowed,
                    value=told.value,
                    field=f"segments.{values.number}.{told.place}",
                    fix=as_keys(told.fix),
                ) from None
            if found := unserved(values, self.group, equal_shares=self.backend == "xla"):
                raise broken_rule(found.allowed, value=found.value, field=found.place, fix=found.fix)

    @property
    def planned(self) -> list[Values]:
        """Every segment's values, the first one's from the configuration's own fields."""
        first = Values(None, 0, self.batch_size, self.batch_gpu, self.precision, 1.0, None)
        return list(in_turn(first, self.segments))

    @property
    def bounds(self) -> list[Bounds]:
        """Where the segments of `planned` begin and end, as far as the run reaches."""
        return bounds(self.planned, self.d_steps, max(1, round(self.kimg * 1000)))

    def within(self, values: Values) -> Self:
        """The configuration that a segment's steps compute by: one without segments."""
        if values.number is None and not self.segments:
            return self
        factor = values.lr_factor
        scaled = {name: each.scaled(factor) for name, each in self.schedules.given.items() if name in ("lr_g", "lr_d")}
        return type(self).model_validate(
            {
                **self.model_dump(),
                **values.changes(),
                "lr_g": self.lr_g * factor,
                "lr_d": self.lr_d * factor,
                "schedules": self.schedules.model_copy(update=scaled),
                "segments": (),
            }
        )

    def at(self, name: ScheduledField, images: int) -> float:
        """What a field that may have a schedule is in the step that begins after so many images."""
        schedule: Ramp | Steps | None = getattr(self.schedules, name)
        value: float = getattr(self, name) if schedule is None else schedule.at(images)
        return value

    def shown(self, name: str) -> str:
        """A field's value as the file has it, but for names, which are by commas as after their flag."""
        if name == "freeze":
            return json.dumps(",".join(self.freeze))
        return json.dumps(self.model_dump(mode="json", include={name}, exclude_none=True).get(name))

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Of one image [C, H, W], or of one clip [C, T, H, W]."""
        time = () if self.frames == 1 else (self.frames,)
        return (self.channels, *time, self.resolution, self.resolution)

    @property
    def translates(self) -> bool:
        """Whether networks make images of images of another domain, and nothing of latents."""
        return self.architecture == "cyclegan"

    @property
    def num_labels(self) -> int:
        """Different labels that the data set's images must have: classes, or domains; 0 for none."""
        return 2 if self.translates else self.num_classes

    @property
    def step_images(self) -> int:
        """Real images shown in a step, of each domain: a batch for each of the discriminator's steps."""
        return self.batch_size * self.d_steps

    @property
    def is_gated(self) -> bool:
        """Whether some images are not augmented: the augmentation adapts, or follows a schedule."""
        return self.ada_target > 0 or self.schedules.augment_p is not None

    @property
    def total_images(self) -> int:
        """Images after which the run is done: whole steps that cover kimg, and one at least."""
        if self.segments:
            return self.bounds[-1].end
        return -(-max(1, round(self.kimg * 1000)) // self.step_images) * self.step_images

    def check_workers(self, world_size: int, *, equal_shares: bool = False) -> None:
        """TrainerError where batch_size is below world_size: a worker would have no image. Up to that any number will
        do: `World.slice` shares unevenly. `equal_shares` refuses that: XLA's workers must run the same program. With
        minibatch_std whole groups are shared, and count as images do. Of a pipeline each pair of workers shares.
        """
        if found := unpaired(self, world_size):
            raise found
        world_size = replicas(self, world_size)
        if self.batch_size < world_size * self.group and self.minibatch_std:
            groups = self.batch_size // self.group
            raise TrainerError(
                place="TrainConfig.minibatch_std",
                problem=f"fewer groups in a step than workers, of which there are {world_size}",
                value=f"{groups} groups of {self.group} in a batch of {self.batch_size}",
                allowed=f"at most {groups} workers; a run that has begun keeps its batch size",
                fix=f"start at most {groups} processes, or a new run with --batch-size {world_size * self.group}",
            )
        if self.batch_size < world_size:
            raise TrainerError(
                place="TrainConfig.batch_size",
                problem=f"fewer images in a step than workers, of which there are {world_size}",
                value=self.batch_size,
                allowed=f"at least {world_size} with {world_size} workers; a run that has begun keeps its batch size",
                fix=f"start at most {self.batch_size} processes, or a new run with --batch-size {world_size}",
            )
        if equal_shares and self.batch_size % (world_size * self.group):
            raise TrainerError(
                place="TrainConfig.batch_size",
                problem=f"does not divide by the {world_size} workers, and XLA's workers all have the same share",
                value=self.batch_size,
                allowed=f"a multiple of {world_size * self.group}; a run that has begun keeps its batch size",
                fix="a new run with --batch-size "
                f"{-(-self.batch_size // (world_size * self.group)) * world_size * self.group}",
            )

    def to_json(self) -> str:
        """The config as indented JSON; `from_json` reads it back equal."""
        return self.model_dump_json(indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, place: str = "TrainConfig") -> Self:
        """Reads what `to_json` wrote, or a human; `place` is the file, for the message. TrainerError: not JSON, an
        unknown field, one given twice, or a value out of range.
        """
        try:
            config = cls.model_validate_json(text)
        except ValidationError as error:
            told = from_validation(error, place, known=cls.model_fields)
            # A file has keys and no flags.
            raise TrainerError(
                **{**told.fields(), "allowed": as_keys(told.allowed), "fix": as_keys(told.fix)}
            ) from None
        given = Counter(name for name, _ in json.loads(text, object_pairs_hook=list))
        if twice := [name for name, times in given.items() if times > 1]:
            raise TrainerError(place=f"{place}: {twice[0]}", problem="is given twice", fix="remove all but one")
        return config

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """`from_json` of a file's text (TrainerError also without the file)."""
        return cls.from_json(read_text_input(path, "name a TrainConfig JSON file"), str(path))

    def replace(self, changes: Mapping[str, object]) -> Self:
        """A copy with some fields changed, validated anew; a TrainerError's place is `TrainConfig.<field>`."""
        try:
            return type(self).model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            field = str(next(iter(error.errors()[0]["loc"]), ""))
            fix = f"give an allowed value, or leave it out for {self.shown(field)}"
            raise from_validation(error, "TrainConfig", known=type(self).model_fields, separator=".", fix=fix) from None


RESUMABLE_CHANGES = frozenset(
    {
        "kimg",
        "batch_gpu",
        "segments",
        "checkpoint_kimg",
        "keep_checkpoints",
        "keep_every_kimg",
        "stats_kimg",
        "sample_kimg",
        "backend",
        "compile",
        "cuda_graphs",
        "step_graph",
        "activation_checkpointing",
        "shard",
        "pipeline_stages",
        "check_gradients_steps",
        "metrics",
        "metrics_kimg",
        "metrics_samples",
    }
)
"""Fields that may differ between the sessions of one run: they do not change what a step computes, rounding apart. Of
segments those that have begun may not (trainer.config.segment_plan).
"""
