"""What the dashboard shows besides runs: queues, stacks and suites. Threads ask slow ones while somebody looks."""

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from gangway.bench.journal import JOURNAL_FILE, Progress, read_journal
from gangway.bench.suite import Item, SuiteConfig, get_items, get_run_id
from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import one_line
from gangway.finops.audit.running import open_stack
from gangway.jobs.base import LOG_PART_BYTES, Engine, JobStatus, Phase
from gangway.jobs.job_folders import LOG_FILE, FolderEngine
from gangway.jobs.sites import Site, Spent, usage_cost
from gangway.jobs.systemd.state import JobState, replaces_nodes, stack_lines
from gangway.live.dashboard.files import MOST_LOG_BYTES, clip, log_text
from gangway.stacks.loading.loader import find_stack_file, from_file

Value = TypeVar("Value")
_IDLE_SEC = 60.0
_NEAR_SEC, _FAR_SEC, _STACK_SEC = 3.0, 15.0, 30.0
"""Between two questions to a folder, to a program or another machine, to a cloud."""
_MOST_LOG_PARTS = 64


class Reading(NamedTuple, Generic[Value]):
    """The newest answer, None before the first; `problem`: of the newest question; `at`: seconds since 1970."""

    value: Value | None = None
    problem: str = ""
    at: float = 0.0


class Watched(Generic[Value]):
    """A value that a thread reads again and again, as long as it is asked for."""

    def __init__(self, read: Callable[[], Value], every_sec: float) -> None:
        self._read, self._every_sec = read, every_sec
        self._reading: Reading[Value] = Reading()
        self._lock, self._asked_at, self._is_watched = threading.Lock(), 0.0, False
        self._reads = threading.Lock()

    def get(self) -> Reading[Value]:
        """The newest reading, without waiting for one."""
        with self._lock:
            self._asked_at = time.monotonic()
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._watch, daemon=True).start()
            return self._reading

    def peek(self) -> Reading[Value]:
        """The newest reading, which this does not ask for."""
        return self._reading

    def refresh(self) -> None:
        """Read once, after a reading that is in progress."""
        with self._reads:
            try:
                self._reading = Reading(self._read(), "", time.time())
            except Exception as error:  # an SDK's may be of any type; it is shown, and the next question may succeed
                self._reading = self._reading._replace(problem=describe(error), at=time.time())

    def _watch(self) -> None:
        while True:
            self.refresh()
            time.sleep(self._every_sec)
            with self._lock:
                if time.monotonic() - self._asked_at > _IDLE_SEC:
                    self._is_watched = False
                    return


def describe(error: BaseException) -> str:
    """An error in one or two sentences."""
    if isinstance(error, BaseExceptionGroup):
        return describe(error.exceptions[0])
    if isinstance(error, InputError):
        return clip(f"{error.place}: {error.problem}{f'; {error.fix}' if error.fix else ''}", 400)
    return clip(f"{type(error).__name__}: {error}", 400)


class JobRow(NamedTuple):
    """A job in the table, with its engine's key and what it has cost there."""

    engine: str
    label: str
    status: JobStatus
    spent: Spent


@dataclass(frozen=True)
class Queue:
    """An engine with its jobs."""

    key: str
    label: str
    site: Site
    jobs: Watched[tuple[JobRow, ...]]

    @classmethod
    def of(cls, site: Site) -> "Queue":
        """The queue of an engine."""
        engine = site.engine
        key = hashlib.sha256(f"{engine.kind}\0{engine.where}".encode()).hexdigest()[:8]
        label = one_line(site.asked or f"{engine.kind}, {engine.where}")[:60]
        seconds = _NEAR_SEC if engine.kind == "local" else _FAR_SEC

        def read() -> tuple[JobRow, ...]:
            now = datetime.now(UTC)
            return tuple(JobRow(key, label, job, usage_cost(site.nodes, job, now)) for job in engine.jobs())

        return cls(key, label, site, Watched(read, seconds))

    def find(self, job_id: str) -> JobRow | None:
        """A job of the newest reading."""
        return next((row for row in self.jobs.get().value or () if row.status.id == job_id), None)

    @property
    def folder(self) -> Path | None:
        """Where its jobs' run folders are, if this machine sees them."""
        return Path(self.site.engine.where) if isinstance(self.site.engine, FolderEngine) else None


def read_log_end(engine: Engine, job_id: str) -> str:
    """The end of a job's log. InputError as `Engine.log`; OSError."""
    if isinstance(engine, FolderEngine):
        try:
            with engine.get_stored_job(job_id).folder.open_file(LOG_FILE) as file:
                file.seek(max(0, file.seek(0, 2) - MOST_LOG_BYTES))
                return log_text(file.read(MOST_LOG_BYTES))
        except FileNotFoundError:
            return ""
    text, offset = "", 0
    for _ in range(_MOST_LOG_PARTS):
        part, after = engine.log(job_id, offset)
        text, is_part = (text + part)[-MOST_LOG_BYTES:], after - offset > LOG_PART_BYTES - 4
        offset = after
        if not is_part:
            break
    return log_text(text.encode())


