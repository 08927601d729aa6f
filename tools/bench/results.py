"""Benchmark results: ratios or shares, their parts and targets; a file has each machine's last run."""

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from gangway.trainer.core.files import read_input
from gangway.trainer.core.host import usable_cores, versions
from gangway.trainer.core.validation import from_validation

_CODE = "sha256 over the trainer's own source files, as in run.json"


@dataclass(frozen=True)
class Result:
    """One figure.

    Attributes:
        value: None where it could not be measured here.
        unit: "x", "%" or "s".
        target: such as ">= 1.4 x".
        met: None without a value or a target, and where too little was measured to judge.
        parts: the rates it comes from, by name, with their units in the name.
        spread: lowest and highest of the rounds whose median the value is; None without rounds.
    """

    name: str
    value: float | None
    unit: str
    target: str
    met: bool | None
    parts: dict[str, float] = field(default_factory=dict)
    note: str = ""
    spread: tuple[float, float] | None = None


@dataclass(frozen=True)
class Machine:
    """Where it was measured."""

    cpu: str
    cores: int
    gpu: str
    torch: str
    python: str
    load_before: float


@dataclass(frozen=True)
class Run:
    """All figures of one machine. `code_sha256`: over the trainer's source files; None in runs older than a field."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    date: str
    machine: Machine
    results: Sequence[Result]
    code_sha256: str
    rounds: int | None = None
    seconds: float | None = None

    @property
    def extent(self) -> str:
        """How much was measured, in words; nothing where the run does not say."""
        if self.rounds is None or self.seconds is None:
            return ""
        return f"{self.rounds} round{'' if self.rounds == 1 else 's'} of {self.seconds:g} s"

    @property
    def place(self) -> str:
        """The kind of machine in words: what a later run takes the place of an earlier one by."""
        machine = self.machine
        gpu = f", {machine.gpu}" if machine.gpu else ", no GPU"
        return f"{machine.cpu}, {machine.cores} cores{gpu}"


_RUNS = TypeAdapter(list[Run])


def this_machine() -> Machine:
    """This machine, with the load it had before the benchmark (1 is one busy core)."""
    import torch

    return Machine(
        cpu=versions()["cpu"],
        cores=usable_cores(),
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        torch=torch.__version__,
        python=platform.python_version(),
        load_before=os.getloadavg()[0],
    )


def read_runs(path: Path) -> list[Run]:
    """Reads what `as_json` wrote; empty without the file. Raises TrainerError: the file holds something else."""
    fix = "name another file, or move this one aside: every machine's run can be made again"
    if not path.exists():
        return []
    content = read_input(path, fix)
    try:
        return _RUNS.validate_json(content)
    except ValidationError as error:
        raise from_validation(error, str(path), fix=fix) from None


def kept_with(runs: Iterable[Run], run: Run) -> list[Run]:
    """Merges a run with those of other machines."""
    return [*(other for other in runs if other.place != run.place), run]


def as_json(runs: Sequence[Run]) -> str:
    """Everything, indented."""
    return _RUNS.dump_json(list(runs), indent=2).decode() + "\n"


def as_markdown(runs: Iterable[Run]) -> str:
    """Returns a table per machine, and the parts of each figure."""
    return "\n".join(map(_section, runs))


def comparison_table(runs: Sequence[Run]) -> str:
    """Returns one table of the measured figures with a column per machine, and a line about each run."""
    columns = [{result.name: result for result in run.results} for run in runs]
    names = list(dict.fromkeys(name for column in columns for name in column))
    found = {name: [column[name] for column in columns if name in column] for name in names}
    measured = [name for name in names if any(result.value is not None for result in found[name])]
    pairs = list(zip(columns, runs, strict=True))
    rows = [
        [name, found[name][-1].target, *(_cell(column.get(name), run) for column, run in pairs)] for name in measured
    ]
    lines = [
        _row(["what", "wanted", *(run.place for run in runs)]),
        "|---" * (2 + len(runs)) + "|",
        *map(_row, rows),
        "",
        *(f"- {run.place}: {_circumstances(run, f'code {run.code_sha256[:12]}')}" for run in runs),
    ]
    if missing := len(names) - len(measured):
        lines.append(f"- Not measured on any of these machines: {missing} more figures.")
    return "\n".join(lines) + "\n"


def _cell(result: Result | None, run: Run) -> str:
    if result is None or result.value is None:
        return "-"
    return ", ".join(text for text in (_found(result).rstrip(), _verdict(result, run)) if text)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _circumstances(run: Run, code: str) -> str:
    machine = run.machine
    busy = f" The machine was not idle (load {machine.load_before:.1f})." if machine.load_before > 0.5 else ""
    extent = f" {run.extent}." if run.extent else ""
    return f"{run.date}, torch {machine.torch}, Python {machine.python}, {code}.{extent}{busy}"


def _section(run: Run) -> str:
    lines = [
        f"## {run.place}",
        "",
        _circumstances(run, f"code {run.code_sha256[:12]} ({_CODE})"),
        "",
        "| what | found | wanted | |",
        "|---|---|---|---|",
        *(
            f"| {result.name} | {_found(result)} | {result.target} | {_verdict(result, run)} |"
            for result in run.results
        ),
        "",
        *(f"- {result.name}: {_made_of(result)}" for result in run.results if result.parts or result.note),
    ]
    return "\n".join(lines) + "\n"


def _found(result: Result) -> str:
    if result.value is None:
        return "not measured here"
    spread = "" if result.spread is None else f" ({result.spread[0]:.3g} to {result.spread[1]:.3g})"
    return f"{result.value:.3g} {result.unit}{spread}"


def _verdict(result: Result, run: Run) -> str:
    if result.met is None and result.target and result.value is not None:
        return f"not judged: {run.extent}"
    return {True: "met", False: "missed", None: ""}[result.met]


def _made_of(result: Result) -> str:
    parts = ", ".join(f"{name} {value:.4g}" for name, value in result.parts.items())
    return "; ".join(text for text in (parts, result.note) if text)
