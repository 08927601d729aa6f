"""The environment of a job's submit, in which every start runs, also after a restart or a move.

FOLDER/<id>/environment    NAME=VALUE, each ended by a zero byte; readable by its owner only
"""

import os
from collections.abc import Mapping

from gangway.jobs.job_folder import JobFolder, OwnJobFolder, UnreadableError

MARK, RUNNER_MARK = "GANGWAY_LOCAL_JOB", "GANGWAY_LOCAL_RUNNER"
"""Both hold the job's folder: in all processes of a job, and in its runner."""
_FILE = "environment"
_MOST_BYTES = 16_000_000
"""Several times what Linux passes to a program."""


def save_environment(folder: OwnJobFolder, variables: Mapping[str, str]) -> None:
    """OSError: no room."""
    content = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in without_marks(variables).items())
    folder.write_private(_FILE, content)


def has_environment(folder: JobFolder) -> bool:
    """Whether one is stored; earlier releases stored none for Slurm jobs."""
    return folder.has(_FILE)


def get_environment(folder: JobFolder) -> dict[str, str]:
    """UnreadableError: there is none, or it was changed."""
    place, fix = str(folder.path / _FILE), f"submit it again, and move {folder.path} aside"
    try:
        lines = folder.read(_FILE, _MOST_BYTES).split(b"\0")
    except OSError as error:
        raise UnreadableError(place, f"the job's environment cannot be read: {error.strerror}", fix=fix) from None
    if lines.pop() or not all(line.find(b"=") > 0 for line in lines):
        raise UnreadableError(place, "not a job's environment", fix=fix)
    return {name: value for name, _, value in (os.fsdecode(line).partition("=") for line in lines)}


def without_marks(variables: Mapping[str, str]) -> dict[str, str]:
    """The user's own variables: a job submitted by a job does not end with it."""
    return {name: value for name, value in variables.items() if name not in (MARK, RUNNER_MARK)}
