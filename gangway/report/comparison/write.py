"""A comparison as files: the HTML page, GitHub Markdown, drawings and samples."""

import base64
import html
import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from markupsafe import Markup

from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import make_folder, write_whole
from gangway.render.drawing import Drawing
from gangway.render.rendering import Sources, duration, kimg_text, moment, number, render_template, unit_text
from gangway.report.comparison.charts import curve_drawings, front_drawing, timeline_drawing
from gangway.report.comparison.formatting import CellText, format_cell, heading
from gangway.report.comparison.groups import Group, Member, get_members, parse_keys
from gangway.report.comparison.ledgers import HEADINGS, get_cells, ledger_drawings
from gangway.report.comparison.measures import HOLDS, MEASURES, Measure, energy_key
from gangway.report.comparison.series import Spread, add_note, get_spread, meters_note
from gangway.report.comparison.tables import Report, Row, get_report
from gangway.report.decisions import Decided, find_decided
from gangway.runs.run_folders import Run, not_sealed
from gangway.sim.forecast.ledger import Standing
from gangway.trainer.core.host import program
from gangway.trainer.core.regular_files import read_regular

if TYPE_CHECKING:
    from PIL import Image

_ALL_BYTES = 2_000_000
_MOST_PIXELS = 1024
_SPECIAL = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]|~#"})
_HOW_TO_READ = (
    "A cell is the mean over seeds, ± the sample standard deviation of three and more, the range of two. A change has "
    "the range of its pairs of seeds, and from six pairs on a 95 % interval and a claim, by Holm's test over the table."
)
_THEIRS = "Rows of the paper are in italics: theirs, not ours."
_OF_A_RUN = ("total_h", "images_per_sec", "workers", "gpus", "peak_memory_gib", "gco2e", "usd")
_KINDS: Final = ("pdf", "svg")


class Grid(NamedTuple):
    """A row's sample grid, of its first seed: no run is picked for its looks. `remark`: how it was shrunk."""

    label: str
    run: str
    seed: int
    kind: str
    image: bytes
    width: int
    height: int
    remark: str


def _grid(group: Group, budget: int) -> Grid | None:
    """From the first run's samples.png, if any. InputError: not an image."""
    from PIL import Image, UnidentifiedImageError

    for member in group.members:
        path = member.path / "samples.png"
        if not path.is_file():
            continue
        try:
            content = read_regular(path.parent, path.name)
            with Image.open(io.BytesIO(content)) as image:
                image.load()
                if image.format == "PNG" and len(content) <= budget:
                    return Grid(group.label, member.name, member.record.seed, "png", content, *image.size, "")
                smaller = image.convert("RGB")
        except (UnidentifiedImageError, OSError) as error:
            run_dir, grid = shlex.quote(str(member.path)), shlex.quote(str(path))
            fix = f"write it anew: {program()} sample --run-dir {run_dir} --out {grid} --overwrite"
            raise InputError(str(path), f"is no image: {error}", fix=fix) from None
        smaller.thumbnail((_MOST_PIXELS, _MOST_PIXELS))
        return Grid(group.label, member.name, member.record.seed, "jpeg", *_jpeg(smaller, budget))
    return None


