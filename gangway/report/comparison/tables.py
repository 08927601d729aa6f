"""The papers' tables from papers.yaml, and their rows for the task of given runs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

from gangway.components.core.findings import InputError
from gangway.components.estimate.statistics import correct
from gangway.render.rendering import number
from gangway.report.comparison.groups import Group, Member, Missing, Source, check_one_table, differences, group_runs
from gangway.report.comparison.measures import MEASURES, Measure, energy_key, quality_measures, scaling
from gangway.report.comparison.series import Spread, add_note, change, check_meters, get_spread, meters_note
from gangway.trainer.config.train_config import TrainConfig

Name = Literal["P2", "P3"]
_SAME_LENGTH = 0.1
"""Relative difference in epochs below which runs are equally long."""


class Task(BaseModel):
    """What a row trained. `datasets`: with the resolutions that count as equal, empty for any."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    said: str
    architectures: tuple[str, ...]
    datasets: dict[str, tuple[int, ...]]
    remark: str = ""

    def matches(self, config: TrainConfig) -> bool:
        """Whether a run has the same task."""
        resolutions = self.datasets.get(config.dataset)
        if resolutions is None or config.architecture not in self.architectures:
            return False
        return not resolutions or config.resolution in resolutions


class PaperRow(BaseModel):
    """A row of a paper's table. `change`: whether its cells are per cent of another row; `cells`: by measure."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    task: str
    change: bool = False
    cells: dict[str, float]


class Paper(BaseModel):
    """A paper's table. `units`: where they differ from ours; `suite_only`: only with runs of a suite that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    source: str
    setting: str
    tasks: dict[str, Task]
    columns: tuple[str, ...]
    units: dict[str, str] = {}
    suite_only: bool = False
    epochs: float | None = None
    rows: tuple[PaperRow, ...]


def get_paper(name: Name) -> Paper:
    """A paper's table by its name in suites."""
    text = Path(__file__).with_name("papers.yaml").read_text("utf-8")
    return TypeAdapter(dict[str, Paper]).validate_python(yaml.safe_load(text))[name]


class Beside(NamedTuple):
    """A paper's rows beside some runs. `left_out`: a sentence on hidden rows, and why; empty for none."""

    rows: tuple[PaperRow, ...]
    notes: tuple[str, ...]
    left_out: str


def beside(name: Name, paper: Paper, members: Sequence[Member]) -> Beside:
    """The rows of a paper comparable with these runs. `members`: at least one, all of one training."""
    first = members[0].record
    configs = [member.record.config for member in members]
    ours = ", ".join(
        dict.fromkeys(f"{one.architecture} on {one.dataset}, {one.resolution} x {one.resolution}" for one in configs)
    )
    if paper.suite_only and not all(member.paper == name for member in members):
        return Beside((), (), f"The rows of paper {name} are left out: no suite of that paper made these runs.")
    fitting = [task for task in paper.tasks.values() if all(map(task.matches, configs))]
    others = [task.said for task in paper.tasks.values() if task not in fitting]
    rows = tuple(row for row in paper.rows if paper.tasks[row.task] in fitting)
    notes = [task.remark for task in fitting if task.remark]
    if rows and paper.epochs is not None and first.dataset.images:
        epochs = first.config.total_images / first.dataset.images
        if abs(epochs / paper.epochs - 1) > _SAME_LENGTH:
            notes.append(
                f"The paper's runs are of {number(paper.epochs)} epochs, ours of {number(epochs)}: "
                "compare epochs, not hours"
            )
    left_out = ""
    if others:
        hidden = f"{len(paper.rows) - len(rows)} rows" if rows else "The rows"
        left_out = (
            f"{hidden} of paper {name} are left out, of another task: {' and '.join(others)}; these runs: {ours}."
        )
    return Beside(rows, tuple(f"{note}." for note in notes), left_out)


PUBLISHED = "published"
"""The provenance of a paper's figure."""
QUALITY = "<quality>"
SCALING = "<scaling>"
ENERGY = "<energy>"
STACK_USD = "stack_usd"


