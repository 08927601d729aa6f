"""EndedRecord: what a node puts beside a run's record (`images/templates/node/common.sh`, put_end) where the job has
ended for good and will not be done. A node that is interrupted writes none: its job goes on.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from components.core.first_error import first_wrong
from gangway.runs.errors import Failure, RunFailedError, StoreFailedError
from gangway.runs.run_store import RunStore

ENDED_FILE = "ended.json"
_MAX_BYTES = 4096
"""Many times what a node writes; more is somebody else's file."""
_CLOCKS_APART = timedelta(minutes=2)
"""How much a node's clock may be behind this machine's. An attempt takes about as long at least, from `up` to its end;
with more, the end of one that is stopped and begun anew at once would count for both."""
_NAME = r"^[A-Za-z0-9._-]*$"
_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "bad-input": "what it was given cannot be trained on, or not on such GPUs",
        "fabric-too-slow": "the all-reduce before the job was below gangway:cluster.fabric_check",
        "max-hours": "the job's hours, those with a node up, were over before it was done",
        "too-many-failures": "it failed again and again, on every node that came or on as many as it takes at most",
    }
)


class EndedRecord(BaseModel):
    """The end of a job that is not done. `run_id`: of the record that does not come; empty where nobody had said one;
    `stack`: whose job it was; `node`: that said so; `code`: the trainer's exit status; `reason`: as the event
    `job-ended` has it; `time`: when.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[1]
    run_id: str = Field(pattern=_NAME, max_length=100)
    stack: str = Field(pattern=_NAME, max_length=100)
    node: str = Field(pattern=_NAME, max_length=255)
    code: int = Field(ge=1, le=255)
    reason: str = Field(pattern=r"^[a-z][a-z-]{0,39}$")
    time: AwareDatetime

    def __str__(self) -> str:
        """The end in words."""
        meaning = _MEANINGS.get(self.reason, "no reason that this version knows")
        return (
            f"the trainer has ended for good on {self.node}, {self.time.astimezone(UTC):%Y-%m-%d %H:%M} UTC: "
            f"{self.reason}, exit code {self.code}: {meaning}; see docs/troubleshooting.md, 'The job ended early'"
        )


class _Owner(BaseModel):
    """Whose end it is."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    run_id: str


def check_goes_on(store: RunStore, run_id: str, began: datetime | None = None) -> None:
    """Looks for the end of a run whose record is not done. `run_id`: of the run; another's end, in the same place, is
    none of its; `began`: when this attempt at it did; the end of one before, which left its file there, is none of
    its. None for any time. RunFailedError: it has ended for good, and why; StoreFailedError: the folder cannot be
    read; or, of the kind ODD, what is there is no node's end.
    """
    ended = read_end(store, run_id)
    is_of_before = ended is not None and began is not None and ended.time < began - _CLOCKS_APART
    if ended is not None and not is_of_before:
        raise RunFailedError(str(ended))


def read_end(store: RunStore, run_id: str | None = None) -> EndedRecord | None:
    """What stands in a run's folder of its end; None for nothing, or for another run's than `run_id` (None: any).
    StoreFailedError: the folder cannot be read; of the kind ODD, what is there is no node's end.
    """
    content = store.read(ENDED_FILE, _MAX_BYTES)
    if content is None or (run_id is not None and _is_anothers(content, run_id)):
        return None
    try:
        return EndedRecord.model_validate_json(content)
    except ValidationError as error:
        raise StoreFailedError(
            f"{store.url}/{ENDED_FILE}: not what this version's nodes write: {first_wrong(error)}; "
            "look who else writes there",
            Failure.ODD,
        ) from None


def _is_anothers(content: bytes, run_id: str) -> bool:
    """Whether it names another run, whatever else it says: another version's nodes may say more."""
    try:
        return _Owner.model_validate_json(content).run_id != run_id
    except ValidationError:
        return False
