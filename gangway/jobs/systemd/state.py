"""A job's state from outside: the record, progress and end that its nodes put into the run folder, and its controller:
its settings, its last decisions, and how to switch it off.

Nothing is switched from here: the switch is a file in the run folder, made by the job's own user on a machine with that
folder. Off is safe: writing that file can only leave the run as it is.
"""

import json
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import visible
from gangway.images.shell import CONTAINER_NAME
from gangway.images.specs import HELD_OBJECT
from gangway.runs.run_folders import STATS
from gangway.runs.run_store import (
    EndedRecord,
    NodeRecord,
    RunStore,
    StoreFailedError,
    bucket_region,
    object_store,
    read_end,
    runs_url,
)
from gangway.stacks.base.registry import load_adapter, providers_with_adapter
from gangway.trainer.config.values.control import SWITCH_FILE, ControlSettings
from gangway.trainer.core.host import MODULE, program
from gangway.trainer.core.regular_files import MOST_BYTES_OF_STATS, read_regular
from gangway.trainer.core.validation import first_mistake
from gangway.trainer.records.decisions import CONTROLLER, OF_DECISIONS, DecisionRecord, decisions
from gangway.trainer.records.quantity import Quantity

RECORD_FILE, PROGRESS_FILE = "run.json", "progress.json"
_MAX_BYTES = 64_000_000
_MAX_PROGRESS_BYTES = 4096
"""Many times what a node writes."""
_FIX = "run it as the account that runs `up`, which may read the run bucket"
_MOST_SHOWN = 3
"""The newest decisions."""
_MOST_CHARACTERS = 300
"""Per decision: its text comes from the run."""


def _known_fields(decision: Any) -> Any:
    """Drops fields that other versions add."""
    if not isinstance(decision, dict):
        return decision
    return {name: value for name, value in decision.items() if name in DecisionRecord.model_fields}


