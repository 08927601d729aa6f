"""SuiteConfig: the format of `gangway/suites/*.yaml`, its items, and names of runs and stacks."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gangway.components.core.fields import PositiveNumber, PositiveWhole, Seed
from gangway.components.core.findings import InputError, nearest_hint
from gangway.stacks.config.job_settings import Settings, check_settings
from gangway.stacks.config.paths import ROOT
from gangway.stacks.config.section import Section
from gangway.stacks.config.yaml_file import read_model
from gangway.stacks.loading.loader import find_stack_file, read_settings
from gangway.trainer.config.presets import PRESETS

LOCAL = "local"
"""This machine as a stack: torchrun, without a cloud."""

Label = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
_HASH_DIGITS = 6
_MAX_STACK_NAME = 40


def _known_preset(preset: str) -> str:
    if preset not in PRESETS:
        raise ValueError(f"one of {', '.join(PRESETS)}; {nearest_hint(preset, PRESETS)}")
    return preset


def _parse_stack(value: Any) -> Any:
    """A bare stack name is an entry without other fields."""
    return {"stack": value} if isinstance(value, str) else value


SUITES = ROOT / "gangway" / "suites"
"""The suites included in Gangway."""


class SuiteStack(Section):
    """One environment of the table.

    Attributes:
        stack: a stack's name, the path of a stack file, or `local` for this machine.
        label: name in the table; the stack's if omitted.
        set: overrides of the stack file by path.
        usd_limit: limit for this stack; the suite's `budget.stack_usd` if omitted.
        usd_per_hour: price of the whole stack, only if the plan lacks one.
        deadline_hours: from `up` to the record; the suite's if omitted.
    """

    stack: str = Field(min_length=1, examples=["aws-g5-dev"])
    label: Label | None = Field(default=None, examples=["aws"])
    set: dict[str, Any] = Field(default={}, examples=[{"network.egress": "nat"}])
    usd_limit: PositiveNumber | None = None
    usd_per_hour: PositiveNumber | None = None
    deadline_hours: PositiveNumber | None = None

    @property
    def name(self) -> str:
        """Its name in table and journal."""
        return self.label or Path(self.stack).name.removeprefix("Pulumi.").removesuffix(".yaml")


class Arm(Section):
    """One variant of the training.

    Attributes:
        name: name of the arm.
        settings: fields of the training configuration on top of the suite's.
    """

    name: Label = Field(examples=["control"])
    settings: Settings = Field(default={}, examples=[{"precision": "bf16"}])


class SuiteBudget(Section):
    """Cost limits, checked while the suite runs.

    Attributes:
        usd: limit of the whole suite.
        stack_usd: limit of each stack.
    """

    usd: PositiveNumber = Field(examples=[200])
    stack_usd: PositiveNumber | None = Field(default=None, examples=[60])


class SuiteConfig(Section):
    """A suite for `gangway bench run`: the same training on several stacks or in several arms, with several seeds.

    Attributes:
        name: prefix of the suite's folder under runs/.
        title: title of the table.
        paper: paper whose table is shown next to yours.
        preset: preset of every run; the stacks' if omitted, which must be equal.
        kimg: length of each run.
        checkpoint_kimg: distance of two checkpoints; the preset's if omitted.
        seeds: seeds of the runs.
        settings: fields of the training configuration for every run.
        arms: variants of the training; each runs on every stack with every seed.
        stacks: the stacks; a bare name is an entry with only `stack`.
        budget: cost limits; required if a stack costs money.
        deadline_hours: from `up` to the record; then the stack is destroyed.
        local_processes: processes of a run on this machine.
    """

    name: Label = Field(examples=["p2-environments"])
    title: str = ""
    paper: Literal["P2", "P3"] | None = None
    preset: Annotated[str, AfterValidator(_known_preset)] | None = Field(default=None, examples=["dcgan-cifar10"])
    kimg: PositiveNumber = Field(examples=[12800])
    checkpoint_kimg: PositiveNumber | None = None
    seeds: tuple[Seed, ...] = Field(min_length=1, max_length=100, examples=[[0, 1, 2]])
    settings: Settings = Field(default={}, examples=[{"metrics": "fd-enl0", "metrics_kimg": 100}])
    arms: tuple[Arm, ...] = Field(default=(), max_length=20)
    stacks: tuple[Annotated[SuiteStack, BeforeValidator(_parse_stack)], ...] = Field(
        min_length=1, max_length=50, examples=[["local", "aws-g5-dev"]]
    )
    budget: SuiteBudget | None = Field(default=None, examples=[{"usd": 200, "stack_usd": 60}])
    deadline_hours: PositiveNumber = Field(examples=[6])
    local_processes: PositiveWhole = 2

    @model_validator(mode="after")
    def _check_duplicates(self) -> Self:
        lists = {
            "seeds": [str(seed) for seed in self.seeds],
            "arms": [arm.name for arm in self.arms],
            "stacks": [stack.name for stack in self.stacks],
        }
        for name, values in lists.items():
            if twice := sorted({value for value in values if values.count(value) > 1}):
                fix = f"give one {twice[0]} another label" if name == "stacks" else f"remove one {twice[0]}"
                raise InputError(name, "duplicate entry", value=twice[0], allowed=f"each of {name} once", fix=fix)
        return self

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [item.name for item in get_items(self, local=False)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(
                "stacks",
                "two runs have the same name",
                value=twice[0],
                allowed="a unique name for each run, from stack, arm and seed",
                fix="give a stack another label, or an arm another name",
            )
        return self

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        paid = [stack.name for stack in self.stacks if stack.stack != LOCAL]
        if paid and self.budget is None:
            raise InputError(
                "budget", f"missing: {paid[0]} costs money", allowed="US dollars", fix="add budget: {usd: 50}"
            )
        return self

    @model_validator(mode="after")
    def _check_overrides(self) -> Self:
        own = tuple(
            f"job.{key}" for key in ("preset", "kimg", "checkpoint_kimg", "seed", "settings", "run_id", "max_h")
        )
        for position, stack in enumerate(self.stacks):
            place = f"stacks[{position}].set"
            if "job" in stack.set:
                raise InputError(
                    f"{place}.job",
                    "cannot be replaced as a whole",
                    allowed="single fields",
                    fix="write job.terminate_when_done: true, for example",
                )
            if paths := [path for path in stack.set if path.startswith(own)]:
                key = paths[0].removeprefix("job.")
                known = key if key in type(self).model_fields else "kimg, deadline_hours or settings"
                raise InputError(
                    f"{place}.{paths[0]}",
                    "must be the same for all stacks of a table",
                    value=stack.set[paths[0]],
                    allowed=f"set without {paths[0]}",
                    fix=f"write {known} next to stacks, for the whole suite",
                )
        return self


@dataclass(frozen=True)
class Item:
    """One run. `arm`: empty if there is only one; `settings`: of the trainer's configuration."""

    name: str
    stack: SuiteStack
    arm: str
    seed: int
    settings: dict[str, bool | int | float | str]

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine."""
        return self.stack.stack == LOCAL


def find_suite(suite_or_file: str, stacks_dir: Path) -> Path:
    """Find a suite's file by path or by name, in `stacks_dir`/suites and among Gangway's. InputError: none."""
    folders = [folder for parent in (stacks_dir / "suites", SUITES) for folder in (parent, parent / "experiments")]
    names = sorted({path.stem for each in folders for path in each.glob("*.yaml")})
    for path in (*(each / f"{suite_or_file}.yaml" for each in folders), Path(suite_or_file)):
        if suite_or_file and path.is_file():
            return path
    raise InputError(
        "suite",
        "not a regular file" if suite_or_file and Path(suite_or_file).exists() else "no such suite",
        value=suite_or_file,
        allowed=f"the path of a suite file, or one of {', '.join(names)}",
        fix=nearest_hint(Path(suite_or_file).stem, names),
    )


def load_suite(path: Path) -> SuiteConfig:
    """Read a suite file. ExceptionGroup: of InputError, one per mistake; InputError: unreadable."""
    keys = "name, kimg, seeds and stacks"
    return read_model(path, SuiteConfig, named="suite", keys=keys, folder="gangway/suites")


def get_preset(suite: SuiteConfig, place: str, stacks_dir: Path) -> str:
    """The table's preset, checked with every arm's settings. InputError: unknown stack, different or invalid."""
    presets: dict[str, str] = {}
    for position, entry in enumerate(suite.stacks):
        if entry.stack == LOCAL:
            continue
        try:
            path = find_stack_file(entry.stack, stacks_dir)
        except InputError as mistake:
            raise mistake.within(f"{place}: stacks[{position}]") from None
        if suite.preset is None:
            job = read_settings(path).get("gangway:job")
            presets[entry.name] = str(job.get("preset")) if isinstance(job, dict) else "none"
    chosen = {suite.preset} if suite.preset else set(presets.values())
    if len(chosen) != 1:
        raise InputError(
            f"{place}: preset",
            "the stacks have different presets" if chosen else "missing",
            value=", ".join(f"{name}: {preset}" for name, preset in presets.items()) or None,
            allowed="one preset for all runs of a table",
            fix="add preset: it applies to every stack" if chosen else "add preset: dcgan-digits",
        )
    preset = str(chosen.pop())
    if preset not in PRESETS:
        raise InputError.not_among(f"{place}: preset", "no such preset in a stack file", preset, PRESETS)
    for position, arm in enumerate(_arms(suite)):
        try:
            check_settings(preset, {**suite.settings, **arm.settings})
        except InputError as mistake:
            key = mistake.place.removeprefix("settings.")
            own = f"arms[{position}]." if key in arm.settings or (key not in suite.settings and arm.settings) else ""
            raise mistake.within(f"{place}: {own}", joint="") from None
    return preset


def _arms(suite: SuiteConfig) -> tuple[Arm, ...]:
    return suite.arms or (Arm(name="all"),)


def get_items(suite: SuiteConfig, *, local: bool) -> tuple[Item, ...]:
    """Every run: stack by stack, arm by arm, seed by seed; all on this machine with `local`."""
    stacks = (SuiteStack(stack=LOCAL),) if local else suite.stacks
    return tuple(
        Item(
            name="-".join((entry.name, *((arm.name,) if suite.arms else ()), f"s{seed}")),
            stack=entry,
            arm=arm.name if suite.arms else "",
            seed=seed,
            settings={**suite.settings, **arm.settings},
        )
        for entry in stacks
        for arm in _arms(suite)
        for seed in suite.seeds
    )


def get_run_id(item: Item, stamp: str) -> str:
    """The run's id and folder name: the item's name and the suite's time."""
    return f"{item.name}-{stamp}"


def stack_name(item: Item, stamp: str) -> str:
    """The unique name of the item's stack, beginning with its template's."""
    digits = hashlib.sha256(get_run_id(item, stamp).encode()).hexdigest()[:_HASH_DIGITS]
    return f"{item.stack.name[: _MAX_STACK_NAME - _HASH_DIGITS - 2].rstrip('-')}-b{digits}"
