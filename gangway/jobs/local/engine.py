"""The engine `local`: jobs on this machine, one at a time, in a folder. Each has a process that waits for its turn,
runs it and outlives the terminal (`gangway.jobs.local.runner`); there is no daemon.

    FOLDER                        locked by whose turn it is: `gangway.jobs.local.turn`
    FOLDER/<id>/alive             held by its process; the rest is as in `gangway.jobs.job_folders`, and how its
                                  starts have ended in `gangway.jobs.local.outcomes`
"""

import math
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from components.core.findings import Finding, InputError
from components.core.json_lines import is_locked, lock_soon
from components.estimate.regions import Place
from gangway.jobs.base import JobStatus, Phase, Room, no_outputs, no_resources, open_meeting
from gangway.jobs.environment import RUNNER_MARK, get_environment, unmarked
from gangway.jobs.job_folder import JobFolder, OwnJobFolder, UnreadableError, sharing_findings
from gangway.jobs.job_folders import (
    CANCEL_FILE,
    LOG_FILE,
    FolderEngine,
    read_job,
    read_status,
)
from gangway.jobs.listing import check_open, get_number, own_jobs
from gangway.jobs.local.outcomes import Spent, find_end, lacks_room
from gangway.jobs.local.turn import Turn
from gangway.jobs.run_intervals import get_run_intervals
from gangway.jobs.working_folder import working_folder_findings
from stacks.config.job_file import JobFile, Priority
from stacks.config.paths import module_environment

ALIVE_FILE = "alive"
RANK: Mapping[Priority, int] = MappingProxyType({Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2})


class LocalQueue(FolderEngine):
    """See the module. `is_named`: somebody has named the folder, so that one that is not there is a mistake of theirs
    where jobs are asked for.
    """

    kind = "local"

    def __init__(self, folder: Path, region: Place | None = None, *, is_named: bool = False) -> None:
        super().__init__(folder, region)
        self._is_named = is_named

    def jobs(self) -> Sequence[JobStatus]:
        """See `Engine`. InputError: there is no such folder, or it is closed."""
        check_open(self._folder)
        if self._is_named and not self._folder.is_dir():
            raise InputError(
                f"--on {self.kind}", "no folder there" if not self._folder.exists() else "no folder", value=self.where,
                allowed="a folder to which a job was submitted", fix="mend the path, or submit one there first",
            )  # fmt: skip
        return super().jobs()

    def findings(self, job: JobFile) -> Iterable[Finding]:
        """See `Engine`."""
        if job.image is not None:
            yield Finding.error(
                "job.image",
                "image",
                "this engine runs no containers: the command would run in another environment than the image's",
                "leave image out to run in this environment, or submit it to another engine",
            )
        yield from sharing_findings(self._folder)
        yield from working_folder_findings(job, is_here=True)
        yield from no_outputs(job)
        yield from no_resources(job)
        yield from open_meeting(job, "this machine's users, and whoever else reaches its ports")
        if job.team:
            yield Finding.warning(
                "job.team", "team", "of no effect here but as a word in lists: this engine keeps no quotas",
                "leave it out, or submit it to another engine",
            )  # fmt: skip
        if job.nodes.min > 1:
            yield Finding.error(
                "job.nodes", "nodes.min", f"one machine is no {job.nodes.min} nodes", "nodes: {min: 1, max: 1}"
            )
        elif job.nodes.max > 1:
            yield Finding.info("job.nodes", "nodes.max", "one node is all there is here")

    def room(self, job: JobFile) -> Room:
        """See `Engine`."""
        before = self._before((RANK[job.priority], math.inf))
        return Room(not before, f"{', '.join(before)} before it" if before else "nothing runs and nothing waits")

    def _has_begun(self, folder: OwnJobFolder) -> bool:
        return is_alive(folder)

    def _begun(self, job_id: str) -> None:
        """Jobs whose process is gone, because the machine was restarted, go on with the next submit."""
        begin_runner(self._known(job_id))
        for each in own_jobs(self._folder):
            with suppress(InputError, OSError):  # it is not this job's affair, and its own status says so
                if each.name != job_id and not self._seen(each).phase.is_over and not is_alive(each):
                    begin_runner(each)

    def status(self, job_id: str) -> JobStatus:
        """See `Engine`."""
        folder = self._known(job_id)
        found = self._seen(folder)
        if found.phase is not Phase.WAITING or found.reason:
            return found
        before = self._before(queue_position(folder))
        return replace(found, reason=f"{', '.join(before)} before it" if before else "")

    def _before(self, place: tuple[float, float]) -> list[str]:
        """Own jobs that run, or wait and begin before one of this place in the order; else who has the turn."""
        if found := [each.name for each in own_jobs(self._folder) if _is_before(each, place)]:
            return found
        with suppress(OSError), Turn(self._folder) as turn:
            return [cause] if (cause := turn.cause()) else []
        return []

    def _seen(self, folder: JobFolder) -> JobStatus:
        found, runs = read_status(folder), is_alive(folder)
        if not runs:
            found = read_status(folder)  # it may have ended between the two looks
        found = replace(found, stretches=get_run_intervals(folder, runs=found.phase is Phase.RUNNING and runs))
        if found.phase.is_over:
            return found
        if runs:
            return replace(found, reason=_now(folder, found))
        if folder.is_own:
            read_job(folder), Spent.read(folder), get_environment(folder)  # what cannot be read, nobody takes up
        return replace(
            found,
            phase=Phase.WAITING,
            reason="its process is gone; the next submit, or a wait for it, takes it up again",
        )

    def _failures(self, folder: JobFolder) -> int:
        return Spent.read(folder).failures

    def _interruptions(self, folder: JobFolder) -> int:
        return Spent.read(folder).interruptions

    def stop(self, job_id: str) -> None:
        """See `Movable`."""
        folder = self._known(job_id)
        try:
            folder.touch(CANCEL_FILE)
            if not self.status(job_id).phase.is_over and not is_alive(folder):
                begin_runner(folder)  # which does no more than say so
        except OSError as error:
            raise self._no_room(error, f"{job_id} cannot be cancelled") from None