_COLUMNS: dict[str, tuple[str, ...]] = {
    "P2": (
        *("total_h", "min_per_epoch", "s_per_epoch", "gpus", QUALITY, "loss_g", "loss_d"),
        *(SCALING, "usd", STACK_USD, ENERGY, "gco2e"),
    ),
    "P3": (
        *("total_h", "gpu_percent", "cpu_percent", "memory_gib", "peak_memory_gib", QUALITY),
        *("images_per_sec", "mfu_percent", "usd", STACK_USD, ENERGY, "gco2e"),
    ),
}


@dataclass(frozen=True)
class Row:
    """`kind`: ours; change, of the row above against the control; or theirs. `relative`: cells are changes."""

    kind: Literal["ours", "change", "theirs"]
    label: str
    cells: dict[str, Spread]
    runs: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()
    relative: bool = False


@dataclass(frozen=True)
class Table:
    """One of the papers' tables with our figures. `rows_are`: heading of the first column; `rows`: theirs last."""

    name: Name
    why: str
    rows_are: str
    title: str
    columns: tuple[Measure, ...]
    rows: tuple[Row, ...]
    setting: str
    notes: tuple[str, ...]
    left_out: str


@dataclass(frozen=True)
class Report:
    """A report on several runs. `settings`: by row, where they differ; `missing`: without a record, or unfinished."""

    title: str
    members: tuple[Member, ...]
    groups: tuple[Group, ...]
    table: Table
    settings: dict[str, dict[str, str]]
    missing: tuple[Missing, ...]


def get_report(source: Source, keys: tuple[str, ...] | None) -> Report:
    """Group the runs and fill the table. `keys`: of `--group-by`. InputError: not of one table, or none is finished."""
    done = tuple(member for member in source.members if member.record.status == "done")
    if not done:
        states = "; ".join(f"{member.name}: {member.record.status}" for member in source.members[:5])
        raise InputError(
            "RUNS", "no run is done", value=states, allowed="runs that reached their kimg",
            fix="let them go on: the same train command resumes; --format json shows them as they are",
        )  # fmt: skip
    check_one_table(done, keys)
    groups = group_runs(done, keys)
    name, reason = _choose_table(done)
    config = done[0].record.config
    labels = {group.members[0].name: group.label for group in groups}
    differing = differences([group.members[0] for group in groups])
    return Report(
        title=next((member.title for member in done if member.title), f"{config.preset}, {config.kimg:g} kimg"),
        members=done,
        groups=groups,
        table=_table(name, reason, done, groups, "Row" if keys else "Arm" if name == "P3" else "Environment"),
        settings={
            field: {labels[member.name]: value for value, members in values.items() for member in members}
            for field, values in differing.items()
        },
        missing=(*source.missing, *(_unfinished(member) for member in source.members if member not in done)),
    )


def _choose_table(members: Sequence[Member]) -> tuple[Name, str]:
    for member in members:
        if member.paper in ("P2", "P3"):
            return ("P2" if member.paper == "P2" else "P3"), f"suite {member.suite} is of paper {member.paper}"
    if any(member.arm for member in members):
        return "P3", "the suite has arms, and names no paper"
    return "P2", "no suite of these runs names a paper"


def _table(name: Name, why: str, members: Sequence[Member], groups: Sequence[Group], rows_are: str) -> Table:
    paper = get_paper(name)
    of_theirs = beside(name, paper, members)
    measures = _measures(name, paper, of_theirs, members)
    note = meters_note(groups)
    ours = [_row(group, measures, note) for group in groups]
    signed = {one.key for one in measures if one.signed}
    rows = _add_changes(ours, groups, signed) if name == "P3" else ours
    return Table(
        name=name,
        why=why,
        rows_are=rows_are,
        title=paper.title,
        columns=tuple(measures),
        rows=(*rows, *_theirs(paper, of_theirs)),
        setting=paper.setting if of_theirs.rows else "",
        notes=(*((f"Energy and carbon: {note}.",) if note else ()), *of_theirs.notes),
        left_out=of_theirs.left_out,
    )


def _measures(name: Name, paper: Paper, of_theirs: Beside, members: Sequence[Member]) -> list[Measure]:
    theirs = {key for row in of_theirs.rows for key in row.cells}
    found: list[Measure] = []
    for key in _COLUMNS[name]:
        if key == QUALITY:
            found += quality_measures(members, [key for key in paper.columns if key in theirs - MEASURES.keys()])
        elif key != STACK_USD or any(member.stack_usd.value is not None for member in members):
            own = MEASURES.get(energy_key(members) if key == ENERGY else key)
            found.append(own or scaling(members))
    return found


