"""Collects the rows of `gangway status` in parallel: one that cannot be read hides no other."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from gangway.components.core.findings import InputError
from gangway.finops.audit.state import list_stacks
from gangway.jobs.sites import Site, engine_label, get_site
from gangway.live.model import Overview, Row
from gangway.live.runs import MOST_RUNS, find_runs, job_row, run_row, shown_jobs
from gangway.live.stacks import one_reason, plan_figures, stack_row
from gangway.stacks.config.engines_file import named_engines
from gangway.stacks.config.paths import project_folder
from gangway.stacks.config.stack_config import StackConfig

_THREADS = 8
Kind = Literal["stack", "job", "run"]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Target:
    """Something to read. `read` gives its rows; an InputError becomes a row of this kind and name. `plan` completes a
    row in the main thread.
    """

    kind: Kind
    name: str
    where: str
    read: Callable[[datetime], Sequence[Row]]
    plan: Callable[[Row], Row] = lambda row: row


def stack_target(name: str, load: Callable[[], StackConfig]) -> Target:
    """A stack; `load` reads its file."""

    def plan(row: Row) -> Row:
        return row if row.problem else row.model_copy(update=plan_figures(load()))

    return Target("stack", name, "a stack", lambda now: [stack_row(load(), now)], plan)


def run_target(folder: Path) -> Target:
    """A run's folder on this machine."""
    return Target("run", folder.name, str(folder), lambda now: [run_row(folder, now)])


def job_target(site: Site, job_id: str) -> Target:
    """One job of an engine."""

    def read(now: datetime) -> list[Row]:
        return [job_row(site, site.engine.status(job_id), now)]

    return Target("job", job_id, engine_label(site.engine), read)


def engine_target(name: str, *, is_default: bool = False) -> Target:
    """The jobs of an engine; an engine that cannot be reached is a separate row."""

    def read(now: datetime) -> list[Row]:
        site = get_site(name)
        return [job_row(site, job, now) for job in shown_jobs(site.engine.jobs(), now)]

    return Target("job", "all jobs", "this machine's queue" if is_default else name, read)


def everything(load: Callable[[str], StackConfig], runs: Path) -> tuple[list[Target], list[str]]:
    """Every stack of the project in the backend, every named engine and this machine's queue, and the runs here; and
    notes on what is left out.
    """
    targets, notes = list[Target](), list[str]()
    try:
        names = list_stacks(project_folder())
    except InputError as error:
        names = []
        notes.append(f"stacks are not shown: {one_reason(error)}")
    targets += [stack_target(name, lambda name=name: load(name)) for name in names]  # type: ignore[misc]
    try:
        engines = list(named_engines())
    except* InputError as errors:
        engines = []
        notes.append(f"named engines are not shown: {one_reason(errors.exceptions[0])}")
    targets += [engine_target("local", is_default=True), *map(engine_target, engines)]
    folders, more = find_runs(runs) if runs.is_dir() else ([], 0)
    if more:
        notes.append(f"{more} older runs in {runs} are not shown: the newest {MOST_RUNS} are")
    return [*targets, *map(run_target, folders)], notes


def collect(targets: Sequence[Target], now: datetime, on_progress: Progress, notes: Iterable[str] = ()) -> Overview:
    """Reads all targets at once; their rows in the given order."""
    found = dict[int, Sequence[Row]]()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="gangway-status") as pool:
        futures = {pool.submit(_read, target, now): index for index, target in enumerate(targets)}
        on_progress(0, len(targets))
        try:
            for done, future in enumerate(as_completed(futures), 1):
                index = futures[future]
                found[index] = list(map(targets[index].plan, future.result()))
                on_progress(done, len(targets))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    rows = tuple(row for index in range(len(targets)) for row in found[index])
    return Overview(at=now, rows=rows, notes=tuple(notes))


def _read(target: Target, now: datetime) -> Sequence[Row]:
    try:
        return target.read(now)
    except* InputError as errors:
        why = one_reason(errors.exceptions[0])
    return [Row.unreadable(target.kind, target.name, target.where, why)]
