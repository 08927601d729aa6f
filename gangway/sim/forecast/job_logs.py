"""Published logs of cluster jobs, and their demand for GPUs.

Philly, as simulators pass it on: timestamp,duration,num_gpus[,cluster]
Helios, cluster_log.csv:          job_id,user,vc,gpu_num,...,submit_time,start_time,end_time,duration
Alibaba 2023, openb_pod_list:     name,...,num_gpu,gpu_milli,...,creation_time,deletion_time,scheduled_time
"""

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gangway.components.core.findings import InputError
from gangway.components.core.visible import visible
from gangway.sim.forecast.series import YEARS, Series, in_years

__all__ = ["JobLog", "LoggedJob", "demand", "is_job_log", "parse_job_log"]

_HOUR = timedelta(hours=1)
_MOST_HOURS = 24 * 366 * 5
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""Start of logs whose seconds count from an unknown date."""
_Row = Mapping[str, str]


@dataclass(frozen=True)
class LoggedJob:
    """A job from a log. `gpus`: may be fractional; `left`: its end, successful or not; `run_sec`: running time."""

    name: str
    group: str
    submitted: datetime
    left: datetime
    run_sec: float
    gpus: float


@dataclass(frozen=True)
class JobLog:
    """The jobs that had GPUs and ran, in order of submission. `note`: the source and what was left out."""

    jobs: tuple[LoggedJob, ...]
    note: str


@dataclass(frozen=True)
class _Format:
    """`columns`: identify the format; `read`: parses a row, as a job that may lack GPUs or length."""

    name: str
    columns: frozenset[str]
    read: Callable[[_Row, int], LoggedJob]


def is_job_log(text: str) -> bool:
    """Whether the first line has the columns of a known log."""
    return _find_format(_columns(text)) is not None


def parse_job_log(text: str, place: str) -> JobLog:
    """Parse a log (see `is_job_log`). InputError: an invalid row, or no job with GPUs."""
    found = _find_format(_columns(text))
    assert found is not None, "is_job_log was asked"
    jobs: list[LoggedJob] = []
    rows = 0
    for rows, (line, row) in enumerate(_rows(text, place), 1):
        try:
            job = found.read(row, rows)
            in_years(job.submitted)
            if not (0 <= job.gpus < math.inf and math.isfinite(job.run_sec)):
                raise ValueError
        except (ValueError, TypeError, OverflowError):
            raise InputError(
                f"{place}, line {line}", f"no job of a log like {found.name}",
                value=",".join(str(cell) for cell in row.values())[:120],
                allowed=f"times {YEARS} and numbers in {', '.join(sorted(found.columns))}",
                fix="correct the line, or read a copy without it",
            ) from None  # fmt: skip
        if job.gpus > 0 and job.run_sec > 0 and job.left > job.submitted:
            jobs.append(job)
    if not jobs:
        raise InputError(
            place, "no job that had GPUs and ran", value=rows, allowed="one at least", fix="give more of it"
        )
    without = rows - len(jobs)
    note = f"a log like {found.name}: {len(jobs):,} jobs" + (
        f", {without:,} without GPUs or length left out" * bool(without)
    )
    return JobLog(tuple(sorted(jobs, key=lambda job: job.submitted)), note)


def demand(log: JobLog, place: str) -> Series:
    """Hourly means of GPUs that jobs held or waited for. InputError: less than two hours, or years."""
    first, last = log.jobs[0].submitted, log.jobs[-1].submitted
    start = first.replace(minute=0, second=0, microsecond=0) + _HOUR
    number = (last - start) // _HOUR
    if not 2 <= number <= _MOST_HOURS:
        raise InputError(
            place, "jobs of too short or too long a time", value=f"{first:%Y-%m-%d} to {last:%Y-%m-%d}",
            allowed="some hours to five years", fix="correct the times, or give fewer of its jobs",
        )  # fmt: skip
    hourly = [0.0] * number
    for job in log.jobs:
        begins, ends = (max(0.0, (moment - start) / _HOUR) for moment in (job.submitted, job.left))
        for hour in range(int(begins), min(number, math.ceil(ends))):
            hourly[hour] += job.gpus * (min(ends, hour + 1) - max(begins, hour))
    note = f"{log.note}; GPUs held or waited for, mean of each hour; what ran before the log begins is not in it"
    return Series("gpus_wanted", start, _HOUR, tuple(hourly), note)


def _columns(text: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([text.partition("\n")[0]]), [])]
    except csv.Error:
        return []


def _rows(text: str, place: str) -> Iterator[tuple[int, _Row]]:
    reader = csv.DictReader(io.StringIO(text.partition("\n")[2]), _columns(text))
    try:
        for row in reader:
            yield reader.line_num + 1, row
    except csv.Error as error:
        raise InputError(
            f"{place}, line {reader.line_num + 2}", f"begins a row that is no CSV: {error}",
            allowed="a row of cells for each job", fix="close its quotes",
        ) from None  # fmt: skip


def _find_format(columns: Sequence[str]) -> _Format | None:
    return next((each for each in _FORMATS if each.columns.issubset(columns)), None)


def _moment(text: str) -> datetime:
    """Logs have no time zone: assumes UTC."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _philly(row: _Row, number: int) -> LoggedJob:
    submitted, run_sec = _moment(row["timestamp"]), float(row["duration"])
    end = submitted + timedelta(seconds=run_sec)
    return LoggedJob(
        f"job-{number}", visible(row.get("cluster") or ""), submitted, end, run_sec, float(row["num_gpus"])
    )


def _helios(row: _Row, number: int) -> LoggedJob:
    submitted, gpus = _moment(row["submit_time"]), float(row["gpu_num"])
    if not gpus or not row["start_time"]:  # cancelled in the queue
        return LoggedJob(f"job-{number}", "", submitted, submitted, 0.0, 0.0)
    end = _moment(row["end_time"])
    run_sec = (end - _moment(row["start_time"])).total_seconds()
    return LoggedJob(f"job-{number}", visible(row.get("user") or ""), submitted, end, run_sec, gpus)


def _alibaba(row: _Row, number: int) -> LoggedJob:
    submitted, end = (_EPOCH + timedelta(seconds=float(row[name])) for name in ("creation_time", "deletion_time"))
    gpus = float(row["num_gpu"]) * float(row["gpu_milli"]) / 1000
    scheduled = row.get("scheduled_time") or ""
    start = _EPOCH + timedelta(seconds=float(scheduled)) if scheduled else end
    return LoggedJob(
        f"job-{number}", visible(row.get("qos") or ""), submitted, end, (end - start).total_seconds(), gpus
    )


_FORMATS = (
    _Format("Helios's", frozenset({"submit_time", "start_time", "end_time", "gpu_num"}), _helios),
    _Format("Alibaba's of 2023", frozenset({"creation_time", "deletion_time", "num_gpu", "gpu_milli"}), _alibaba),
    _Format("Philly's", frozenset({"timestamp", "duration", "num_gpus"}), _philly),
)
