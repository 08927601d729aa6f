"""One `gangway bench run` of an experiment, from its suite file to its page and exit code."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table as RichTable

from gangway.bench.experiment.runner import EXPERIMENT, RESULT, new_folder, run_experiment
from gangway.bench.experiment.suite import get_items, load_experiment
from gangway.bench.processes import AbandonedError, Stop
from gangway.bench.results import Screen
from gangway.bench.session import EXIT_FAILED, EXIT_STOPPED, Options
from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import write_whole
from gangway.components.estimate.statistics import Comparison, Pair, compare_pairs, correct
from gangway.render.rendering import number, render_template
from gangway.report.comparison.tables import get_paper
from gangway.report.decisions import Decided, Pace, decisions_drawing, get_rows
from gangway.stacks.base.extras import require
from gangway.trainer.core.regular_files import read_file
from gangway.trainer.records.decisions import decisions

# An experiment's folder as a table in the shape of P3: arms and their changes by scenario, then the paper's rows.


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


_ON_A_TERMINAL = ("time_sec", "quality", "joules")
"""Columns that fit; the page has all columns and the paper's rows."""


def run_experiment_suite(path: Path, out: Path, options: Options, treatment: str, *, small: bool) -> int:
    """Run below `out`, with a page. Exit code 0: all runs finished, 1: not all, 130: stopped. InputError: invalid."""
    suite = load_experiment(path)
    items = get_items(suite, treatment, small=small)
    for name, value in (("--data", options.data), ("--install-cli", options.install_cli)):
        if value:
            raise InputError(
                name, "has no effect: experiments run on this machine, with their own data", fix="remove it"
            )
    if options.backend_url:
        raise InputError("--backend-url", "has no effect: experiments run on this machine", fix="remove it")
    require("torch")
    folder = new_folder(suite, out)
    stop, screen = Stop("; what is done is kept and shown"), Screen(options.console)
    try:
        with stop.listening(), screen:
            whole = run_experiment(suite, path, items, folder, stop, screen.say)
    except AbandonedError:
        return EXIT_STOPPED
    if any((folder / item.name / RESULT).is_file() for item in items):
        findings = get_findings(folder)
        if options.as_json:
            print(json.dumps(asdict(findings), indent=2))
        else:
            show(findings, options.console)
        options.console.print(f"as a page: {write_page(folder)}", markup=False, soft_wrap=True)
    if stop.asked:
        return EXIT_STOPPED
    return 0 if whole else EXIT_FAILED


def show(findings: Findings, console: Console) -> None:
    """Print the table and each scenario's sentence."""
    table = RichTable(title=findings.title, title_justify="left")
    visible = [place for place, column in enumerate(COLUMNS) if column.key in _ON_A_TERMINAL]
    for name in ("scenario", "arm"):
        table.add_column(name)
    for place in visible:
        table.add_column(COLUMNS[place].label, justify="right")
    for scenario in findings.scenarios:
        table.add_section()
        for row in scenario.rows:
            table.add_row(scenario.name, row.label, *(row.cells[place] for place in visible))
    console.print(table)
    for scenario in findings.scenarios:
        console.print(f"{scenario.name}: {scenario.verdict}", markup=False, soft_wrap=True)
    for total in findings.totals:
        console.print(f"total time, {total.text}", markup=False, soft_wrap=True)


def write_page(folder: Path) -> Path:
    """Write report.html into an experiment's folder. InputError: see `get_findings`."""
    findings = get_findings(folder)
    html = render_template(
        "experiment.html.j2",
        ("report.css", "comparison.css"),
        {},
        {"f": findings, "columns": COLUMNS, "pictures": [_picture(one.name, findings) for one in findings.scenarios]},
    )
    return write_whole(folder / "report.html", html.encode())


def _picture(scenario: str, findings: Findings) -> Decided:
    arms = [findings.control, findings.treatment]
    runs = [one for one in findings.results if one["scenario"] == scenario and one["arm"] in arms]
    seed = min((one["seed"] for one in runs), default=None)
    pair = sorted((one for one in runs if one["seed"] == seed), key=lambda one: arms.index(one["arm"]))
    paces = [_pace(run) for run in pair]
    ends = ", ".join(f"{run['arm']} {run['time_sec']:.0f} s" for run in pair)
    drawing = decisions_drawing(f"decisions-{scenario}", f"Seed {seed} ({ends})", paces) if pair else None
    return Decided(scenario, "", get_rows([one for pace in paces for one in pace.decisions]), drawing)


def _pace(run: Mapping[str, Any]) -> Pace:
    curve, decided = run["curve"], decisions(run["decisions"])
    return Pace(
        label=run["arm"],
        seconds=[point[0] for point in curve],
        images_per_sec=[point[2] for point in curve],
        places=[
            next((place for place, point in enumerate(curve) if point[1] >= one.images), len(curve) - 1)
            for one in decided
        ],
        decisions=decided,
        neighbour_sec=run["neighbour_sec"],
    )
