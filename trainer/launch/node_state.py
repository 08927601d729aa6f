"""The state that a job's nodes share: a file per node in the job's folder, and one for the end of the whole job.

A damaged file is reported and skipped: nothing here may end a job that could continue.
"""

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gangway.trainer.core.console import announce
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import write_atomically
from gangway.trainer.core.regular_files import open_file

_MAX_BYTES = 1_000_000
SILENT_SEC = 300.0  # A node without a beat for this long is dead: several beats, and the clocks' differences
_NODE_FILE = re.compile(r"node-([A-Za-z0-9._-]{1,200})\.json")
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")
_OVER_FILE = "over.json"
_Seconds = Annotated[float, Field(allow_inf_nan=False)]
_Length = Annotated[float, Field(ge=0, allow_inf_nan=False)]
T = TypeVar("T", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Standing(StrEnum):
    """A node's place in the job."""

    GOING_ON = "going on"
    LEFT = "left"
    """Stopped in order: it, or its replacement, may come again."""
    LOST = "lost"
    """Failed for good: it needs a replacement."""
    OVER = "over"
    """The job has ended for all."""


class Failure(_Strict):
    """An end of the workers that counts: seconds since 1970 and exit code."""

    at: _Seconds
    code: int = Field(ge=1, le=255)


class Interval(_Strict):
    """A time in which a node was up: its start by the wall clock, its length by the monotonic one."""

    began: _Seconds
    length_sec: _Length


class NodeState(_Strict):
    """A node's state. Times are seconds since 1970."""

    version: Literal[1] = 1
    standing: Annotated[Standing, Field(strict=False)] = Standing.GOING_ON
    seen_at: _Seconds  # when it wrote this
    # of the launcher's machine, unless it has stopped: on its own boot a launcher knows that the last was killed
    boot_id: str = Field(default="", max_length=100)
    intervals: tuple[Interval, ...] = Field(default=(), max_length=10_000)  # in which it was up, the current one last
    failures: tuple[Failure, ...] = Field(default=(), max_length=1_000)  # of its workers, oldest first
    lost_at: tuple[_Seconds, ...] = Field(default=(), max_length=1_000)  # when machines of this name failed for good
    # when machines of this name were last seen before they died
    gone_at: tuple[_Seconds, ...] = Field(default=(), max_length=1_000)
    again_at: _Seconds = 0.0  # when a user restarted here a job that had ended for all; 0 for never


class Over(_Strict):
    """How the job ended for all: every launcher's exit code, the node that decided it, and when."""

    version: Literal[1] = 1
    code: int = Field(ge=0, le=255)
    node: str = Field(pattern=r"^[A-Za-z0-9._-]*$", max_length=200)
    at: _Seconds


class JobFolder:
    """The job's folder as one node sees it. Each read or write error is reported once."""

    def __init__(self, folder: Path, node: str) -> None:
        self.path, self.node = folder, _NO_NAME.sub("-", node)[:200]
        self._reported: set[str] = set()

    def nodes(self) -> dict[str, NodeState]:
        """Returns the last state of all nodes, by name."""
        found = {}
        try:
            paths = sorted(self.path.iterdir()) if self.path.is_dir() else []
        except OSError as error:
            self._report(f"cannot look into {self.path}: {error.strerror}")
            return {}
        for path in paths:
            if (match := _NODE_FILE.fullmatch(path.name)) and (state := self._read(path, NodeState)) is not None:
                found[match[1]] = state
        return found

    def write(self, state: NodeState) -> None:
        """Writes this node's state."""
        self._write(f"node-{self.node}.json", state)

    def over(self) -> Over | None:
        """Returns how the job ended for all; None where it has not."""
        return self._read(self.path / _OVER_FILE, Over)

    def write_over(self, code: int) -> None:
        """Records that the job has ended for all."""
        self._write(_OVER_FILE, Over(code=code, node=self.node, at=time.time()))

    def forget_over(self) -> None:
        """Removes the record of the job's end, as a user has restarted it."""
        with contextlib.suppress(OSError):
            (self.path / _OVER_FILE).unlink(missing_ok=True)

    def note(self, event: str, state: str, code: int | None) -> None:
        """Adds a line to this node's log of changes."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, "state": state, "exit_code": code})
        self._try_write(lambda: self._append(f"node-{self.node}.jsonl", line))

    def _append(self, name: str, line: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with open_file(self.path / name, "ab") as file:
            file.write(f"{line}\n".encode())

    def _write(self, name: str, content: BaseModel) -> None:
        self._try_write(lambda: write_atomically(self.path / name, content.model_dump_json().encode() + b"\n"))

    def _try_write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except TrainerError as error:
            self._report(f"other nodes cannot hear of this one: {error.headline}")
        except OSError as error:
            self._report(f"cannot write below {self.path}: {error.strerror}")

    def _read(self, path: Path, kind: type[T]) -> T | None:
        try:
            with open_file(path) as file:
                content = file.read(_MAX_BYTES + 1)
            if len(content) > _MAX_BYTES:
                raise ValueError("too long")
            return kind.model_validate_json(content)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._report(f"{path} cannot be read: {error.strerror}")
        except ValidationError as error:
            self._report(f"{path} is damaged, and left out: {error.errors()[0]['msg']}")
        except ValueError as error:
            self._report(f"{path} is damaged, and left out: {error}")
        return None

    def _report(self, sentence: str) -> None:
        if sentence not in self._reported:
            self._reported.add(sentence)
            announce(sentence)


def union_sec(intervals: Iterable[Interval]) -> float:
    """Seconds that lie in at least one of the intervals.

    >>> union_sec(Interval(began=began, length_sec=10) for began in (0, 5, 90))
    25.0
    """
    total, until = 0.0, float("-inf")
    for began, ended in sorted((each.began, each.began + each.length_sec) for each in intervals):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


@dataclass(frozen=True)
class SpendingLimit:
    """What a job may spend on its nodes, over all starts; the price is that of one node."""

    max_usd: float
    usd_per_node_hour: float

    def spent_usd(self, nodes: Mapping[str, NodeState]) -> float:
        """Returns the cost of the time for which launchers were up, on all nodes."""
        up_sec = sum(each.length_sec for state in nodes.values() for each in state.intervals)
        return up_sec / 3600 * self.usd_per_node_hour

    def left_sec(self, nodes: Mapping[str, NodeState], now: float) -> float:
        """Returns after how long the limit is reached if as many nodes stay up; negative once it was.

        >>> up = NodeState(seen_at=0, intervals=(Interval(began=0, length_sec=3600),))
        >>> SpendingLimit(max_usd=60, usd_per_node_hour=10).left_sec({"a": up, "b": up}, now=0)
        7200.0
        """
        num_up = sum(
            state.standing is Standing.GOING_ON and state.seen_at > now - SILENT_SEC for state in nodes.values()
        )
        left_usd = self.max_usd - self.spent_usd(nodes)
        return left_usd / self.usd_per_node_hour * 3600 / max(1, num_up)


def used_sec(nodes: Mapping[str, NodeState]) -> float:
    """Returns the used seconds of a job's hours, at least each node's uptime, whatever its wall clock was set to."""
    union = union_sec(each for state in nodes.values() for each in state.intervals)
    return max([union, *(sum(each.length_sec for each in state.intervals) for state in nodes.values())])
