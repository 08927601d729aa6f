"""TrainConfig: everything that decides what a training run computes, as a human writes it.

Not here: where the run happens (trainer.distributed), where its files go (the command line) and what it costs
(RunContext in trainer.record). Does not import torch.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from trainer.errors import TrainerError, from_validation, nearest
from trainer.files import read_input

__all__ = ["AUGMENTATIONS", "PRESETS", "RESUMABLE_CHANGES", "TrainConfig", "preset"]

AUGMENTATIONS = ("color", "translation", "cutout")
"""Parts a DiffAugment policy may be made of."""

Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class TrainConfig(BaseModel):
    """One training run, frozen. Progress is counted in images, so nothing here depends on the number of workers.

    Attributes:
        preset: name the defaults came from.
        dataset: the data set's name; the shards must carry the same.
        resolution: height and width of the images, pixels.
        channels: 1 for grey, 3 for RGB.
        z_dim: length of the latent vector.
        ngf: the generator's width: channels of its last feature map.
        ndf: the discriminator's width: channels of its first feature map.
        batch_size: global batch, images per step over all workers.
        kimg: length of the run, thousands of real images shown.
        lr_g: the generator's Adam step size.
        lr_d: the discriminator's Adam step size.
        beta1: Adam's first moment decay.
        beta2: Adam's second moment decay.
        r1_gamma: weight of the R1 penalty; 0 turns it off.
        r1_interval: steps from one lazily applied penalty to the next; its weight grows by the same factor.
        ema_kimg: half-life of the averaged generator, thousands of images; 0 turns the averaging off.
        augment: DiffAugment policy, comma-separated parts of `AUGMENTATIONS`, or "none".
        seed: of initial weights, order of images, latents and augmentation.
        checkpoint_kimg: thousands of images from one checkpoint to the next.
        keep_checkpoints: how many checkpoints stay on disk.
        stats_kimg: thousands of images from one line of stats.jsonl to the next.
        sample_kimg: thousands of images from one sample grid to the next.
        channels_last: NHWC memory layout: 1.3 times faster here on a CPU, needed for tensor cores on a GPU.
        backend: collectives; auto takes nccl where CUDA is present, else gloo; xla is PyTorch/XLA, for TPUs.
        metrics_samples: fakes drawn for the quality metric.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    preset: str
    dataset: Literal["digits"]
    resolution: Literal[32, 64]
    channels: Literal[1, 3]
    z_dim: int = Field(default=64, ge=1)
    ngf: int = Field(default=32, ge=1)
    ndf: int = Field(default=32, ge=1)
    batch_size: int = Field(default=64, ge=1)
    kimg: Positive
    lr_g: Positive = 2e-4
    lr_d: Positive = 2e-4
    beta1: Fraction = 0.5
    beta2: Fraction = 0.99
    r1_gamma: float = Field(default=1.0, ge=0)
    r1_interval: int = Field(default=16, ge=1)
    ema_kimg: float = Field(default=2.0, ge=0)
    augment: str = "none"
    seed: int = Field(default=0, ge=0, lt=2**63)
    checkpoint_kimg: Positive = 20.0
    keep_checkpoints: int = Field(default=3, ge=2)
    stats_kimg: Positive = 1.0
    sample_kimg: Positive = 20.0
    channels_last: bool = True
    backend: Literal["auto", "gloo", "nccl", "xla"] = "auto"
    metrics_samples: int = Field(default=1797, ge=2)

    @field_validator("augment")
    @classmethod
    def _known_parts(cls, policy: str, others: ValidationInfo) -> str:
        parts = [] if policy == "none" else policy.split(",")
        if policy != "none" and (unknown := set(parts) - set(AUGMENTATIONS)):
            raise ValueError(f"comma-separated parts of {', '.join(AUGMENTATIONS)}, or none; not {sorted(unknown)}")
        if len(parts) != len(set(parts)):
            raise ValueError("each part at most once")
        if "color" in parts and others.data.get("channels") == 1:
            raise ValueError("color needs channels 3; leave it out for grey images")
        return policy

    @property
    def total_images(self) -> int:
        """Images after which the run is done: whole batches that cover kimg."""
        return -(-round(self.kimg * 1000) // self.batch_size) * self.batch_size

    def check_workers(self, world_size: int, *, equal_shares: bool = False) -> None:
        """Refuses more workers than a step has images: one of them would have none.

        Any number up to that will do: `World.slice` shares a batch that does not divide evenly.

        Args:
            world_size: number of workers.
            equal_shares: refuse a batch that does not divide evenly too; XLA's workers must run the same program.

        Raises:
            TrainerError: batch_size is below world_size, or not a multiple of it.
        """
        if self.batch_size < world_size:
            raise TrainerError(
                place="TrainConfig.batch_size",
                problem=f"fewer images in a step than workers, of which there are {world_size}",
                value=self.batch_size,
                allowed=f"at least {world_size} with {world_size} workers; a run that has begun keeps its batch size",
                fix=f"start at most {self.batch_size} processes, or a new run with --batch-size {world_size}",
            )
        if equal_shares and self.batch_size % world_size:
            raise TrainerError(
                place="TrainConfig.batch_size",
                problem=f"does not divide by the {world_size} workers, and XLA's workers all have the same share",
                value=self.batch_size,
                allowed=f"a multiple of {world_size}; a run that has begun keeps its batch size",
                fix=f"a new run with --batch-size {-(-self.batch_size // world_size) * world_size}",
            )

    def to_json(self) -> str:
        """The config as indented JSON; `from_json` reads it back equal."""
        return self.model_dump_json(indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, place: str = "TrainConfig") -> Self:
        """Reads what `to_json` wrote, or a human.

        Args:
            text: a JSON object.
            place: file the text came from, for the error message.

        Raises:
            TrainerError: not JSON, an unknown field or a value out of range.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise from_validation(error, place, known=cls.model_fields) from None

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """`from_json` of a file's text.

        Raises:
            TrainerError: also when there is no such file.
        """
        return cls.from_json(read_input(path, "name a TrainConfig JSON file").decode("utf-8", "replace"), str(path))

    def replace(self, changes: Mapping[str, object]) -> Self:
        """A copy with some fields changed, validated anew.

        Raises:
            TrainerError: an unknown field or a value out of range; its place is `TrainConfig.<field>`.
        """
        try:
            return type(self).model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            field = str(error.errors()[0]["loc"][0])
            fix = f"give an allowed value, or leave it out for {getattr(self, field, None)!r}"
            raise from_validation(error, "TrainConfig", known=type(self).model_fields, separator=".", fix=fix) from None


RESUMABLE_CHANGES = frozenset(
    {"kimg", "checkpoint_kimg", "keep_checkpoints", "stats_kimg", "sample_kimg", "backend", "metrics_samples"}
)
"""Fields that may differ between the sessions of one run: they do not change what a step computes."""

PRESETS: Mapping[str, TrainConfig] = MappingProxyType(
    {
        # Chosen on 2 CPU cores by FD-ENL0: R1 of 0.1 and 1e-3 did better than 0.3, 1 and 2e-4 at equal kimg.
        "dcgan-digits": TrainConfig(
            preset="dcgan-digits",
            dataset="digits",
            resolution=32,
            channels=1,
            kimg=150,
            lr_g=1e-3,
            lr_d=1e-3,
            r1_gamma=0.1,
            ema_kimg=5,
            augment="translation",
        ),
    }
)
"""Configurations that run as they are, by name."""


def preset(name: str) -> TrainConfig:
    """The preset of that name.

    Raises:
        TrainerError: there is none.
    """
    if name not in PRESETS:
        near = nearest(name, PRESETS)
        raise TrainerError(
            place="--preset",
            problem="no such preset",
            value=name,
            allowed=", ".join(PRESETS),
            fix=f"--preset {near}" if near else "`python -m trainer presets` prints each with its values",
        )
    return PRESETS[name]