class _Session(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    end: AwareDatetime | None = None


def _or_none(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Fields that other versions may write in another form are left out."""
    try:
        return validate(value)
    except ValidationError:
        return None


class Stop(BaseModel):
    """An interruption of a run."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    at: AwareDatetime
    cause: str
    images: int


class _Cost(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    total_usd: Quantity


class _Record(BaseModel):
    """The fields used here. Every version has those without a default."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = Field(pattern=r"^[A-Za-z0-9._-]*$", max_length=200)
    status: Literal["running", "interrupted", "done"]
    images: int = Field(ge=0)
    sessions: tuple[_Session, ...] = ()
    decisions: tuple[Annotated[DecisionRecord, BeforeValidator(_known_fields)], ...] = ()
    interruptions: Annotated[tuple[Stop, ...] | None, WrapValidator(_or_none)] = None
    images_per_sec: Annotated[Quantity | None, WrapValidator(_or_none)] = None
    cost: Annotated[_Cost | None, WrapValidator(_or_none)] = None


class JobProgress(BaseModel):
    """Progress that a running trainer's nodes put next to the record every ten minutes; `time`: Unix seconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1]
    images: int = Field(ge=0, le=10**15)
    time: AwareDatetime

    @classmethod
    def read(cls, store: RunStore) -> Self | None:
        """None if there is none. InputError: not written by a node. StoreFailedError: as RunStore's."""
        content = store.read(PROGRESS_FILE, _MAX_PROGRESS_BYTES)
        try:
            return None if content is None else cls.model_validate_json(content)
        except ValidationError as error:
            raise InputError(
                f"{store.url}/{PROGRESS_FILE}",
                f"not a job's progress: {first_mistake(error)}",
                fix="check who else writes there",
            ) from None


@dataclass(frozen=True)
class JobState:
    """`end`: how it ended without being done; `progress`: None if the record is newer, too."""

    url: str
    record: _Record | None
    end: EndedRecord | None
    progress: JobProgress | None = None

    @classmethod
    def read(cls, store: RunStore) -> Self:
        """InputError: the folder cannot be read, or its content was not written by a node."""
        try:
            content = store.read(RECORD_FILE, _MAX_BYTES)
            end, progress = read_end(store), JobProgress.read(store)
            record = None if content is None else _Record.model_validate_json(content)
        except StoreFailedError as error:
            raise InputError(store.url, str(error), fix=_FIX) from None
        except ValidationError as error:
            raise InputError(
                f"{store.url}/{RECORD_FILE}", f"not a record: {first_mistake(error)}", fix="check who else writes there"
            ) from None
        recorded_at = _recorded_at(record)
        is_newer = progress is not None and (recorded_at is None or progress.time > recorded_at)
        return cls(store.url, record, end, progress if is_newer else None)

    @property
    def images(self) -> int:
        """Number done, from its progress or else its record; 0 before both."""
        if self.progress is not None:
            return self.progress.images
        return 0 if self.record is None else self.record.images

    @property
    def reported_at(self) -> datetime | None:
        """When this number was reported; None if unknown."""
        return _recorded_at(self.record) if self.progress is None else self.progress.time

    @property
    def recorded_at(self) -> datetime | None:
        """When the record's last session ended; None if unknown."""
        return _recorded_at(self.record)

    @property
    def decisions(self) -> tuple[DecisionRecord, ...]:
        """Of its controller, from its record."""
        return () if self.record is None else self.record.decisions

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.end is not None or (self.record is not None and self.record.status == "done")

    def why_ended(self, run_id: str | None, since: datetime | None) -> str:
        """How the job ended after `since`; empty if it has not. Earlier ends belong to attempts that were restarted."""
        if self.record is not None and self.record.status == "done" and run_id in (None, self.record.id):
            return "its record is done"
        ends_it = self.end is not None and run_id in (None, self.end.run_id)
        if self.end is not None and ends_it and (since is None or self.end.time >= since):
            return f"{self.end.reason}, {self.end.time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return ""

    def lines(self, command_of: str = "") -> list[str]:
        """For display. `command_of`: the stack if its job is a custom command, which writes no run.json."""
        if command_of and self.record is None:
            record = f"its command's usage, once recorded: gangway job record {command_of} --stack"
        elif self.record is None:
            record = "no record yet: nodes write it when the trainer stops"
        else:
            at = self.record.sessions[-1].end if self.record.sessions else None
            when = f", {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if at is not None else ""
            record = f"record {self.record.id}: {self.record.status}, {self.record.images:,} images{when}"
        lines = [f"run in {self.url}", record]
        if self.progress is not None and not self.is_over:
            at = self.progress.time.astimezone(UTC)
            lines.append(f"last seen at {self.progress.images:,} images, {at:%Y-%m-%d %H:%M} UTC")
        return [*lines, *([str(self.end)] if self.end is not None else [])]


def _recorded_at(record: _Record | None) -> datetime | None:
    """When the record's last session ended; None if unknown."""
    sessions = () if record is None else record.sessions
    return max((one.end for one in sessions if one.end is not None), default=None)


def stack_lines(job: object, made: Sequence[DecisionRecord], *, over: bool) -> Iterator[str]:
    """For a stack's job, with the decisions of its newest record; empty without a controller."""
    training = job.get("training") if isinstance(job, Mapping) else None
    if not training or training["controller"] is None:
        return
    asked = ControlSettings.model_validate_json(json.dumps(training["controller"]))
    yield f"controller: {asked.choice}"
    yield from _last(made, "from its record")
    if not over:
        command = f"{MODULE} control off --run-dir {shlex.quote(training['run_dir'])}"
        yield (
            "  switch it off on worker 0's node, or on any node if they share the folder: "
            f"sudo docker exec {CONTAINER_NAME} {command}"
        )


def folder_lines(folder: Path, *, over: bool) -> Iterator[str]:
    """The same for a local run folder. InputError: its log cannot be read or has an invalid decision."""
    lines = _events(folder)
    asked = [line for line in lines if line["event"] == CONTROLLER]
    try:
        made = decisions(lines)
        choice = ControlSettings.model_validate_json(json.dumps(asked[-1]["settings"])).choice if asked else ""
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
        why = visible(str(error)).partition("\n")[0]
        fix = "restore it from a copy, or check who else writes there"
        raise InputError(str(folder / STATS), f"has an invalid decision: {why}", fix=fix) from None
    if not asked and not made:
        return
    off = (folder / SWITCH_FILE).exists()
    switched = f"; switched off, by {SWITCH_FILE} in its folder" if off else ""
    yield f"controller: {choice or 'unknown, its log does not name it'}{switched}"
    yield from _last(made, "from its log")
    if over:
        return
    if off:
        yield f"  switch it on again: {program()} control on --run-dir {shlex.quote(str(folder))}"
    else:
        yield f"  switch it off: {program()} control off --run-dir {shlex.quote(str(folder))}"


def _events(folder: Path) -> list[dict[str, Any]]:
    """The log's controller events, without unreadable lines: a killed session leaves half a line."""
    try:
        content = read_regular(folder, STATS, MOST_BYTES_OF_STATS)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(
            str(folder / STATS), f"cannot be read: {error.strerror or error}", fix="fetch it again"
        ) from None
    found = (_json(text) for text in content.split(b"\n") if b'"event"' in text)
    wanted = (CONTROLLER, "resume", *OF_DECISIONS)
    return [line for line in found if isinstance(line, dict) and line.get("event") in wanted]


def _json(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _last(made: Sequence[DecisionRecord], source: str) -> Iterator[str]:
    if not made:
        yield f"  no decisions, {source}"
        return
    yield f"  the last of {len(made)} decision{'' if len(made) == 1 else 's'}, {source}:"
    for one in made[-_MOST_SHOWN:]:
        words = textwrap.shorten(visible(one.sentence), _MOST_CHARACTERS, placeholder=" ...")
        yield f"    {_when(one.at)}, {one.images:,} images: {words}"


def _when(at: str) -> str:
    try:
        return f"{datetime.fromisoformat(at).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError):
        return visible(at)[:40]


# A stack's circuit breaker from outside: why launches are held (`gangway.images.node.breaker`), and their release.

FOLDER = "breaker/"
_MAX_HELD_BYTES = 65_536
_BREAKER_FIX = "run it as the account that runs `up`, which can read and write the run bucket"


class HeldRecord(NodeRecord):
    """Written by the node that opened the breaker; `reason`: the last node's."""

    reason: str = Field(max_length=1000)
    given_up: int = Field(ge=1)
    within_minutes: int = Field(ge=1)
    nodes: tuple[str, ...] = Field(max_length=50)

    def __str__(self) -> str:
        """Without control characters: a node chose the reason's text."""
        words = "".join(one if one.isprintable() else " " for one in self.reason)
        return (
            f"since {self.time.astimezone(UTC):%Y-%m-%d %H:%M} UTC launches of {self.stack} are held: "
            f"{self.given_up} nodes gave up within {self.within_minutes} minutes, the last, {self.node}, "
            f"because: {' '.join(words.split())}"
        )


@dataclass(frozen=True)
class Breaker:
    """Of one stack, whose name is also the job's. `region`: of AWS's groups and bucket; `url`: of the run folder."""

    provider: str
    stack: str
    region: str
    group_names: Sequence[str]
    url: str

    def read_held(self) -> HeldRecord | None:
        """Why launches are held; None if they are not. InputError: the bucket or its content cannot be read."""
        try:
            content = self.store.read(HELD_OBJECT, _MAX_HELD_BYTES)
        except StoreFailedError as error:
            raise InputError(self.url, str(error), fix=_BREAKER_FIX) from None
        if content is None:
            return None
        try:
            return HeldRecord.model_validate_json(content)
        except ValidationError as error:
            raise InputError(
                f"{self.url}/{HELD_OBJECT}",
                f"not written by this version's nodes: {first_mistake(error)}",
                fix=f"check who else writes there; `gangway breaker reset {self.stack}` lets the groups launch again",
            ) from None

    def reset(self) -> list[str]:
        """Removes the nodes' marks and lets groups launch again; what was done, a line each. InputError: refused."""
        try:
            mine = [name for name in self.store.names() if name.startswith(FOLDER)]
        except StoreFailedError as error:
            raise InputError(self.url, str(error), fix=_BREAKER_FIX) from None
        # Resume first, since the cloud may refuse: `show` reports held launches while the marks exist.
        done = self._resume() if load_adapter(self.provider, "scaling").SUSPENDS_LAUNCHES else []
        self._remove(mine)
        return [*done, f"removed {len(mine)} objects of {self.url}/{FOLDER}"]

    def _resume(self) -> list[str]:
        """Resumes launches, and the alarms that fill a rung unless the job has ended: they would add idle nodes."""
        try:
            held = self.read_held()
        except InputError:  # unreadable, so the time is unknown
            held = None
        run_id, since = (held.run_id, held.time) if held is not None else (None, None)
        try:
            ended, doubt = JobState.read(self.store).why_ended(run_id, since), ""
        except InputError as error:
            ended, doubt = "", str(error).splitlines()[0]
        processes = ["Launch", *(["AlarmNotification"] if not ended else [])]
        load_adapter(self.provider, "scaling").resume(self.region, self.group_names, processes)
        done = [f"resumed {' and '.join(processes)} of {', '.join(self.group_names)}"]
        if doubt:
            done.append(f"unknown whether the job has ended: {doubt}")
        if ended:
            stays = "AlarmNotification stays suspended, since the job has ended"
            done.append(f"{stays} ({ended}); `up --refresh` resumes it")
        return done

    @property
    def store(self) -> RunStore:
        """The run folder."""
        return RunStore(self.url, bucket_region(self.provider, self.region))

    def _remove(self, names: Sequence[str]) -> None:
        from botocore.exceptions import BotoCoreError
        from obstore.exceptions import BaseError

        try:
            if names:
                object_store(self.url, bucket_region(self.provider, self.region)).delete(list(names))
        except (BaseError, BotoCoreError, OSError, ValueError) as error:
            raise InputError(
                f"{self.url}/{FOLDER}", f"cannot be emptied: {str(error).splitlines()[0]}", fix=_BREAKER_FIX
            ) from None


def replaces_nodes(provider: str) -> bool:
    """Whether its groups replace lost nodes."""
    return provider in providers_with_adapter("scaling")


def check_launches(provider: str) -> None:
    """InputError: the provider does not replace nodes."""
    if not replaces_nodes(provider):
        raise InputError(
            "gangway:provider",
            "this provider does not replace nodes, so there is nothing to hold",
            value=provider,
            allowed=", ".join(providers_with_adapter("scaling")),
            fix="repair the machine; on OpenStack the next `up` makes a new one",
        )


def get_breaker(provider: str, stack: str, region: str, outputs: Mapping[str, Any]) -> Breaker:
    """InputError: the stack is not up."""
    if not (outputs.get("run_bucket") or outputs.get("run_bucket_url")):
        raise InputError(
            f"pulumi stack output --stack {stack}", "no run_bucket: the stack is not up", fix="pulumi up, or nothing"
        )
    return Breaker(provider, stack, region, outputs.get("group_names") or [], runs_url(provider, outputs, stack))
