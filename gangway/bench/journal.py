"""A suite's journal. Lines are on disk before their action, so that no crash leaves an unknown stack."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import all_visible
from gangway.components.core.whole_files import append_line, complete_lines, cut_half_line, lock
from gangway.trainer.core.regular_files import open_file, read_regular

JOURNAL_FILE = "journal.jsonl"
_utc_now = partial(datetime.now, UTC)


class State(StrEnum):
    """The state of an item."""

    PLANNED = "planned"
    UP_BEGUN = "up-begun"
    UP = "up"
    RECORDED = "recorded"
    FAILED = "failed"
    DESTROY_BEGUN = "destroy-begun"
    DESTROYED = "destroyed"


_NEXT: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.PLANNED: frozenset({State.UP_BEGUN, State.FAILED}),
        State.UP_BEGUN: frozenset({State.UP, State.FAILED, State.DESTROY_BEGUN}),
        State.UP: frozenset({State.RECORDED, State.FAILED, State.DESTROY_BEGUN}),
        State.RECORDED: frozenset({State.FAILED, State.DESTROY_BEGUN}),
        State.FAILED: frozenset({State.FAILED, State.DESTROY_BEGUN, State.PLANNED}),
        State.DESTROY_BEGUN: frozenset({State.DESTROYED, State.FAILED, State.DESTROY_BEGUN}),
        State.DESTROYED: frozenset({State.PLANNED}),
    }
)


@dataclass(frozen=True)
class Attempt:
    """One lifetime of an item's stack. `ended`: None while it exists; `usd_at_once`: fixed cost of the start."""

    began: datetime
    ended: datetime | None
    usd_per_hour: float | None
    usd_at_once: float

    def hours(self, now: datetime) -> float:
        """Hours of its existence."""
        return ((self.ended or now) - self.began).total_seconds() / 3600

    def usd(self, now: datetime) -> float:
        """Its cost; hours of unknown price count as 0 (they are refused before the start)."""
        return self.usd_at_once + self.hours(now) * (self.usd_per_hour or 0.0)


@dataclass(frozen=True)
class Progress:
    """An item in the journal. `stopped`: whether a user stopped it, so that it may be retried."""

    state: State | None = None
    recorded: bool = False
    reason: str = ""
    stopped: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()

    @property
    def is_up(self) -> bool:
        """Whether something of it may cost money."""
        return any(attempt.ended is None for attempt in self.attempts)

    @property
    def is_finished(self) -> bool:
        """Whether it is finished: recorded or failed by itself, and nothing exists."""
        return not self.is_up and (self.recorded or (bool(self.reason) and not self.stopped))

    @property
    def outcome(self) -> str:
        """recorded, stopped or failed; empty before that."""
        if self.recorded:
            return "recorded"
        return "" if not self.reason else "stopped" if self.stopped else "failed"

    def after(self, line: Mapping[str, Any]) -> "Progress":
        """The progress after one more line."""
        facts = {**self.facts, **line.get("facts", {})}
        if "state" not in line:
            return replace(self, facts=facts)
        state, at = State(line["state"]), datetime.fromisoformat(line["at"])
        changed = replace(self, state=state, facts=facts)
        match state:
            case State.PLANNED:
                return Progress(state=state, attempts=self.attempts)
            case State.UP_BEGUN:
                attempt = Attempt(at, None, line.get("usd_per_hour"), line.get("usd_at_once", 0.0))
                return replace(changed, attempts=(*self.attempts, attempt))
            case State.RECORDED:
                return replace(changed, recorded=True)
            case State.FAILED:
                # The first reason is the cause; later ones follow from it.
                first = {} if self.reason else {"reason": line["reason"], "stopped": line.get("stopped", False)}
                return replace(changed, **first)
            case State.DESTROYED:
                ended = replace(self.attempts[-1], ended=at)
                return replace(changed, attempts=(*self.attempts[:-1], ended))
        return changed


