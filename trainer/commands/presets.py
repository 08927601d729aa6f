"""`python -m gangway.trainer presets` and `memory`: the presets with their values and departures. No torch."""

import argparse
import json
import shutil
import textwrap
from collections.abc import Iterable
from itertools import zip_longest
from typing import TYPE_CHECKING

from pydantic_core import to_jsonable_python

from gangway.trainer.config.arguments import count
from gangway.trainer.config.presets import CATALOGUE, preset
from gangway.trainer.config.sources import get_value, in_words
from gangway.trainer.config.step_memory import StepMemory, estimate, get_parts, images_at_once, least_gib
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.host import MODULE, program

if TYPE_CHECKING:
    from gangway.trainer.config.arguments import Parser


_WIDTH = 100
"""Of what is printed where there is no terminal."""
_NARROWEST, _WIDEST = 80, 120
_VALUE = 36
"""The widest that a value of the source is before it goes on on the next line."""


def add_presets(parser: "Parser") -> None:
    """Adds the command's arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="one preset, with departures from its source [all]")
    parser.add_argument("--json", action="store_true", help="print JSON with all values")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.name is not None:
        preset(arguments.name, "NAME")  # refuses a name that is none
    if arguments.json:
        text = presets_json(arguments.name)
    else:
        width = min(_WIDEST, max(_NARROWEST, shutil.get_terminal_size((_WIDTH, 0)).columns))
        text = presets_table() if arguments.name is None else preset_text(arguments.name, width)
    print(text, end="")
    return 0


def presets_table() -> str:
    """Returns a table of all presets: name, purpose, data, size and source."""
    rows = [("PRESET", "WHAT", "DATA", "SIZE", "SOURCE")]
    for name, entry in CATALOGUE.items():
        shape = "x".join(map(str, entry.config.image_shape))
        rows.append((name, entry.summary, entry.config.dataset, shape, entry.source))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    more = f"`{program()} presets NAME` shows a preset's values, and what departs from its source."
    return "".join(f"{_aligned(row[:4], widths)}  {row[4]}\n" for row in rows) + f"\n{more}\n"


def _aligned(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


def preset_text(name: str, width: int = _WIDTH) -> str:
    """Describes one preset in lines of at most `width`: purpose, source, departures and values."""
    entry = CATALOGUE[name]
    departures = [textwrap.fill(each, width, initial_indent="- ", subsequent_indent="  ") for each in entry.departures]
    values = [f"{field} {value}" for field, value in entry.config.model_dump(mode="json").items() if field != "preset"]
    listing = textwrap.fill(", ".join(values), width, break_long_words=False, break_on_hyphens=False)
    machines = (
        f"`gangway presets {name}` adds memory, hours and cost on machines of eight GPUs, where it can fill them."
    )
    return "\n".join(
        [
            textwrap.fill(f"{name}: {entry.summary}", width, subsequent_indent="  "),
            textwrap.fill(f"source: {entry.source}", width, subsequent_indent="  "),
            "",
            "otherwise than there:",
            *departures,
            "",
            *_published(name, width),
            "all values:",
            listing,
            "",
            *([textwrap.fill(machines, width), ""] if program() == MODULE else []),
        ]
    )


def _published(name: str, width: int) -> list[str]:
    entry = CATALOGUE[name]
    places = dict[str, list[tuple[str, str, str]]]()
    for field, known in entry.published.items():
        place, _, what = known.source.partition(": ")
        there = f", there {in_words(known.value)}" if known.instead else ""
        places.setdefault(place, []).append((field, in_words(get_value(entry.config, field)) + there, what))
    if not places:
        return []
    rows = [row for found in places.values() for row in found]
    fields, values = max(len(row[0]) for row in rows), min(_VALUE, max(len(row[1]) for row in rows))
    columns = (fields, values, width - fields - values - 6)
    lines = ["values and where they are from:"]
    for place, found in places.items():
        lines += textwrap.wrap(place, width, subsequent_indent="    ")
        lines += [line for row in found for line in _wrapped(row, columns)]
    return [*lines, ""]


def _wrapped(row: Iterable[str], columns: Iterable[int]) -> list[str]:
    cells = [textwrap.wrap(cell, width, break_long_words=False) for cell, width in zip(row, columns, strict=True)]
    return [f"  {_aligned(line, columns)}".rstrip() for line in zip_longest(*cells, fillvalue="")]


def presets_json(name: str | None = None) -> str:
    """Returns every preset, or one, with all values as indented JSON in the table's order."""
    chosen = [entry for known, entry in CATALOGUE.items() if name in (None, known)]
    entries = [
        {
            **entry._asdict(),
            "config": entry.config.model_dump(mode="json"),
            "published": {
                field: {**known._asdict(), "value": to_jsonable_python(known.value)}
                for field, known in entry.published.items()
            },
        }
        for entry in chosen
    ]
    return json.dumps(entries, indent=2) + "\n"


_NOT_COUNTED = "not counted: libraries' work space, the CUDA context, what the allocator keeps in reserve"


def add_memory(parser: "Parser") -> None:
    """Adds the arguments of `memory`, beside those that say what is trained."""
    parser.add_argument("--workers", type=count, default=1, metavar="N", help="workers per node [1]")
    parser.add_argument("--nodes", type=count, default=1, metavar="N", help="number of nodes [1]")
    parser.add_argument("--trace", action="store_true", help="also trace a step's tensors, on torch's meta device")
    parser.add_argument("--json", action="store_true", help="print JSON, in GiB")


def memory_text(config: TrainConfig, workers: int, num_nodes: int, *, trace: bool, as_json: bool) -> str:
    """Returns a line for each part, or JSON. TrainerError: fewer images than workers, or a trace of split networks."""
    config.check_workers(workers * num_nodes)
    parts = get_parts(config, workers, num_nodes)
    if trace and parts > 1:
        raise TrainerError(
            place="--trace",
            problem="follows a worker that has whole networks",
            value=f"{config.shard}, pipeline_stages {config.pipeline_stages}, over {workers * num_nodes} workers",
            allowed="ddp without pipeline stages, or one worker",
            fix="leave --trace out, or --shard ddp --pipeline-stages 1",
        )
    at_once = images_at_once(config, workers * num_nodes)
    found = {"estimated": estimate(config, workers, num_nodes)}
    if trace:
        from gangway.trainer.steps.step_trace import trace_step

        found["traced"] = trace_step(config, workers * num_nodes)
    least = least_gib(config, workers, num_nodes)
    if as_json:
        figures = {name: {**each._asdict(), "total": each.total} for name, each in found.items()}
        return json.dumps({**figures, "least": least, "images_at_once": at_once, "unit": "GiB"}, indent=2) + "\n"
    many = f"{workers * num_nodes} workers" if workers * num_nodes > 1 else "one worker"
    title = f"{config.preset}, {many}, {at_once} image{'s' if at_once > 1 else ''} at once, GiB on each:"
    table = [
        f"  {part:<12}" + "".join(f"{getattr(each, part):>12.3f}" for each in found.values())
        for part in (*StepMemory._fields, "total")
    ]
    head = " " * 14 + "".join(f"{name:>12}" for name in found)
    return "\n".join([title, head, *table, f"at least {least:.3g}: what a step cannot do without", _NOT_COUNTED, ""])
