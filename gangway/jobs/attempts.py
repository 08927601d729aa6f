"""Decides whether a job that stopped is over or starts again; pure, and the same on every engine that leaves this to
us.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gangway.jobs.base import Phase
from gangway.stacks.config.job_file import JobFile
from gangway.trainer.core.errors import (
    EXIT_BAD_INPUT,
    EXIT_CODES,
    EXIT_ENDED_FOR_ALL,
    EXIT_HOURS_OVER,
    EXIT_INTERRUPTED,
    EXIT_UNFIT,
    EXIT_UNHEALTHY,
)

_OVER: Mapping[int, tuple[Phase, str]] = MappingProxyType(
    {
        0: (Phase.DONE, ""),
        EXIT_BAD_INPUT: (Phase.BAD_INPUT, "it would fail again; see its log"),
        EXIT_UNHEALTHY: (Phase.FAILED, EXIT_CODES[EXIT_UNHEALTHY]),
        EXIT_ENDED_FOR_ALL: (Phase.FAILED, EXIT_CODES[EXIT_ENDED_FOR_ALL]),
        EXIT_HOURS_OVER: (Phase.OVER_HOURS, EXIT_CODES[EXIT_HOURS_OVER]),
    }
)
_LEAST_INTERRUPTIONS, _INTERRUPTIONS_PER_HOUR = 20, 4


@dataclass(frozen=True)
class Next:
    """What follows a start. `phase` is None to start again."""

    phase: Phase | None
    failures: int
    reason: str


def after(code: int, failures: int, max_restarts: int, *, other_nodes: bool) -> Next:
    """The next step after an exit code of `gangway.jobs.base`. `other_nodes`: whether there is a node besides the unfit
    one.

    >>> after(75, 2, 3, other_nodes=False).phase, after(1, 3, 3, other_nodes=False).phase
    (None, <Phase.FAILED: 'failed'>)
    """
    if code in _OVER:
        phase, reason = _OVER[code]
        return Next(phase, failures, reason)
    if code == EXIT_INTERRUPTED:
        return Next(None, failures, EXIT_CODES[code])
    if code == EXIT_UNFIT and not other_nodes:
        return Next(Phase.FAILED, failures, "this node is unfit for the job, and there is no other")
    if code == EXIT_UNFIT:
        return Next(None, failures, EXIT_CODES[code])
    failures += 1
    cause = f"failed with exit code {code}" if code >= 0 else f"ended by signal {-code}"
    if failures > max_restarts:
        return Next(Phase.FAILED, failures, f"{cause}, failure {failures} of {max_restarts + 1}")
    return Next(None, failures, f"{cause}: restart {failures} of {max_restarts}")


def restart_limit(job: JobFile) -> int:
    """The limit on restarts of any kind. Interruptions are not failures and could repeat forever: a node that evicts
    the job for lack of room, a command that always exits with 75.
    """
    return job.max_restarts + max(_LEAST_INTERRUPTIONS, math.ceil(_INTERRUPTIONS_PER_HOUR * job.max_hours))


def restart_limit_reason(job: JobFile) -> str:
    """Why a job ends that has reached this limit."""
    return f"restarted {restart_limit(job)} times, the limit: something keeps interrupting it"
