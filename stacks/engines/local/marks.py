"""The variables by which the processes of a local job are known, wherever in the tree of processes they are."""

from collections.abc import Mapping

from stacks.paths import for_users

MARK, RUNNER_MARK = "GANGWAY_LOCAL_JOB", "GANGWAY_LOCAL_RUNNER"
"""Each is a job's folder: of all its processes, and of its runner alone."""


def unmarked(variables: Mapping[str, str]) -> dict[str, str]:
    """The user's own, without them: for what is submitted elsewhere, and does not end with the job that submits it."""
    return {name: value for name, value in for_users(variables).items() if name not in (MARK, RUNNER_MARK)}