def _now(folder: JobFolder, found: JobStatus) -> str:
    """Why a job that somebody sees to is where it is; its own reason, where nothing else is known."""
    code = find_end(folder, found.known_starts) if found.phase is Phase.RUNNING else None
    if code is not None and lacks_room(folder):
        return f"ended with exit code {code}; what comes of it waits for room on the disk"
    if not folder.has(CANCEL_FILE):
        return found.reason if found.reason or code is None else f"ended with exit code {code}"
    if found.phase is Phase.RUNNING and code is None:
        return f"being cancelled: it is told to stop, and ended after {read_job(folder).grace_sec} s at the latest"
    return "being cancelled"


def queue_position(folder: JobFolder) -> tuple[int, int]:
    """Of two jobs that wait, whose is less begins first. UnreadableError."""
    return RANK[read_job(folder).priority], get_number(folder.name)


def _is_before(folder: OwnJobFolder, place: tuple[float, float]) -> bool:
    try:
        phase = read_status(folder).phase
        if phase is Phase.RUNNING and is_alive(folder):
            return True
        return not phase.is_over and queue_position(folder) < place
    except UnreadableError:
        return False  # or its folder has just been removed


def is_alive(folder: JobFolder) -> bool:
    """Whether the job's process lives."""
    try:
        with folder.open_file(ALIVE_FILE) as file:
            return is_locked(file)
    except OSError:
        return False


def begin_runner(folder: OwnJobFolder) -> None:
    """A process of its own, which no Ctrl-C here reaches; what goes wrong in it stands in the job's log. It has the
    lock from its first moment, so that a job of a lower priority does not begin meanwhile.
    """
    with folder.append_to(LOG_FILE) as output, folder.append_to(ALIVE_FILE) as alive:
        if not lock_soon(alive):
            return  # somebody else has begun one
        if read_status(folder).phase.is_over:
            return  # it has ended meanwhile
        runner = [sys.executable, "-m", "gangway.jobs.local.runner", str(folder.path), str(alive.fileno())]
        # By way of a shell that ends at once: whoever submits may live for long, and is nobody's parent.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *runner],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            # One that a job has submitted is not of that job.
            env={**module_environment(unmarked(os.environ)), RUNNER_MARK: str(folder.path)},
            pass_fds=(alive.fileno(),),
            check=True,
        )
