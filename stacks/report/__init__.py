"""The report: one self-contained HTML file on a plan, what the sandbox made of it, and the run's record.

It opens without a network and without JavaScript, and says of every number where it came from. Not a dashboard of a
run that goes on: it is written once, from finished files. matplotlib and Jinja2 are imported when a report is written.

    from stacks.report import write_report
    write_report(out_dir, plan=plan, sandbox=rows, record=record, stats=stats, samples_png=png, reals_png=None)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.findings import InputError
from stacks.report.files import make_folder, write_whole

if TYPE_CHECKING:
    from stacks.report.page import Picture, SandboxRowLike
    from trainer.record import RunRecord

__all__ = ["write_report"]


def write_report(
    out_dir: Path,
    *,
    plan: Mapping[str, Any],
    sandbox: Sequence[SandboxRowLike],
    record: RunRecord,
    stats: Sequence[Mapping[str, Any]],
    samples_png: Path,
    reals_png: Path | None,
) -> Path:
    """Writes `out_dir/report.html`, and its charts as PNG and SVG under `out_dir/plots`.

    Everything is rendered before the first file is touched, and each file appears whole or not at all.

    Args:
        out_dir: made if it does not exist.
        plan: the JSON data of `gangway plan --json`.
        sandbox: what became of each planned resource; empty when the plan was not applied.
        record: the run.
        stats: the parsed lines of the run's stats.jsonl, in order.
        samples_png: grid of images from the trained generator.
        reals_png: grid of images from the data set, or None.

    Returns:
        The path of the page.

    Raises:
        InputError: an image is missing or not a PNG, or `out_dir` cannot be written.
    """
    from stacks.report import page, plots
    from stacks.report.curves import curve_charts

    samples = _read(samples_png)
    reals = _read(reals_png) if reals_png else None
    curves = curve_charts(stats)
    cost_chart = plots.cost_chart(plan["cost"]["components"], plan["cost"]["currency"])
    quality_charts = [chart for metric in record.quality if (chart := plots.quality_chart(metric))]
    html = page.render_page(
        page.ReportInputs(
            plan=plan,
            sandbox=sandbox,
            record=record,
            curves=curves,
            cost_chart=cost_chart,
            quality_charts=quality_charts,
            samples=samples,
            reals=reals,
        )
    )
    folder, charts = out_dir / "plots", [*quality_charts, *curves, *([cost_chart] if cost_chart else [])]
    make_folder(folder if charts else out_dir)
    for chart in charts:
        write_whole(folder / f"{chart.name}.png", chart.light)
        write_whole(folder / f"{chart.name}.svg", chart.svg)
    return write_whole(out_dir / "report.html", html.encode())


def _read(png: Path) -> Picture:
    from stacks.report.page import picture

    if not png.is_file():
        raise InputError(str(png), "no such image", fix="name the PNG grid that the trainer wrote")
    return picture(png.read_bytes(), str(png))
