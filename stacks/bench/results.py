"""What became of a suite: results.json beside its runs, and the table at the end. Computes sums and nothing else."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stacks.bench.journal import Journal, Progress
from stacks.bench.names import run_id_of
from stacks.bench.suite import Item, SuiteConfig
from trainer.record import Figure, RunRecord

__all__ = ["RESULTS_FILE", "results_of", "show_results", "write_results"]

RESULTS_FILE = "results.json"
_COLOURS = {"recorded": "green", "failed": "red", "stopped": "yellow", "planned": "dim"}


def results_of(
    suite: SuiteConfig, preset: str, items: Sequence[Item], journal: Journal, run_dir: Path
) -> dict[str, Any]:
    """The results as plain JSON data: each item with its status, its cost and where its record is."""
    now, stamp = journal.now(), str(journal.header["stamp"])
    rows = [_row(item, journal[item.name], stamp, run_dir, now, journal.header["rates"]) for item in items]
    known = [row["usd"]["value"] for row in rows if row["usd"]["value"] is not None]
    source = "the plan's prices times the hours that each stack stood; the bill may differ"
    total = Figure(value=sum(known), unit="USD", provenance="estimated", source=source)
    return {
        "suite": suite.name,
        "title": suite.title,
        "paper": suite.paper,
        "preset": preset,
        "kimg": suite.kimg,
        "run": run_dir.name,
        "local": bool(journal.header["local"]),
        "budget_usd": suite.budget.usd if suite.budget else None,
        "items": rows,
        "usd": (total if known else Figure.absent("USD", "nobody bills this machine")).model_dump(mode="json"),
        "ended": now.isoformat(timespec="seconds"),
    }


def _row(
    item: Item, progress: Progress, stamp: str, run_dir: Path, now: datetime, rates: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    run_id = run_id_of(item, stamp)
    hours = sum(attempt.hours(now) for attempt in progress.attempts)
    usd = Figure.absent("USD", "nobody bills this machine")
    if not item.is_local:
        spent = sum(attempt.usd(now) for attempt in progress.attempts)
        source = str(rates[item.stack.name]["source"])
        usd = Figure(value=spent, unit="USD", provenance="estimated", source=f"{source}, times the hours it stood")
    return {
        "item": item.name,
        "stack": item.stack.name,
        "arm": item.arm,
        "seed": item.seed,
        "run_id": run_id,
        "record": f"{run_id}/run.json" if (run_dir / run_id / "run.json").exists() else None,
        "status": _status(progress),
        "reason": progress.reason,
        "standing": progress.standing,
        "left": list(progress.facts.get("left", [])),
        "remark": progress.facts.get("remark", ""),
        "hours_up": round(hours, 4),
        "usd": usd.model_dump(mode="json"),
    }


def _status(progress: Progress) -> str:
    if progress.recorded:
        return "recorded"
    if progress.reason:
        return "stopped" if progress.stopped else "failed"
    return "stopped" if progress.attempts else "planned"


def write_results(results: Mapping[str, Any], run_dir: Path) -> Path:
    """Writes results.json whole or not at all."""
    path = run_dir / RESULTS_FILE
    partial = run_dir / f".partial-{RESULTS_FILE}"
    partial.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    partial.replace(path)
    return path


def show_results(results: Mapping[str, Any], run_dir: Path, console: Console) -> None:
    """The table, and what a person has to do where something is left."""
    table = Table(title=escape(results["title"] or results["suite"]), title_justify="left")
    for column in ("run", "status", "images/s", "quality", "hours up", "USD (estimated)"):
        table.add_column(column, justify="left" if column in ("run", "status", "quality") else "right")
    for row in results["items"]:
        speed, quality = _measured(row, run_dir)
        colour = _COLOURS[row["status"]]
        usd = "-" if row["usd"]["value"] is None else f"{row['usd']['value']:,.2f}"
        status = f"[{colour}]{row['status']}[/]" + (" [bold red]STANDING[/]" if row["standing"] else "")
        table.add_row(escape(row["item"]), status, speed, escape(quality), f"{row['hours_up']:.2f}", usd)
    console.print(table)
    for row in results["items"]:
        if row["reason"]:
            console.print(f"{escape(row['item'])}: {escape(row['reason'])}", soft_wrap=True)
        if row["remark"]:
            console.print(f"{escape(row['item'])}: {escape(row['remark'])}", soft_wrap=True)
        for left in row["left"]:
            console.print(f"{escape(row['item'])}: left in the cloud: {escape(left)}", soft_wrap=True)
    if any(row["standing"] for row in results["items"]):
        words = f"something still stands: gangway bench resume {run_dir} --clean-only"
        console.print(f"[bold red]{escape(words)}[/]", soft_wrap=True)


def _measured(row: Mapping[str, Any], run_dir: Path) -> tuple[str, str]:
    """Speed and the newest quality of a run that has a record."""
    if row["record"] is None:
        return "-", "-"
    try:
        record = RunRecord.model_validate_json((run_dir / row["record"]).read_bytes())
    except ValidationError:
        return "no record of this version", "-"
    speed = record.images_per_sec.value
    newest = {one.name: one.trained.value for one in record.quality}
    words = ", ".join(f"{name} {value:.4g}" for name, value in newest.items() if value is not None)
    return "-" if speed is None else f"{speed:,.0f}", words or "-"
