"""An append-only JSON lines file of published forecasts and their later truth, so that no forecast can be improved
afterwards.

    {"kind": "forecast", "series": "g_per_kwh", "of": "de", "first": "2026-12-01T00:00:00Z", "step_sec": 3600, ...}
    {"kind": "truth", "series": "g_per_kwh", "of": "de", "time": "2026-12-01T00:00:00Z", "value": 310.0}

Old lines lack `of`: their subject is unknown, and they match no other.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError
from pydantic import model_validator as validator

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import visible
from gangway.components.core.whole_files import append_line, complete_lines, cut_half_line, half_line, lock
from gangway.sim.forecast.accuracy import FEWEST, Accuracy, Drift, Judged, Skill, accuracy, detect, deviates, skill
from gangway.sim.forecast.forecaster import Forecast, Setting
from gangway.sim.forecast.series import Series
from gangway.trainer.core.regular_files import open_file, read_file
from gangway.trainer.core.validation import first_mistake


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Quantiles(_Frozen):
    low: Annotated[tuple[FiniteFloat, ...], Field(min_length=1, strict=False)]
    middle: Annotated[tuple[FiniteFloat, ...], Field(strict=False)]
    high: Annotated[tuple[FiniteFloat, ...], Field(strict=False)]

    @validator(mode="after")
    def _in_order(self) -> Self:
        if not len(self.low) == len(self.middle) == len(self.high):
            raise ValueError("low, middle and high are of several lengths")
        if any(not a <= b <= c for a, b, c in zip(self.low, self.middle, self.high, strict=True)):
            raise ValueError("low, middle and high are not in ascending order")
        return self


class _ForecastLine(_Frozen):
    """A forecast. `first`: time of its first step; `written`: when it was added."""

    kind: Literal["forecast"] = "forecast"
    series: str
    of: str = ""
    first: Annotated[AwareDatetime, Field(strict=False)]
    step_sec: Annotated[FiniteFloat, Field(gt=0)]
    level: Annotated[FiniteFloat, Field(gt=0, lt=1)]
    written: Annotated[AwareDatetime, Field(strict=False)]
    model: _Quantiles
    baseline: _Quantiles

    @validator(mode="after")
    def _of_one_length(self) -> Self:
        if len(self.model.low) != len(self.baseline.low):
            raise ValueError("model and baseline look ahead by different numbers of steps")
        return self

    def times(self) -> list[datetime]:
        return [self.first + index * timedelta(seconds=self.step_sec) for index in range(len(self.model.low))]


class _TruthLine(_Frozen):
    kind: Literal["truth"] = "truth"
    series: str
    of: str = ""
    time: Annotated[AwareDatetime, Field(strict=False)]
    value: FiniteFloat


_LINE: TypeAdapter[_ForecastLine | _TruthLine] = TypeAdapter(
    Annotated[_ForecastLine | _TruthLine, Field(discriminator="kind")]
)
_Key = tuple[str, str, datetime]
_BEGINNINGS = (b'{"kind": "forecast", "series": "', b'{"kind": "truth", "series": "')


@dataclass(frozen=True)
class Settled:
    """The truths a history adds to a ledger, and those that contradict earlier ones."""

    new: int
    revised: int


@dataclass(frozen=True)
class Scored:
    """A published forecast with known truth: its times, the model's and the baseline's values."""

    step: timedelta
    times: tuple[datetime, ...]
    model: Judged
    baseline: Judged


def overlapping(scored: Sequence[Scored]) -> int:
    """The largest number of consecutive forecasts that cover times of their first."""
    firsts = [each.times[0] for each in scored]
    return max((bisect_right(firsts, each.times[-1]) - place for place, each in enumerate(scored)), default=1)


class Entries:
    """The content of a ledger."""

    def __init__(self, path: Path, lines: Sequence[_ForecastLine | _TruthLine]) -> None:
        self.path = path
        self._said: dict[_Key, _ForecastLine] = {}
        self._came: dict[_Key, float] = {}
        for number, line in enumerate(lines, 1):
            self._take(line, f"{path}, line {number}")

    def kinds(self) -> list[tuple[str, float, str]]:
        """Series name, level and subject of its forecasts, in order of appearance."""
        return list(dict.fromkeys((line.series, line.level, line.of) for line in self._said.values()))

    def scored(self, name: str, level: float, of: str = "") -> list[Scored]:
        """Forecasts of the series and level with known truth, in the order of their times."""
        found: list[Scored] = []
        for line in self._of(name, level, of):
            times = tuple(line.times())
            known = tuple(self._came[name, of, time] for time in times if (name, of, time) in self._came)
            if len(known) == len(times):
                model, baseline = (
                    Judged(each.low, each.middle, each.high, known) for each in (line.model, line.baseline)
                )
                found.append(Scored(timedelta(seconds=line.step_sec), times, model, baseline))
        return found

    def waiting(self, name: str, level: float, of: str = "") -> int:
        """Number of forecasts with unknown truth."""
        return len(self._of(name, level, of)) - len(self.scored(name, level, of))

    def others(self, series: Series) -> tuple[str, ...]:
        """Subjects of other forecasts with the series' name, if it has none of this one."""
        found = dict.fromkeys(line.of for line in self._said.values() if line.series == series.name)
        return () if series.of in found else tuple(found)

    def _of(self, name: str, level: float | None, of: str) -> list[_ForecastLine]:
        found = (line for line in self._said.values() if (line.series, line.of) == (name, of))
        return sorted((line for line in found if level in (None, line.level)), key=lambda line: line.first)

    def _take(self, line: _ForecastLine | _TruthLine, place: str) -> None:
        is_said = isinstance(line, _ForecastLine)
        key = (line.series, line.of, line.first if isinstance(line, _ForecastLine) else line.time)
        if key in (self._said if is_said else self._came):
            kind = "forecast" if is_said else "truth"
            raise _damaged(place, f"a second {kind} of {key[0]!r} for {key[2].isoformat()}")
        if isinstance(line, _ForecastLine):
            self._said[key] = line
        else:
            self._came[key] = line.value


