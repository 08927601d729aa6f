"""Reads and checks the complete lines of a run's stats.jsonl."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gangway.components.core.findings import InputError
from gangway.components.core.visible import all_visible
from gangway.trainer.core.regular_files import MOST_BYTES_OF_STATS, read_regular

NEEDED = ("loss_g", "loss_d", "grad_norm_g", "grad_norm_d", "images_per_sec", "world_size")
"""Required to plot a line, besides its place in the run; null if not measured."""
_NUMBERS = (
    *("images", "kimg", "images_per_sec", "loss_g", "loss_d", "grad_norm_g", "grad_norm_d", "energy_joules"),
    *("wall_sec", "cpu_utilisation", "gpu_utilisation", "host_memory_gib", "rss_gib", "gpu_gib", "mfu", "world_size"),
    *("time", "metrics_sec"),
)
"""Fields that are numbers if present."""
_MAX_VALUE = 1e40
"""Above 32-bit floats, the type of losses."""
_FIX = "fetch it again, or remove it: tables need run.json only"


def read_stats(path: Path, needed: Sequence[str] = ()) -> tuple[dict[str, Any], ...]:
    """The complete lines of a stats.jsonl, without one still being written; empty if there is no file. `needed`: keys
    that each line of statistics must have, maybe null. InputError: unreadable, or an invalid line.
    """
    try:
        complete = read_regular(path.parent, path.name, MOST_BYTES_OF_STATS).rpartition(b"\n")[0]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", fix="fetch it again") from None
    lines = ((number, text) for number, text in enumerate(complete.split(b"\n"), 1) if text.strip())
    return tuple(_parse(path, number, text, needed) for number, text in lines)


def hints(stats: Sequence[Mapping[str, Any]]) -> list[str]:
    """The trainer's hints about signs of collapse, in order."""
    return [str(line["text"]) for line in stats if line.get("event") == "hint" and "text" in line]


def _parse(path: Path, number: int, text: bytes, needed: Sequence[str]) -> dict[str, Any]:
    try:
        line = all_visible(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"has a line that is not JSON: {error}", value=f"line {number}", fix=_FIX) from None
    problem = _find_problem(line, needed)
    if problem:
        shown = text[:80].decode("utf-8", "replace")
        raise InputError(f"{path}: line {number}", f"is not a line of a run: {problem}", value=shown, fix=_FIX)
    assert isinstance(line, dict), "anything else is a problem"
    return line


def _find_problem(line: object, extra: Sequence[str]) -> str:
    """What is wrong with a line; empty if it is valid."""
    if not isinstance(line, dict):
        return "not a JSON object"
    needed = ("images",) if "event" in line else ("images", "session", "kimg")
    invalid = [key for key in needed if not _is_number(line.get(key))]
    if invalid:
        return f"{invalid[0]} is not a number"
    if "event" in line:
        return "" if isinstance(line["event"], str) else "event is not text"
    if missing := [key for key in extra if key not in line]:
        return f"missing {', '.join(missing)}"
    invalid = [key for key in _NUMBERS if not _is_optional_number(line.get(key))]
    return f"{invalid[0]} is not a number" if invalid else _find_energy_problem(line.get("energy"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < _MAX_VALUE


def _is_optional_number(value: object) -> bool:
    """Infinite floats leave a gap in plots; huge integers are damage."""
    return isinstance(value, float | None) or (isinstance(value, int) and abs(value) < _MAX_VALUE)


def _find_energy_problem(energy: object) -> str:
    if energy is None:
        return ""
    if not isinstance(energy, Mapping):
        return "energy is not by device"
    is_complete = all(isinstance(one, list) and len(one) == 3 for one in energy.values())
    if is_complete and all(_is_optional_number(one[0]) for one in energy.values()):
        return ""
    return "energy is not joules, provenance and method of each device"
