"""ExperimentConfig: an experiment's suite file (scenarios, arms, data), and its runs in order."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gangway.bench.suite import Label
from gangway.components.core.fields import PositiveNumber, PositiveWhole, Seed
from gangway.components.core.findings import InputError, nearest_hint
from gangway.stacks.config.job_settings import Settings, check_settings
from gangway.stacks.config.section import Section
from gangway.stacks.config.yaml_file import read_model, read_yaml
from gangway.trainer.config.presets import PRESETS

_Share = Annotated[float, Field(ge=0, le=1)]


class Neighbour(Section):
    """Processes that occupy cores during a part of the run.

    Attributes:
        cores: number of processes.
        between: start and end as shares of the run's images.
    """

    cores: PositiveWhole = 1
    between: tuple[_Share, _Share] = (1 / 3, 2 / 3)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.between[0] >= self.between[1]:
            raise InputError(
                "between", "ends before it begins", value=list(self.between), allowed="[from, to], from below to",
                fix=f"between: {[self.between[1], self.between[0]]}",
            )  # fmt: skip
        return self


class Reached(Section):
    """Ends a run once a quality metric is at or below a target.

    Attributes:
        metric: name of the metric in records.
        at_most: the target.
    """

    metric: str = Field(min_length=1, examples=["FD-ENL0"])
    at_most: PositiveNumber


class Short(Section):
    """A scenario's values in the suite's small form.

    Attributes:
        kimg: maximum length of a run.
        seeds: seeds of the runs.
    """

    kimg: PositiveNumber
    seeds: tuple[Seed, ...] = Field(min_length=1, max_length=100)


class Scenario(Section):
    """A situation for every arm.

    Attributes:
        name: name of the scenario.
        what: what it shows, in one sentence.
        preset: preset of the runs.
        data: name of one of the suite's data sets.
        kimg: maximum length of a run.
        seeds: seeds of the runs.
        settings: fields of the training configuration for every arm.
        args: arguments of `train` for every arm.
        processes: processes of a run.
        threads: threads per process.
        treatment_args: further arguments of `train` for the treatment.
        static_args: further arguments of `train` for the `static` arm: the best fixed settings known in advance.
        static_threads: threads per process for the `static` arm; `threads` if omitted.
        neighbour: processes that occupy cores during a part of the run.
        stop: quality at which a run ends; kimg alone if omitted.
        most_slower: share of the time by which the treatment may be slower; if omitted, it should be faster.
        small: values in the suite's small form.
    """

    name: Label
    what: str = Field(min_length=1)
    preset: str
    data: Label
    kimg: PositiveNumber
    seeds: tuple[Seed, ...] = Field(min_length=1, max_length=100)
    settings: Settings = Field(default={})
    args: tuple[str, ...] = ()
    treatment_args: tuple[str, ...] = ()
    static_args: tuple[str, ...] = ()
    processes: PositiveWhole = 1
    threads: PositiveWhole = 1
    static_threads: PositiveWhole | None = None
    neighbour: Neighbour | None = None
    stop: Reached | None = None
    most_slower: _Share | None = None
    small: Short


class ExperimentArm(Section):
    """One arm.

    Attributes:
        name: name of the arm.
        args: its arguments of `train`.
    """

    name: Label
    args: tuple[str, ...] = ()


class ExperimentData(Section):
    """A data set of several scenarios.

    Attributes:
        name: name of the data set.
        prepare: arguments of `data prepare` without --out.
    """

    name: Label
    prepare: tuple[str, ...] = Field(min_length=1)


class ExperimentConfig(Section):
    """An experiment for `gangway bench run`: a controller against a control, in several scenarios.

    Attributes:
        name: prefix of the experiment's folder under runs/.
        title: title of the page.
        paper: paper to which the experiment belongs.
        order_seed: seed of the order of the runs.
        arms: the control first, then the treatments, of which one runs.
        static: an arm without a controller under each scenario's best fixed settings.
        data: the data sets.
        scenarios: the situations in which the arms are compared.
    """

    name: Label
    title: str = Field(min_length=1)
    paper: Literal["P3"] | None = None
    order_seed: Seed = 0
    arms: tuple[ExperimentArm, ...] = Field(min_length=2, max_length=20)
    static: ExperimentArm | None = None
    data: tuple[ExperimentData, ...] = Field(min_length=1)
    scenarios: tuple[Scenario, ...] = Field(min_length=1, max_length=50)

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        fixed = () if self.static is None else (self.static,)
        for place, items in (("arms", (*self.arms, *fixed)), ("data", self.data), ("scenarios", self.scenarios)):
            names = [one.name for one in items]
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise InputError(
                    place, "duplicate name", value=twice[0], allowed="each once", fix=f"rename one {twice[0]}"
                )
        known = [one.name for one in self.data]
        for number, scenario in enumerate(self.scenarios):
            place = f"scenarios[{number}]"
            if scenario.data not in known:
                raise InputError.not_among(f"{place}.data", "no such data in this suite", scenario.data, known)
            if scenario.preset not in PRESETS:
                raise InputError.not_among(f"{place}.preset", "no such preset", scenario.preset, PRESETS)
            for name in ("static_args", "static_threads"):
                if self.static is None and (value := getattr(scenario, name)):
                    raise InputError(
                        f"{place}.{name}", "no arm uses it", value=value, fix="add static: {name: static} to the suite"
                    )
            for field, seeds in (("seeds", scenario.seeds), ("small.seeds", scenario.small.seeds)):
                if len(set(seeds)) < len(seeds):
                    raise InputError(
                        f"{place}.{field}", "duplicate seed", value=list(seeds), allowed="each seed once",
                        fix="remove one, or write another number",
                    )  # fmt: skip
            try:
                check_settings(scenario.preset, scenario.settings)
            except InputError as mistake:
                raise mistake.within(f"{place}.", joint="") from None
        return self


@dataclass(frozen=True)
class Item:
    """One run. `position`: in the order, from 0; `args`: of `train`, the last duplicate counts."""

    scenario: Scenario
    arm: ExperimentArm
    seed: int
    kimg: float
    position: int
    args: tuple[str, ...]
    threads: int

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.scenario.name}-{self.arm.name}-s{self.seed}"


def is_experiment(path: Path) -> bool:
    """Whether a suite file has scenarios."""
    data = read_yaml(path, ExperimentConfig, kind="suite")
    return isinstance(data, dict) and "scenarios" in data


def load_experiment(path: Path) -> ExperimentConfig:
    """Read a suite file. ExceptionGroup: of InputError, one per mistake; InputError: unreadable."""
    keys = "name, arms, data and scenarios"
    return read_model(path, ExperimentConfig, named="experiment", keys=keys, folder="gangway/suites")


def get_arms(suite: ExperimentConfig, treatment: str) -> tuple[ExperimentArm, ...]:
    """Control, static arm if any, and treatment (default: the second arm). InputError: no such arm, or the control."""
    control, *others = suite.arms
    names = [arm.name for arm in others]
    if treatment and treatment not in names:
        raise InputError(
            "--treatment", "not a treatment of this suite", value=treatment, allowed=", ".join(names),
            fix=nearest_hint(treatment, names),
        )  # fmt: skip
    chosen = next(arm for arm in others if arm.name == (treatment or names[0]))
    return (control, chosen) if suite.static is None else (control, suite.static, chosen)


def get_items(suite: ExperimentConfig, treatment: str = "", *, small: bool = False) -> tuple[Item, ...]:
    """All runs in order; each seed has a new order of arms, so that slow drift such as heat affects all alike."""
    arms = get_arms(suite, treatment)
    draw = random.Random(suite.order_seed)
    found: list[Item] = []
    for scenario in suite.scenarios:
        orders = _orders(arms, draw)
        seeds, kimg = (scenario.small.seeds, scenario.small.kimg) if small else (scenario.seeds, scenario.kimg)
        for number, seed in enumerate(seeds):
            for arm in orders[number % len(orders)]:
                args, threads = _settings(suite, scenario, arm)
                found.append(Item(scenario, arm, seed, kimg, len(found), args, threads))
    return tuple(found)


def _orders(arms: Sequence[ExperimentArm], draw: random.Random) -> list[tuple[ExperimentArm, ...]]:
    """A random order and its rotations, then those of its reverse: AB BA, or all six orders of three arms."""
    first = draw.sample(arms, len(arms))
    rotated = [(*base[turn:], *base[:turn]) for base in (first, first[::-1]) for turn in range(len(arms))]
    return list(dict.fromkeys(rotated))


def _settings(suite: ExperimentConfig, scenario: Scenario, arm: ExperimentArm) -> tuple[tuple[str, ...], int]:
    own, threads = scenario.treatment_args, scenario.threads
    if arm == suite.arms[0]:
        own = ()
    elif arm == suite.static:
        own, threads = scenario.static_args, scenario.static_threads or threads
    return (*scenario.args, *arm.args, *own), threads
