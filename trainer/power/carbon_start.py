"""A start that waits for clean power or a low price: `--start-when "carbon<200,by=TIME"` or `usd<1.9,by=TIME`.

The job starts with the first window of `--hours` whose forecast mean is below the limit and that ends before `by`, else
at the latest moment that finishes in time. SIGTERM ends the wait like an interruption; a begun run continues at once.
"""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from gangway.trainer.core.console import announce
from gangway.trainer.core.errors import TrainerError, parse_number
from gangway.trainer.power.forecast import CARBON, QUANTITIES, Forecast, Quantity, read_forecast
from gangway.trainer.records.stats_log import STATS_FILE

START_VARIABLE = "GANGWAY_START"  # Environment variable with the launcher's decision for its workers, as a JSON object
_FLAG = "--start-when"
_WHEN = re.compile(r"\s*(?P<word>carbon|usd)\s*<\s*(?P<limit>[0-9]+(?:\.[0-9]+)?)\s*,\s*by\s*=\s*(?P<by>\S+)\s*")
_GRID = timedelta(minutes=5)
_READ_AGAIN_SEC = 900.0
_ANNOUNCE_SEC = 600.0
_FIRST_YEAR = 2000


class StartWhen(NamedTuple):
    """The requested start: mean of quantity `of` below `limit`, end before `by`; `forecast` is a file or address."""

    limit: float
    by: datetime
    hours: float
    forecast: str
    of: Quantity = CARBON

    @property
    def latest(self) -> datetime:
        """The latest start that finishes in time."""
        return self.by - timedelta(hours=self.hours)


class Decision(NamedTuple):
    """When to start, and why; `window`: in a window below the limit. `mean` over the job, None if unknown."""

    at: datetime
    window: bool
    mean: float | None
    reason: str


def parse_start_when(text: str, hours: str | None, forecast: str | None) -> StartWhen:
    """Parse the launcher's three flags (TrainerError: one is missing or invalid)."""
    found = _WHEN.fullmatch(text)
    if found is None:
        raise TrainerError(
            place=_FLAG,
            problem="no such condition",
            value=text,
            allowed="carbon<LIMIT,by=TIME or usd<LIMIT,by=TIME: gCO2e per kWh or USD per hour, a time with its zone",
            fix=f'{_FLAG} "carbon<200,by=2026-12-01T06:00Z"',
        )
    length = parse_number(
        _require("--hours", hours, "6"),
        lambda value: 0 < value <= 8760,
        place="--hours",
        problem="no length of a job",
        allowed="above 0, up to 8760",
        fix="--hours 6",
    )
    source = _require("--forecast", forecast, "forecast.csv")
    of = next(one for one in QUANTITIES if one.word == found["word"])
    return StartWhen(float(found["limit"]), _parse_deadline(found["by"]), length, source, of)


def _require(flag: str, value: str | None, example: str) -> str:
    if value is None:
        raise TrainerError(place=flag, problem=f"is required beside {_FLAG}", fix=f"add {flag} {example}")
    return value


def _parse_deadline(text: str) -> datetime:
    try:
        by = datetime.fromisoformat(text)
        if by.tzinfo is None or by.year < _FIRST_YEAR:
            raise ValueError
        return by.astimezone(UTC)
    except (ValueError, OverflowError):
        raise TrainerError(
            place=f"{_FLAG} by",
            problem="no point in time",
            value=text,
            allowed="a date and a time with its zone, ISO 8601",
            fix="by=2026-12-01T06:00Z",
        ) from None


