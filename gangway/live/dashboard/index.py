"""An index of run folders for the dashboard, kept in memory by one thread: a pass reads only folders that have changed,
and a request reads none.
"""

import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from gangway.live.dashboard.files import clip, read_part, read_tail
from gangway.runs.run_folders import RECORD, STATS
from gangway.trainer.core.regular_files import read_regular
from gangway.trainer.core.validation import first_mistake

CONFIG, JOURNAL = "config.json", "journal.jsonl"
_MOST_RECORD_BYTES, _MOST_CONFIG_BYTES, _HEAD_BYTES, _TAIL_BYTES = 16_000_000, 1_000_000, 65_536, 65_536
_MOST_DEPTH = 6
"""Folders below a named one that are searched."""
_MOST_RUNS = 200_000
_MTIME_STEP_SEC = 2.0
"""A folder that changed more recently is listed again, as its time may not have advanced with its content."""
_PUBLISH_SEC = 0.5
_LEAST_PAUSE_SEC, _PAUSE_FACTOR, _IDLE_SEC = 2.0, 5.0, 120.0
"""Between passes, also in multiples of a pass; without a request for that long the thread waits for one."""
_SILENT_SEC = 600.0
"""Several times the gap between two lines of a slow run."""
_ENDINGS = {"done": "done", "interrupt": "interrupted", "failed": "interrupted"}
STATES = ("running", "silent", "interrupted", "done", "cannot be read")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Value(_Part):
    value: float | None = None


class _Session(_Part):
    start: str
    end: str


class _Config(_Part):
    preset: str = ""
    kimg: float = 0.0
    seed: int = 0


class _Quality(_Part):
    name: str
    trained: _Value


class _Cost(_Part):
    total_usd: _Value


class _Energy(_Part):
    it_joules: _Value


