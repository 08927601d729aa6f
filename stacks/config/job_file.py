"""A job file: one job for an engine that stands already, of a preset of the trainer's or of a command of one's own.

{name: digits, preset: dcgan-digits, kimg: 20, max_hours: 1, nodes: {min: 1, max: 2}, processes_per_node: 2}
{name: mine, command: [python, train.py], image: registry.example.com/mine@sha256:..., max_hours: 4}
"""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from components.core.fields import Number, PositiveNumber, PositiveWhole, Seed, Whole
from components.core.findings import InputError
from components.core.image_reference import BY_DIGEST
from stacks.config.job_settings import Overrides, Settings, check_settings
from stacks.config.loader import read_model
from stacks.config.region_settings import RegionsConfig
from stacks.config.sections import LEAST_KIMG, MOST_HOURS, NodesConfig, Section
from trainer.config.parts.fields import MOST_KIMG
from trainer.config.presets import PRESETS

_Word = Annotated[str, Field(max_length=4096)]
_RESOURCE = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_QUANTITY = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_OF_A_PRESET = ("kimg", "checkpoint_kimg", "seed", "settings")
_OF_A_COMMAND = ("image", "env", "workdir", "exit_codes")


class Priority(StrEnum):
    """Which of two waiting jobs begins first; of equal ones the earlier."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class ExitCodes(Section):
    """What a command's own exit codes mean; 0 is done, and any other a failure.

    Attributes:
        interrupted: its state is saved, and it goes on when it is started again.
        bad_input: it is never tried again.
        unfit: this node is given up, and the job goes on without it.
    """

    interrupted: tuple[Whole, ...] = (75,)
    bad_input: tuple[Whole, ...] = (2,)
    unfit: tuple[Whole, ...] = (4,)

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        codes = [*self.interrupted, *self.bad_input, *self.unfit]
        if odd := [code for code in codes if not 1 <= code <= 255]:
            raise ValueError(f"codes from 1 to 255, for 0 is done; take {odd[0]} out")
        if twice := sorted({code for code in codes if codes.count(code) > 1}):
            raise ValueError(f"each code once; {twice[0]} has two meanings, take one of them out")
        return self


class JobFile(Section):
    """One job: what it runs, and on how much.

    Attributes:
        name: of the job, and of its folder of runs; several jobs may have the same.
        preset: of the trainer's; then kimg, checkpoint_kimg, seed and settings are as in a stack's job.
        command: the program and its arguments, started once on each node, or processes_per_node times by torchrun.
        image: container image of the command, by digest; the nodes' own environment when left out.
        env: variables of the command.
        workdir: folder in which the command begins: the image's own, or without one where the job was submitted.
        exit_codes: what the command's codes mean.
        nodes: on which it begins, and which it has at most.
        resources: what a node's pod asks for, and may take at most, in Kubernetes' names and quantities; nodes of other
            engines are a job's as a whole.
        processes_per_node: workers of a node; without it a command runs once on each, and a preset in one process.
        max_hours: after which it is ended; time in a queue does not count.
        max_restarts: after failures; an interruption is none.
        grace_sec: from SIGTERM to SIGKILL, in which the command saves its state.
        priority: in a queue.
        team: whose quota and account it is.
        regions: where it and its run folder may be; an engine elsewhere, or nobody knows where, does not get it.
    """

    name: str = Field(pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$", examples=["digits"])
    preset: str | None = Field(default=None, examples=["dcgan-digits"])
    kimg: Annotated[Number, Field(ge=LEAST_KIMG, le=MOST_KIMG)] | None = Field(default=None, examples=[20])
    checkpoint_kimg: PositiveNumber | None = Field(default=None, examples=[100])
    seed: Seed | None = Field(default=None, examples=[0])
    settings: Settings = Field(default={}, examples=[{"batch_size": 256}])
    command: tuple[_Word, ...] = Field(default=(), examples=[["python", "train.py", "--epochs", "3"]])
    image: str | None = Field(
        default=None,
        pattern=f"^{BY_DIGEST}$",
        examples=[f"registry.example.com/mine@sha256:{'0123456789abcdef' * 4}"],
    )
    env: dict[str, str] = Field(default={}, examples=[{"NCCL_DEBUG": "WARN"}])
    workdir: str | None = Field(default=None, pattern=r"^/", examples=["/work"])
    exit_codes: ExitCodes = ExitCodes()
    nodes: NodesConfig = Field(default=NodesConfig(min=1, max=1), examples=[{"min": 1, "max": 2}])
    resources: dict[str, str] = Field(
        default={}, examples=[{"cpu": "90", "memory": "1000Gi", "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}]
    )
    processes_per_node: PositiveWhole | None = Field(default=None, examples=[8])
    max_hours: Number = Field(gt=0, le=MOST_HOURS, examples=[4])
    max_restarts: Whole = Field(default=3, ge=0, le=100)
    grace_sec: PositiveWhole = Field(default=25, le=3600)
    priority: Priority = Priority.NORMAL
    team: str | None = Field(default=None, pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$", examples=["vision"])
    regions: RegionsConfig = Field(default=RegionsConfig(), examples=[{"residency": ["EU"]}])

    @model_validator(mode="after")
    def _one_workload(self) -> Self:
        if (self.preset is None) == (not self.command):
            fix = (
                "leave one of them out"
                if self.command
                else "write preset: dcgan-digits, or command: [python, train.py]"
            )
            raise ValueError(f"exactly one of preset and command; {fix}")
        other = _OF_A_COMMAND if self.preset is not None else _OF_A_PRESET
        if odd := [name for name in other if name in self.model_fields_set]:
            kind = "command" if self.preset is not None else "preset"
            raise ValueError(f"{odd[0]} only beside {kind}; leave {odd[0]} out")
        return self

    @field_validator("env")
    @classmethod
    def _names(cls, env: dict[str, str]) -> dict[str, str]:
        for name in env:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"names of letters, digits and _, the first no digit; mend {name!r}")
            if name.startswith("GANGWAY_"):
                raise ValueError(f"names without GANGWAY_, which are told to a command; leave {name} out")
        return env

    @field_validator("resources")
    @classmethod
    def _quantities(cls, resources: dict[str, str]) -> dict[str, str]:
        for name, quantity in resources.items():
            if not _RESOURCE.fullmatch(name):
                raise ValueError(f"names such as cpu, memory and nvidia.com/gpu; mend {name!r}")
            if not _QUANTITY.fullmatch(quantity):
                raise ValueError(f"quantities such as 8, 500m and 64Gi; mend {name}: {quantity!r}")
        if missing := [name for name in ("cpu", "memory") if resources and name not in resources]:
            raise ValueError(f"cpu and memory beside what else there is; add {missing[0]}")
        return resources

    @model_validator(mode="after")
    def _known_preset(self) -> Self:
        if self.preset is not None and self.preset not in PRESETS:
            raise InputError.not_among("preset", "no preset of the trainer's", self.preset, PRESETS)
        if self.preset is not None and self.kimg is None:
            raise ValueError("kimg beside preset; write kimg: 20")
        if self.preset is not None:
            check_settings(self.preset, self.settings)
        return self

    def overrides(self) -> Overrides:
        """Fields of the trainer's configuration that have a key here."""
        return {"kimg": self.kimg, "checkpoint_kimg": self.checkpoint_kimg, "seed": self.seed}


def read_job_file(path: Path) -> JobFile:
    """InputError: or a group of them, one for each mistake."""
    return read_model(
        path, JobFile, named="job", keys="name, preset and max_hours", folder="examples/jobs", lined=("command", "env")
    )
