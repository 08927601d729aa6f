"""The runs of a report with what lies around them: their statistics, and what their suite calls them. Only reading.

A suite's folder (`gangway bench run`) has results.json beside its runs; runs that were begun by hand have none, and
are called after their stack.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from components.findings import InputError
from stacks.report.runs import Run, read_json
from stacks.report.stats import read_stats
from trainer.record import Figure, RunRecord

__all__ = ["Member", "Missing", "Source", "members_of"]

_RESULTS = "results.json"
_STATS = "stats.jsonl"
LOCAL = "local"
"""What a run without a stack ran on: whoever began it calls it this machine."""

_NO_SUITE = Figure.absent("USD", "no suite tells what its stack cost")


class _Item(BaseModel):
    """A run, as results.json tells of it; further fields are the bench's own."""

    model_config = ConfigDict(frozen=True)

    item: str
    stack: str
    arm: str
    run_id: str
    status: str
    reason: str = ""
    usd: Figure = Figure.absent("USD", "not told by that version of the suite")


class _Results(BaseModel):
    """results.json of a suite."""

    model_config = ConfigDict(frozen=True)

    suite: str
    title: str = ""
    paper: str | None = None
    items: tuple[_Item, ...]


class Missing(NamedTuple):
    """A run of a suite that has no record, and what is known of it."""

    suite: str
    item: str
    status: str
    reason: str


@dataclass(frozen=True)
class Member:
    """A run of the report.

    Attributes:
        record: its record.
        path: of its directory.
        stats: the lines of its stats.jsonl; empty where there is none.
        stack: what its suite calls the stack, else the record's, else `local`.
        arm: of the suite; empty without one.
        suite: its suite's name; empty without one.
        paper: whose table the suite is; empty without one.
        title: of the suite.
        stack_usd: of the whole stack while it stood, as its suite tells.
        control: the arm that its suite names first for its stack, whether it has a run or not; empty without one.
    """

    record: RunRecord
    path: Path
    stats: tuple[dict[str, Any], ...]
    stack: str
    arm: str = ""
    suite: str = ""
    paper: str = ""
    title: str = ""
    control: str = ""
    stack_usd: Figure = _NO_SUITE

    @property
    def name(self) -> str:
        """Its id."""
        return self.record.id

    @property
    def ticks(self) -> list[dict[str, Any]]:
        """Lines of statistics, without events."""
        return [line for line in self.stats if "event" not in line]


class Source(NamedTuple):
    """All that a report is made of: the runs, and those of their suites that are missing."""

    members: tuple[Member, ...]
    missing: tuple[Missing, ...]


def members_of(runs: Sequence[Run]) -> Source:
    """Reads what lies around the runs.

    Raises:
        InputError: a results.json or stats.jsonl that cannot be read.
    """
    suites = {folder: _results(folder / _RESULTS) for folder in dict.fromkeys(run.path.parent for run in runs)}
    members = tuple(_member(run, suites[run.path.parent]) for run in _in_their_order(runs, suites))
    here = {run.record.id for run in runs}
    missing = tuple(
        Missing(results.suite, item.item, item.status, item.reason)
        for results in suites.values()
        if results is not None
        for item in results.items
        if item.run_id not in here and item.status != "recorded"
    )
    return Source(members, missing)


def _in_their_order(runs: Sequence[Run], suites: Mapping[Path, _Results | None]) -> list[Run]:
    """Suite by suite, each as its file orders stacks, arms and seeds: a control comes first, whenever it ran."""
    folders = list(suites)

    def place(run: Run) -> tuple[int, int]:
        results = suites[run.path.parent]
        ids = [item.run_id for item in results.items] if results else []
        return folders.index(run.path.parent), ids.index(run.record.id) if run.record.id in ids else len(ids)

    return sorted(runs, key=place)


def _member(run: Run, results: _Results | None) -> Member:
    record = run.record
    item = next((item for item in results.items if item.run_id == record.id), None) if results else None
    stats = read_stats(run.path / _STATS)
    if results is None or item is None:
        return Member(record, run.path, stats, record.stack or LOCAL)
    return Member(
        record,
        run.path,
        stats,
        item.stack,
        item.arm,
        results.suite,
        results.paper or "",
        results.title,
        control=next(other.arm for other in results.items if other.stack == item.stack),
        stack_usd=item.usd,
    )


def _results(path: Path) -> _Results | None:
    if not path.is_file():
        return None
    try:
        return _Results.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{path}: {where}",
            f"is not what `gangway bench` of this version writes: {first['msg']}",
            fix="write it anew: gangway bench resume on its folder, or take it away",
        ) from None