class Ledger(Entries):
    """A ledger open for writing by one process at a time. Use `open_ledger`."""

    def __init__(self, path: Path, file: IO[bytes], lines: Sequence[_ForecastLine | _TruthLine]) -> None:
        super().__init__(path, lines)
        self._file = file

    def settle(self, series: Series) -> Settled:
        """Write the truth of forecast times. Existing truths stay: published figures do not change afterwards."""
        new = revised = 0
        for time in sorted({time for line in self._of(series.name, None, series.of) for time in line.times()}):
            index = series.find_index(time)
            if index is None:
                continue
            value, known = series.values[index], self._came.get((series.name, series.of, time))
            if known is None:
                self._add(_TruthLine(series=series.name, of=series.of, time=time, value=value))
                new += 1
            revised += known is not None and known != value
        return Settled(new, revised)

    def add(self, series: Series, setting: Setting, model: Forecast, baseline: Forecast, now: datetime) -> bool:
        """Write a forecast, unless the series has one from the same time: the first counts."""
        first = series.find_time(model.origin)
        if (series.name, series.of, first) in self._said:
            return False
        predicted, naive = (_Quantiles(low=each.low, middle=each.middle, high=each.high) for each in (model, baseline))
        step_sec = series.step.total_seconds()
        self._add(
            _ForecastLine(
                series=series.name, of=series.of, first=first, step_sec=step_sec, level=setting.level, written=now,
                model=predicted, baseline=naive,
            )
        )  # fmt: skip
        return True

    def _add(self, line: _ForecastLine | _TruthLine) -> None:
        try:
            append_line(self._file, line.model_dump(mode="json"))
        except OSError as error:
            raise InputError(
                str(self.path), f"cannot be written: {error.strerror}", fix="free some space, then try again"
            ) from None
        self._take(line, str(self.path))


