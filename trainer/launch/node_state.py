"""What the nodes of a job tell each other, and their own next start: a file of each in the job's folder, and one that
says how the job has ended for all. Written whole or not at all, by the job's user; root reads none of it.

A file that is damaged, or another version's, is told of and left out: nothing here may end a job that could go on.
"""

import contextlib
import json
import re
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.core.console import announce
from trainer.core.errors import TrainerError
from trainer.core.files import write_atomically
from trainer.core.regular_files import open_file

_MAX_BYTES = 1_000_000
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
    """Told to leave, in order: it, or one in its place, may come again."""
    LOST = "lost"
    """It has failed for good: another is wanted in its place."""
    OVER = "over"
    """It has heard that the job has ended for all."""


class Failure(_Strict):
    """An end of the workers that counts: when (seconds since 1970), and their exit code."""

    at: _Seconds
    code: int = Field(ge=1, le=255)


class Interval(_Strict):
    """A time in which a node was up: its beginning by the wall clock, its length by one that nobody sets."""

    began: _Seconds
    length_sec: _Length


class NodeState(_Strict):
    """What a node says of itself.

    Attributes:
        standing: its place in the job.
        seen_at: seconds since 1970 when it wrote this.
        boot_id: of the machine whose launcher runs, or had ended for good; empty where it ended otherwise: one that
            goes on and finds its own boot's name here knows that the one before it was killed.
        intervals: in which it was up, the present one last.
        failures: of its workers, oldest first.
        lost_at: when machines of this name have failed for good.
        gone_at: when one was seen last before it was gone without a word.
        again_at: when somebody had the job begin again here after it had ended for all; 0 for never.
    """

    version: Literal[1] = 1
    standing: Annotated[Standing, Field(strict=False)] = Standing.GOING_ON
    seen_at: _Seconds
    boot_id: str = Field(default="", max_length=100)
    intervals: tuple[Interval, ...] = Field(default=(), max_length=10_000)
    failures: tuple[Failure, ...] = Field(default=(), max_length=1_000)
    lost_at: tuple[_Seconds, ...] = Field(default=(), max_length=1_000)
    gone_at: tuple[_Seconds, ...] = Field(default=(), max_length=1_000)
    again_at: _Seconds = 0.0


class Over(_Strict):
    """How the job has ended for all: what every launcher ends with, who said so, and when."""

    version: Literal[1] = 1
    code: int = Field(ge=0, le=255)
    node: str = Field(pattern=r"^[A-Za-z0-9._-]*$", max_length=200)
    at: _Seconds


class JobFolder:
    """The job's folder as one node sees it. What cannot be read or written is told once."""

    def __init__(self, folder: Path, node: str) -> None:
        self.path, self.node = folder, _NO_NAME.sub("-", node)[:200]
        self._told: set[str] = set()

    def nodes(self) -> dict[str, NodeState]:
        """What all nodes have said last, by their names."""
        found = {}
        try:
            paths = sorted(self.path.iterdir()) if self.path.is_dir() else []
        except OSError as error:
            self._tell(f"cannot look into {self.path}: {error.strerror}")
            return {}
        for path in paths:
            if (named := _NODE_FILE.fullmatch(path.name)) and (state := self._read(path, NodeState)) is not None:
                found[named[1]] = state
        return found

    def write(self, state: NodeState) -> None:
        """Has this node say so."""
        self._write(f"node-{self.node}.json", state)

    def over(self) -> Over | None:
        """How the job has ended for all; None where nobody has said so."""
        return self._read(self.path / _OVER_FILE, Over)

    def write_over(self, code: int) -> None:
        """Tells all who wait, or come later, that the job has ended."""
        self._write(_OVER_FILE, Over(code=code, node=self.node, at=time.time()))

    def forget_over(self) -> None:
        """Somebody has a node start again that had ended for good: all may."""
        with contextlib.suppress(OSError):
            (self.path / _OVER_FILE).unlink(missing_ok=True)

    def note(self, event: str, state: str, code: int | None) -> None:
        """A line in this node's log of changes, beside its file."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, "state": state, "exit_code": code})
        self._try(lambda: self._append(f"node-{self.node}.jsonl", line))

    def _append(self, name: str, line: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with open_file(self.path / name, "ab") as file:
            file.write(f"{line}\n".encode())

    def _write(self, name: str, content: BaseModel) -> None:
        self._try(lambda: write_atomically(self.path / name, content.model_dump_json().encode() + b"\n"))

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
        except TrainerError as error:
            self._tell(f"other nodes cannot hear of this one: {error.headline}")
        except OSError as error:
            self._tell(f"cannot write below {self.path}: {error.strerror}")

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
            self._tell(f"{path} cannot be read: {error.strerror}")
        except ValidationError as error:
            self._tell(f"{path} is damaged, and left out: {error.errors()[0]['msg']}")
        except ValueError as error:
            self._tell(f"{path} is damaged, and left out: {error}")
        return None

    def _tell(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            announce(sentence)
