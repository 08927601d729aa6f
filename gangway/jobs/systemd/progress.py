"""JobProgress: how far a job is while it trains, as its nodes put it beside the run's record every ten minutes
(`images/templates/node/upload-record.sh`): records are put when the trainer stops, which may be days later.
"""

from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from components.core.findings import InputError
from components.core.first_error import first_wrong
from gangway.runs.run_store import RunStore

PROGRESS_FILE = "progress.json"
_MAX_BYTES = 4096
"""Many times what a node writes; more is somebody else's file."""


class JobProgress(BaseModel):
    """Progress of a trainer that goes on. It says nothing of an end: only a record does.

    Attributes:
        images: that were done.
        time: when, seconds since 1970 by the clock of the node that wrote the run's statistics.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1]
    images: int = Field(ge=0, le=10**15)
    time: AwareDatetime

    @classmethod
    def read(cls, store: RunStore) -> Self | None:
        """None where none was put. InputError: what is there is no node's. StoreFailedError: as RunStore's."""
        content = store.read(PROGRESS_FILE, _MAX_BYTES)
        try:
            return None if content is None else cls.model_validate_json(content)
        except ValidationError as error:
            raise InputError(
                f"{store.url}/{PROGRESS_FILE}",
                f"no progress of a job: {first_wrong(error)}",
                fix="look who else writes there",
            ) from None
