"""Forecasts the remaining time of a run from the progress and pace in its folder."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum, sqrt
from operator import mul
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gangway.components.core.findings import InputError
from gangway.runs.run_folders import read_stats
from gangway.trainer.core.regular_files import read_regular
from gangway.trainer.core.validation import first_mistake

FEWEST_WINDOWS: Final = 10
_MOST_WINDOWS: Final = 200
_MOST_KEPT: Final = 0.95
_DRAWS: Final = 1000
_SEED: Final = 20260102


@dataclass(frozen=True)
class Remaining:
    """Seconds until a job is done, without interruptions. `naive_sec`: at the mean pace."""

    low_sec: float
    middle_sec: float
    high_sec: float
    mean_sec: float
    naive_sec: float


def remaining(windows: Sequence[tuple[float, float]], images_left: float, level: float = 0.9) -> Remaining:
    """`windows`: seconds and images of past windows, without stops; at least FEWEST_WINDOWS."""
    assert len(windows) >= FEWEST_WINDOWS, "whoever has fewer does not ask"
    images = sum(count for _, count in windows)
    naive = images_left * sum(seconds for seconds, _ in windows) / images
    recent = windows[-min(max(FEWEST_WINDOWS, len(windows) // 2), _MOST_WINDOWS) :]
    paces = [seconds / count for seconds, count in recent]
    coming = max(1, round(images_left / (images / len(windows))))
    draw, mean, spread = random.Random(_SEED), fmean(paces), _spread(paces)
    found = []
    for _ in range(_DRAWS):
        known = fmean(draw.choices(paces, k=len(paces))) - mean
        # More windows than observed scatter less, by the root.
        scatter = fmean(draw.choices(paces, k=min(coming, len(paces)))) - mean
        scatter *= min(1.0, len(paces) / coming) ** 0.5
        found.append(images_left * max(mean + spread * (known + scatter), min(paces)))
    found.sort()
    tail = round((1 - level) / 2 * _DRAWS)
    return Remaining(found[tail], found[_DRAWS // 2], found[-1 - tail], sum(found) / _DRAWS, naive)


def _spread(paces: Sequence[float]) -> float:
    """How much more a mean of such paces scatters than one of independent paces: 1 or more."""
    number, middle = len(paces), fmean(paces)
    centred = [pace - middle for pace in paces]
    power = fsum(each * each for each in centred)
    if not power:
        return 1.0
    autocorrelation = fsum(map(mul, centred[1:], centred)) / power
    # Estimates from few values are too small on average (Kendall, Biometrika, 1954).
    autocorrelation = min(max(autocorrelation + (1 + 3 * autocorrelation) / number, 0.0), _MOST_KEPT)
    return sqrt((1 + autocorrelation) / (1 - autocorrelation) * number / (number - 1))


_MOST_BYTES = 2**20


class _Length(BaseModel):
    model_config = ConfigDict(extra="ignore")
    kimg: float = Field(gt=0, le=1e9)


class RunProgress(NamedTuple):
    """Progress of a run and its remaining time; None if it is done."""

    images: int
    total: int
    ahead: Remaining | None


def forecast_run(run_dir: Path, level: float) -> RunProgress:
    """Forecast a run's remaining time from its folder. InputError: no run, or too little progress to know its pace."""
    total = round(run_kimg(run_dir) * 1000)
    place = str(run_dir / "stats.jsonl")
    stats = [line for line in read_stats(run_dir / "stats.jsonl", ("time",)) if line.get("event") is None]
    if odd := [line["time"] for line in stats if not isinstance(line["time"], int | float)]:
        raise InputError(place, "has a line whose time is not a number", value=odd[0], fix="copy the file again")
    windows = get_windows(stats)
    if len(windows) < FEWEST_WINDOWS:
        raise InputError(
            place,
            "too few lines to measure the pace",
            value=len(windows),
            allowed=f"at least {FEWEST_WINDOWS} intervals between lines of one session",
            fix="wait for more progress",
        )
    images = stats[-1]["images"]
    images_left = total - images
    return RunProgress(images, total, remaining(windows, images_left, level) if images_left > 0 else None)


def get_windows(stats: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Seconds and images between lines of one session's statistics; skips stops and a clock that went back."""
    pairs = ((earlier, later) for earlier, later in pairwise(stats) if earlier["session"] == later["session"])
    found = ((later["time"] - earlier["time"], later["images"] - earlier["images"]) for earlier, later in pairs)
    return [(seconds, images) for seconds, images in found if seconds > 0 and images > 0]


def run_kimg(run_dir: Path) -> float:
    """The length of a run, in thousands of images. InputError: not a run's folder."""
    place = str(run_dir / "config.json")
    try:
        return _Length.model_validate_json(read_regular(run_dir, "config.json", _MOST_BYTES)).kimg
    except OSError as error:
        raise InputError(
            str(run_dir),
            f"not a run's folder: config.json: {error.strerror or error}",
            allowed="a run's folder, or a history",
            fix="name the folder of a started run, or a file",
        ) from None
    except ValidationError as error:
        problem = f"no valid length of the run: {first_mistake(error)}"
        raise InputError(place, problem, allowed="kimg", fix="copy the file again") from None