def decide(goal: StartWhen, forecast: Forecast, now: datetime) -> Decision:
    """The start time, to five minutes; pure."""
    length = timedelta(hours=goal.hours)

    def mean_from(start: datetime) -> float | None:
        return forecast.mean(start, start + length)

    if goal.latest <= now:
        late = "done in time only if started now" if goal.latest == now else "too late to be done by then"
        return Decision(now, False, mean_from(now), f"{goal.hours:g} h, by {_format_time(goal.by)}: {late}")
    means = [(start, mean_from(start)) for start in _starts(goal, now, forecast.end)]
    for start, mean in means:
        if mean is not None and mean < goal.limit:
            reason = f"the first {goal.hours:g} h below {goal.limit:g} {goal.of.unit}: {goal.of.in_words(mean)}"
            return Decision(start, True, mean, reason)
    known = [(mean, start) for start, mean in means if mean is not None]
    best = "none is covered"
    if known:
        best = f"the {goal.of.best} is {goal.of.in_words(min(known)[0])} from {_format_time(min(known)[1])}"
    until = "" if forecast.end >= goal.by else f", and the forecast ends at {_format_time(forecast.end)}"
    return Decision(
        goal.latest,
        False,
        mean_from(goal.latest),
        f"no {goal.hours:g} h below {goal.limit:g} {goal.of.unit} ({best}{until}): the latest "
        f"start that is done by {_format_time(goal.by)}",
    )


def _starts(goal: StartWhen, now: datetime, forecast_end: datetime) -> Iterator[datetime]:
    start, length = now, timedelta(hours=goal.hours)
    while start < goal.latest and start + length <= forecast_end:
        yield start
        start += _GRID
    yield goal.latest


def wait(
    goal: StartWhen,
    now: Callable[[], float] = time.time,
    read: Callable[[str, Quantity], Forecast] = read_forecast,
    pause: Callable[[threading.Event, float], bool] = threading.Event.wait,
) -> dict[str, Any] | None:
    """Waits for the start; returns the decision for the record, None after a signal (TrainerError: no forecast)."""
    asked_at = datetime.fromtimestamp(now(), UTC)
    forecast = read(goal.forecast, goal.of)
    if forecast.note:
        announce(f"{goal.forecast}: {forecast.note}")
    decision = decide(goal, forecast, asked_at)
    read_at = now()
    with _catch_signals() as stopped:
        while (left_sec := decision.at.timestamp() - now()) > 0:
            minutes = round(left_sec / 60)
            left = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
            announce(f"starting at {_format_time(decision.at)}, in {left}: {decision.reason}")
            if pause(stopped, min(left_sec, _ANNOUNCE_SEC)):
                announce("stopped while waiting to start; run the same command to wait again")
                return None
            if now() - read_at >= _READ_AGAIN_SEC and now() < decision.at.timestamp():
                read_at = now()
                try:
                    forecast = read(goal.forecast, goal.of)
                except TrainerError as error:
                    announce(f"the forecast cannot be read again, so the last one counts: {error.headline}")
                decision = decide(goal, forecast, datetime.fromtimestamp(read_at, UTC))
    started_at = datetime.fromtimestamp(now(), UTC)
    announce(f"starting: {decision.reason}")
    return {
        f"limit_{goal.of.column}": goal.limit,
        "by": goal.by.isoformat(),
        "hours": goal.hours,
        "forecast": forecast.source,
        "note": forecast.note,
        "asked_at": asked_at.isoformat(),
        "started_at": started_at.isoformat(),
        "delayed_sec": (started_at - asked_at).total_seconds(),
        "below_limit": decision.window,
        f"mean_{goal.of.column}": decision.mean,
        "reason": decision.reason,
    }


@contextmanager
def _catch_signals() -> Iterator[threading.Event]:
    stopped = threading.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: stopped.set()) for number in signals]
    try:
        yield stopped
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def has_begun(argv: Sequence[str]) -> bool:
    """Whether the run named by torchrun's arguments has begun; it then continues at once."""
    folder = find_run_dir(argv)
    return folder is not None and (folder / STATS_FILE).exists()


def find_run_dir(argv: Sequence[str]) -> Path | None:
    """The run folder named by torchrun's arguments; None if there is none."""
    run_dir, preset = (_find_value(argv, flag) for flag in ("--run-dir", "--preset"))
    if run_dir is not None:
        return Path(run_dir)
    return None if preset is None else Path("runs") / preset


def _find_value(argv: Sequence[str], flag: str) -> str | None:
    for index, word in enumerate(argv):
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
        if word == flag and index + 1 < len(argv):
            return argv[index + 1]
    return None


def start_decision() -> dict[str, Any]:
    """The launcher's decision, for the record; empty without one."""
    decision: dict[str, Any] = json.loads(os.environ.get(START_VARIABLE, "{}"))
    return decision


def _format_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")
