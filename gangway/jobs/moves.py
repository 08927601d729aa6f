"""Moves a job to another engine: stops it, copies its newest checkpoint and resumes it there.

Every step can be repeated: after an interruption anywhere, even a kill, the same call continues and leaves one job at
the target.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from gangway.components.core.findings import InputError
from gangway.components.estimate.regions import Place, read_place, traffic_price
from gangway.jobs.base import (
    Engine,
    JobStatus,
    Move,
    Phase,
    SubmitUnansweredError,
    Usage,
    refusals,
    wait_until_over,
)
from gangway.jobs.copying import Copied, copy_run
from gangway.jobs.job_folders import FolderEngine
from gangway.jobs.migration import MoveRecord
from gangway.jobs.run_folder import RunFolder
from gangway.jobs.sites import get_engine, movable
from gangway.stacks.config.job_file import JobFile


@dataclass(frozen=True)
class MoveResult:
    """`copied` and `move` are None if an earlier call made them; `left_at`: places whose copies remain."""

    job_id: str
    copied: Copied | None = None
    move: Move | None = None
    left_at: tuple[str, ...] = ()
    is_as_of_submit: bool = True


def get_place(engine: Engine) -> str:
    """As for `--on`."""
    return f"{engine.kind}:{engine.where}"


def move_job(
    source: FolderEngine,
    job_id: str,
    target: FolderEngine,
    pause: Callable[[JobStatus], None],
    on_progress: Callable[[int, int], None],
    on_wait: Callable[[str], None] | None = None,
) -> MoveResult:
    """Moves a job, or resumes its interrupted move. InputError: it is over or refused; then it keeps running here."""
    before = source.status(job_id)
    if get_place(source) == get_place(target) and before.phase is not Phase.CANCELLED:
        raise InputError("--to", "the job is already there", value=get_place(target), fix="name another engine")
    # Job numbers are reused after a job's folder was removed.
    origin = f"{source.run_url(job_id)} {before.submitted_at}"
    with source.open_move(job_id, get_place(target)) as way:
        if (known := target.find_moved(origin)) is not None:
            target.ensure_begun(known)
            way.record_arrival(known)
            is_as_of_submit = source.environment(job_id) is not None
            return MoveResult(known, left_at=_remove_copies(way, origin), is_as_of_submit=is_as_of_submit)
        way.record_absence()
        _check_not_over(before, way, target, origin)
        job, environment = source.job(job_id), source.environment(job_id)
        _check_hours(source, job_id, job, way, target, origin)
        for refusal in refusals(target, job):
            raise InputError(f"--to {get_place(target)}: {refusal.path}", refusal.message, fix=refusal.fix)
        RunFolder.scan(source.run_folder(job_id))  # before the job is stopped in case this fails
        if source.has_data(
            job
        ):  # copies nothing, but fails if the source has changed: the job would read other data there
            source.bring_data(job, on_progress, on_wait)
        data = target.bring_data(job, on_progress, on_wait)  # while it still runs
        # The only record of what interrupted attempts sent.
        way.record_copy(0 if data is None else data.bytes)
        stage, began, started = target.stage(origin), datetime.now(UTC), time.monotonic()
        if before.phase is Phase.WAITING:
            # It keeps its place in the queue if this fails.
            copy_run(source.run_folder(job_id), stage, on_progress, whole=job.preset is None)
        _check_not_over(source.status(job_id), way, target, origin)  # the copies took time
        way.record_stopping()
        source.stop(job_id)
        ended = wait_until_over(source, job_id, pause)
        _check_not_over(ended, way, target, origin)
        used = _check_hours(source, job_id, job, way, target, origin)
        copied = copy_run(source.run_folder(job_id), stage, on_progress, whole=job.preset is None)
        sec = time.monotonic() - started
        move = Move(
            origin, get_place(target), began, sec, *_price_transfer(source, target, job, copied, way.data_bytes), used
        )
        way.record_copied()
        _check_not_over(ended, way, target, origin)  # it was cancelled while it was copied
        new_id = _submit(target, job, (*before.moves, move), environment, way)
        way.record_arrival(new_id)
        return MoveResult(new_id, copied, move, _remove_copies(way, origin), environment is not None)


def _check_not_over(status: JobStatus, way: MoveRecord, target: FolderEngine, origin: str) -> None:
    if way.is_cancelled:
        why = "it was cancelled"
    elif status.phase.is_over and not (status.phase is Phase.CANCELLED and way.is_stopped):
        why = f"it is over, {status.phase}"
    else:
        return
    more = _abandon(way, target, origin)
    raise InputError("job", f"{why}: it is not resumed{more}", value=status.id, fix="submit it again")


def _abandon(way: MoveRecord, target: FolderEngine, origin: str) -> str:
    is_left = way.may_have_copy and not _is_unstaged(target, origin)
    left = [*([get_place(target)] if is_left else []), *_remove_copies(way, origin)]
    way.record_end_here(is_left=is_left)
    return f"; a copy remains in {', '.join(left)}, in a .staged- folder" if left else ""


def _check_hours(
    source: FolderEngine, job_id: str, job: JobFile, way: MoveRecord, target: FolderEngine, origin: str
) -> Usage:
    """The job's usage so far. InputError: all its hours are used; a job that a move has stopped then ends."""
    used = source.get_usage(job_id)
    if used.sec < job.max_hours * 3600:
        return used
    more = f": {job_id} is not resumed{_abandon(way, target, origin)}" if way.is_stopped else ""
    raise InputError(
        "max_hours", f"{used.sec / 3600:.3g} hours are used, none is left for {get_place(target)}{more}",
        value=f"{job.max_hours:g}", allowed=f"more than {used.sec / 3600:.3g}, on all engines together",
        fix=f"submit it again with more max_hours; its files are in {source.run_url(job_id)}",
    )  # fmt: skip


