"""The environment of who has submitted a job, in which each of its starts runs, whoever takes it up or moves it.

FOLDER/<id>/environment    NAME=VALUE, each with a zero byte behind it; no other user's to read
"""

import os
from collections.abc import Mapping

from gangway.jobs.job_folder import JobFolder, OwnJobFolder, UnreadableError
from stacks.config.paths import user_environment

MARK, RUNNER_MARK = "GANGWAY_LOCAL_JOB", "GANGWAY_LOCAL_RUNNER"
"""Each is a job's folder: of all its processes, and of its runner alone."""
_FILE = "environment"
_MOST_BYTES = 16_000_000
"""Several times what Linux hands to a program."""


def keep_environment(folder: OwnJobFolder, variables: Mapping[str, str]) -> None:
    """OSError: there is no room for it."""
    content = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in unmarked(variables).items())
    folder.write_private(_FILE, content)


def has_environment(folder: JobFolder) -> bool:
    """Whether one is kept: of jobs in Slurm an earlier release has kept none."""
    return folder.has(_FILE)


def get_environment(folder: JobFolder) -> dict[str, str]:
    """UnreadableError: there is none, or somebody else has written there."""
    place, fix = str(folder.path / _FILE), f"submit it again; {folder.path} can be moved aside"
    try:
        lines = folder.read(_FILE, _MOST_BYTES).split(b"\0")
    except OSError as error:
        raise UnreadableError(place, f"no environment of a job: {error.strerror}", fix=fix) from None
    if lines.pop() or not all(line.find(b"=") > 0 for line in lines):
        raise UnreadableError(place, "no environment of a job: not as a submit leaves it", fix=fix)
    return {name: value for name, _, value in (os.fsdecode(line).partition("=") for line in lines)}


def unmarked(variables: Mapping[str, str]) -> dict[str, str]:
    """The user's own, without them: for what is submitted elsewhere, and does not end with the job that submits it."""
    return {name: value for name, value in user_environment(variables).items() if name not in (MARK, RUNNER_MARK)}