class StackView(NamedTuple):
    """A stack's job: its phase in a word, and the lines of `gangway job STACK`."""

    phase: str
    images: int
    lines: tuple[str, ...]


def read_stack(stack: str, stacks_dir: Path) -> StackView:
    """Ask a stack. InputError, also in groups: its file or its state cannot be read."""
    config = from_file(find_stack_file(stack, stacks_dir))
    running = open_stack(config)
    state = JobState.read(running.store)
    lines = state.lines(config.stack_name if config.own_command else "")
    lines += stack_lines(running.outputs.get("job"), state.decisions, over=state.is_over)
    held = running.breaker.read_held() if replaces_nodes(config.provider) else None
    phase = "ended" if state.is_over else "launches are stopped" if held else "running" if state.images else "starting"
    return StackView(phase, state.images, tuple(clip(line, 400) for line in [*lines, *([str(held)] if held else [])]))


@dataclass(frozen=True)
class Stack:
    """A stack that is watched."""

    name: str
    view: Watched[StackView]

    @classmethod
    def of(cls, name: str, stacks_dir: Path) -> "Stack":
        """The stack of that name or file."""
        return cls(one_line(name)[:80], Watched(lambda: read_stack(name, stacks_dir), _STACK_SEC))


@dataclass(frozen=True)
class SuiteRun:
    """A run of a suite. `state`: planned, running, recorded, failed or stopped."""

    item: str
    stack: str
    arm: str
    state: str
    reason: str
    usd: float | None
    run: Path


@dataclass(frozen=True)
class Suite:
    """A suite's folder. `stamp`: of its journal, for the cache; `problem`: why it cannot be read."""

    key: str
    folder: Path
    name: str = ""
    title: str = ""
    kimg: float = 0.0
    budget_usd: float | None = None
    runs: tuple[SuiteRun, ...] = ()
    problem: str = ""
    stamp: tuple[int, int] = (0, 0)

    @property
    def arms(self) -> tuple[tuple[str, tuple[SuiteRun, ...]], ...]:
        """Runs by stack and arm, in the suite's order."""
        groups = dict[str, list[SuiteRun]]()
        for run in self.runs:
            groups.setdefault(f"{run.stack}, {run.arm}" if run.arm else run.stack, []).append(run)
        return tuple((label, tuple(runs)) for label, runs in groups.items())


@dataclass
class SuiteCache:
    """Suites by folder; a journal is read again if it has changed."""

    _known: dict[Path, Suite] = field(default_factory=dict)

    def read(self, folders: Sequence[Path]) -> list[Suite]:
        """The suites, the newest first."""
        found = [suite for folder in folders if (suite := self._read(folder)) is not None]
        return sorted(found, key=lambda suite: suite.stamp, reverse=True)

    def _read(self, folder: Path) -> Suite | None:
        key = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        try:
            seen = (folder / JOURNAL_FILE).lstat()
        except OSError:
            return None  # just removed
        stamp = seen.st_mtime_ns, seen.st_size
        if folder not in self._known or self._known[folder].stamp != stamp:
            try:
                self._known[folder] = _read_suite(key, folder, stamp)
            except (OSError, ValueError, LookupError, TypeError) as error:
                self._known[folder] = Suite(key, folder, clip(folder.name), problem=describe(error), stamp=stamp)
        return self._known[folder]


def _read_suite(key: str, folder: Path, stamp: tuple[int, int]) -> Suite:
    header, items = read_journal(folder)
    suite = SuiteConfig.model_validate(header["suite"])
    now = datetime.now(UTC)
    runs = tuple(
        _suite_run(item, items.get(item.name, Progress()), folder / get_run_id(item, str(header["stamp"])), now)
        for item in get_items(suite, local=bool(header["local"]))
    )
    budget = suite.budget.usd if suite.budget else None
    return Suite(key, folder, clip(suite.name), clip(suite.title, 120), suite.kimg, budget, runs, stamp=stamp)


def _suite_run(item: Item, progress: Progress, run: Path, now: datetime) -> SuiteRun:
    usd = None if item.is_local else sum(attempt.usd(now) for attempt in progress.attempts)
    state = progress.outcome or ("running" if progress.is_up else "planned")
    return SuiteRun(item.name, item.stack.name, item.arm, state, clip(progress.reason, 300), usd, run)


def is_cancellable(status: JobStatus) -> bool:
    """Whether cancelling the job has an effect."""
    return status.phase in (Phase.WAITING, Phase.RUNNING)
