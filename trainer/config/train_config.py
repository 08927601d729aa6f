"""TrainConfig, which decides what a run computes, and values derived from it. No torch: plans use it."""

import json
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, ValidationError, model_validator

from gangway.trainer.config.parts.fields import ConfigFields
from gangway.trainer.config.parts.rules import first_broken, replicas, unpaired
from gangway.trainer.config.values.schedules import Ramp, Steps, misfit
from gangway.trainer.config.values.segments import Bounds, Values, bounds, resolve, workers_misfit
from gangway.trainer.core.errors import TrainerError, as_keys, broken_rule
from gangway.trainer.core.files import read_text_input
from gangway.trainer.core.validation import from_validation

ScheduledField = Literal["lr_g", "lr_d", "beta2", "r1_gamma", "r2_gamma", "ema_kimg"]


class TrainConfig(ConfigFields):
    """One training run, frozen. Progress is counted in images, so nothing here depends on the number of workers."""

    model_config = ConfigDict(defer_build=False)

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if broken := first_broken(self):
            value = getattr(self, broken.field)
            raise broken_rule(broken.allowed, value=value, field=broken.field, fix=broken.advice(self))
        plain = {name: getattr(self, name) for name in self.schedules.given if name in type(self).model_fields}
        if found := misfit(self.schedules, self.kimg, plain):
            raise found
        self._check_segments()
        return self

    def _check_segments(self) -> None:
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
                details = from_validation(error, "", separator="")
                raise broken_rule(
                    details.allowed,
                    value=details.value,
                    field=f"segments.{values.number}.{details.place}",
                    fix=as_keys(details.fix),
                ) from None
            if found := workers_misfit(values, self.group, equal_shares=self.backend == "xla"):
                raise found

    @property
    def planned(self) -> list[Values]:
        """Every segment's values, the first from the configuration's own fields."""
        first = Values(None, 0, self.batch_size, self.batch_gpu, self.precision, 1.0, None)
        return list(resolve(first, self.segments))

    @property
    def bounds(self) -> list[Bounds]:
        """Beginning and end of each segment of `planned` that the run reaches."""
        return bounds(self.planned, self.d_steps, max(1, round(self.kimg * 1000)))

    def within(self, values: Values) -> Self:
        """The configuration of a segment's steps, without segments."""
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
        """A scheduled field's value in the step after so many images."""
        schedule: Ramp | Steps | None = getattr(self.schedules, name)
        value: float = getattr(self, name) if schedule is None else schedule.at(images)
        return value

    def shown(self, name: str) -> str:
        """A field's value as JSON; names are joined by commas as in their flag."""
        if name == "freeze":
            return json.dumps(",".join(self.freeze))
        return json.dumps(self.model_dump(mode="json", include={name}, exclude_none=True).get(name))

    @property
    def image_shape(self) -> tuple[int, ...]:
        """[C, H, W] of an image, or [C, T, H, W] of a clip."""
        time = () if self.frames == 1 else (self.frames,)
        return (self.channels, *time, self.resolution, self.resolution)

    @property
    def translates(self) -> bool:
        """Whether the networks translate images between domains instead of using latents."""
        return self.architecture == "cyclegan"

    @property
    def num_labels(self) -> int:
        """Number of different labels in the data set: classes or domains; 0 for none."""
        return 2 if self.translates else self.num_classes

    @property
    def step_images(self) -> int:
        """Real images per step and domain: a batch for each of the discriminator's steps."""
        return self.batch_size * self.d_steps

    @property
    def is_gated(self) -> bool:
        """Whether only some images are augmented, by ADA or a schedule."""
        return self.ada_target > 0 or self.schedules.augment_p is not None

    @property
    def total_images(self) -> int:
        """Images at the end of the run: whole steps that cover kimg, at least one."""
        if self.segments:
            return self.bounds[-1].end
        return -(-max(1, round(self.kimg * 1000)) // self.step_images) * self.step_images

    def check_workers(self, world_size: int, *, equal_shares: bool = False) -> None:
        """TrainerError if a worker, or a pair in a pipeline, would have no image or group. `equal_shares`: refuse
        uneven shares, as XLA's workers must run the same program.
        """
        if found := unpaired(self, world_size):
            raise found
        world_size = replicas(self, world_size)
        keeps, whole = "a run that has begun keeps its batch size", world_size * self.group
        if self.batch_size < whole and self.minibatch_std:
            groups = self.batch_size // self.group
            raise TrainerError(
                place="TrainConfig.minibatch_std",
                problem=f"fewer groups in a step than workers, of which there are {world_size}",
                value=f"{groups} groups of {self.group} in a batch of {self.batch_size}",
                allowed=f"at most {groups} workers; {keeps}",
                fix=f"start at most {groups} processes, or a new run with --batch-size {whole}",
            )
        if self.batch_size < world_size:
            problem = f"fewer images in a step than workers, of which there are {world_size}"
            allowed = f"at least {world_size} with {world_size} workers"
            fix = f"start at most {self.batch_size} processes, or a new run with --batch-size {world_size}"
        elif equal_shares and self.batch_size % whole:
            problem = f"does not divide by the {world_size} workers, and XLA's workers all have the same share"
            allowed = f"a multiple of {whole}"
            fix = f"a new run with --batch-size {-(-self.batch_size // whole) * whole}"
        else:
            return
        allowed = f"{allowed}; {keeps}"
        raise TrainerError(
            place="TrainConfig.batch_size", problem=problem, value=self.batch_size, allowed=allowed, fix=fix
        )

    def document(self) -> dict[str, Any]:
        """The fields that differ from the defaults; JSON, which `from_json` reads."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def to_json(self) -> str:
        """The config as indented JSON, readable by `from_json`."""
        return self.model_dump_json(indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, place: str = "TrainConfig") -> Self:
        """Parse JSON (TrainerError: invalid, an unknown or duplicate field, a bad value); `place` is the file."""
        try:
            config = cls.model_validate_json(text)
        except ValidationError as error:
            details = from_validation(error, place, known=cls.model_fields)
            # A file has keys and no flags.
            raise TrainerError(
                **{**details.fields(), "allowed": as_keys(details.allowed), "fix": as_keys(details.fix)}
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
        """A validated copy with changes; a TrainerError's place is `TrainConfig.<field>`."""
        try:
            return type(self).model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            field = str(next(iter(error.errors()[0]["loc"]), ""))
            fix = f"give an allowed value, or leave it out for {self.shown(field)}"
            raise from_validation(error, "TrainConfig", known=type(self).model_fields, separator=".", fix=fix) from None


RESUMABLE_CHANGES = frozenset(
    {
        *("kimg", "batch_gpu", "segments", "checkpoint_kimg", "keep_checkpoints", "keep_every_kimg", "stats_kimg"),
        *("sample_kimg", "backend", "compile", "cuda_graphs", "step_graph", "activation_checkpointing", "shard"),
        *("pipeline_stages", "check_gradients_steps", "metrics", "metrics_kimg", "metrics_samples"),
    }
)
"""Fields that may differ between the sessions of one run: they do not change what a step computes, except for rounding.
Segments that have begun may not differ (gangway.trainer.config.segment_plan)."""