@contextmanager
def open_ledger(path: Path) -> Iterator[Ledger]:
    """Open or create the ledger. InputError: cannot be opened, damaged (with the line), or held by another process."""
    try:
        file = open_file(path, "a+b")
    except OSError as error:
        raise InputError(
            str(path), f"cannot be opened: {error.strerror}", fix="name a file in a folder that can be written"
        ) from None
    with file:
        try:
            lock(file)
        except BlockingIOError:
            raise InputError(str(path), "another process writes in it", fix="let that end first") from None
        file.seek(0)
        content = file.read()
        ledger = Ledger(path, file, _lines(path, complete_lines(content)))
        # An interrupted write leaves the start of a line; anything else means that this is not a ledger.
        half = half_line(content)
        if half and not any(half.startswith(each) or each.startswith(half) for each in _BEGINNINGS):
            raise _damaged(f"{path}, line {len(complete_lines(content)) + 1}", "it begins otherwise, and has no end")
        cut_half_line(file, content)
        yield ledger


def read_ledger(path: Path) -> Entries:
    """Read a ledger that may be open for writing elsewhere. InputError: unreadable or damaged."""
    try:
        content = read_file(path)
    except OSError as error:
        raise InputError(
            str(path), f"cannot be read: {error.strerror}", allowed="a ledger, as `gangway forecast` writes it",
            fix="name the file",
        ) from None  # fmt: skip
    return Entries(path, _lines(path, complete_lines(content)))


def _lines(path: Path, texts: Sequence[bytes]) -> list[_ForecastLine | _TruthLine]:
    lines = []
    for number, text in enumerate(texts, 1):
        try:
            lines.append(_LINE.validate_json(text))
        except ValidationError as error:
            raise _damaged(f"{path}, line {number}", str(first_mistake(error))) from None
    return lines


def _damaged(place: str, reason: str) -> InputError:
    return InputError(
        place,
        f"no line of a ledger of forecasts: {reason}",
        allowed="lines as `gangway forecast` writes them",
        fix="restore the file, or begin another: --ledger NEW.jsonl",
    )


@dataclass(frozen=True)
class Standing:
    """One series at one level. `waiting`: forecasts with unknown truth; `drift`: later half against the earlier."""

    path: Path
    series: str
    of: str
    level: float
    waiting: int
    scored: tuple[Scored, ...]
    model: Accuracy | None
    baseline: Accuracy | None
    gain: Skill | None
    drift: Drift | None

    @property
    def name(self) -> str:
        """Of the series, printable."""
        return visible(f"{self.series} of {self.of}" if self.of else self.series)

    @property
    def source(self) -> str:
        """Of its figures."""
        return f"ledger {visible(self.path.name)}: what was published before, and the truth that came"

    def drifts_since(self) -> datetime | None:
        """The approximate start of the drift, if any."""
        if self.drift is None or self.drift.alarm is None or self.drift.began is None:
            return None
        return self.scored[_earlier(len(self.scored)) + min(self.drift.began, self.drift.alarm)].times[0]


def standings(entries: Entries) -> list[Standing]:
    """Evaluate every series, in the ledger's order."""
    return [find_standing(entries, *kind) for kind in entries.kinds()]


def find_standing(entries: Entries, name: str, level: float, of: str) -> Standing:
    """Evaluate one series at one level."""
    scored = entries.scored(name, level, of)
    model, baseline = [each.model for each in scored], [each.baseline for each in scored]
    return Standing(
        path=entries.path,
        series=name,
        of=of,
        level=level,
        waiting=entries.waiting(name, level, of),
        scored=tuple(scored),
        model=accuracy(model, level) if scored else None,
        baseline=accuracy(baseline, level) if scored else None,
        gain=skill(model, baseline, overlapping(scored)) if scored else None,
        drift=_drift([each.truth[0] - each.middle[0] for each in model]),
    )


def _drift(errors: Sequence[float]) -> Drift | None:
    earlier = _earlier(len(errors))
    return detect(deviates(errors[earlier:], errors[:earlier])) if len(errors) > earlier else None


def _earlier(number: int) -> int:
    return max(FEWEST, number // 2)
