"""The command that messages tell the user to run."""

import shutil
import sys
from pathlib import Path

MODULE = "python -m gangway.trainer"
COMMANDS = ("train", "evaluate", "record", "data", "sample", "export", "presets", "memory", "control")
"""Commands that `gangway` passes to the trainer unchanged."""


def program() -> str:
    """`gangway` if it started this process, with its path if it is not on PATH; else `python -m gangway.trainer`."""
    started = Path(sys.argv[0])
    if started.name != "gangway":
        return MODULE
    found = shutil.which("gangway")
    return "gangway" if found is not None and Path(found).absolute() == started.absolute() else str(started)
