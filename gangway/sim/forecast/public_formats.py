"""Reads a history from a file of `gangway.sim.forecast.series` or a public format.

    AWS, describe-spot-price-history:  {"SpotPriceHistory": [{"AvailabilityZone": ..., "SpotPrice": ..., ...}]}
    SkyPilot's spot traces:            {"metadata": {"gap_seconds": 195}, "data": [1, 0, ...]}
    logs of clusters' jobs:            see `gangway.sim.forecast.job_logs`

Unequal steps become hours; the series' note says how.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from gangway.components.core.findings import InputError
from gangway.components.core.first_error import first_wrong
from gangway.components.core.foreign_files import foreign_file
from gangway.components.core.visible import visible
from gangway.sim.forecast.job_logs import demand, is_job_log, parse_job_log
from gangway.sim.forecast.series import Series, check_number, file_text, in_years, parse_series

__all__ = ["read_history"]

_HOUR = timedelta(hours=1)
_HOUR_SEC = 3600
_MOST_VALUES = 5_000_000
_UNIX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_PRICE_LIST = re.compile(r'\s*\[\s*\{[^{}]*"SpotPrice"')
_NO_DATE = datetime(2000, 1, 1, tzinfo=UTC)


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
    """Read a history. `column`: the value, if there are several; for prices MACHINE/ZONE. A history without a subject
    gets the file's name. InputError: what is wrong, and where.
    """
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
        wrong = first_wrong(error)
        raise InputError(
            wrong.within(place), wrong.what, value=repr(wrong.value)[:80],
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
    return Series("nodes_there", _NO_DATE, _HOUR, values, note)
