"""A suite's results: each run's figures with intervals, and its cost."""

import json
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from gangway.bench.journal import Attempt, Journal, Progress
from gangway.bench.suite import Item, SuiteConfig, get_run_id
from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import write_whole
from gangway.trainer.core.regular_files import read_regular
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunRecord

if TYPE_CHECKING:
    from gangway.stacks.plan.plan import Plan

_ON_PAPER_SEC = 30.0
"""Seconds between lines in a log file, which has no live line."""
RESULTS_FILE = "results.json"
_COLOURS = {"recorded": "green", "failed": "red", "stopped": "yellow", "planned": "dim"}


@dataclass(frozen=True)
class Rate:
    """A stack's cost. `usd_at_once`: of its start; `usd_run`: of a run that takes all its hours."""

    usd_per_hour: float
    usd_at_once: float
    usd_run: float
    source: str


Accounts = Sequence[tuple[Item, Progress]]
"""Every item of the suite with its progress in the journal."""

FREE = Rate(0.0, 0.0, 0.0, "this machine: not billed")


def get_rate(plan: "Plan", item: Item, hours: float, place: str) -> Rate:
    """On the most expensive rung, since capacity is unknown. InputError: a price is unknown, or overridden."""
    location, own = f"{place}: stack {item.stack.name}", item.stack.usd_per_hour
    at_once = plan.cost.upfront + sum(line.once for line in plan.cost.components)
    highest = max(plan.rungs, key=lambda rung: rung.hourly or 0.0)
    known = highest.hourly or 0.0
    # A cap over the other parts alone would not hold.
    rungs = [f"rung {rung.position} ({rung.kind})" for rung in plan.rungs if rung.in_reach and rung.hourly is None]
    missing = [*rungs, *plan.cost.unknown]
    if own is None and missing:
        raise InputError(
            location,
            f"its price is unknown, so no cap can be enforced: no price for {'; '.join(missing)}",
            allowed="a stack that `gangway plan` can price, or usd_per_hour in the suite",
            fix="add usd_per_hour: your cost per hour of the whole stack",
        )
    if own is not None and not missing:
        raise InputError(
            f"{location}: usd_per_hour", "the plan has a price, which the caps use", value=own,
            allowed=f"usd_per_hour only if a part has no price; the plan has {known:.2f}", fix="remove it",
        )  # fmt: skip
    if own is not None and own < known:
        raise InputError(
            f"{location}: usd_per_hour", "less than the parts with a price cost", value=own,
            allowed=f"{known:.2f} or more, for {'; '.join(missing)} as well",
            fix="write your cost per hour of the whole stack",
        )  # fmt: skip
    hourly, source = known, f"the plan, rung {highest.position} ({highest.kind}), the most expensive"
    if own is not None:
        hourly, source = own, f"{place}: usd_per_hour"
    return Rate(hourly, at_once, at_once + hourly * hours, source)


@dataclass(frozen=True)
class Caps:
    """Spending limits of the suite and of each stack; None for no limit."""

    usd: float | None
    by_stack: dict[str, float]

    @classmethod
    def of(cls, suite: SuiteConfig) -> "Caps":
        """The suite's limits."""
        budget = suite.budget
        default = budget.stack_usd if budget else None
        limits = {entry.name: entry.usd_limit or default for entry in suite.stacks}
        return cls(budget.usd if budget else None, {name: usd for name, usd in limits.items() if usd is not None})

    def unaffordable_reason(self, rate: Rate, item: Item, all_items: Accounts, now: datetime) -> str:
        """Why `item` may not start: its possible cost exceeds the rest; else empty."""
        for account, limit, spent in self._accounts(item, all_items, now):
            if rate.usd_run > limit - spent:
                return (
                    f"refused: a run may cost ${rate.usd_run:,.2f} ({rate.source}), but only "
                    f"${max(limit - spent, 0):,.2f} of ${limit:,.2f} are left for {account}"
                )
        return ""

    def overspend_reason(self, item: Item, all_items: Accounts, now: datetime) -> str:
        """Why `item` must be destroyed; else empty."""
        for account, limit, spent in self._accounts(item, all_items, now):
            if spent > limit:
                return f"over the cap: ${spent:,.2f} of ${limit:,.2f} spent for {account}"
        return ""

    def _accounts(self, item: Item, all_items: Accounts, now: datetime) -> Iterable[tuple[str, float, float]]:
        if item.stack.name in self.by_stack:
            own = [progress for other, progress in all_items if other.stack.name == item.stack.name]
            yield f"stack {item.stack.name}", self.by_stack[item.stack.name], _spent(own, now)
        if self.usd is not None:
            yield "the suite", self.usd, _spent((progress for _, progress in all_items), now)


def _spent(progresses: Iterable[Progress], now: datetime) -> float:
    attempts: list[Attempt] = [attempt for progress in progresses for attempt in progress.attempts]
    return sum(attempt.usd(now) for attempt in attempts)


_EVENT_COLOURS = {
    "recorded": "green",
    "failed": "red",
    "destroy failed": "red",
    "still up": "bold red",
    "attached": "yellow",
}