def _row(group: Group, measures: Sequence[Measure], note: str) -> Row:
    spreads = {one.key: get_spread({member.name: one.of(member) for member in group.members}) for one in measures}
    cells = {key: add_note(key, check_meters(key, spread, group.members), note) for key, spread in spreads.items()}
    return Row("ours", group.label, cells, tuple(one.name for one in group.members), group.seeds, group.remarks)


def _add_changes(rows: Sequence[Row], groups: Sequence[Group], signed: Collection[str]) -> list[Row]:
    """Adds each change against its stack's control: the suite's first arm; without a suite, the first row."""
    found: list[Row] = []
    controls: dict[str, tuple[Row, Group]] = {}
    for row, group in zip(rows, groups, strict=True):
        arm = group.members[0].control
        if not arm or group.arm == arm:
            controls.setdefault(group.stack, (row, group))
    for row, group in zip(rows, groups, strict=True):
        control, its = controls.get(group.stack, (None, group))
        if control is None:
            arm = group.members[0].control
            found.append(replace(row, remarks=(*row.remarks, f"no change is told: no run of control {arm} is done")))
            continue
        found.append(row)
        if control is not row:
            seeds = dict(zip((*control.runs, *row.runs), (*control.seeds, *row.seeds), strict=True))
            both = (*its.members, *group.members)
            changes = {
                key: change(control.cells[key], cell, seeds, signed=key in signed) for key, cell in row.cells.items()
            }
            cells = {key: check_meters(key, cell, both) for key, cell in changes.items()}
            found.append(Row("change", f"change against {control.label}", cells, relative=True))
    return _correct_claims(found)


def _correct_claims(rows: Sequence[Row]) -> list[Row]:
    """A table's changes are one family of claims."""
    places = [(place, key) for place, row in enumerate(rows) for key in row.cells]
    family = correct({(place, key): rows[place].cells[key].compared for place, key in places})
    return [
        replace(row, cells={key: replace(cell, compared=family[place, key]) for key, cell in row.cells.items()})
        for place, row in enumerate(rows)
    ]


def _theirs(paper: Paper, of_theirs: Beside) -> list[Row]:
    def cell(key: str, value: float, is_change: bool) -> Spread:
        unit = MEASURES[key].unit if key in MEASURES else ""
        cell_unit = "%" if is_change else paper.units.get(key, unit)
        return Spread(value, cell_unit, PUBLISHED, paper.source, note="theirs, not ours: " + paper.setting)

    return [
        Row(
            "theirs",
            row.label,
            {key: cell(key, value, row.change) for key, value in row.cells.items()},
            relative=row.change,
        )
        for row in of_theirs.rows
    ]


def _unfinished(member: Member) -> Missing:
    record = member.record
    reason = f"left out of the table: {record.images / 1000:g} of {record.config.total_images / 1000:g} kimg"
    return Missing(member.suite, record.id, record.status, reason)


def as_json(report: Report) -> dict[str, Any]:
    """The table as JSON data; every value with its provenance and runs."""
    table = report.table
    return {
        "title": report.title,
        "table": table.name,
        "why_this_table": table.why,
        "notes": list(table.notes),
        "paper_rows_left_out": table.left_out,
        "columns": [{name: getattr(one, name) for name in ("key", "label", "unit", "better")} for one in table.columns],
        "rows": [
            {
                "kind": row.kind,
                "label": row.label,
                "runs": list(row.runs),
                "seeds": list(row.seeds),
                "remarks": list(row.remarks),
                "cells": {key: _cell_json(cell) for key, cell in row.cells.items()},
            }
            for row in table.rows
        ],
        "settings": report.settings,
        "missing": [missing._asdict() for missing in report.missing],
    }


def _cell_json(cell: Spread) -> dict[str, Any]:
    compared = {} if cell.compared is None else {"compared": cell.compared.to_json()}
    return {**vars(cell), "values": dict(cell.values), "n": len(cell.known), **compared}
