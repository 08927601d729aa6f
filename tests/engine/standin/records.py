"""What the cloud in a folder holds: a file for each resource, which several provider processes read and remove."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STATE_VARIABLE = "GANGWAY_STANDIN_STATE"


def get_record(file: Path) -> dict[str, Any] | None:
    """None where there is none, or no longer: each provider of a stack is a process, and all share the folder."""
    try:
        record: dict[str, Any] = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return None
    return record


def records(folder: Path | None = None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every resource with its file, in the order of files; of the variable's folder where none is given."""
    for file in sorted((folder or Path(os.environ[STATE_VARIABLE])).glob("*.json")):
        if (record := get_record(file)) is not None:
            yield file, record
