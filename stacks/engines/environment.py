"""The environment of who has submitted a job, in which each of its starts runs, whoever takes it up or moves it.

FOLDER/<id>/environment    NAME=VALUE, each with a zero byte behind it; no other user's to read
"""

import os
from collections.abc import Mapping
from pathlib import Path

from stacks.engines.base import UnreadableError
from stacks.engines.local.marks import unmarked

_FILE = "environment"


def keep_environment(folder: Path, variables: Mapping[str, str]) -> None:
    """OSError: there is no room for it."""
    content = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in unmarked(variables).items())
    (folder / _FILE).touch(mode=0o600)  # before anything is in it
    (folder / _FILE).write_bytes(content)


def has_environment(folder: Path) -> bool:
    """Whether one is kept: of jobs in Slurm an earlier release has kept none."""
    return (folder / _FILE).exists()


def environment_of(folder: Path) -> dict[str, str]:
    """UnreadableError: there is none, or somebody else has written there."""
    path = folder / _FILE
    fix = f"submit it again, and remove {folder}"
    try:
        lines = path.read_bytes().split(b"\0")
    except OSError as error:
        raise UnreadableError(str(path), f"no environment of a job: {error.strerror}", fix=fix) from None
    if lines.pop() or not all(line.find(b"=") > 0 for line in lines):
        raise UnreadableError(str(path), "no environment of a job: not as a submit leaves it", fix=fix)
    return {name: value for name, _, value in (os.fsdecode(line).partition("=") for line in lines)}
