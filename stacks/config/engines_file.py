"""The file that names engines, with their regions and prices; see docs/hybrid.md."""

import os
import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from gangway.components.catalog.loader import PROVIDERS
from gangway.components.core.fields import Amount
from gangway.components.core.findings import InputError
from gangway.stacks.config.section import PlaceName, Section
from gangway.stacks.config.sections import LimitsConfig
from gangway.stacks.config.yaml_file import read_model

VARIABLE = "GANGWAY_ENGINES"
_DEFAULT_PATH = Path("~/.gangway/engines.yaml")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,38}")
KINDS = ("local", "slurm", "kubernetes")
"""Kinds of engines; an engine cannot have one of them as its name."""


class NamedEngine(Section):
    """One engine.

    Attributes:
        engine: the engine as in `--on`, without a region.
        via: SSH host, or USER@HOST, of the engine, with Gangway installed; this machine if omitted.
        program: path of `gangway` on that host.
        region: region of the engine.
        machine_type: machine type of its nodes, for price and power.
        capacity: which list price applies.
        usd_per_node_hour: price of a node, instead of the list price.
        limits: what jobs submitted there by this name may spend; these need a price.
        stack: stack file whose gangway:budget.limits hold, instead of limits.
    """

    engine: str = Field(min_length=1, examples=["slurm:/shared/jobs@gpu"])
    via: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$", examples=["ann@login.example.com"])
    program: str = Field(default="gangway", min_length=1, examples=["/opt/gangway/bin/gangway"])
    region: PlaceName | None = Field(default=None, examples=["aws:eu-central-1"])
    machine_type: str | None = Field(default=None, min_length=1, examples=["p5.48xlarge"])
    capacity: Literal["on-demand", "spot"] = "on-demand"
    usd_per_node_hour: Amount | None = Field(default=None, examples=[11.5])

    limits: LimitsConfig | None = Field(default=None, examples=[{"job_usd": 500, "team_usd_per_month": 9000}])
    stack: str | None = Field(default=None, min_length=1, examples=["/shared/gangway/Pulumi.my-slurm.yaml"])

    @field_validator("engine")
    @classmethod
    def _check_engine(cls, engine: str) -> str:
        if engine.partition(":")[0] not in KINDS:
            raise ValueError(f"an engine that begins with {', '.join(KINDS)}; write slurm:/shared/jobs")
        if "#" in engine or "," in engine:
            raise ValueError("one engine, without its region; write region: aws:eu-central-1")
        return engine

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if "program" in self.model_fields_set and self.via is None:
            raise ValueError("program only with via; leave it out")
        if self.machine_type is not None and (self.region or "").partition(":")[0] not in PROVIDERS:
            raise ValueError(
                f"machine_type only with a region of {', '.join(PROVIDERS)}, which have a catalogue; "
                "add region: aws:us-east-1, or write usd_per_node_hour"
            )
        if self.limits is not None and self.stack is not None:
            raise ValueError("only one of limits and stack; leave one out")
        if self.limits is not None and self.limits.usd_per_node_hour is not None:
            raise ValueError("no usd_per_node_hour in limits; write it beside limits")
        if self.via is not None and (self.limits is not None or self.stack is not None):
            raise ValueError("limits only without via; name the engine on that host, and submit there")
        if "capacity" in self.model_fields_set and (self.machine_type is None or self.usd_per_node_hour is not None):
            raise ValueError("capacity only with a list price; leave it out, or write machine_type alone")
        return self


class EnginesFile(Section):
    """Names for engines, for `gangway job submit --on NAME`: `$GANGWAY_ENGINES` or `~/.gangway/engines.yaml`.

    Attributes:
        engines: the engines by name.
    """

    engines: dict[str, NamedEngine] = Field(examples=[{"private": {"engine": "slurm:/shared/jobs@gpu"}}])

    @field_validator("engines")
    @classmethod
    def _check_names(cls, engines: dict[str, NamedEngine]) -> dict[str, NamedEngine]:
        for name in engines:
            if not _NAME.fullmatch(name) or name in KINDS:
                raise ValueError(
                    f"names of a-z, 0-9 and -, starting with a letter, not {', '.join(KINDS)}; rename {name!r}"
                )
        return engines


def named_engines() -> dict[str, NamedEngine]:
    """The engines in $GANGWAY_ENGINES, else ~/.gangway/engines.yaml. InputError, or a group of them: mistakes."""
    asked = os.environ.get(VARIABLE)
    path = Path(asked) if asked else _DEFAULT_PATH.expanduser()
    if not path.exists():
        if asked:
            raise InputError(VARIABLE, "no such file", value=asked, fix="name an existing file, or unset it")
        return {}
    return read_model(path, EnginesFile, named="engines", keys="engines", folder="docs/hybrid.md").engines
