"""Makes the report on several runs and writes it: a page, Markdown, and the drawings as files.

Everything is made before the first file is touched.

    from stacks.report.several.write import several_report
    several_report(find_runs([Path("runs/p2-environments-...")]), group_by=None).write_page(Path("report"))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from stacks.report.files import make_folder, write_whole
from stacks.report.runs import Run
from stacks.report.several.charts import curve_drawings
from stacks.report.several.drawing import Drawing
from stacks.report.several.fronts import front_drawing, timeline_drawing
from stacks.report.several.groups import parse_keys
from stacks.report.several.markdown import as_markdown
from stacks.report.several.measures import energy_key
from stacks.report.several.members import members_of
from stacks.report.several.page import PageInputs, several_page
from stacks.report.several.samples import grids_of
from stacks.report.several.tables import Report, report_of

__all__ = ["SeveralReport", "several_report"]

_KINDS: Final = ("pdf", "svg")


@dataclass(frozen=True)
class SeveralReport:
    """A report that is ready to be written."""

    report: Report

    @cached_property
    def _drawn(self) -> tuple[list[Drawing], list[str]]:
        curves, lacking = curve_drawings(self.report.groups)
        fronts = [front_drawing(self.report.groups, key) for key in ("usd", energy_key(self.report.members))]
        drawings = [
            *curves,
            *(one for one in fronts if isinstance(one, Drawing)),
            timeline_drawing(self.report.groups),
        ]
        return drawings, [*lacking, *(one for one in fronts if isinstance(one, str))]

    def markdown(self) -> str:
        """The report for GitHub."""
        return as_markdown(self.report)

    def write_page(self, folder: Path) -> Path:
        """Writes `folder/report.html`, and gives its path.

        Raises:
            InputError: a grid of samples is no image, or the folder cannot be written.
        """
        drawings, lacking = self._drawn
        html = several_page(PageInputs(self.report, drawings, lacking, grids_of(self.report.groups)))
        make_folder(folder)
        return write_whole(folder / "report.html", html.encode())

    def write_figures(self, folder: Path) -> list[Path]:
        """Writes each drawing as PDF and as SVG, for papers.

        Raises:
            InputError: the folder cannot be written.
        """
        files = {folder / f"{one.name}.{kind}": one.as_file(kind) for one in self._drawn[0] for kind in _KINDS}
        make_folder(folder)
        for path, content in files.items():
            write_whole(path, content)
        return list(files)


def several_report(runs: Sequence[Run], group_by: str | None) -> SeveralReport:
    """Groups the runs and fills the table.

    Args:
        runs: at least one.
        group_by: names by commas, as a person wrote them; None for the place and the treatment.

    Raises:
        InputError: the runs are not of one table, none is done, or `group_by` has an unknown name.
    """
    keys = parse_keys(group_by)
    return SeveralReport(report_of(members_of(runs), keys))
