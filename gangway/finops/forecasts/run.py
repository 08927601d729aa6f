"""Forecasts the remaining time of a run from the progress and pace in its folder."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gangway.components.core.findings import InputError
from gangway.runs.run_folders import read_stats
from gangway.sim.forecast.remaining_time import FEWEST_WINDOWS, Remaining, remaining
from gangway.trainer.core.regular_files import read_regular

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
    total = round(_length(run_dir) * 1000)
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


def _length(run_dir: Path) -> float:
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
        reason = error.errors(include_url=False)[0]["msg"]
        raise InputError(
            place, f"no valid length of the run: {reason}", allowed="kimg", fix="copy the file again"
        ) from None
