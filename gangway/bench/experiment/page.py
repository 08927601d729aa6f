"""An experiment as a page: the table, and a pair's images per second with decisions and reasons."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gangway.bench.experiment.table import COLUMNS, Findings, get_findings
from gangway.components.core.whole_files import write_whole
from gangway.render.rendering import render_template
from gangway.report.decisions import Decided, Pace, decisions_drawing, get_rows
from gangway.trainer.records.decisions import decisions


def write_page(folder: Path) -> Path:
    """Write report.html into an experiment's folder. InputError: see `get_findings`."""
    findings = get_findings(folder)
    html = render_template(
        "experiment.html.j2",
        ("report.css", "comparison.css"),
        {},
        {"f": findings, "columns": COLUMNS, "pictures": [_picture(one.name, findings) for one in findings.scenarios]},
    )
    return write_whole(folder / "report.html", html.encode())


def _picture(scenario: str, findings: Findings) -> Decided:
    """The first seed's control and treatment; no drawing without either."""
    arms = [findings.control, findings.treatment]
    runs = [one for one in findings.results if one["scenario"] == scenario and one["arm"] in arms]
    seed = min((one["seed"] for one in runs), default=None)
    pair = sorted((one for one in runs if one["seed"] == seed), key=lambda one: arms.index(one["arm"]))
    paces = [_pace(run) for run in pair]
    ends = ", ".join(f"{run['arm']} {run['time_sec']:.0f} s" for run in pair)
    drawing = decisions_drawing(f"decisions-{scenario}", f"Seed {seed} ({ends})", paces) if pair else None
    return Decided(scenario, "", get_rows([one for pace in paces for one in pace.decisions]), drawing)


def _pace(run: Mapping[str, Any]) -> Pace:
    curve, decided = run["curve"], decisions(run["decisions"])
    return Pace(
        label=run["arm"],
        seconds=[point[0] for point in curve],
        images_per_sec=[point[2] for point in curve],
        places=[
            next((place for place, point in enumerate(curve) if point[1] >= one.images), len(curve) - 1)
            for one in decided
        ],
        decisions=decided,
        neighbour_sec=run["neighbour_sec"],
    )
