"""Figures of a job's record: a number with its source, or the reason it is missing; unknown is never zero. Reads those
that a job reports: a command in figures.json of its run folder, the bundled trainer in run.json.

{"images": 60000, "joules": 51200.5, "accuracy": 0.97}

A flat object of numbers. The names in REPORTED have a meaning and a unit; others are the job's own metrics. The writer
is not trusted: links are not followed, and anything else is reported as a problem.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from pydantic import FiniteFloat

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import visible
from gangway.jobs.job_folders import RUN_FOLDER
from gangway.runs.run_folders import RECORD, read_run
from gangway.stacks.config.job_file import JobFile
from gangway.trainer.core.regular_files import read_regular
from gangway.trainer.records.quantity import Frozen, Provenance, Quantity

FIGURES_FILE = "figures.json"
REPORTED: Mapping[str, str] = MappingProxyType(
    {
        "images": "images",
        "images_per_sec": "images/s",
        "tokens": "tokens",
        "tokens_per_sec": "tokens/s",
        "joules": "J",
        "gco2e": "gCO2e",
    }
)
"""Known names and their units: totals over all starts; speeds are means while it worked."""
MOST_BYTES, _MOST_NAMES = 64_000, 256
_MOST = 1e40
"""Far above any figure, and small enough to multiply and divide."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _./%@:+-]{0,63}")


class Source(StrEnum):
    """Where a figure came from, best first."""

    MEASURED = "measured"
    REPORTED = "reported"
    DECLARED = "told"
    LIST_PRICE = "list price"
    ESTIMATED = "estimated"


class Figure(Frozen):
    """`note`: what the reader should know; may be empty."""

    value: FiniteFloat
    unit: str
    source: Source
    note: str = ""


@dataclass(frozen=True)
class Absent:
    """A missing figure, and why."""

    why: str


Maybe: TypeAlias = Figure | Absent


def worst(*sources: Source) -> Source:
    """The source of a figure computed from several."""
    return max(sources, key=[*Source].index)


def measured(value: float, unit: str, note: str = "") -> Figure:
    """A figure that the engine recorded."""
    return Figure(value=value, unit=unit, source=Source.MEASURED, note=note)


def product(parts: Mapping[str, Maybe], unit: str, note: str) -> Maybe:
    """Of named figures; absent if one of them is."""
    known = [part for part in parts.values() if isinstance(part, Figure)]
    if len(known) < len(parts):
        return _without(parts)
    value = math.prod(part.value for part in known)
    return Figure(value=value, unit=unit, source=worst(*(part.source for part in known)), note=note)


def ratio(top: tuple[str, Maybe], bottom: tuple[str, Maybe], unit: str, per: float = 1.0) -> Maybe:
    """`top` per `per` of `bottom`, each with its name; absent if one is absent or `bottom` is 0."""
    (top_name, above), (bottom_name, below) = top, bottom
    if not (isinstance(above, Figure) and isinstance(below, Figure)):
        return _without(dict((top, bottom)))
    if not below.value:
        return Absent(f"{bottom_name} is 0")
    if not math.isfinite(value := above.value / below.value * per):
        return Absent(f"{bottom_name} is next to 0")
    return Figure(
        value=value, unit=unit, source=worst(above.source, below.source),
        note=f"{top_name} / {bottom_name}",
    )  # fmt: skip


def _without(parts: Mapping[str, Maybe]) -> Absent:
    return Absent(", ".join(f"no {name}" for name, part in parts.items() if isinstance(part, Absent)))


_SOURCES: Mapping[Provenance, Source] = MappingProxyType(
    {
        "measured": Source.REPORTED,
        "list-price": Source.LIST_PRICE,
        "estimated": Source.ESTIMATED,
        "assumed": Source.ESTIMATED,
    }
)
"""What the trainer measured counts as reported here."""


@dataclass(frozen=True)
class Reported:
    """What a job reports."""

    figures: Mapping[str, Maybe]
    metrics: Mapping[str, Figure]
    problem: str = ""


