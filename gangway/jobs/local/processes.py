"""Finds and ends the processes of a local job: those with its variable, and descendants of its runner, which adopts
orphans.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gangway.jobs.environment import MARK, RUNNER_MARK, get_environment
from gangway.jobs.job_folder import OwnJobFolder, UnreadableError
from gangway.stacks.config.job_file import JobFile

_POLL_SEC = 0.1
_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def adopt_orphans() -> None:
    """Makes this process the parent of orphaned descendants, so that none escapes by a new session or environment."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(but: int) -> None:
    """Reaps ended children except `but`, which has its own waiter. No effect where none are adopted; os.waitid may be
    missing there.
    """
    if sys.platform != "linux":
        return
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != but:
            os.waitpid(ended.si_pid, 0)


def end_processes(folder: OwnJobFolder, grace_sec: float) -> None:
    """Ends every process of the job, including workers in other sessions and background processes, with SIGTERM
    first if there is a grace period. Not while another call waits for a child.
    """
    until = time.monotonic() + grace_sec
    signalled, others = set[int](), set[int]()
    while processes := set(_get_processes(folder)) - others:
        number = signal.SIGTERM if time.monotonic() < until else signal.SIGKILL
        for pid in processes if number == signal.SIGKILL else processes - signalled:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
            except PermissionError:
                others.add(pid)  # runs with another user's rights
        signalled |= processes
        time.sleep(_POLL_SEC)


def terminate_job(process: subprocess.Popen[bytes], job: JobFile) -> int:
    """Sends SIGTERM, and kills its session after the grace period. Its exit code."""
    process.terminate()
    try:
        return process.wait(job.grace_sec)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def _get_processes(folder: OwnJobFolder) -> Iterator[int]:
    """Without zombies."""
    reap_orphans(but=0)
    parents = dict(_parents())
    variables = {pid: _variables(pid) for pid in parents}
    own, slurm_id = os.fsencode(f"{MARK}={folder.path}"), f"SLURM_JOB_ID={_slurm_id(folder)}".encode()
    for pid in parents:
        is_marked = own in variables[pid] and not any(
            each.startswith(b"SLURM_JOB_ID=") and each != slurm_id for each in variables[pid]
        )  # sbatch passes the mark on to another job
        if is_marked or _is_descendant(pid, parents, variables, own):
            yield pid


def _slurm_id(folder: OwnJobFolder) -> str:
    """Of the Slurm job that submitted this one; usually empty."""
    with suppress(UnreadableError):
        return get_environment(folder).get("SLURM_JOB_ID", "")
    return ""


def _is_descendant(pid: int, parents: Mapping[int, int], variables: Mapping[int, list[bytes]], own: bytes) -> bool:
    """Whether it descends from this process, but not through another job, which this one may have submitted."""
    while pid in parents:
        for each in variables[pid]:
            if each.startswith(f"{RUNNER_MARK}=".encode()) or (each.startswith(f"{MARK}=".encode()) and each != own):
                return False
        if (pid := parents[pid]) == os.getpid():
            return True
    return False


def _parents() -> Iterator[tuple[int, int]]:
    """Pid and parent of every live process."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in ("Z", "X"):
                yield int(entry.name), int(parent)


def _variables(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # of another user, or gone
