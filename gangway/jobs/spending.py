"""What an engine's jobs may spend: checks a job against the limits of the engines' file before it is submitted.

A job counts with what it has cost, and until it has ended with all it may still cost: all of its hours on all of its
nodes. So no job that passes can exceed a limit later, and its engine ends it after its hours. An unknown price or usage
is an error, not zero.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gangway.components.core.findings import InputError
from gangway.jobs.base import JobStatus, Phase
from gangway.jobs.job_folder import user_name
from gangway.jobs.job_folders import FolderEngine
from gangway.jobs.sites import NO_PRICE, Site, charge
from gangway.jobs.slurm.engine import SlurmEngine
from gangway.stacks.config.job_file import JobFile
from gangway.stacks.config.sections import LimitsConfig

_WAIT = "wait until jobs have ended, or raise the limit"


@dataclass(frozen=True)
class _Use:
    """Node-hours in this month of a job, or of a user and team; `open_hours`: it may still use, on `open_nodes`."""

    user: str
    team: str
    used_hours: float
    open_hours: float = 0.0
    open_nodes: int = 0


@dataclass(frozen=True)
class _Share:
    """A limit and the jobs that it counts. `left`: US dollars that it leaves; `source`: of what was spent."""

    name: str
    limit: float
    spent: float
    reserved: float
    source: str

    @property
    def left(self) -> float:
        return max(0.0, self.limit - self.spent - self.reserved)


def submit(site: Site, job: JobFile, clock: Callable[[], datetime]) -> str:
    """Submits the job if the limits allow it; its id. InputError: they do not, and nothing of the job is kept.

    Submits through the same folder wait for each other. Where file systems or machines do not know each other's locks,
    a job that turns out not to fit beside another is cancelled; at worst both are.
    """
    if site.limits is None:
        return site.engine.submit(job)
    with _one_at_a_time(site):
        check(site, job, clock())
        job_id = site.engine.submit(job)
        try:
            check(site, job, clock(), own_id=job_id)
        except InputError:
            site.engine.cancel(job_id)
            raise
    return job_id


@contextmanager
def _one_at_a_time(site: Site) -> Iterator[None]:
    """Locks the engine's folder itself, which writes nothing; some network file systems cannot."""
    try:
        folder = os.open(_folder(site), os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # not a folder, or none before the first job
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def check(site: Site, job: JobFile, now: datetime, own_id: str = "") -> None:
    """InputError: the job would exceed a limit. `own_id`: its id once submitted, which does not count twice."""
    limits = site.limits
    if limits is None:
        return
    price = None if site.nodes is None else site.nodes.usd_per_hour
    most = charge(site, job)
    if price is None or most.usd is None:
        raise InputError(
            _place(site, "limits"), f"cannot be kept: {NO_PRICE if site.nodes is None else most.why}",
            allowed="limits only where the price of a node, and of a job's data, is known",
            fix=f"write {_place(site, 'usd_per_node_hour')}, or region and machine_type",
        )  # fmt: skip
    if limits.job_usd is not None and most.usd > limits.job_usd:
        raise _refusal(site, job, most.usd, _Share("job_usd", limits.job_usd, 0.0, 0.0, most.why), price)
    month = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    uses = _uses(site, limits, month, now, own_id)
    if limits.usd_per_hour is not None:
        running = price * sum(each.open_nodes for each in uses)
        share = _Share("usd_per_hour", limits.usd_per_hour, 0.0, running, f"jobs that have not ended; {most.why}")
        if price * job.nodes.max > share.left:
            raise _refusal(site, job, price * job.nodes.max, share, price)
    for share in _shares(site, job, limits, uses, price):
        if most.usd > share.left:
            raise _refusal(site, job, most.usd, share, price)


def _shares(site: Site, job: JobFile, limits: LimitsConfig, uses: Sequence[_Use], price: float) -> Iterator[_Share]:
    """The limits of a month, for the user who submits and the job's team."""

    def share(name: str, limit: float, counted: Sequence[_Use]) -> _Share:
        spent, reserved = (
            price * sum(getattr(use, hours) for use in counted) for hours in ("used_hours", "open_hours")
        )
        return _Share(name, limit, spent, reserved, _source(site))

    if (limit := limits.user_usd_per_month) is not None:
        yield share("user_usd_per_month", limit, [use for use in uses if use.user == _own_name()])
    if (limit := limits.team_usd_per_month) is None:
        return
    if job.team is None:
        raise InputError(
            "team", f"missing: {_place(site, 'limits.team_usd_per_month')} limits each team",
            allowed="a team's name", fix="write the team that pays for the job: team: vision",
        )  # fmt: skip
    yield share("team_usd_per_month", limit, [use for use in uses if use.team == job.team])


def _own_name() -> str:
    return user_name(os.geteuid())


def _refusal(site: Site, job: JobFile, usd: float, share: _Share, price: float) -> InputError:
    what = f"{job.name} costs up to {usd:,.2f} USD"
    hours = share.left / price / job.nodes.max
    fewer = int(share.left / price / job.max_hours)
    if share.name == "usd_per_hour":
        what, hours, fewer = f"{what} an hour", 0.0, int(share.left / price)
    fixes = [f"max_hours: {_round_down(hours):g}"] if hours >= 0.01 else []
    fixes += [f"nodes: {{min: {min(job.nodes.min, fewer)}, max: {fewer}}}"] if fewer >= 1 else []
    counted = [] if share.name == "job_usd" else [f"{share.spent:,.2f} spent", f"{share.reserved:,.2f} reserved"]
    left = f"{share.left:,.2f} USD"
    if counted:
        left += f", which {share.limit:,.2f} USD leave: {', '.join(counted)} ({share.source})"
    return InputError(
        _place(site, f"limits.{share.name}"), what, value=f"{share.limit:g}", allowed=f"at most {left}",
        fix=", or ".join([*fixes, _WAIT] if counted else fixes) or "raise the limit",
    )  # fmt: skip


def _round_down(hours: float) -> float:
    return int(hours * 100) / 100


def _place(site: Site, name: str) -> str:
    return f"engines.{site.asked}.{name}"


def _source(site: Site) -> str:
    accounts = isinstance(site.engine, SlurmEngine) and site.engine.has_accounts()
    return "Slurm's accounting" if accounts else f"records of jobs in {site.engine.where}"


def _uses(site: Site, limits: LimitsConfig, month: datetime, now: datetime, own_id: str) -> list[_Use]:
    """What each job has used since the month began, and may still use."""
    monthly = limits.user_usd_per_month is not None or limits.team_usd_per_month is not None
    if monthly and not isinstance(site.engine, FolderEngine):
        name = "user_usd_per_month" if limits.user_usd_per_month is not None else "team_usd_per_month"
        raise InputError(
            _place(site, f"limits.{name}"), f"{site.engine.kind} forgets jobs a week after their end",
            allowed="job_usd and usd_per_hour there", fix="remove it, and limit the team's quota instead",
        )  # fmt: skip
    if not monthly and limits.usd_per_hour is None:
        return []
    counts_others = limits.usd_per_hour is not None or limits.team_usd_per_month is not None
    known = [each for each in _known_jobs(site) if each.id != own_id and (counts_others or each.user == _own_name())]
    accounted = None
    if monthly and isinstance(site.engine, SlurmEngine):
        accounted = site.engine.accounted_hours(month, now)
    uses = [_job_use(site, each, month, now, monthly=monthly and accounted is None) for each in known]
    if accounted is not None:
        uses += [_Use(user, team, hours) for (user, team), hours in accounted.items()]
    return uses


def _folder(site: Site) -> Path:
    """The folder of an engine that has one."""
    return Path(site.engine.where.partition("@")[0])


def _known_jobs(site: Site) -> Sequence[JobStatus]:
    try:
        return site.engine.jobs()
    except InputError:
        if isinstance(site.engine, SlurmEngine) and not _folder(site).is_dir():
            return []  # before the first submit
        raise


def _job_use(site: Site, status: JobStatus, month: datetime, now: datetime, *, monthly: bool) -> _Use:
    user, team = status.user, status.team
    used = _used_since(status, month, now)
    if status.phase.is_over and status.phase not in (Phase.UNREADABLE, Phase.FOREIGN):
        if used is None and monthly:
            raise _unknown(site, status)
        return _Use(user, team, (used or 0.0) if monthly else 0.0)
    whole = _used_since(status, datetime.min.replace(tzinfo=UTC), now)
    if status.most_nodes is None or status.max_hours is None or whole is None or used is None:
        raise _unknown(site, status)
    open_hours = max(0.0, (status.max_hours - status.earlier_usage.sec / 3600) * status.most_nodes - whole)
    return _Use(user, team, used if monthly else 0.0, open_hours, status.most_nodes)


def _used_since(status: JobStatus, since: datetime, now: datetime) -> float | None:
    """Node-hours; None if they are unknown."""
    if status.stretches is None:
        return None
    spans = ((max(each.start, since), each.until(now), each.nodes) for each in status.stretches)
    return sum(max(0.0, (end - start).total_seconds()) / 3600 * nodes for start, end, nodes in spans)


def _unknown(site: Site, status: JobStatus) -> InputError:
    return InputError(
        _place(site, "limits"), "cannot be kept: what a job has used, or may still use, is unknown",
        value=f"{status.id}, {status.phase}", allowed="jobs that this user can read, of this release",
        fix="wait until it has ended, or have its owner cancel it; or submit as a user who may read it",
    )  # fmt: skip