class Journal:
    """The open journal of one suite, held by one process at a time. Use `create` or `open`."""

    def __init__(self, path: Path, file: IO[bytes], now: Callable[[], datetime]) -> None:
        self.path, self._file, self._now = path, file, now
        self.header: dict[str, Any] = {}
        self.items: dict[str, Progress] = {}

    @classmethod
    @contextmanager
    def create(
        cls, run_dir: Path, header: Mapping[str, Any], now: Callable[[], datetime] = _utc_now
    ) -> Iterator["Journal"]:
        """Create the journal of a new run directory."""
        with _open_locked(run_dir / JOURNAL_FILE, "x+b") as file:
            journal = cls(run_dir / JOURNAL_FILE, file, now)
            journal.header = dict(header)
            journal._append({"header": journal.header})
            yield journal

    @classmethod
    @contextmanager
    def open(cls, run_dir: Path, now: Callable[[], datetime] = _utc_now) -> Iterator["Journal"]:
        """Continue the journal of a run directory. InputError: none, damaged, or held by another process."""
        path = run_dir / JOURNAL_FILE
        with _open_locked(path, "r+b") as file:
            journal = cls(path, file, now)
            content = file.read()
            journal.header, journal.items = _replay(path, content)
            cut_half_line(file, content)
            yield journal

    def __getitem__(self, item: str) -> Progress:
        return self.items.get(item, Progress())

    def enter(self, item: str, state: State, **more: Any) -> None:
        """Write an item's new state, a valid successor; it is on disk on return."""
        before = self[item].state
        allowed = {State.PLANNED} if before is None else _NEXT[before]
        assert state in allowed, f"{item}: {state} after {before}"
        self._write({"item": item, "state": state.value, **more}, needed=state in (State.PLANNED, State.UP_BEGUN))

    def note(self, item: str, **facts: Any) -> None:
        """Write facts that do not change the state, such as a process id."""
        self._write({"item": item, "facts": facts}, needed=False)

    def now(self) -> datetime:
        """The time of the next line."""
        return self._now()

    def _write(self, line: Mapping[str, Any], *, needed: bool) -> None:
        """Nothing starts without its line on disk, but a full disk must not prevent a destroy."""
        try:
            self._take(self._append(line))
        except OSError:
            if needed:
                raise
            self._take({"at": self._now().isoformat(), **line})

    def _take(self, line: Mapping[str, Any]) -> None:
        self.items[line["item"]] = self[line["item"]].after(line)

    def _append(self, line: Mapping[str, Any]) -> dict[str, Any]:
        stamped = {"at": self._now().isoformat(timespec="milliseconds"), **line}
        append_line(self._file, stamped)
        return stamped


def read_journal(run_dir: Path) -> tuple[dict[str, Any], dict[str, Progress]]:
    """Header and items of a journal that another process may hold. InputError: damaged. OSError: unreadable, a link."""
    return _replay(run_dir / JOURNAL_FILE, read_regular(run_dir, JOURNAL_FILE))


def _replay(path: Path, content: bytes) -> tuple[dict[str, Any], dict[str, Progress]]:
    lines, items = _lines(path, content), dict[str, Progress]()
    for line in lines[1:]:
        items[line["item"]] = items.get(line["item"], Progress()).after(line)
    return lines[0]["header"], items


@contextmanager
def _open_locked(path: Path, mode: str) -> Iterator[IO[bytes]]:
    """The file, locked for the lifetime of the process."""
    try:
        file = open_file(path, mode)
    except FileNotFoundError:
        raise InputError(
            str(path.parent),
            "contains no journal of a suite",
            value=str(path),
            allowed="a folder created by `gangway bench run`, such as runs/local-smoke-20260101-120000",
            fix="name that folder",
        ) from None
    except OSError as error:
        raise InputError(
            str(path), f"cannot be opened: {error.strerror}", fix="make it readable and writable"
        ) from None
    with file:
        try:
            lock(file)
        except BlockingIOError:
            raise InputError(
                str(path), "is in use by another `gangway bench`", fix="wait for it, or stop it with Ctrl-C"
            ) from None
        yield file


def _lines(path: Path, content: bytes) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(complete_lines(content), 1):
        try:
            line = all_visible(json.loads(text))
            line["at"], line["header"] if number == 1 else line["item"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _damaged(path, number) from None
        lines.append(line)
    if not lines:
        raise _damaged(path, 1)
    return lines


def _damaged(path: Path, number: int) -> InputError:
    return InputError(
        f"{path}, line {number}",
        "cannot be read",
        allowed="a line written by `gangway bench run`",
        fix="restore the file, or find the stacks with `pulumi stack ls` and `pulumi destroy` them",
    )