class _Record(_Part):
    """What the table shows of a run.json: fields that every version has."""

    id: str
    status: Literal["running", "interrupted", "done"]
    stack: str = ""
    images: int
    sessions: tuple[_Session, ...] = ()
    config: _Config
    images_per_sec: _Value
    quality: tuple[_Quality, ...] = ()
    cost: _Cost
    energy: _Energy


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in the table, its texts ready to show. `key`: for URLs; `root`, `name`: the named folder and the path below
    it; `at`: when its files last changed; None for unknown figures.
    """

    key: str
    root: Path
    name: str
    at: float
    id: str = ""
    status: str = "running"
    problem: str = ""
    preset: str = ""
    stack: str = ""
    seed: int = 0
    start: float = 0.0
    images: int = 0
    kimg: float = 0.0
    images_per_sec: float | None = None
    usd: float | None = None
    joules: float | None = None
    quality: tuple[tuple[str, float], ...] = ()
    stamp: tuple[int, ...] = ()

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.root / self.name

    @property
    def words(self) -> str:
        """What a search for text looks at."""
        return f"{self.id} {self.name} {self.stack} {self.preset}".casefold()

    def state(self, now: float) -> str:
        """One of STATES: a run whose last line is old may have been killed."""
        return "silent" if self.status == "running" and now - self.at > _SILENT_SEC else self.status


class Progress(NamedTuple):
    """Of the index. `is_complete`: whether one pass is over; `problem`: why a folder is left out."""

    found: int = 0
    read: int = 0
    is_complete: bool = False
    sec: float = 0.0
    problem: str = ""


class _Listing(NamedTuple):
    mtime_ns: int
    listed_at: float
    files: frozenset[str]
    folders: tuple[str, ...]


class RunIndex:
    """Rows of all runs below the named folders. `refresh` makes one pass; `start` keeps a thread at it."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.rows: tuple[RunRow, ...] = ()
        self.by_key: Mapping[str, RunRow] = {}
        self.suites: tuple[Path, ...] = ()
        self.presets: tuple[str, ...] = ()
        self.progress = Progress()
        self._roots = list(dict.fromkeys(folder.resolve() for folder in folders))
        self._known: dict[tuple[Path, str], RunRow] = {}
        self._listings: dict[Path, _Listing] = {}
        self._old_listings: dict[Path, _Listing] = {}
        self._wanted_at, self._wake = time.monotonic(), threading.Event()

    def start(self) -> None:
        """Refresh in the background until the program ends."""
        threading.Thread(target=self._keep, name="run index", daemon=True).start()

    def want(self) -> None:
        """Say that a page is being looked at: without this the thread waits."""
        self._wanted_at = time.monotonic()
        self._wake.set()

    def find(self, folder: Path) -> RunRow | None:
        """The run in a folder."""
        places = ((root, folder) for root in self._roots if folder.is_relative_to(root))
        keys = (get_key(root, "" if below == root else str(below.relative_to(root))) for root, below in places)
        return next((row for key in keys if (row := self.by_key.get(key))), None)

    def _keep(self) -> None:
        while True:
            self._wake.clear()
            self.refresh()
            time.sleep(max(_LEAST_PAUSE_SEC, _PAUSE_FACTOR * self.progress.sec))
            if time.monotonic() - self._wanted_at > _IDLE_SEC:
                self._wake.wait()

    def refresh(self) -> None:
        """One pass over all folders; rows appear while it lasts."""
        began = published = time.monotonic()
        known, suites, problem = dict[tuple[Path, str], RunRow](), list[Path](), ""
        self._old_listings, self._listings = self._listings, {}
        found = [(root, *each) for root in self._roots for each in self._walk(root, "", 0, suites)]
        if len(found) > _MOST_RUNS:
            problem = f"{len(found) - _MOST_RUNS:,} folders above the limit of {_MOST_RUNS:,} are left out"
        old, is_first = self._known, not self.progress.is_complete
        for number, (root, name, files, is_changed) in enumerate(found[:_MOST_RUNS], 1):
            place = root, name
            row = old.get(place)
            if row is not None and row.status == "done" and not is_changed:  # a new record changes its folder
                known[place] = row
                continue
            with suppress(FileNotFoundError):  # it was removed meanwhile
                known[place] = _updated(row, root, name, files)
            if is_first and time.monotonic() - published > _PUBLISH_SEC:
                published = time.monotonic()
                self._publish(known, suites)
                self.progress = Progress(len(found), number, is_complete=False, problem=problem)
        if is_first or len(known) != len(old) or any(row is not old.get(place) for place, row in known.items()):
            self._publish(known, suites)
        self.suites, self._known = tuple(suites), known
        self.progress = Progress(len(found), len(known), True, time.monotonic() - began, problem)

    def _publish(self, known: Mapping[tuple[Path, str], RunRow], suites: Sequence[Path]) -> None:
        self.rows = tuple(known.values())
        self.by_key = {row.key: row for row in self.rows}
        self.presets = tuple(sorted({row.preset for row in self.rows if row.preset}))
        self.suites = tuple(suites)

    def _walk(
        self, root: Path, name: str, depth: int, suites: list[Path]
    ) -> Iterator[tuple[str, frozenset[str], bool]]:
        """Name, files and whether the folder has changed, of each run."""
        folder = root / name
        known = self._old_listings.get(folder)
        try:
            listing = self._list(folder, known)
        except OSError:
            return  # closed to this user, a link, or just removed
        if {RECORD, STATS} & listing.files:
            yield name, listing.files, listing is not known
            return
        if JOURNAL in listing.files:
            suites.append(folder)
        if depth < _MOST_DEPTH:
            for below in listing.folders:
                yield from self._walk(root, f"{name}/{below}" if name else below, depth + 1, suites)

    def _list(self, folder: Path, known: _Listing | None) -> _Listing:
        seen = folder.lstat()
        if known and known.mtime_ns == seen.st_mtime_ns and known.listed_at - seen.st_mtime > _MTIME_STEP_SEC:
            self._listings[folder] = known
            return known
        files, folders, now = list[str](), list[str](), time.time()
        with os.scandir(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith("."):
                        folders.append(entry.name)
                elif entry.name in (RECORD, STATS, CONFIG, JOURNAL):
                    files.append(entry.name)
        self._listings[folder] = _Listing(seen.st_mtime_ns, now, frozenset(files), tuple(sorted(folders)))
        return self._listings[folder]


def get_key(root: Path, name: str) -> str:
    """The run in URLs, which therefore hold no path."""
    return hashlib.sha256(os.fsencode(f"{root}\0{name}")).hexdigest()[:16]


def _updated(old: RunRow | None, root: Path, name: str, files: frozenset[str]) -> RunRow:
    """The same row if nothing has changed. A finished run's lines are not looked at: its record names their end."""
    wanted = [each for each in (RECORD, STATS) if each in files]
    if old is not None and old.status == "done" and RECORD in files:
        wanted = [RECORD]
    plain = RunRow(get_key(root, name), root, name, 0.0, id=clip(Path(name).name or root.name))
    try:
        seen = [(root / name / each).lstat() for each in wanted]
    except PermissionError as error:
        return _broken(plain, str(error.strerror))
    stamp = tuple(value for each in seen for value in (each.st_mtime_ns, each.st_size, each.st_ino))
    if old is not None and old.stamp[: len(stamp)] == stamp:
        return old
    plain = replace(plain, at=max(each.st_mtime for each in seen), stamp=stamp)
    if not all(stat.S_ISREG(each.st_mode) for each in seen):
        return _broken(plain, "a link or another special file, which is not followed")
    try:
        return _read(plain, files)
    except ValidationError as error:
        return _broken(plain, f"{RECORD}: {first_mistake(error)}")
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, RecursionError) as error:
        return _broken(plain, getattr(error, "strerror", None) or str(error))