class Screen:
    """A console for items' progress; a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._status: Status | None = None
        self._told_at = time.monotonic()

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._status = self.console.status("")
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._status is not None:
            with suppress(OSError):
                self._status.stop()

    def say(self, item: str, word: str, more: str = "") -> None:
        """Print an event."""
        colour = _EVENT_COLOURS.get(word, "bold")
        text = f"{time.strftime('%H:%M:%S')} {escape(item)}: [{colour}]{word}[/]{': ' if more else ''}{escape(more)}"
        self._print(text)

    def show(self, item: str, doing: str) -> None:
        """Show ongoing work."""
        text = f"{escape(item)}: {escape(doing)}"
        if self._status is not None:
            with suppress(OSError):
                self._status.update(text)
        elif time.monotonic() - self._told_at > _ON_PAPER_SEC:
            self._told_at = time.monotonic()
            self._print(text)

    def _print(self, text: str) -> None:
        """A closed terminal or pipe must not leave stacks behind."""
        with suppress(OSError, SystemExit):
            self.console.print(text, soft_wrap=True)


def get_results(
    suite: SuiteConfig, preset: str, items: Sequence[Item], journal: Journal, run_dir: Path
) -> dict[str, Any]:
    """The results as JSON data: each item's status, cost and record."""
    now, stamp = journal.now(), str(journal.header["stamp"])
    rows = [_row(item, journal[item.name], stamp, run_dir, now, journal.header["rates"]) for item in items]
    known = [row["usd"]["value"] for row in rows if row["usd"]["value"] is not None]
    source = "the plan's prices times each stack's hours; the bill may differ"
    total = Quantity(value=sum(known), unit="USD", provenance="estimated", source=source)
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
        "usd": (total if known else Quantity.absent("USD", "this machine is not billed")).model_dump(mode="json"),
        "ended": now.isoformat(timespec="seconds"),
    }


def _row(
    item: Item, progress: Progress, stamp: str, run_dir: Path, now: datetime, rates: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    run_id = get_run_id(item, stamp)
    hours = sum(attempt.hours(now) for attempt in progress.attempts)
    usd = Quantity.absent("USD", "this machine is not billed")
    if not item.is_local:
        spent = sum(attempt.usd(now) for attempt in progress.attempts)
        source = str(rates[item.stack.name]["source"])
        usd = Quantity(value=spent, unit="USD", provenance="estimated", source=f"{source}, times its hours")
    return {
        "item": item.name,
        "stack": item.stack.name,
        "arm": item.arm,
        "seed": item.seed,
        "run_id": run_id,
        "record": f"{run_id}/run.json" if (run_dir / run_id / "run.json").exists() else None,
        "status": progress.outcome or ("stopped" if progress.attempts else "planned"),
        "reason": progress.reason,
        "standing": progress.is_up,
        "left": list(progress.facts.get("left", [])),
        "remark": progress.facts.get("remark", ""),
        "hours_up": round(hours, 4),
        "usd": usd.model_dump(mode="json"),
    }


def write_results(results: Mapping[str, Any], run_dir: Path) -> Path:
    """Write results.json atomically."""
    return write_whole(run_dir / RESULTS_FILE, (json.dumps(results, indent=2) + "\n").encode())


def show_results(results: Mapping[str, Any], run_dir: Path, console: Console) -> None:
    """Print the table, then leftovers and remarks, and last failures with their fixes, where readers look."""
    rows = results["items"]
    console.print(_table(results, run_dir))
    for row in rows:
        if row["remark"]:
            console.print(f"{escape(row['item'])}: {escape(row['remark'])}", soft_wrap=True)
        for leftover in row["left"]:
            console.print(f"{escape(row['item'])}: left in the cloud: {escape(leftover)}", soft_wrap=True)
    console.print(f"results: {run_dir / RESULTS_FILE}", markup=False, soft_wrap=True)
    recorded = [row for row in rows if row["status"] == "recorded"]
    if recorded:
        console.print(f"as a page: gangway report {shlex.quote(str(run_dir))}", markup=False, soft_wrap=True)
    for row in rows:
        if row["reason"]:
            colour = _COLOURS[row["status"]]
            words = f"[{colour}]{row['status']}[/]: {escape(row['item'])}: {escape(row['reason'])}"
            console.print(words, soft_wrap=True)
    counts = Counter(row["status"] for row in rows)
    tally = ", ".join(f"{counts[status]} {status}" for status in _COLOURS if counts[status])
    text = f"{len(rows)} run{'' if len(rows) == 1 else 's'}: {tally}"
    if counts["stopped"] or counts["planned"]:
        text += f"; to continue: gangway bench resume {shlex.quote(str(run_dir))}"
    console.print(text, markup=False, soft_wrap=True)
    if any(row["standing"] for row in rows):
        text = f"stacks still exist and cost money: gangway bench resume {shlex.quote(str(run_dir))} --clean-only"
        console.print(f"[bold red]{escape(text)}[/]", soft_wrap=True)


def _table(results: Mapping[str, Any], run_dir: Path) -> Table:
    table = Table(title=escape(results["title"] or results["suite"]), title_justify="left")
    for column in ("run", "status", "images/s", "quality", "hours up", "USD (estimated)"):
        table.add_column(column, justify="left" if column in ("run", "status", "quality") else "right")
    for row in results["items"]:
        speed, quality = _measured(row, run_dir)
        colour = _COLOURS[row["status"]]
        usd = "-" if row["usd"]["value"] is None else f"{row['usd']['value']:,.2f}"
        status = f"[{colour}]{row['status']}[/]" + (" [bold red]STILL UP[/]" if row["standing"] else "")
        table.add_row(escape(row["item"]), status, speed, escape(quality), f"{row['hours_up']:.2f}", usd)
    return table


def _measured(row: Mapping[str, Any], run_dir: Path) -> tuple[str, str]:
    if row["record"] is None:
        return "-", "-"
    try:
        record = RunRecord.model_validate_json(read_regular(run_dir, row["record"]))
    except OSError as unread:
        return f"unread: {unread.strerror}", "-"
    except ValidationError:
        return "no record of this version", "-"
    speed = record.images_per_sec.value
    newest = {one.name: one.trained.value for one in record.quality}
    text = ", ".join(f"{name} {value:.4g}" for name, value in newest.items() if value is not None)
    return "-" if speed is None else f"{speed:,.0f}", text or "-"
