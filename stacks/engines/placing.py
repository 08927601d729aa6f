"""Which of several engines a job goes to: the first that would begin it at once, in the order in which they were named;
else the first that takes it at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from components.core.findings import InputError
from stacks.config.job_file import JobFile
from stacks.engines.base import Engine, refusals

Kind = TypeVar("Kind", bound=Engine)


@dataclass(frozen=True)
class Placed(Generic[Kind]):
    """The engine, whether the job begins there at once, and a line for each that was looked at."""

    engine: Kind
    now: bool
    lines: tuple[str, ...]


def place(engines: Sequence[Kind], job: JobFile) -> Placed[Kind]:
    """InputError: none takes such a job."""
    lines, queues, fixes = list[str](), list[Kind](), dict[str, None]()
    for engine in engines:
        named = f"{engine.kind}, {engine.where}"
        try:
            if errors := refusals(engine, job):
                lines.append(f"{named}: not for it: {errors[0].path}: {errors[0].message}")
                fixes[errors[0].fix] = None
                continue
            room = engine.room(job)
        except InputError as error:
            lines.append(f"{named}: cannot be asked: {error.problem}")
            continue
        if room.now:
            return Placed(engine, True, (*lines, f"{named}: begins at once: {room.reason}"))
        queues.append(engine)
        lines.append(f"{named}: no room now: {room.reason}")
    if not queues:
        raise InputError(
            "--on", f"no engine takes this job: {'; '.join(lines)}", fix="; or ".join(fixes) or "name another"
        )
    return Placed(queues[0], False, (*lines, f"{queues[0].kind}, {queues[0].where}: it waits there, the first named"))
