"""What the end of a start means for a job, pure: is it over, or begun again? The same on every engine that leaves that
to us.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gangway.jobs.base import Phase
from stacks.config.job_file import JobFile
from trainer.core.errors import (
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
        EXIT_BAD_INPUT: (Phase.BAD_INPUT, "it would fail again: its log says why"),
        EXIT_UNHEALTHY: (Phase.FAILED, EXIT_CODES[EXIT_UNHEALTHY]),
        EXIT_ENDED_FOR_ALL: (Phase.FAILED, EXIT_CODES[EXIT_ENDED_FOR_ALL]),
        EXIT_HOURS_OVER: (Phase.OVER_HOURS, EXIT_CODES[EXIT_HOURS_OVER]),
    }
)
_LEAST_INTERRUPTIONS, _INTERRUPTIONS_PER_HOUR = 20, 4


@dataclass(frozen=True)
class Next:
    """What comes after a start: `phase` None to begin again; `failures` so far; `reason` in words."""

    phase: Phase | None
    failures: int
    reason: str


def after(code: int, failures: int, max_restarts: int, *, other_nodes: bool) -> Next:
    """Of an exit code in the terms of `gangway.jobs.base`. `other_nodes`: whether there are any besides an unfit one.

    >>> after(75, 2, 3, other_nodes=False).phase, after(1, 3, 3, other_nodes=False).phase
    (None, <Phase.FAILED: 'failed'>)
    """
    if code in _OVER:
        phase, reason = _OVER[code]
        return Next(phase, failures, reason)
    if code == EXIT_INTERRUPTED:
        return Next(None, failures, EXIT_CODES[code])
    if code == EXIT_UNFIT and not other_nodes:
        return Next(Phase.FAILED, failures, "this node is not fit for the job, and there is no other")
    if code == EXIT_UNFIT:
        return Next(None, failures, EXIT_CODES[code])
    failures += 1
    said = f"failed with exit code {code}" if code >= 0 else f"ended by signal {-code}"
    if failures > max_restarts:
        return Next(Phase.FAILED, failures, f"{said}, failure {failures} of {max_restarts + 1}")
    return Next(None, failures, f"{said}: begun again, for time {failures} of {max_restarts}")


def most_restarts(job: JobFile) -> int:
    """Of any kind, besides those that somebody asked for. What interrupts a job does not count as a failure, and may go
    on for ever: a node that is short of room and evicts it, a command that ends with 75 as soon as it has begun.
    """
    return job.max_restarts + max(_LEAST_INTERRUPTIONS, math.ceil(_INTERRUPTIONS_PER_HOUR * job.max_hours))


def too_often(job: JobFile) -> str:
    """Why a job ends that would be begun again once more than that."""
    return f"begun again {most_restarts(job)} times, which is the most: something ends it again and again"