def _jpeg(image: "Image.Image", budget: int) -> tuple[bytes, int, int, str]:
    while True:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=85)
        if buffer.tell() <= budget or min(image.size) < 64:
            remark = f"made smaller for this page: {image.width} x {image.height} pixels, JPEG"
            return buffer.getvalue(), *image.size, remark
        image = image.resize((image.width // 2, image.height // 2))


def as_markdown(report: Report, forecasts: Sequence[Standing] = ()) -> str:
    """The report as Markdown; names are escaped."""
    sources, table = Sources(), report.table
    seeds = sorted({seed for group in report.groups for seed in group.seeds})
    rows = [_row(row, table.columns, sources) for row in table.rows]
    how = " ".join((_HOW_TO_READ, *([_THEIRS] if table.setting else []), HOLDS))
    parts = [
        f"# {_plain(report.title)}",
        f"Runs: {len(report.members)}, rows: {len(report.groups)}, seeds: {', '.join(map(str, seeds))}. "
        f"Table {table.name}, {_plain(table.title.lower())}: {_plain(table.why)}. {how}",
        *_list_problems(report),
        _table([_plain(heading(column)) for column in table.columns], rows),
        *_lists(report),
        *_forecasts(forecasts, sources),
        "\n".join(f"[^{place}]: {_plain(line.text)}" for place, line in sources.lines()),
    ]
    return "\n\n".join(parts) + "\n"


def _list_problems(report: Report) -> list[str]:
    """Problems and gaps come before the table, where readers see them."""
    parts = []
    if report.missing:
        lines = (f"- {_plain(one.item)}: {_plain(one.status)}. {_plain(one.reason)}" for one in report.missing)
        parts += [f"## Not in the table: {len(report.missing)}", "\n".join(line.rstrip() for line in lines)]
    if unsealed := not_sealed(member.record for member in report.members):
        parts += ["## Not sealed", "\n".join(f"- {_plain(sentence)}" for sentence in unsealed)]
    return [*parts, "## The table"] if parts else []


def _lists(report: Report) -> list[str]:
    parts, table = [], report.table
    items = [f"- Mind: {_plain(sentence)}" for sentence in table.notes]
    items += [f"- {_plain(row.label)}: {_plain(text)}" for row in table.rows for text in row.remarks]
    items += [f"- {_plain(table.left_out)}"] if table.left_out else []
    if items:
        parts.append("\n".join(items))
    if report.settings:
        labels = [group.label for group in report.groups]
        rows = [
            [f"`{field}`", *(_plain(values.get(label, "")) for label in labels)]
            for field, values in report.settings.items()
        ]
        parts += ["## What the rows differ in", _table([_plain(label) for label in labels], rows)]
    return parts


def _forecasts(forecasts: Sequence[Standing], sources: Sources) -> list[str]:
    if not forecasts:
        return []
    rows = [
        [
            _plain(f"{kept.name}, {kept.level:.0%}"),
            *(
                f"{_plain(f'{cell.text} ({cell.spread})' if cell.spread else cell.text)}[^{cell.footnote}]"
                for cell in get_cells(kept, sources)
            ),
        ]
        for kept in forecasts
    ]
    return ["## Forecasts", _table(HEADINGS, rows)]


def _row(row: Row, columns: Sequence[Measure], sources: Sources) -> list[str]:
    label = _plain(row.label)
    title = {"ours": label, "change": f"*{label}*", "theirs": f"*{label} (theirs)*"}[row.kind]
    runs = f" (n = {len(row.seeds)})" if row.seeds else ""
    return [f"{title}{runs}", *(_cell(row.cells.get(column.key), column, row, sources) for column in columns)]


def _cell(cell: Spread | None, column: Measure, row: Row, sources: Sources) -> str:
    words = format_cell(cell, column, relative=row.relative)
    if cell is None:
        return words.text
    place = sources.cell(cell.value, cell.unit, cell.provenance, cell.source, cell.as_of, cell.note).footnote
    spread = f"({words.spread})" if " to " in words.spread else words.spread
    text = _plain(" ".join(part for part in (words.text, words.unit, spread) if part))
    return f"{f'*{text}*' if row.kind == 'theirs' else text}[^{place}]"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [["", *headings], ["---", *("---:" for _ in headings)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    return html.escape(" ".join(text.split()), quote=False).translate(_SPECIAL)


def _page(made: "ComparisonReport", grids: Sequence[Grid]) -> str:
    report, sources = made.report, Sources()

    def told(row: Row, column: Measure) -> CellText | None:
        cell = row.cells.get(column.key)
        return None if cell is None else _table_cell(cell, column, sources, relative=row.relative)

    note = meters_note(report.groups)

    def of_run(member: Member, column: Measure) -> CellText:
        cell = get_spread({member.name: column.of(member)})
        return _table_cell(add_note(column.key, cell, note), column, sources)

    context = {
        "report": report,
        "drawings": made.drawn[0],
        "not_drawn": made.drawn[1],
        "grids": grids,
        "decided": made.decided,
        "forecasts": made.forecasts,
        "holds": HOLDS,
        "not_sealed": not_sealed(member.record for member in report.members),
        "table": report.table,
        "ours": [row for row in report.table.rows if row.kind != "theirs"],
        "theirs": [row for row in report.table.rows if row.kind == "theirs"],
        "of_a_run": [MEASURES[key] for key in (*_OF_A_RUN, energy_key(report.members))],
        "row_labels": {member.name: group.label for group in report.groups for member in group.members},
        "seeds": sorted({member.record.seed for member in report.members}),
        "stops": [(member, stop) for member in report.members for stop in member.record.interruptions],
        "first": report.members[0].record,
        "sources": sources,
        "figure": sources.figure,
        "told": told,
        "of_run": of_run,
        "forecast_headings": HEADINGS,
        "forecast_cells": lambda kept: get_cells(kept, sources),
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
    return render_template("comparison.html.j2", ("report.css", "comparison.css"), filters, context)


def _table_cell(cell: Spread, column: Measure, sources: Sources, *, relative: bool = False) -> CellText:
    words = format_cell(cell, column, relative=relative)
    entry = sources.cell(cell.value, cell.unit, cell.provenance, cell.source, cell.as_of, cell.note)
    lines = [f"{words.text} {unit_text(cell.unit)}".strip(), words.hint, words.values, entry.source.text]
    return CellText(
        words.text,
        words.unit,
        words.spread,
        cell.provenance,
        "\n".join(line for line in lines if line),
        entry.footnote,
    )


def _versions(members: Sequence[Member]) -> list[tuple[str, list[str]]]:
    facts = [
        ("Trainer code, SHA-256", [member.record.code_sha256[:16] for member in members]),
        ("Image", [member.record.image_digest or "none: the Python environment of a machine" for member in members]),
        *(
            (name, [member.record.versions.get(name, "not recorded") for member in members])
            for name in sorted({name for member in members for name in member.record.versions}, key=str.lower)
        ),
    ]
    return [(name, list(dict.fromkeys(values))) for name, values in facts]


@dataclass(frozen=True)
class ComparisonReport:
    """A report ready to be written. `forecasts`: of ledgers."""

    report: Report
    forecasts: Sequence[Standing] = ()

    @cached_property
    def drawn(self) -> tuple[list[Drawing], list[str]]:
        """Drawings, and a sentence for each without data."""
        curves, lacking = curve_drawings(self.report.groups)
        fronts = [front_drawing(self.report.groups, key) for key in ("usd", energy_key(self.report.members))]
        published, unknown = ledger_drawings(self.forecasts)
        drawings = [
            *curves,
            *(one for one in fronts if isinstance(one, Drawing)),
            timeline_drawing(self.report.groups),
            *published,
        ]
        return drawings, [*lacking, *(one for one in fronts if isinstance(one, str)), *unknown]

    @cached_property
    def decided(self) -> list[tuple[str, str, Decided]]:
        """Decisions of each row with a controller, with its label and run."""
        found = []
        for place, group in enumerate(self.report.groups, 1):
            candidates = (
                (one.name, find_decided(one.record, one.stats, f"decisions-{place}")) for one in group.members
            )
            found += [(group.label, name, decided) for name, decided in candidates if decided is not None][:1]
        return found

    def markdown(self) -> str:
        """The report for GitHub."""
        return as_markdown(self.report, self.forecasts)

    def write_page(self, folder: Path) -> Path:
        """Write `folder/report.html` and return its path. InputError: a grid is no image, or not writable."""
        budget = _ALL_BYTES // max(len(self.report.groups), 1)
        page = _page(self, [grid for group in self.report.groups if (grid := _grid(group, budget)) is not None])
        make_folder(folder)
        return write_whole(folder / "report.html", page.encode())

    def write_figures(self, folder: Path) -> list[Path]:
        """Write each drawing as PDF and SVG. InputError: the folder cannot be written."""
        drawings = [*self.drawn[0], *(one.drawing for _, _, one in self.decided if one.drawing is not None)]
        files = {folder / f"{one.name}.{kind}": one.as_file(kind) for one in drawings for kind in _KINDS}
        make_folder(folder)
        for path, content in files.items():
            write_whole(path, content)
        return list(files)


def comparison_report(
    runs: Sequence[Run], group_by: str | None, half: Sequence[Path] = (), forecasts: Sequence[Standing] = ()
) -> ComparisonReport:
    """Group the runs and fill the table. InputError: not of one table, none is finished, or an unknown name."""
    keys = parse_keys(group_by)
    return ComparisonReport(get_report(get_members(runs, half), keys), forecasts)