def _is_unstaged(target: FolderEngine, origin: str) -> bool:
    """Whether no copy is left; the folder may belong to another user."""
    try:
        target.unstage(origin)
    except (InputError, OSError):
        return False
    return True


def _submit(
    target: FolderEngine, job: JobFile, moves: tuple[Move, ...], environment: Mapping[str, str] | None, way: MoveRecord
) -> str:
    try:
        return target.submit_staged(job, moves, environment)
    except SubmitUnansweredError:
        raise  # it may run there
    except InputError:
        way.record_absence()
        raise


def _remove_copies(way: MoveRecord, origin: str) -> tuple[str, ...]:
    """Removes copies of interrupted moves from other places; returns the places where that failed."""
    left = []
    for place in way.earlier_targets:
        try:
            movable(get_engine(place), "--to").unstage(origin)
            way.forget_copy(place)
        except (InputError, OSError):
            left.append(place)
    return tuple(left)


def traffic_cost(source: FolderEngine, target: FolderEngine, size: int) -> tuple[float | None, str]:
    """Dollars for transferring that many bytes, and the price used; None if unknown."""
    here, there = source.region, target.region
    if here is None and there is None:
        return 0.0, "both folders are on this machine, and no regions are declared"
    if here is None or there is None:
        unknown = source if here is None else target
        return None, f"the region of {get_place(unknown)} is not declared"
    return _price_route(here, there, size)


def _price_transfer(
    source: FolderEngine, target: FolderEngine, job: JobFile, copied: Copied, data_bytes: int
) -> tuple[int, float | None, str]:
    usd, why = traffic_cost(source, target, copied.bytes)
    if not data_bytes:
        return copied.bytes, usd, why
    return copied.bytes + data_bytes, *_add_data_price(usd, why, job, target, data_bytes)


def _add_data_price(
    usd: float | None, why: str, job: JobFile, target: FolderEngine, data_bytes: int
) -> tuple[float | None, str]:
    assert job.data is not None, "it was copied"
    if target.region is None:
        return None, f"{why}; the region of {get_place(target)} is not declared, so its data set has no transfer price"
    more, how = _price_route(read_place(job.data.region, "data.region"), target.region, data_bytes)
    return None if usd is None or more is None else usd + more, f"{why}; data set: {how}"


def _price_route(here: Place, there: Place, size: int) -> tuple[float | None, str]:
    price = traffic_price(here, there)
    way = f"{here.name} to {there.name}: {price.source}, {price.dated}, {price.confidence}"
    if price.value is None:
        return None, way
    return size / 2**30 * price.value, f"{price.value:g} USD/GiB, {way}"
