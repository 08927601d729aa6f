"""The base class of all sections of configuration files."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from gangway.components.estimate.regions import read_place


class Section(BaseModel):
    """Frozen, no unknown keys, no infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


PlaceName = Annotated[str, AfterValidator(lambda text: read_place(text, "") and text)]
"""PROVIDER:REGION."""
PRESET_TAG, COMMAND_TAG = "job of a preset", "job of a command"
"""Tags of a stack's two kinds of job. Pydantic puts them into the path of an error; they never equal a key."""
