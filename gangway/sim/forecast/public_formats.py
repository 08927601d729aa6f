"""Reads a history from a file of `gangway.sim.forecast.series` or a public format.

    AWS, describe-spot-price-history:  {"SpotPriceHistory": [{"AvailabilityZone": ..., "SpotPrice": ..., ...}]}
    SkyPilot's spot traces:            {"metadata": {"gap_seconds": 195}, "data": [1, 0, ...]}
    logs of clusters' jobs:            see `gangway.sim.forecast.public_formats`

Unequal steps become hours; the series' note says how.
"""

import csv
import io
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from gangway.components.core.findings import InputError
from gangway.components.core.foreign_files import foreign_file
from gangway.components.core.safe_text import visible
from gangway.sim.forecast.series import YEARS, Series, check_number, file_text, in_years, parse_series
from gangway.trainer.core.validation import first_mistake

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
    reader = csv.DictReader(io.StringIO(text.partition("\n")[2]), _columns(text))
    for rows, (line, row) in enumerate(csv_rows(reader, place, first=2), 1):
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


def csv_rows(reader: "csv.DictReader[str]", place: str, first: int = 1) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and cells of each row. `first`: line of the reader's text in the file. InputError: no CSV."""
    try:
        for row in reader:
            yield reader.line_num + first - 1, row
    except csv.Error as error:
        raise InputError(
            f"{place}, line {reader.line_num + first}", f"begins a row that is no CSV: {error}",
            allowed="a row of cells for each job", fix="close its quotes",
        ) from None  # fmt: skip


def _find_format(columns: Sequence[str]) -> _Format | None:
    return next((each for each in _FORMATS if each.columns.issubset(columns)), None)


def _moment(text: str) -> datetime:
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


_HOUR_SEC = 3600
_MOST_VALUES = 5_000_000
_UNIX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_PRICE_LIST = re.compile(r'\s*\[\s*\{[^{}]*"SpotPrice"')


class _Foreign(BaseModel):
    """A foreign format, with unknown fields allowed."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Price(_Foreign):
    zone: str = Field(alias="AvailabilityZone", min_length=1)
    machine: str = Field(alias="InstanceType", min_length=1)
    product: str = Field(alias="ProductDescription")
    usd: Annotated[FiniteFloat, Field(alias="SpotPrice", ge=0, le=1e6)]
    since: Annotated[AwareDatetime, AfterValidator(in_years), Field(alias="Timestamp")]


class _Prices(_Foreign):
    history: tuple[_Price, ...] = Field(alias="SpotPriceHistory", min_length=1, max_length=_MOST_VALUES)


class _Gap(_Foreign):
    gap_seconds: FiniteFloat = Field(gt=0, le=_HOUR_SEC)


class _Availability(_Foreign):
    metadata: _Gap
    data: Annotated[tuple[Annotated[FiniteFloat, Field(ge=0)], ...], Field(min_length=1, max_length=_MOST_VALUES)]


def read_history(path: Path, column: str | None = None) -> Series:
    """Read a history; without a subject it gets the file's name. `column`: the value; for prices MACHINE/ZONE."""
    series = _read(file_text(path), str(path), column)
    return series if series.of else replace(series, of=visible(path.stem))


def _read(text: str, place: str, column: str | None) -> Series:
    if foreign := foreign_file(place, text, "forecast"):
        raise foreign
    if text.lstrip()[:1] == "{" or _PRICE_LIST.match(text):
        return _parse_object(text, place, column)
    if not is_job_log(text):
        return parse_series(text, place, column)
    _refuse_column(column, place)
    return demand(parse_job_log(text, place), place)


def _parse_object(text: str, place: str, column: str | None) -> Series:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = {}  # the reader of our own format says where it is no JSON
    if isinstance(content, list):  # `--query SpotPriceHistory` leaves the list alone
        content = {"SpotPriceHistory": content}
    try:
        if "SpotPriceHistory" in content:
            return _hourly_prices(_Prices.model_validate(content).history, place, column)
        if {"metadata", "data"} <= content.keys():
            trace = _Availability.model_validate(content)
            _refuse_column(column, place)
            return _hourly_nodes(trace, place)
    except ValidationError as error:
        wrong = first_mistake(error)
        raise InputError(
            wrong.within(place), wrong.summary, value=repr(wrong.value)[:80],
            allowed="a history as AWS or SkyPilot's spot traces have it", fix="fetch the file anew",
        ) from None  # fmt: skip
    return parse_series(text, place, column)


def _refuse_column(column: str | None, place: str) -> None:
    if column is not None:
        raise InputError("--column", f"{place} has one value", value=column, allowed="none", fix="leave it out")


def _hourly_prices(history: Sequence[_Price], place: str, column: str | None) -> Series:
    """The price at each whole hour: it holds until the next record."""
    changes: defaultdict[str, dict[datetime, float]] = defaultdict(dict)
    for price in history:
        if price.product in _UNIX:
            changes[f"{visible(price.machine)}/{visible(price.zone)}"][price.since.astimezone(UTC)] = price.usd
    if not history:
        raise InputError(place, "spot prices, but not one", allowed="some weeks", fix="ask AWS for a longer time")
    if column is not None and column not in changes:
        raise InputError.not_among("--column", f"no Linux price of that name in {place}", column, sorted(changes))
    if column is None and len(changes) != 1:
        raise InputError(
            place, "prices of several machines or zones" if changes else "spot prices, but none of Linux",
            value=", ".join(sorted(changes or {visible(price.product) for price in history})[:20]),
            allowed="one, or --column MACHINE/ZONE" if changes else ", ".join(_UNIX),
            fix=f"--column {min(changes)}" if changes else "ask AWS for --product-descriptions Linux/UNIX",
        )  # fmt: skip
    name = column or next(iter(changes))
    records = sorted(changes[name].items())
    start, end = (
        moment.replace(minute=0, second=0, microsecond=0) for moment in (records[0][0] + _HOUR, records[-1][0])
    )
    number = (end - start) // _HOUR + 1
    check_number(number, f"{place}: {name}")
    values, at = [], 0
    for hour in range(number):
        while at + 1 < len(records) and records[at + 1][0] <= start + hour * _HOUR:
            at += 1
        values.append(records[at][1])
    if len(values) < 2:
        raise InputError(place, f"prices of {name} for less than two hours", allowed="some weeks", fix="ask for more")
    note = (
        f"AWS spot prices of {name}, Linux, as AWS told them {len(records):,} times; here the one in force at each hour"
    )
    return Series("usd_per_hour", start, _HOUR, tuple(values), note, of=name)


def _hourly_nodes(trace: _Availability, place: str) -> Series:
    """Hourly means; the file has no date, so hours count from an arbitrary midnight."""
    gap = trace.metadata.gap_seconds
    hours: defaultdict[int, list[float]] = defaultdict(list)
    for index, nodes in enumerate(trace.data):
        hours[int(index * gap // _HOUR_SEC)].append(nodes)
    whole = int(len(trace.data) * gap // _HOUR_SEC)
    if whole < 2:
        raise InputError(
            place, "less than two hours", value=len(trace.data), allowed="some weeks", fix="give more of it"
        )
    check_number(whole, place)
    values = tuple(math.fsum(hours[hour]) / len(hours[hour]) for hour in range(whole))
    note = f"a spot trace of SkyPilot's, looked at each {gap:g} s; here means of hours, counted from a day without date"
    return Series("nodes_there", _EPOCH, _HOUR, values, note)
