"""EndedRecord: what a node writes next to a run's record (`images/templates/node/common.sh`, put_end) if the job has
ended for good without completing. Interrupted nodes write none, because their job continues.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from gangway.components.core.first_error import first_wrong
from gangway.runs.errors import Failure, RunFailedError, StoreFailedError
from gangway.runs.run_store import RunStore

ENDED_FILE = "ended.json"
_MAX_BYTES = 4096
"""Many times the size of a real record; anything larger is a foreign file."""
_MAX_CLOCK_SKEW = timedelta(minutes=2)
"""How far a node's clock may lag behind this machine's. At most the shortest time from `up` to an attempt's end, or the
end of an attempt would also count for one started right after it."""
_NAME = r"^[A-Za-z0-9._-]*$"
_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "bad-input": "its input is invalid, or does not work on these GPUs",
        "fabric-too-slow": "the all-reduce before the job was below gangway:cluster.fabric_check",
        "max-hours": "it reached max_hours, counted while a node was up, before it was done",
        "too-many-failures": "it failed repeatedly, on every node or on the maximum number of nodes",
    }
)


class EndedRecord(BaseModel):
    """The end of an incomplete job. `run_id`: empty if unknown; `node`: the writer; `code`: the trainer's exit status;
    `reason`: as in the event `job-ended`.
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
        meaning = _MEANINGS.get(self.reason, "a reason unknown to this version")
        return (
            f"the job ended on {self.node}, {self.time.astimezone(UTC):%Y-%m-%d %H:%M} UTC: "
            f"{self.reason}, exit code {self.code}: {meaning}; see docs/troubleshooting.md, 'The job ended early'"
        )


class _Owner(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    run_id: str


def check_not_ended(store: RunStore, run_id: str, began: datetime | None = None) -> None:
    """RunFailedError: the run has ended for good, and why. `began`: start of this attempt; ends of earlier attempts are
    ignored (None: none are). StoreFailedError: see `read_end`.
    """
    ended = read_end(store, run_id)
    if ended is not None and (began is None or ended.time >= began - _MAX_CLOCK_SKEW):
        raise RunFailedError(str(ended))


def read_end(store: RunStore, run_id: str | None = None) -> EndedRecord | None:
    """Read the end in a run's folder; None if there is none, or if it is of another run than `run_id` (None: any).
    StoreFailedError: unreadable, or, of the kind ODD, not an end.
    """
    content = store.read(ENDED_FILE, _MAX_BYTES)
    if content is None or (run_id is not None and _is_of_another_run(content, run_id)):
        return None
    try:
        return EndedRecord.model_validate_json(content)
    except ValidationError as error:
        raise StoreFailedError(
            f"{store.url}/{ENDED_FILE}: not written by a node of this version: {first_wrong(error)}; "
            "check what else writes there",
            Failure.ODD,
        ) from None


def _is_of_another_run(content: bytes, run_id: str) -> bool:
    """Ignores other fields: nodes of another version may write more."""
    try:
        return _Owner.model_validate_json(content).run_id != run_id
    except ValidationError:
        return False
