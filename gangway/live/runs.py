"""Rows of run folders on this machine, and of the jobs of an engine."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import one_line
from gangway.finops.forecasts.run import run_kimg
from gangway.jobs.base import JobStatus, Phase
from gangway.jobs.job_folders import FolderEngine
from gangway.jobs.sites import Site, charge, engine_label, usage_cost
from gangway.jobs.systemd.state import JobState
from gangway.live.model import Fact, Reading, Row, iso, unknown
from gangway.live.progress import Line, moment, parse_lines
from gangway.live.stacks import job_state, one_reason, training_figures
from gangway.runs.run_folders import RECORD, STATS
from gangway.runs.run_store import RunStore
from gangway.trainer.core.regular_files import MOST_BYTES_OF_STATS, read_regular

MOST_RUNS = 20
"""The newest run folders that are shown without being named."""
_NO_NODES = "a run's folder does not tell which machines are up"
_NO_BREAKER = "only stacks have a breaker"
_ENDED_SHOWN = timedelta(days=1)


def find_runs(place: Path) -> tuple[list[Path], int]:
    """The newest run folders below `place`, without links, and how many more there are."""
    found = {path.parent.resolve(): path for name in (STATS, RECORD) for path in place.rglob(name)}
    times = {}
    for folder, file in found.items():
        try:
            times[folder] = file.stat().st_mtime
        except OSError:  # deleted meanwhile
            continue
    newest = sorted(times, key=lambda folder: (-times[folder], folder))
    return newest[:MOST_RUNS], len(newest[MOST_RUNS:])


def run_row(folder: Path, now: datetime) -> Row:
    """InputError: it cannot be read."""
    figures = _folder_figures(folder, now)
    found = {
        **unknown("only stacks have one"),
        **figures,
        "usd_estimate": Reading.absent("USD", "a run's folder has no plan"),
        "nodes_source": _NO_NODES,
        "breaker": Fact(text=None, source=_NO_BREAKER),
    }
    return Row(kind="run", name=one_line(folder.name), where=one_line(str(folder)), **found)


def _folder_figures(folder: Path, now: datetime) -> dict[str, Any]:
    state = JobState.read(RunStore(folder.as_uri()))
    try:
        lines = parse_lines(read_regular(folder, STATS, MOST_BYTES_OF_STATS).rpartition(b"\n")[0].split(b"\n"))
    except FileNotFoundError:
        lines = []
    except OSError as error:
        raise InputError(
            str(folder / STATS), f"cannot be read: {error.strerror or error}", fix="check who owns it"
        ) from None
    figures = training_figures(state, lines, _images_wanted(folder), STATS)
    return {**figures, "state": _run_state(state, lines, now)}


def _run_state(state: JobState, lines: Sequence[Line], now: datetime) -> Fact:
    """As a stack's job, but its log tells at once how its newest session ended."""
    last = next((line for line in reversed(lines) if line.get("event") != "quality"), None)
    if last is not None and last.get("event") in ("done", "interrupt", "failed"):
        words = {"done": "done", "interrupt": "interrupted", "failed": "failed"}
        return Fact(text=words[last["event"]], source=STATS, at=moment(last))
    return job_state(state, lines, now, STATS)


def _images_wanted(folder: Path) -> Reading:
    try:
        kimg = run_kimg(folder)
    except InputError as error:
        return Reading.absent("images", one_reason(error))
    return Reading(value=kimg * 1000, unit="images", provenance="assumed", source="kimg in config.json")


def shown_jobs(jobs: Sequence[JobStatus], now: datetime) -> Iterator[JobStatus]:
    """Those that are not over, or ended within a day, or cannot be seen."""
    for job in jobs:
        if not job.phase.is_over or job.ended_at is None or now - job.ended_at < _ENDED_SHOWN:
            yield job


def job_row(site: Site, job: JobStatus, now: datetime) -> Row:
    """Of a job on an engine; progress only where its run folder is on this machine."""
    label = f"{site.asked}: {engine_label(site.engine)}" if site.asked else engine_label(site.engine)
    base = Row.unreadable("job", job.id, label, job.reason)
    at = job.ended_at or job.started_at or job.submitted_at
    reason = f": {job.reason}" if job.reason else ""
    state = Fact(text=f"{job.phase}{reason}", source=engine_label(site.engine), at=at)
    nodes = f"on {' '.join(job.nodes)}" if job.nodes else "on no node"
    if job.phase in (Phase.FOREIGN, Phase.UNREADABLE):
        why = job.reason or "another user's job: its folder is closed to you"
        return base.model_copy(update={**unknown(why), "state": state, "problem": "", "nodes_source": nodes})
    figures = {**_job_progress(site, job, now), "state": state, "nodes_source": nodes, "usd": _job_cost(site, job, now)}
    figures["usd_estimate"] = _job_estimate(site, job)
    figures["budget_usd"] = Reading.absent("USD", "a job has no budget; its cost is limited by max_hours")
    figures["breaker"] = Fact(text=None, source=_NO_BREAKER)
    return base.model_copy(update={**figures, "problem": ""})


def _job_progress(site: Site, job: JobStatus, now: datetime) -> dict[str, Any]:
    engine = site.engine
    if not isinstance(engine, FolderEngine):
        return unknown(f"the run folder is on {engine_label(engine)}, not reachable from here")
    try:
        folder = engine.run_folder(job.id).path
        if not (folder / STATS).is_file():
            return unknown(f"{STATS} is not in its run folder: it has not begun, or is a command that counts no images")
        return _folder_figures(folder, now)
    except InputError as error:
        return unknown(one_reason(error))


def _job_cost(site: Site, job: JobStatus, now: datetime) -> Reading:
    spent = usage_cost(site.nodes, job, now)
    if spent.usd is None:
        return Reading.absent("USD", spent.source)
    source = f"{spent.node_hours:,.3g} node-hours x the price of a node: {spent.source}"
    return Reading(value=spent.usd, unit="USD", provenance="estimated", source=source, as_of=iso(now))


def _job_estimate(site: Site, job: JobStatus) -> Reading:
    if not isinstance(site.engine, FolderEngine):
        return Reading.absent("USD", "the job file is not reachable from here")
    try:
        most = charge(site, site.engine.job(job.id))
    except InputError as error:
        return Reading.absent("USD", one_reason(error))
    if most.usd is None:
        return Reading.absent("USD", most.why)
    return Reading(
        value=most.usd, unit="USD", provenance="estimated", source=most.why, note="at most: all of max_hours"
    )
