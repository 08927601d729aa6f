"""One `gangway bench run` of an experiment, from its suite file to its page and exit code."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from gangway.bench.experiment.runner import RESULT, new_folder, run_experiment
from gangway.bench.experiment.suite import get_items, load_experiment
from gangway.bench.experiment.table import COLUMNS, Findings, get_findings
from gangway.bench.processes import AbandonedError, Stop
from gangway.bench.results import Screen
from gangway.bench.session import EXIT_FAILED, EXIT_STOPPED, Options
from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import write_whole
from gangway.render.rendering import render_template
from gangway.report.decisions import Decided, Pace, decisions_drawing, get_rows
from gangway.stacks.base.extras import require
from gangway.trainer.records.decisions import decisions

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
