"""One `gangway bench run` of an experiment, from its suite file to its exit code."""

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

from gangway.bench.experiment.page import write_page
from gangway.bench.experiment.runner import RESULT, new_folder, run_experiment
from gangway.bench.experiment.suite import get_items, load_experiment
from gangway.bench.experiment.table import COLUMNS, Findings, get_findings
from gangway.bench.processes import AbandonedError, Stop
from gangway.bench.results import Screen
from gangway.bench.session import EXIT_FAILED, EXIT_STOPPED, Options
from gangway.components.core.findings import InputError
from gangway.stacks.base.extras import require

_ON_A_TERMINAL = ("time_sec", "quality", "joules")
"""Columns that fit; the page has all columns and the paper's rows."""


def run_experiment_suite(path: Path, out: Path, options: Options, treatment: str, *, small: bool) -> int:
    """Run an experiment below `out` and write its page. Returns 0: all runs finished; 1: some did not; 130: stopped.
    InputError or a group of them: invalid, before anything starts.
    """
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
