"""An experiment's folder as a table in the shape of P3: arms and their changes by scenario, then the paper's rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from gangway.bench.experiment.runner import EXPERIMENT, RESULT
from gangway.components.core.findings import InputError
from gangway.components.estimate.statistics import Comparison, Pair, compare_pairs, correct
from gangway.render.rendering import number
from gangway.report.comparison.tables import get_paper
from gangway.trainer.core.regular_files import read_file


class Column(NamedTuple):
    """Key, heading, and the factor from the record's unit to the heading's."""

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
    """A line of the table. `kind`: ours, change or theirs; `cells`: in the order of COLUMNS."""

    kind: str
    label: str
    cells: tuple[str, ...]


class Contrast(NamedTuple):
    """A comparison of `arm` with `base`."""

    arm: str
    base: str

    def __str__(self) -> str:
        return f"{self.arm} against {self.base}"


class _Place(NamedTuple):
    """Of a comparison on the page. `scenario`: its scenario; for a total, the excluded one, or empty."""

    contrast: Contrast
    scenario: str
    column: str


_TOTAL = "total"


@dataclass(frozen=True)
class ScenarioTable:
    """A scenario's rows and sentences. `time`: the treatment's against the control's; None without a complete pair."""

    name: str
    what: str
    rows: tuple[Row, ...]
    time: Comparison | None
    verdict: str


@dataclass(frozen=True)
class Total:
    """Time over scenarios. `without`: the excluded scenario, or empty; `time`: None without a complete pair."""

    contrast: Contrast
    without: str
    time: Comparison | None

    @property
    def text(self) -> str:
        """The total and its claim."""
        scenarios = f"without {self.without}, the largest" if self.without else "all scenarios"
        found = f"{self.time.text()}: {self.time.verdict('faster', 'slower')}" if self.time else "no pair is complete"
        return f"{self.contrast}, {scenarios}: {found}"


@dataclass(frozen=True)
class Findings:
    """`totals`: per contrast over all scenarios and, if several, without the one with the slowest control."""

    title: str
    machine: str
    control: str
    static: str | None
    treatment: str
    scenarios: tuple[ScenarioTable, ...]
    totals: tuple[Total, ...]
    theirs: tuple[Row, ...]
    results: tuple[Mapping[str, Any], ...]
    missing: tuple[str, ...]


def get_findings(folder: Path) -> Findings:
    """Read an experiment's folder. InputError: not an experiment, or no finished run."""
    try:
        head = json.loads(read_file(folder / EXPERIMENT))
    except OSError:
        fix = "name a folder that `gangway bench run` created for an experiment"
        raise InputError(str(folder), f"contains no {EXPERIMENT}", allowed="an experiment's folder", fix=fix) from None
    names = list(head["order"])
    results = [json.loads(read_file(folder / name / RESULT)) for name in names if (folder / name / RESULT).is_file()]
    if not results:
        raise InputError(str(folder), "has no finished run", allowed="at least one", fix="run the experiment again")
    control, static = str(head["control"]), head["static"]
    treatment = next((one["arm"] for one in results if one["arm"] not in (control, static)), "none")
    contrasts = [Contrast(treatment, control)]
    if static is not None:
        contrasts += [Contrast(static, control), Contrast(treatment, static)]
    chosen = [one for one in head["scenarios"] if any(run["scenario"] == one["name"] for run in results)]
    changes = _changes(results, [str(one["name"]) for one in chosen], contrasts, control)
    arms = [control, treatment] if static is None else [control, static, treatment]
    return Findings(
        title=str(head["title"]),
        machine=str(head["machine"]),
        control=control,
        static=static,
        treatment=treatment,
        scenarios=tuple(_scenario(one, results, arms, contrasts, changes) for one in chosen),
        totals=tuple(
            Total(place.contrast, place.scenario, change) for place, change in changes.items() if place.column == _TOTAL
        ),
        theirs=_paper_rows() if head["paper"] == "P3" else (),
        results=tuple(results),
        missing=tuple(name for name in names if not (folder / name / RESULT).is_file()),
    )


