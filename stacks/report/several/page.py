"""The page of several runs: what the template needs of the report, its drawings and its pictures, and the HTML.

Presentation only. The template is `several.html.j2` one folder up, beside that of a single run, whose parts it shares.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from stacks.report.figures import Sources, duration, kimg_text, moment, number, unit_text
from stacks.report.rendering import render_template
from stacks.report.runs import not_sealed
from stacks.report.several.drawing import Drawing
from stacks.report.several.measures import HOLDS, MEASURES, energy_key
from stacks.report.several.members import Member
from stacks.report.several.meters import meters_note, noted
from stacks.report.several.samples import Grid
from stacks.report.several.spread import Spread, spread_of
from stacks.report.several.tables import Column, Report, Row
from stacks.report.several.wording import heading, worded

__all__ = ["PageInputs", "several_page"]

_OF_A_RUN = ("total_h", "images_per_sec", "workers", "gpus", "peak_memory_gib", "gco2e", "usd")


@dataclass(frozen=True)
class PageInputs:
    """All that the page shows.

    Attributes:
        report: the table and its runs.
        drawings: in their order.
        not_drawn: a sentence for each drawing that nobody has the numbers for.
        grids: images of the generators.
    """

    report: Report
    drawings: Sequence[Drawing]
    not_drawn: Sequence[str]
    grids: Sequence[Grid]


class _Told(NamedTuple):
    """A number as a link to its source, which says where it is from when pointed at or focused."""

    text: str
    unit: str
    spread: str
    provenance: str
    told: str
    footnote: int


def several_page(inputs: PageInputs) -> str:
    """The whole HTML file: no script, nothing fetched."""
    report, sources = inputs.report, Sources()
    measures = [MEASURES[key] for key in (*_OF_A_RUN, energy_key(report.members))]
    of_a_run = [Column(one.key, one.label, one.unit, one.better) for one in measures]

    def told(row: Row, column: Column) -> _Told | None:
        cell = row.cells.get(column.key)
        return None if cell is None else _told(cell, column, sources, relative=row.relative)

    note = meters_note(report.groups)

    def of_run(member: Member, column: Column) -> _Told:
        cell = spread_of({member.name: MEASURES[column.key].of(member)})
        return _told(noted(column.key, cell, note), column, sources)

    context = {
        "i": inputs,
        "report": report,
        "holds": HOLDS,
        "not_sealed": not_sealed(member.record for member in report.members),
        "table": report.table,
        "ours": [row for row in report.table.rows if row.kind != "theirs"],
        "theirs": [row for row in report.table.rows if row.kind == "theirs"],
        "of_a_run": of_a_run,
        "rows_of": {member.name: group.label for group in report.groups for member in group.members},
        "seeds": sorted({member.record.seed for member in report.members}),
        "stops": [(member, stop) for member in report.members for stop in member.record.interruptions],
        "first": report.members[0].record,
        "sources": sources,
        "figure": sources.figure,
        "told": told,
        "of_run": of_run,
        "versions": _versions(report.members),
    }
    filters = {
        "duration": duration,
        "heading": heading,
        "inline": lambda drawing: Markup(drawing.for_page()),  # matplotlib has escaped what is text
        "kimg": kimg_text,
        "moment": moment,
        "number": number,
        "uri": lambda grid: f"data:image/{grid.kind};base64,{base64.b64encode(grid.image).decode()}",
    }
    return render_template("several.html.j2", ("report.css", "several.css"), filters, context)


def _told(cell: Spread, column: Column, sources: Sources, *, relative: bool = False) -> _Told:
    said = worded(cell, column, relative=relative)
    entry = sources.cell(cell.value, cell.unit, cell.provenance, cell.source, cell.as_of, cell.note)
    lines = [f"{said.text} {unit_text(cell.unit)}".strip(), said.hint, said.values, entry.source.text]
    return _Told(
        said.text,
        said.unit,
        said.spread,
        cell.provenance,
        "\n".join(line for line in lines if line),
        entry.footnote,
    )


def _versions(members: Sequence[Member]) -> list[tuple[str, list[str]]]:
    """What the runs were computed with, and which of it differs."""
    facts = [
        ("Trainer code, SHA-256", [member.record.code_sha256[:16] for member in members]),
        ("Image", [member.record.image_digest or "none: the Python environment of a machine" for member in members]),
        *(
            (name, [member.record.versions.get(name, "not recorded") for member in members])
            for name in sorted({name for member in members for name in member.record.versions}, key=str.lower)
        ),
    ]
    return [(name, list(dict.fromkeys(values))) for name, values in facts]