def no_report(why: str, problem: str = "") -> Reported:
    """All figures absent for one reason."""
    return Reported(dict.fromkeys(REPORTED, Absent(why)), {}, problem)


def read_reported(job: JobFile, folder: Path) -> Reported:
    """Reads the report in the job's folder."""
    if job.preset is not None:
        return _read_trainer(folder)
    place = f"{RUN_FOLDER}/{FIGURES_FILE}"
    return parse_report(lambda: read_regular(folder, place, MOST_BYTES), place)


def parse_report(read: Callable[[], bytes | None], place: str) -> Reported:
    """The figures in a command's figures.json; `read` returns its content, or None or FileNotFoundError without one."""
    try:
        content = read()
        numbers = {} if content is None else _numbers(content)
    except FileNotFoundError:
        return no_report(f"the job has not written {FIGURES_FILE}")
    except OSError as error:
        return _invalid_report(place, error.strerror or str(error))
    except (ValueError, RecursionError) as error:
        return _invalid_report(place, str(error))
    if content is None:
        return no_report(f"the job has not written {FIGURES_FILE}")
    note = f"{FIGURES_FILE}: {{}}"
    known: dict[str, Maybe] = {
        name: Figure(value=numbers[name], unit=unit, source=Source.REPORTED, note=note.format(name))
        if name in numbers
        else Absent(f"{FIGURES_FILE} has no {name}")
        for name, unit in REPORTED.items()
    }
    own = {
        name: Figure(value=value, unit="", source=Source.REPORTED, note=note.format("the job's own metric"))
        for name, value in numbers.items()
        if name not in REPORTED
    }
    return Reported(known, own)


def _invalid_report(place: str, problem: str) -> Reported:
    message = visible(f"{place}: {problem}")
    return no_report(f"the job's report is invalid: {message}", message)


def _numbers(content: bytes) -> dict[str, float]:
    found = json.loads(content, parse_constant=_refuse_constant, object_pairs_hook=_unique_names)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    if len(found) > _MOST_NAMES:
        raise ValueError(f"{len(found)} names, more than {_MOST_NAMES}")
    return {name: _number(name, value) for name, value in found.items()}


def _number(name: str, value: Any) -> float:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is not a valid name: use up to 64 letters, digits, spaces and _./%@:+-")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is not a number")
    if not -_MOST <= value <= _MOST:  # also for integers, which may exceed any float
        raise ValueError(f"{name} is not finite, or above {_MOST:g}")
    if value < 0 and name in REPORTED:
        raise ValueError(f"{name} is negative")
    return float(value)


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")


def _unique_names(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate name")
    return found


def _read_trainer(folder: Path) -> Reported:
    run = folder / RUN_FOLDER
    if run.is_symlink():
        return _invalid_report(RUN_FOLDER, "it is a link, and links are not followed")
    if not os.path.lexists(run / RECORD):
        return no_report(f"the trainer has not written {RECORD} yet")
    try:
        record = read_run(run).record
    except InputError as error:
        return _invalid_report(f"{RUN_FOLDER}/{RECORD}", error.problem)
    images = Figure(value=record.images, unit="images", source=Source.REPORTED, note=f"{RECORD}: {record.status}")
    of_images = f"{RECORD} has none: the trainer counts images"
    return Reported(
        {
            "images": images,
            "images_per_sec": _quantity("images_per_sec", record.images_per_sec),
            "tokens": Absent(of_images),
            "tokens_per_sec": Absent(of_images),
            "joules": _quantity("joules", record.energy.it_joules),
            "gco2e": _quantity("gco2e", record.carbon.gco2e),
        },
        {},
    )


def _quantity(name: str, found: Quantity) -> Maybe:
    if found.value is None or not math.isfinite(found.value):
        return Absent(f"{RECORD}: {visible(found.source)}")
    note = "; ".join(part for part in (f"{RECORD}: {found.source}", found.note) if part)
    return Figure(value=found.value, unit=REPORTED[name], source=_SOURCES[found.provenance], note=visible(note))
