"""A job's state from outside: the record, progress and end that its nodes put into the run folder."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gangway.components.core.findings import InputError
from gangway.components.core.first_error import first_wrong
from gangway.runs.run_store import EndedRecord, RunStore, StoreFailedError, read_end
from gangway.trainer.records.decisions import DecisionRecord

RECORD_FILE, PROGRESS_FILE = "run.json", "progress.json"
_MAX_BYTES = 64_000_000
_MAX_PROGRESS_BYTES = 4096
"""Many times what a node writes."""
_FIX = "run it as the account that runs `up`, which may read the run bucket"


def _known_fields(decision: Any) -> Any:
    """Drops fields that other versions add."""
    if not isinstance(decision, dict):
        return decision
    return {name: value for name, value in decision.items() if name in DecisionRecord.model_fields}


class _Session(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    end: AwareDatetime | None = None


class _Record(BaseModel):
    """The fields used here, which every version has."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = Field(pattern=r"^[A-Za-z0-9._-]*$", max_length=200)
    status: Literal["running", "interrupted", "done"]
    images: int = Field(ge=0)
    sessions: tuple[_Session, ...] = ()
    decisions: tuple[Annotated[DecisionRecord, BeforeValidator(_known_fields)], ...] = ()


class JobProgress(BaseModel):
    """Progress of a running trainer, which its nodes put next to the record every ten minutes
    (`images/templates/node/upload-record.sh`). Only a record, put when the trainer stops, says that it ended.

    Attributes:
        images: number done.
        time: in seconds since 1970, by the clock of the node that wrote the statistics.
    """

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
                f"not a job's progress: {first_wrong(error)}",
                fix="check who else writes there",
            ) from None


@dataclass(frozen=True)
class JobState:
    """What is known of a job.

    Attributes:
        url: of the run folder.
        record: None if there is none yet.
        end: how it ended without being done; None if unknown.
        progress: None if the record is newer, or if there is none.
    """

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
                f"{store.url}/{RECORD_FILE}",
                f"not a record: {first_wrong(error)}",
                fix="check who else writes there",
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
    def decisions(self) -> tuple[DecisionRecord, ...]:
        """Of its controller, from its record."""
        return () if self.record is None else self.record.decisions

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.end is not None or (self.record is not None and self.record.status == "done")

    def why_ended(self, run_id: str | None, since: datetime | None) -> str:
        """How the job that ran at `since` ended; empty if it has not. `run_id`: its record's id. Earlier ends belong to
        attempts that were restarted; None for both: any end counts.
        """
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
