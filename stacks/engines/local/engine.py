"""The engine `local`: jobs on this machine, one at a time, in a folder. Each has a process that waits for its turn,
runs it and outlives the terminal (`stacks.engines.local.runner`); there is no daemon.

    FOLDER/turn                   held by whose turn it is: a lock of the kernel, which dies with its holder
    FOLDER/<id>/spent.json        its failures; the rest is as in `stacks.engines.job_folders`
    FOLDER/<id>/alive             held by its process
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import IO

from components.core.findings import Finding
from components.core.json_lines import is_locked, lock
from stacks.config.job_file import JobFile, Priority
from stacks.engines.base import JobStatus, Phase, Room, no_outputs, no_resources
from stacks.engines.job_folders import CANCEL_FILE, LOG_FILE, FolderEngine, job_ids, number_of, read_job, read_status
from stacks.engines.stretches import stretches_of

SPENT_FILE, ALIVE_FILE, TURN_FILE = "spent.json", "alive", "turn"
MARK = "GANGWAY_LOCAL_JOB"
"""A variable of all processes of a job: its folder."""
RANK: Mapping[Priority, int] = MappingProxyType({Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2})
_POLL_SEC, _ASKED_SEC = 0.05, 2.0


class LocalQueue(FolderEngine):
    """See the module."""

    kind = "local"

    def findings(self, job: JobFile) -> Iterable[Finding]:
        """See `Engine`."""
        if job.image is not None:
            yield Finding.error(
                "job.image",
                "image",
                "this engine runs no containers: the command would run in another environment than the image's",
                "leave image out to run in this environment, or submit it to another engine",
            )
        yield from no_outputs(job)
        yield from no_resources(job)
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

    def _has_begun(self, job_id: str) -> bool:
        return is_alive(self._folder / job_id)

    def _begun(self, job_id: str) -> None:
        """Jobs whose process is gone, because the machine was restarted, go on with the next submit."""
        for each in self.jobs():
            if each.id == job_id or (not each.phase.is_over and not is_alive(self._folder / each.id)):
                begin_runner(self._folder / each.id)

    def status(self, job_id: str) -> JobStatus:
        """See `Engine`."""
        found = self._seen(job_id)
        if found.phase is not Phase.WAITING or found.reason:
            return found
        before = self._before(order(job_id, read_job(self._folder / job_id)))
        return replace(found, reason=f"{', '.join(before)} before it" if before else "")

    def _before(self, place: tuple[float, float]) -> list[str]:
        """Jobs that run, or wait and begin before one of this place in the order."""
        seen = (self._listed(job_id, self._seen) for job_id in job_ids(self._folder))
        return [
            each.id
            for each in seen
            if each.phase is Phase.RUNNING
            or (each.phase is Phase.WAITING and order(each.id, read_job(self._folder / each.id)) < place)
        ]

    def _seen(self, job_id: str) -> JobStatus:
        """But for whom it waits for."""
        folder = self._known(job_id)
        found, runs = read_status(folder), is_alive(folder)
        if not runs:
            found = read_status(folder)  # it may have ended between the two looks
        found = replace(found, stretches=stretches_of(folder, runs=found.phase is Phase.RUNNING and runs))
        if found.phase.is_over or runs:
            return found
        return replace(
            found,
            phase=Phase.WAITING,
            reason="its process is gone; the next submit, or a wait for it, takes it up again",
        )

    def _failures(self, folder: Path) -> int:
        return failures_in(folder)

    def cancel(self, job_id: str) -> None:
        """See `Engine`."""
        folder = self._known(job_id)
        (folder / CANCEL_FILE).touch()
        if not self.status(job_id).phase.is_over and not is_alive(folder):
            begin_runner(folder)  # which does no more than say so


def failures_in(folder: Path) -> int:
    """Of a job's starts, over all its processes."""
    path = folder / SPENT_FILE
    return int(json.loads(path.read_bytes())["failures"]) if path.exists() else 0


def order(job_id: str, job: JobFile) -> tuple[int, int]:
    """Of two that wait, whose is less begins first."""
    return RANK[job.priority], number_of(job_id)


def is_alive(folder: Path) -> bool:
    """Whether the job's process lives."""
    try:
        with (folder / ALIVE_FILE).open("rb") as file:
            return is_locked(file)
    except FileNotFoundError:
        return False


def _took(alive: IO[bytes]) -> bool:
    """Whether the lock is ours now. Who asks whether it is held keeps it for a moment."""
    until = time.monotonic() + _ASKED_SEC
    while True:
        try:
            lock(alive)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SEC)
        else:
            return True


def begin_runner(folder: Path) -> None:
    """A process of its own, which no Ctrl-C here reaches; what goes wrong in it stands in the job's log. It has the
    lock from its first moment, so that a job of a lower priority does not begin meanwhile.
    """
    with (folder / LOG_FILE).open("ab") as output, (folder / ALIVE_FILE).open("ab") as alive:
        if not _took(alive):
            return  # somebody else has begun one
        if read_status(folder).phase.is_over:
            return  # it has ended meanwhile
        runner = [sys.executable, "-m", "stacks.engines.local.runner", str(folder), str(alive.fileno())]
        # By way of a shell that ends at once: whoever submits may live for long, and is nobody's parent.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *runner],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            # One that a job has submitted is not of that job.
            env={name: value for name, value in os.environ.items() if name != MARK},
            pass_fds=(alive.fileno(),),
            check=True,
        )
