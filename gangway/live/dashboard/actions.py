"""What the dashboard may change, with --allow-actions only: cancel a job, or submit it again. Each use is logged."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import append_line
from gangway.jobs.base import JobStatus, Phase
from gangway.jobs.job_folders import FolderEngine
from gangway.live.dashboard.sources import Queue, describe


class Action(NamedTuple):
    """A button: its name in URLs, its label, and what happens, as a question's second sentence."""

    name: str
    label: str
    effect: str


CANCEL = Action("cancel", "Cancel", "A running job gets SIGTERM and its grace time first. This cannot be undone.")
RESUBMIT = Action(
    "resubmit",
    "Submit again",
    "A new job with the same job file and an empty run folder, in the environment of this dashboard.",
)


def get_actions(queue: Queue, status: JobStatus) -> tuple[Action, ...]:
    """What can be done with a job."""
    if status.phase in (Phase.WAITING, Phase.RUNNING):
        return (CANCEL,)
    is_readable = status.phase not in (Phase.FOREIGN, Phase.UNREADABLE)
    return (RESUBMIT,) if is_readable and isinstance(queue.site.engine, FolderEngine) else ()


class ActionLog:
    """A file of this user with a line before and after each action."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, line: Mapping[str, str]) -> None:
        """InputError: it cannot be written, so the action must not happen."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                append_line(file, {"at": datetime.now(UTC).isoformat(timespec="seconds"), **line})
        except OSError as error:
            problem = f"the log of actions cannot be written: {error.strerror}"
            raise InputError(str(self.path), problem, fix="make it writable, then try again") from None


def carry_out(queue: Queue, job_id: str, action: Action, log: ActionLog) -> str:
    """Do it and return the id of the job to show. InputError: it failed; a job that is over may be another user's."""
    line = {"action": action.name, "engine": queue.label, "job": job_id}
    log.write({**line, "outcome": "begun"})
    try:
        result = _do(queue, job_id, action)
    except (InputError, OSError) as error:
        log.write({**line, "outcome": f"failed: {describe(error)}"})
        raise
    log.write({**line, "outcome": "done", "result": result})
    queue.jobs.refresh()
    return result


def _do(queue: Queue, job_id: str, action: Action) -> str:
    engine = queue.site.engine
    if action is CANCEL:
        engine.cancel(job_id)
        return job_id
    assert isinstance(engine, FolderEngine), "the only ones that offer it"
    return engine.submit(engine.job(job_id))
