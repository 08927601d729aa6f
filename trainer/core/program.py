"""How a user reaches the trainer's commands: what messages have to say, so that it works as printed."""

import shutil
import sys
from pathlib import Path

MODULE = "python -m trainer"
COMMANDS = ("train", "evaluate", "record", "data", "sample", "export", "presets", "memory", "control")
"""That `gangway` hands on as they are."""


def program() -> str:
    """`gangway` where that started this process, with its path where a shell would not find it; else `python -m
    trainer`, as in a container.
    """
    started = Path(sys.argv[0])
    if started.name != "gangway":
        return MODULE
    found = shutil.which("gangway")
    return "gangway" if found is not None and Path(found).absolute() == started.absolute() else str(started)