def _broken(row: RunRow, problem: str) -> RunRow:
    return replace(row, status="cannot be read", problem=clip(problem, 200))


def _read(row: RunRow, files: frozenset[str]) -> RunRow:
    if RECORD in files:
        content = read_regular(row.root, below(row, RECORD), _MOST_RECORD_BYTES)
        row = _with_record(row, _Record.model_validate_json(content))
        return row if row.status == "done" or STATS not in files else _with_tail(row, since=row.at)
    return _with_tail(_with_head(row, files), since=0.0)


def below(row: RunRow, file: str) -> str:
    """A file of the run, below the named folder."""
    return f"{row.name}/{file}" if row.name else file


def _with_record(row: RunRow, record: _Record) -> RunRow:
    quality = [(one.name, one.trained.value) for one in record.quality]
    return replace(
        row,
        id=clip(record.id),
        status=record.status,
        preset=clip(record.config.preset, 40),
        stack=clip(record.stack, 60),
        seed=record.config.seed,
        start=_seconds(record.sessions[0].start) if record.sessions else row.at,
        at=_seconds(record.sessions[-1].end) if record.sessions else row.at,
        images=record.images,
        kimg=record.config.kimg,
        images_per_sec=_finite(record.images_per_sec.value),
        usd=_finite(record.cost.total_usd.value),
        joules=_finite(record.energy.it_joules.value),
        quality=tuple((clip(name, 20), value) for name, value in quality[:4] if value is not None),
    )


def _with_head(row: RunRow, files: frozenset[str]) -> RunRow:
    """Of a run without a record: its configuration, and the first line of its log."""
    config = _Config()
    if CONFIG in files:
        config = _Config.model_validate_json(read_regular(row.root, below(row, CONFIG), _MOST_CONFIG_BYTES))
    first = parse_line(read_part(row.root, below(row, STATS), 0, _HEAD_BYTES).content.partition(b"\n")[0])
    context = first.get("context")
    return replace(
        row,
        id=clip(first.get("run_id") or row.id),
        start=parse_number(first.get("time")) or row.at,
        preset=clip(config.preset, 40),
        seed=config.seed,
        kimg=config.kimg,
        stack=clip(context.get("stack", "") if isinstance(context, dict) else "", 60),
    )


def _with_tail(row: RunRow, since: float) -> RunRow:
    """With the newest lines of its log, if they are newer."""
    lines = [line for text in read_tail(row.root, below(row, STATS), _TAIL_BYTES) if (line := parse_line(text))]
    newest = max((parse_number(line.get("time")) or 0.0 for line in lines), default=0.0)
    if newest <= since:
        return row
    images = int(parse_number(lines[-1].get("images")) or 0)
    row = replace(row, status=get_status(lines), at=newest, images=images)
    last = next((line for line in reversed(lines) if "event" not in line), None)
    if last is None:
        return row
    row = replace(row, images_per_sec=parse_number(last.get("images_per_sec")))
    usd_per_hour, wall_sec = parse_number(last.get("usd_per_hour")), parse_number(last.get("wall_sec"))
    if last.get("session") != 0:  # the record has what earlier sessions used
        return row
    usd = None if usd_per_hour is None or wall_sec is None else usd_per_hour * wall_sec / 3600
    return replace(row, usd=usd, joules=parse_number(last.get("energy_joules")))


def get_status(lines: Sequence[Mapping[str, Any]]) -> str:
    """Of a run, by the last lines of its log."""
    for line in reversed(lines):
        event = line.get("event")
        if event in (None, "start", "resume"):
            return "running"
        if isinstance(event, str) and event in _ENDINGS:
            return _ENDINGS[event]
    return "running"


def parse_line(text: bytes) -> dict[str, Any]:
    """A line of a log; empty if it is none."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return line if isinstance(line, dict) else {}


def parse_number(value: object) -> float | None:
    """A finite number of a log; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e40
    return float(str(value)) if is_number else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _seconds(moment: str) -> float:
    """Seconds since 1970 of a record's time. ValueError."""
    found = datetime.fromisoformat(moment)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
