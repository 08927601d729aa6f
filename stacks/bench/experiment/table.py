"""An experiment's folder as a table in P3's shape: each scenario's arms and their change, then the paper's rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from components.core.findings import InputError
from stacks.bench.experiment.runner import EXPERIMENT, RESULT
from stacks.bench.experiment.statistics import Change, Pair, change_of
from stacks.report.comparison.papers import paper_of
from stacks.report.rendering import number


class Column(NamedTuple):
    """What a table shows: its key, its heading, and the factor from the record's unit to the heading's."""

    key: str
    label: str
    factor: float = 1.0


COLUMNS = (
    Column("time_sec", "Time, s"),
    Column("gpu_use", "Device use, %", 100),
    Column("cpu_use", "CPU use, %", 100),
    Column("memory_gib", "Peak memory, GiB"),
    Column("quality", "Quality"),
    Column("joules", "Energy, J"),
    Column("usd", "Cost, USD"),
    Column("gco2e", "Carbon, gCO2e"),
    Column("controller_share", "Controller, % of time", 100),
)
_OF_THE_PAPER = {"gpu_percent": "gpu_use", "cpu_percent": "cpu_use"}


@dataclass(frozen=True)
class Row:
    """A line of the table. `kind`: ours, change or theirs; `cells`: texts in the order of COLUMNS."""

    kind: str
    label: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class ScenarioTable:
    """A scenario's rows and what they say. `time`: the change of time; None where a pair is missing."""

    name: str
    what: str
    rows: tuple[Row, ...]
    time: Change | None
    verdict: str


@dataclass(frozen=True)
class Findings:
    """A whole experiment. `results`: of each run that is done; `missing`: names of those that are not."""

    title: str
    machine: str
    control: str
    treatment: str
    scenarios: tuple[ScenarioTable, ...]
    total: Change | None
    theirs: tuple[Row, ...]
    results: tuple[Mapping[str, Any], ...]
    missing: tuple[str, ...]


def findings_of(folder: Path) -> Findings:
    """Reads an experiment's folder (InputError: it is none, or no run of it is done)."""
    try:
        head = json.loads((folder / EXPERIMENT).read_bytes())
    except OSError:
        fix = "name the folder that `gangway bench run` of an experiment made"
        raise InputError(str(folder), f"holds no {EXPERIMENT}", allowed="an experiment's folder", fix=fix) from None
    names = list(head["order"])
    results = [
        json.loads((folder / name / RESULT).read_bytes()) for name in names if (folder / name / RESULT).is_file()
    ]
    if not results:
        raise InputError(str(folder), "no run of it is done", allowed="one at least", fix="run the experiment again")
    control = str(head["control"])
    treatment = next((one["arm"] for one in results if one["arm"] != control), "none")
    chosen = [one for one in head["scenarios"] if any(run["scenario"] == one["name"] for run in results)]
    tables = tuple(_scenario(one, results, control, treatment) for one in chosen)
    times = {one["name"]: _pairs(results, one["name"], control, "time_sec") for one in chosen}
    return Findings(
        title=str(head["title"]),
        machine=str(head["machine"]),
        control=control,
        treatment=treatment,
        scenarios=tables,
        total=change_of(times),
        theirs=_theirs() if head["paper"] == "P3" else (),
        results=tuple(results),
        missing=tuple(name for name in names if not (folder / name / RESULT).is_file()),
    )


def _scenario(
    scenario: Mapping[str, Any], results: Sequence[Mapping[str, Any]], control: str, treatment: str
) -> ScenarioTable:
    name = str(scenario["name"])
    rows = []
    for arm in (control, treatment):
        runs = [one for one in results if one["scenario"] == name and one["arm"] == arm]
        cells = tuple(_mean(runs, column) for column in COLUMNS)
        rows.append(Row("ours", f"{arm}, {len(runs)} run{'' if len(runs) == 1 else 's'}", cells))
    changes = {one.key: change_of({name: _pairs(results, name, control, one.key)}) for one in COLUMNS}
    rows.append(
        Row("change", "change", tuple("-" if (found := changes[one.key]) is None else found.short for one in COLUMNS))
    )
    return ScenarioTable(name, str(scenario["what"]), tuple(rows), changes["time_sec"], _verdict(scenario, changes))


def _value(run: Mapping[str, Any], key: str) -> float | None:
    """A run's figure; its quality is that of the first metric, the last that was computed."""
    if key == "time_sec":
        return float(run["time_sec"])
    if key == "quality":
        known = [value for value in run["quality"].values() if value is not None]
        return float(known[0]) if known else None
    value = run["figures"].get(key, {}).get("value")
    return None if value is None else float(value)


def _mean(runs: Sequence[Mapping[str, Any]], column: Column) -> str:
    values = [value for run in runs if (value := _value(run, column.key)) is not None]
    if not values:
        return "absent"
    return number(column.factor * sum(values) / len(values))


def _pairs(results: Sequence[Mapping[str, Any]], scenario: str, control: str, key: str) -> list[Pair]:
    """Control and treatment of each seed that both have with a figure."""
    by_seed: dict[int, dict[bool, float]] = {}
    for run in results:
        value = _value(run, key)
        if run["scenario"] == scenario and value is not None:
            by_seed.setdefault(run["seed"], {})[run["arm"] == control] = value
    return [(both[True], both[False]) for _, both in sorted(by_seed.items()) if len(both) == 2]


def _verdict(scenario: Mapping[str, Any], changes: Mapping[str, Change | None]) -> str:
    """What the rows say, in a sentence or two."""
    time, quality = changes["time_sec"], changes["quality"]
    if time is None:
        return "No pair of runs is complete: nothing is said."
    if time.low is None:
        said = f"Time {time.words}: one pair shows no difference, whatever its size."
    elif time.is_noise:
        said = f"Time {time.words}: nothing is gained or lost that could be told from noise."
    else:
        said = f"Time {time.words}: the treatment is {'faster' if time.percent < 0 else 'slower'}."
    if (most := scenario.get("most_slower")) is not None:
        kept = time.percent <= 100 * most
        said += f" At most {100 * most:g} % slower was asked for: {'kept' if kept else 'broken'} by the mean"
        upper = time.high is not None and time.high <= 100 * most
        said += "." if not kept else ", and by the interval." if upper else ", not by the whole interval."
    if quality is not None:
        worse = quality.percent > 0 and not quality.is_noise
        said += f" Quality (lower is better) {quality.words}{': worse' if worse else ''}."
    return said


def _theirs() -> tuple[Row, ...]:
    """The paper's rows; its hours are not our seconds, and say so."""
    rows = []
    for row in paper_of("P3").rows:
        cells = []
        for column in COLUMNS:
            keys = [key for key in row.cells if _OF_THE_PAPER.get(key, "") == column.key]
            text = number(row.cells[keys[0]]) if keys else ""
            if column.key == "time_sec" and "total_h" in row.cells:
                text = f"{number(row.cells['total_h'])} {'%' if row.change else 'h'}"
            if column.key == "memory_gib" and "memory_gib" in row.cells:
                text = f"{number(row.cells['memory_gib'])} GB"
            if column.key == "quality":
                text = ", ".join(f"{name} {number(row.cells[name])}" for name in ("IS", "FID") if name in row.cells)
            cells.append(text or "-")
        rows.append(Row("theirs", row.label, tuple(cells)))
    return tuple(rows)
