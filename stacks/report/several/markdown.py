"""The report as Markdown in GitHub's dialect: the table, its sources as footnotes, and what is missing. No drawings."""

import html
from collections.abc import Sequence

from stacks.report.figures import Sources
from stacks.report.runs import not_sealed
from stacks.report.several.measures import HOLDS
from stacks.report.several.spread import Spread
from stacks.report.several.tables import Column, Report, Row
from stacks.report.several.wording import heading, worded

__all__ = ["as_markdown"]

_SPECIAL = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]|~"})
_HOW_TO_READ = (
    "A cell is the mean over seeds, ± the sample standard deviation of three and more, the range of two. Rows of the "
    f"paper are in italics: theirs, not ours. {HOLDS}"
)


def as_markdown(report: Report) -> str:
    """The report; names are text, whatever is in them."""
    sources, table = Sources(), report.table
    seeds = sorted({seed for group in report.groups for seed in group.seeds})
    rows = [_row(row, table.columns, sources) for row in table.rows]
    parts = [
        f"# {_plain(report.title)}",
        f"Runs: {len(report.members)}, rows: {len(report.groups)}, seeds: {', '.join(map(str, seeds))}. "
        f"Table {table.name}, {_plain(table.title.lower())}: {_plain(table.why)}. {_HOW_TO_READ}",
        _table([heading(column) for column in table.columns], rows),
        *_lists(report),
        "\n".join(f"[^{place}]: {_plain(line.text)}" for place, line in sources.lines()),
    ]
    return "\n\n".join(parts) + "\n"


def _lists(report: Report) -> list[str]:
    """What follows the table, where there is something to say."""
    parts = ["\n".join(f"- Mind: {_plain(sentence)}" for sentence in report.table.notes)] if report.table.notes else []
    if remarks := [f"- {_plain(row.label)}: {_plain(text)}" for row in report.table.rows for text in row.remarks]:
        parts.append("\n".join(remarks))
    if report.settings:
        labels = [group.label for group in report.groups]
        rows = [
            [f"`{field}`", *(_plain(values.get(label, "")) for label in labels)]
            for field, values in report.settings.items()
        ]
        parts += ["## What the rows differ in", _table([_plain(label) for label in labels], rows)]
    if unsealed := not_sealed(member.record for member in report.members):
        parts += ["## Not sealed", "\n".join(f"- {_plain(sentence)}" for sentence in unsealed)]
    if report.missing:
        told = (f"- {_plain(one.item)}: {_plain(one.status)}. {_plain(one.reason)}" for one in report.missing)
        parts += ["## Not in the table", "\n".join(line.rstrip() for line in told)]
    return parts


def _row(row: Row, columns: Sequence[Column], sources: Sources) -> list[str]:
    label = _plain(row.label)
    said = {"ours": label, "change": f"*{label}*", "theirs": f"*{label} (theirs)*"}[row.kind]
    runs = f" (n = {len(row.seeds)})" if row.seeds else ""
    return [f"{said}{runs}", *(_cell(row.cells.get(column.key), column, row, sources) for column in columns)]


def _cell(cell: Spread | None, column: Column, row: Row, sources: Sources) -> str:
    said = worded(cell, column, relative=row.relative)
    if cell is None:
        return said.text
    place = sources.cell(cell.value, cell.unit, cell.provenance, cell.source, cell.as_of, cell.note).footnote
    spread = f"({said.spread})" if " to " in said.spread else said.spread
    text = " ".join(part for part in (said.text, said.unit, spread) if part)
    return f"{f'*{text}*' if row.kind == 'theirs' else text}[^{place}]"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [["", *headings], ["---", *("---:" for _ in headings)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """Text that GitHub shows as it is."""
    return html.escape(" ".join(text.split()), quote=False).translate(_SPECIAL)
