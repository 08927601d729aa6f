"""`python -m trainer presets`: the presets in a table, or one (`presets r3gan-cifar10`) with its values and
departures, or all as `--json`. Does not import torch.
"""

import argparse
import json
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainer.config.presets import CATALOGUE, preset
from trainer.core.program import program

if TYPE_CHECKING:
    from trainer.commands.arguments import Parser

_WIDTH = 100


def add_presets(parser: "Parser") -> None:
    """Adds the command's arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of them, with what departs from its source [all]")
    parser.add_argument("--json", action="store_true", help="all of them with all values, as JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.name is not None:
        preset(arguments.name, "NAME")  # refuses a name that is none
    if arguments.json:
        text = presets_json(arguments.name)
    else:
        text = presets_table() if arguments.name is None else preset_text(arguments.name)
    print(text, end="")
    return 0


def presets_table() -> str:
    """Name, purpose, data, size and source of every preset, one a line; then where the departures are told."""
    rows = [("PRESET", "WHAT", "DATA", "SIZE", "SOURCE")]
    for name, entry in CATALOGUE.items():
        shape = "x".join(map(str, entry.config.image_shape))
        rows.append((name, entry.summary, entry.config.dataset, shape, entry.source))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    more = f"`{program()} presets NAME` shows a preset's values, and what departs from its source."
    return "".join(f"{_aligned(row[:4], widths)}  {row[4]}\n" for row in rows) + f"\n{more}\n"


def _aligned(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


def preset_text(name: str) -> str:
    """One preset for people: its purpose, source, each departure from that on lines of its own, its values."""
    entry = CATALOGUE[name]
    departures = [textwrap.fill(each, _WIDTH, initial_indent="- ", subsequent_indent="  ") for each in entry.departures]
    values = [f"{field} {value}" for field, value in entry.config.model_dump(mode="json").items() if field != "preset"]
    listing = textwrap.fill(", ".join(values), _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(
        [
            f"{name}: {entry.summary}",
            f"source: {entry.source}",
            "",
            "otherwise than there:",
            *departures,
            "",
            "values and where they are from:",
            *_published(name),
            "",
            "all values:",
            listing,
            "",
        ]
    )


def _published(name: str) -> list[str]:
    """A line for each value of the source: field, the preset's value, the source's where that is another, and where
    it stands.
    """
    entry = CATALOGUE[name]
    values = entry.config.model_dump()
    rows = [
        (field, f"{values[field]}{f', there {known.value}' if known.instead else ''}")
        for field, known in entry.published.items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
    sources = [known.source for known in entry.published.values()]
    return [f"{_aligned(row, widths)}  {source}" for row, source in zip(rows, sources, strict=True)]


def presets_json(name: str | None = None) -> str:
    """Every preset, or one, with all its values, as indented JSON: a list in the table's order."""
    chosen = [entry for known, entry in CATALOGUE.items() if name in (None, known)]
    entries = [
        {
            **entry._asdict(),
            "config": entry.config.model_dump(mode="json"),
            "published": {field: known._asdict() for field, known in entry.published.items()},
        }
        for entry in chosen
    ]
    return json.dumps(entries, indent=2) + "\n"
