"""A run's lines of statistics, read from its directory: whole ones, each checked before anything is drawn of it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.core.findings import InputError
from components.core.visible import all_visible
from trainer.core.regular_files import MOST_BYTES_OF_STATS, read_regular

NEEDED = ("loss_g", "loss_d", "grad_norm_g", "grad_norm_d", "images_per_sec", "world_size")
"""What each line of statistics must have to be drawn, besides its place in the run; null where it was not measured."""
_DRAWN = (
    *("images", "kimg", "images_per_sec", "loss_g", "loss_d", "grad_norm_g", "grad_norm_d", "energy_joules"),
    *("wall_sec", "cpu_utilisation", "gpu_utilisation", "host_memory_gib", "rss_gib", "gpu_gib", "mfu", "world_size"),
    *("time", "metrics_sec"),
)
"""Of a line of statistics: numbers where they are there."""
_MOST = 1e40
"""Beyond 32-bit floats, in which losses are counted."""
_FIX = "fetch it anew, or take it away: tables need the record alone"


def read_stats(path: Path, needed: Sequence[str] = ()) -> tuple[dict[str, Any], ...]:
    """The whole lines of a stats.jsonl; none where there is no such file. One still being written is left out.

    Args:
        path: of the file.
        needed: what each line of statistics must have besides, be it null.

    InputError: it cannot be read, or has a line that is none of statistics and of no event, or lacks something.
    """
    try:
        complete = read_regular(path.parent, path.name, MOST_BYTES_OF_STATS).rpartition(b"\n")[0]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", fix="fetch it anew") from None
    lines = ((number, text) for number, text in enumerate(complete.split(b"\n"), 1) if text.strip())
    return tuple(_parse(path, number, text, needed) for number, text in lines)


def hints(stats: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the trainer said of signs of collapse, in order."""
    return [str(line["text"]) for line in stats if line.get("event") == "hint" and "text" in line]


def _parse(path: Path, number: int, text: bytes, needed: Sequence[str]) -> dict[str, Any]:
    try:
        line = all_visible(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"has a line that is no JSON: {error}", value=f"line {number}", fix=_FIX) from None
    why = _odd(line, needed)
    if why:
        shown = text[:80].decode("utf-8", "replace")
        raise InputError(f"{path}: line {number}", f"is no line of a run: {why}", value=shown, fix=_FIX)
    assert isinstance(line, dict), "all else is odd"
    return line


def _odd(line: object, extra: Sequence[str]) -> str:
    """What is wrong with a line; empty for nothing."""
    if not isinstance(line, dict):
        return "it is no JSON object"
    needed = ("images",) if "event" in line else ("images", "session", "kimg")
    lacking = [key for key in needed if not _is_number(line.get(key))]
    if lacking:
        return f"{lacking[0]} is no number"
    if "event" in line:
        return "" if isinstance(line["event"], str) else "event is no word"
    if absent := [key for key in extra if key not in line]:
        return f"it lacks {', '.join(absent)}"
    wrong = [key for key in _DRAWN if not _is_drawn(line.get(key))]
    return f"{wrong[0]} is no number" if wrong else _odd_energy(line.get("energy"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < _MOST


def _is_drawn(value: object) -> bool:
    """Infinite ones leave a gap; whole numbers without an end are no figures."""
    return isinstance(value, float | None) or (isinstance(value, int) and abs(value) < _MOST)


def _odd_energy(energy: object) -> str:
    if energy is None:
        return ""
    if not isinstance(energy, Mapping):
        return "energy is not by device"
    whole = all(isinstance(one, list) and len(one) == 3 for one in energy.values())
    joules = whole and all(_is_drawn(one[0]) for one in energy.values())
    return "" if joules else "energy is not joules, provenance and method of each device"
