"""An experiment's folder as a table in P3's shape: each scenario's arms and their change, then the paper's rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from components.core.findings import InputError
from components.estimate.statistics import Comparison, Pair, compare_pairs, correct
from stacks.bench.experiment.runner import EXPERIMENT, RESULT
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
_TOTAL = ("", "total")
_OF_THE_PAPER = {"gpu_percent": "gpu_use", "cpu_percent": "cpu_use"}


@dataclass(frozen=True)
class Row:
    """A line of the table. `kind`: ours, change or theirs; `cells`: texts in the order of COLUMNS."""

    kind: str
    label: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class ScenarioTable:
    """A scenario's rows and what they say. `time`: the change of time; None where no pair is complete."""

    name: str
    what: str
    rows: tuple[Row, ...]
    time: Comparison | None
    verdict: str


@dataclass(frozen=True)
class Findings:
    """A whole experiment. `total`: the time over all scenarios, None where no pair is complete; `results`: of each run
    that is done; `missing`: names of those that are not.
    """

    title: str
    machine: str
    control: str
    treatment: str
    scenarios: tuple[ScenarioTable, ...]
    total: Comparison | None
    theirs: tuple[Row, ...]
    results: tuple[Mapping[str, Any], ...]
    missing: tuple[str, ...]

    @property
    def total_text(self) -> str:
        """The total and what may be claimed of it."""
        total = self.total
        return f"{total.text()}: {total.verdict('faster', 'slower')}" if total is not None else "no pair is complete"


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
    pairs = {
        (str(one["name"]), column.key): _pairs(results, one["name"], control, column.key)
        for one in chosen
        for column in COLUMNS
    }
    # One family: whatever the page claims.
    changes = correct({
        **{key: compare_pairs([each]) for key, each in pairs.items()},
        _TOTAL: compare_pairs([each for (_, column), each in pairs.items() if column == "time_sec"]),
    })  # fmt: skip
    tables = tuple(
        _scenario(one, results, (control, treatment), {key: changes[str(one["name"]), key] for key, *_ in COLUMNS})
        for one in chosen
    )
    return Findings(
        title=str(head["title"]),
        machine=str(head["machine"]),
        control=control,
        treatment=treatment,
        scenarios=tables,
        total=changes[_TOTAL],
        theirs=_theirs() if head["paper"] == "P3" else (),
        results=tuple(results),
        missing=tuple(name for name in names if not (folder / name / RESULT).is_file()),
    )


def _scenario(
    scenario: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    arms: tuple[str, str],
    changes: Mapping[str, Comparison | None],
) -> ScenarioTable:
    name = str(scenario["name"])
    rows = []
    for arm in arms:
        runs = [one for one in results if one["scenario"] == name and one["arm"] == arm]
        cells = tuple(_mean(runs, column) for column in COLUMNS)
        rows.append(Row("ours", f"{arm}, {len(runs)} run{'' if len(runs) == 1 else 's'}", cells))
    rows.append(Row("change", "change", tuple(_cell(changes[one.key], one.factor) for one in COLUMNS)))
    return ScenarioTable(name, str(scenario["what"]), tuple(rows), changes["time_sec"], _verdict(scenario, changes))


def _cell(change: Comparison | None, factor: float) -> str:
    """A change, with a star where a difference is claimed."""
    return "-" if change is None else f"{change.short(factor)}{' *' if change.direction else ''}"


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
    """Control and treatment of each seed, None where a run or its figure is missing."""
    by_seed: dict[int, dict[bool, float | None]] = {}
    for run in results:
        if run["scenario"] == scenario:
            by_seed.setdefault(run["seed"], {})[run["arm"] == control] = _value(run, key)
    return [(both.get(True), both.get(False)) for _, both in sorted(by_seed.items())]


def _verdict(scenario: Mapping[str, Any], changes: Mapping[str, Comparison | None]) -> str:
    """What the rows say, in a sentence or two."""
    time, quality = changes["time_sec"], changes["quality"]
    if time is None:
        return "No pair of runs is complete: nothing is claimed."
    said = f"Time {time.text()}: {time.verdict('the treatment is faster', 'the treatment is slower')}."
    if (most := scenario.get("most_slower")) is not None:
        said += f" At most {100 * most:g} % slower is allowed: {_kept(time, most)}."
    if quality is not None:
        said += f" Quality (lower is better) {quality.text()}: {quality.verdict('better', 'worse')}."
    return said


def _kept(time: Comparison, most: float) -> str:
    if time.change > most:
        return "broken by the mean"
    if time.high is None:
        return "kept by the mean, without an interval"
    return (
        "kept by the mean, and by the interval" if time.high <= most else "kept by the mean, not by the whole interval"
    )


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
