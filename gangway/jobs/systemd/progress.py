"""JobProgress: a training job's progress, which its nodes put next to the record every ten minutes
(`images/templates/node/upload-record.sh`). Records are put only when the trainer stops, perhaps days later.
"""

from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from components.core.findings import InputError
from components.core.first_error import first_wrong
from gangway.runs.run_store import RunStore

PROGRESS_FILE = "progress.json"
_MAX_BYTES = 4096
"""Many times what a node writes."""


class JobProgress(BaseModel):
    """Progress of a running trainer; only a record says that it ended.

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
        content = store.read(PROGRESS_FILE, _MAX_BYTES)
        try:
            return None if content is None else cls.model_validate_json(content)
        except ValidationError as error:
            raise InputError(
                f"{store.url}/{PROGRESS_FILE}",
                f"not a job's progress: {first_wrong(error)}",
                fix="check who else writes there",
            ) from None
