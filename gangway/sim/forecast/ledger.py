"""Every forecast that was published, and the truth that came later: a file of JSON lines that only grows. Its figures
are those of forecasts that nobody could better afterwards.

    {"kind": "forecast", "series": "g_per_kwh", "of": "de", "first": "2026-12-01T00:00:00Z", "step_sec": 3600, ...}
    {"kind": "truth", "series": "g_per_kwh", "of": "de", "time": "2026-12-01T00:00:00Z", "value": 310.0}

Lines of before `of` was written have none: whose values they are nobody knows, and they are nobody else's.
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

from components.core.findings import InputError
from components.core.first_error import first_wrong
from components.core.json_lines import append_line, complete_lines, cut_half_line, half_line, lock
from gangway.sim.forecast.accuracy import Judged
from gangway.sim.forecast.forecaster import Forecast, Setting
from gangway.sim.forecast.series import Series
from trainer.core.regular_files import open_file, read_file

__all__ = ["Entries", "Ledger", "Scored", "Settled", "open_ledger", "overlapping", "read_ledger"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Quantiles(_Frozen):
    """A value for each step ahead."""

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


class _Said(_Frozen):
    """A forecast. `first`: the time of its first step; `written`: when it came into the file."""

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


class _Came(_Frozen):
    """The truth of one time."""

    kind: Literal["truth"] = "truth"
    series: str
    of: str = ""
    time: Annotated[AwareDatetime, Field(strict=False)]
    value: FiniteFloat


_LINE: TypeAdapter[_Said | _Came] = TypeAdapter(Annotated[_Said | _Came, Field(discriminator="kind")])
_Key = tuple[str, str, datetime]
_BEGINNINGS = (b'{"kind": "forecast", "series": "', b'{"kind": "truth", "series": "')


@dataclass(frozen=True)
class Settled:
    """What a history told of earlier forecasts: truths that are new, and those that it has otherwise than before."""

    new: int
    revised: int


@dataclass(frozen=True)
class Scored:
    """A published forecast whose whole truth is known: the times it is about, the model's and the baseline's."""

    step: timedelta
    times: tuple[datetime, ...]
    model: Judged
    baseline: Judged


def overlapping(scored: Sequence[Scored]) -> int:
    """The most of them in a row, in the order of their times, that are about times that the first one is about."""
    firsts = [each.times[0] for each in scored]
    return max((bisect_right(firsts, each.times[-1]) - place for place, each in enumerate(scored)), default=1)


class Entries:
    """What a ledger has."""

    def __init__(self, path: Path, lines: Sequence[_Said | _Came]) -> None:
        self._path = path
        self._said: dict[_Key, _Said] = {}
        self._came: dict[_Key, float] = {}
        for number, line in enumerate(lines, 1):
            self._take(line, f"{path}, line {number}")

    def kinds(self) -> list[tuple[str, float, str]]:
        """Series of its forecasts, their level and what they are of, in the order of their first ones."""
        return list(dict.fromkeys((said.series, said.level, said.of) for said in self._said.values()))

    def scored(self, name: str, level: float, of: str = "") -> list[Scored]:
        """Forecasts of that series and level whose whole truth is known, in the order of their times."""
        found: list[Scored] = []
        for said in self._of(name, level, of):
            times = tuple(said.times())
            known = tuple(self._came[name, of, time] for time in times if (name, of, time) in self._came)
            if len(known) == len(times):
                model, baseline = (
                    Judged(each.low, each.middle, each.high, known) for each in (said.model, said.baseline)
                )
                found.append(Scored(timedelta(seconds=said.step_sec), times, model, baseline))
        return found

    def waiting(self, name: str, level: float, of: str = "") -> int:
        """How many of them still wait for some of their truth."""
        return len(self._of(name, level, of)) - len(self.scored(name, level, of))

    def judged(self, name: str, level: float, of: str = "") -> tuple[list[Judged], list[Judged]]:
        """The scored ones: the model's and the baseline's."""
        scored = self.scored(name, level, of)
        return [each.model for each in scored], [each.baseline for each in scored]

    def others(self, series: Series) -> tuple[str, ...]:
        """What its forecasts of series of that name are of, as long as it has none of this one."""
        found = dict.fromkeys(said.of for said in self._said.values() if said.series == series.name)
        return () if series.of in found else tuple(found)

    def _of(self, name: str, level: float | None, of: str) -> list[_Said]:
        found = (said for said in self._said.values() if (said.series, said.of) == (name, of))
        return sorted((said for said in found if level in (None, said.level)), key=lambda said: said.first)

    def _take(self, line: _Said | _Came, place: str) -> None:
        is_said = isinstance(line, _Said)
        key = (line.series, line.of, line.first if isinstance(line, _Said) else line.time)
        if key in (self._said if is_said else self._came):
            what = "forecast" if is_said else "truth"
            raise _damaged(place, f"a second {what} of {key[0]!r} for {key[2].isoformat()}")
        if isinstance(line, _Said):
            self._said[key] = line
        else:
            self._came[key] = line.value


class Ledger(Entries):
    """The open ledger, to write in; held by one process at a time. Use `open_ledger`."""

    def __init__(self, path: Path, file: IO[bytes], lines: Sequence[_Said | _Came]) -> None:
        super().__init__(path, lines)
        self._file = file

    def settle(self, series: Series) -> Settled:
        """Writes what came of the times that forecasts of this series were about. A truth that stands already stays:
        figures that were published do not change afterwards.
        """
        new = revised = 0
        for time in sorted({time for said in self._of(series.name, None, series.of) for time in said.times()}):
            index = series.find_index(time)
            if index is None:
                continue
            value, known = series.values[index], self._came.get((series.name, series.of, time))
            if known is None:
                self._add(_Came(series=series.name, of=series.of, time=time, value=value))
                new += 1
            revised += known is not None and known != value
        return Settled(new, revised)

    def add(self, series: Series, setting: Setting, model: Forecast, baseline: Forecast, now: datetime) -> bool:
        """Writes a forecast, unless one of this series from the same time stands already: the first counts."""
        first = series.find_time(model.origin)
        if (series.name, series.of, first) in self._said:
            return False
        said, naive = (_Quantiles(low=each.low, middle=each.middle, high=each.high) for each in (model, baseline))
        step_sec = series.step.total_seconds()
        self._add(
            _Said(
                series=series.name, of=series.of, first=first, step_sec=step_sec, level=setting.level, written=now,
                model=said, baseline=naive,
            )
        )  # fmt: skip
        return True

    def _add(self, line: _Said | _Came) -> None:
        try:
            append_line(self._file, line.model_dump(mode="json"))
        except OSError as error:
            raise InputError(
                str(self._path), f"cannot be written: {error.strerror}", fix="free some space, then try again"
            ) from None
        self._take(line, str(self._path))


@contextmanager
def open_ledger(path: Path) -> Iterator[Ledger]:
    """The ledger in a file, which is made where there is none. InputError: it cannot be opened, is damaged (with the
    line), or another process holds it.
    """
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
        _check_half(path, content)
        cut_half_line(file, content)
        yield ledger


def read_ledger(path: Path) -> Entries:
    """What is in a file, which somebody may write in meanwhile. InputError: it cannot be read, or is damaged."""
    try:
        content = read_file(path)
    except OSError as error:
        raise InputError(
            str(path), f"cannot be read: {error.strerror}", allowed="a ledger, as `gangway forecast` writes it",
            fix="name the file",
        ) from None  # fmt: skip
    return Entries(path, _lines(path, complete_lines(content)))


def _check_half(path: Path, content: bytes) -> None:
    """What broke off while a line was written begins as one: anything else is somebody's, and no ledger."""
    half = half_line(content)
    if half and not any(half.startswith(each) or each.startswith(half) for each in _BEGINNINGS):
        raise _damaged(f"{path}, line {len(complete_lines(content)) + 1}", "it begins otherwise, and has no end")


def _lines(path: Path, texts: Sequence[bytes]) -> list[_Said | _Came]:
    return [_read(path, number, text) for number, text in enumerate(texts, 1)]


def _read(path: Path, number: int, text: bytes) -> _Said | _Came:
    try:
        return _LINE.validate_json(text)
    except ValidationError as error:
        raise _damaged(f"{path}, line {number}", str(first_wrong(error))) from None


def _damaged(place: str, why: str) -> InputError:
    return InputError(
        place,
        f"no line of a ledger of forecasts: {why}",
        allowed="lines as `gangway forecast` writes them",
        fix="restore the file, or begin another: --ledger NEW.jsonl",
    )