def _changes(
    results: Sequence[Mapping[str, Any]], scenarios: Sequence[str], contrasts: Sequence[Contrast], control: str
) -> dict[_Place, Comparison | None]:
    """All comparisons of the page, corrected as one family of claims."""
    largest = max(scenarios, key=lambda name: _control_sec(results, name, control))
    family: dict[_Place, Comparison | None] = {}
    for contrast in contrasts:
        for name in scenarios:
            for column in COLUMNS:
                pairs = _pairs(results, name, contrast, column.key)
                family[_Place(contrast, name, column.key)] = compare_pairs([pairs])
        for without in ("", largest) if len(scenarios) > 1 else ("",):
            groups = [_pairs(results, name, contrast, "time_sec") for name in scenarios if name != without]
            family[_Place(contrast, without, _TOTAL)] = compare_pairs(groups)
    return correct(family)


def _control_sec(results: Sequence[Mapping[str, Any]], scenario: str, control: str) -> float:
    times = [run["time_sec"] for run in results if run["scenario"] == scenario and run["arm"] == control]
    return fmean(times) if times else 0.0


def _scenario(
    scenario: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    arms: Sequence[str],
    contrasts: Sequence[Contrast],
    changes: Mapping[_Place, Comparison | None],
) -> ScenarioTable:
    name = str(scenario["name"])
    rows, verdicts = list[Row](), list[str]()
    for arm in arms:
        runs = [one for one in results if one["scenario"] == name and one["arm"] == arm]
        cells = tuple(_mean(runs, column) for column in COLUMNS)
        rows.append(Row("ours", f"{arm}, {len(runs)} run{'' if len(runs) == 1 else 's'}", cells))
    for contrast in contrasts:
        own = {column.key: changes[_Place(contrast, name, column.key)] for column in COLUMNS}
        rows.append(Row("change", str(contrast), tuple(_cell(own[one.key], one.factor) for one in COLUMNS)))
        most_slower = scenario.get("most_slower") if contrast == contrasts[0] else None
        verdicts.append(_verdict(contrast, own["time_sec"], own["quality"], most_slower))
    time = changes[_Place(contrasts[0], name, "time_sec")]
    return ScenarioTable(name, str(scenario["what"]), tuple(rows), time, " ".join(verdicts))


def _cell(change: Comparison | None, factor: float) -> str:
    return "-" if change is None else f"{change.short(factor)}{' *' if change.direction else ''}"


def _value(run: Mapping[str, Any], key: str) -> float | None:
    if key == "time_sec":
        return float(run["time_sec"])
    if key == "quality":
        known = [value for value in run["quality"].values() if value is not None]
        return float(known[0]) if known else None
    value = run["figures"].get(key, {}).get("value")
    return None if value is None else float(value)


def _mean(runs: Sequence[Mapping[str, Any]], column: Column) -> str:
    values = [value for run in runs if (value := _value(run, column.key)) is not None]
    return number(column.factor * sum(values) / len(values)) if values else "absent"


def _pairs(results: Sequence[Mapping[str, Any]], scenario: str, contrast: Contrast, key: str) -> list[Pair]:
    """Both arms of each seed, base first; None if a run or its figure is missing."""
    by_seed: dict[int, dict[str, float | None]] = {}
    for run in results:
        if run["scenario"] == scenario:
            by_seed.setdefault(run["seed"], {})[run["arm"]] = _value(run, key)
    return [(arms.get(contrast.base), arms.get(contrast.arm)) for _, arms in sorted(by_seed.items())]


def _verdict(contrast: Contrast, time: Comparison | None, quality: Comparison | None, most_slower: float | None) -> str:
    if time is None:
        return f"{contrast}: no pair of runs is complete, so nothing is claimed."
    text = f"{contrast}: time {time.text()}: {time.verdict('faster', 'slower')}"
    if quality is not None:
        text += f"; quality (lower is better) {quality.text()}: {quality.verdict('better', 'worse')}"
    if most_slower is None:
        return f"{text}."
    return f"{text}. At most {100 * most_slower:g} % slower is allowed: {_limit_text(time, most_slower)}."


def _limit_text(time: Comparison, limit: float) -> str:
    if time.change > limit:
        return "broken by the mean"
    if time.high is None:
        return "kept by the mean, without an interval"
    return (
        "kept by the mean, and by the interval" if time.high <= limit else "kept by the mean, not by the whole interval"
    )


def _paper_rows() -> tuple[Row, ...]:
    """The paper's rows; its hours are not comparable with our seconds, and say so."""
    rows = []
    for row in get_paper("P3").rows:
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
