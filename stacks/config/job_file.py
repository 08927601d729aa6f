"""A job file: one job for an existing engine, either a preset of the trainer or a custom command."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from gangway.components.core.blob_url import CONTAINER_PATTERN
from gangway.components.core.fields import Amount, Number, PositiveNumber, PositiveWhole, Seed, Whole
from gangway.components.core.findings import InputError
from gangway.components.core.foreign_files import foreign_path
from gangway.stacks.config.job_settings import Overrides, Settings, check_settings
from gangway.stacks.config.own_command import COMMAND_KEYS, MULTILINE, CommandKeys, check_one_workload
from gangway.stacks.config.section import PlaceName, Section
from gangway.stacks.config.sections import LEAST_KIMG, MOST_HOURS, NodesConfig, RegionsConfig
from gangway.stacks.config.yaml_file import read_model
from gangway.trainer.config.parts.fields import MOST_KIMG
from gangway.trainer.config.presets import PRESETS

_RESOURCE = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_LEAST_MEMORY_MIB = 64
"""Enough for a shell and a small program; less is probably a wrong unit, such as m, which is a thousandth."""
_PRESET_KEYS = ("kimg", "checkpoint_kimg", "seed", "settings", "data_dir")


class Priority(StrEnum):
    """Order of waiting jobs; with equal priority, the earlier job starts first."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class DataConfig(Section):
    """The data that a job reads.

    Attributes:
        region: region of the data, as PROVIDER:REGION.
        gib: size of the data, read once.
        source: folder of a bucket or of this machine with the data set; the engine's folder keeps one copy.
    """

    region: PlaceName = Field(examples=["aws:us-east-1"])
    gib: Amount = Field(examples=[40])
    source: str | None = Field(
        default=None,
        pattern=rf"^((s3|gs)://[a-z0-9]|{CONTAINER_PATTERN}(/|$)|file:///[^\s?#])[^\s?#]*$",
        examples=["s3://my-data/celeba64"],
    )


class JobFile(CommandKeys):
    """A job for `gangway job submit`. It needs `preset` or `command`.

    Attributes:
        command: program and arguments, started once per node, or processes_per_node times by torchrun.
        image: container image by digest; of the trainer with a preset. Without one the job runs in the nodes'
            environment.
        workdir: working directory of the command; if omitted, the folder where you submit, or the image's.
        name: name of the job and of its run folder; need not be unique.
        preset: preset of the trainer.
        kimg: length of the run; required with a preset.
        checkpoint_kimg: distance of two checkpoints; the preset's if omitted.
        seed: seed of the run; the preset's if omitted.
        settings: other fields of the training configuration, instead of the preset's values.
        data_dir: folder with the preset's data set on the nodes, read-only; not needed if the preset makes its data.
        nodes: fewest and most nodes.
        resources: requests and limits of a node's pod in Kubernetes' names and quantities, at least 64Mi of memory; no
            effect on other engines, whose jobs get whole nodes.
        processes_per_node: processes per node; one if omitted.
        max_hours: the job is ended after this; time in the queue does not count.
        max_restarts: restarts after failures; interruptions do not count.
        grace_sec: time between SIGTERM and SIGKILL, to save state.
        priority: order in the queue; among equals, the earlier job starts first.
        team: team whose quota and account the job uses.
        data: data that the job reads, for the cost of traffic between regions.
        regions: where the job and its run folder may be. Engines elsewhere, or of unknown region, do not get it.
    """

    name: str = Field(pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$", examples=["digits"])
    preset: str | None = Field(default=None, examples=["dcgan-digits"])
    kimg: Annotated[Number, Field(ge=LEAST_KIMG, le=MOST_KIMG)] | None = Field(default=None, examples=[20])
    checkpoint_kimg: PositiveNumber | None = Field(default=None, examples=[100])
    seed: Seed | None = Field(default=None, examples=[0])
    settings: Settings = Field(default={}, examples=[{"batch_size": 256}])
    data_dir: str | None = Field(default=None, pattern=r"^(/[A-Za-z0-9_.-]+)+$", examples=["/shared/data"])
    nodes: NodesConfig = Field(default=NodesConfig(min=1, max=1), examples=[{"min": 1, "max": 2}])
    resources: dict[str, str] = Field(
        default={}, examples=[{"cpu": "90", "memory": "1000Gi", "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}]
    )
    max_hours: Number = Field(gt=0, le=MOST_HOURS, examples=[4])
    max_restarts: Whole = Field(default=3, ge=0, le=100)
    grace_sec: PositiveWhole = Field(default=25, le=3600)
    priority: Priority = Priority.NORMAL
    team: str | None = Field(default=None, pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$", examples=["vision"])
    data: DataConfig | None = Field(default=None, examples=[{"region": "aws:us-east-1", "gib": 40}])
    regions: RegionsConfig = Field(default=RegionsConfig(), examples=[{"residency": ["EU"]}])

    @model_validator(mode="after")
    def _check_workload(self) -> Self:
        check_one_workload(
            self.model_fields_set,
            has_preset=self.preset is not None,
            has_command=bool(self.command),
            of_a_preset=_PRESET_KEYS,
            of_a_command=[name for name in COMMAND_KEYS if name != "image"],
        )
        if self.data_dir is not None and self.data is not None and self.data.source is not None:
            raise ValueError("only one of data_dir and data.source; leave out data_dir to read the copy, or source")
        if self.preset is None:
            return self
        if self.preset not in PRESETS:
            raise InputError.not_among("preset", "not a preset of the trainer", self.preset, PRESETS)
        if self.kimg is None:
            raise ValueError("kimg is required with preset; write kimg: 20")
        check_settings(self.preset, self.settings)
        return self

    @field_validator("resources")
    @classmethod
    def _check_quantities(cls, resources: dict[str, str]) -> dict[str, str]:
        for name, quantity in resources.items():
            if not _RESOURCE.fullmatch(name):
                raise ValueError(f"names such as cpu, memory and nvidia.com/gpu; fix {name!r}")
            if not _QUANTITY.fullmatch(quantity):
                raise ValueError(f"quantities such as 8, 500m and 64Gi; fix {name}: {quantity!r}")
        if missing := [name for name in ("cpu", "memory") if resources and name not in resources]:
            raise ValueError(f"both cpu and memory; add {missing[0]}")
        if resources and _parse_quantity(resources["memory"]) < _LEAST_MEMORY_MIB * 2**20:
            raise ValueError(f"{_LEAST_MEMORY_MIB}Mi of memory or more; fix memory: {resources['memory']!r}")
        return resources

    def overrides(self) -> Overrides:
        """Fields of the trainer's configuration that have their own key."""
        return {"kimg": self.kimg, "checkpoint_kimg": self.checkpoint_kimg, "seed": self.seed}


def _parse_quantity(quantity: str) -> float:
    match = _QUANTITY.fullmatch(quantity)
    assert match is not None, "validated before"
    number, unit = match.groups(default="")
    if unit == "m":
        return float(number) / 1000
    power = " kMGTPE".index(unit[0].replace("K", "k")) if unit else 0
    base: float = 1024 if unit.endswith("i") else 1000
    return float(number) * float(base**power)


def read_job_file(path: Path) -> JobFile:
    """Reads a job file. InputError, or a group of them: one for each mistake."""
    if foreign := foreign_path(path, "job submit"):
        raise foreign
    return read_model(
        path, JobFile, named="job", keys="name, preset and max_hours", folder="examples/jobs", lined=MULTILINE
    )
