"""An experiment as a page: the table, and images a second of a pair over time, decisions with reasons."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from stacks.bench.experiment.table import COLUMNS, Findings, findings_of
from stacks.report.drawing import LIGHT, draw
from stacks.report.rendering import render_template, write_whole


class Picture(NamedTuple):
    """One scenario over time. `decisions`: numbered as in the picture, each a sentence."""

    name: str
    svg: str
    alt: str
    decisions: tuple[str, ...]


def write_page(folder: Path) -> Path:
    """Writes report.html into an experiment's folder. InputError: as `findings_of`."""
    findings = findings_of(folder)
    html = render_template(
        "experiment.html.j2",
        ("report.css", "comparison.css"),
        {},
        {"f": findings, "columns": COLUMNS, "pictures": [_picture(one.name, findings) for one in findings.scenarios]},
    )
    return write_whole(folder / "report.html", html.encode())


def _picture(scenario: str, findings: Findings) -> Picture:
    """Of the scenario's first seed."""
    runs = [one for one in findings.results if one["scenario"] == scenario]
    seed = min(one["seed"] for one in runs)
    pair = sorted((one for one in runs if one["seed"] == seed), key=lambda one: one["arm"] != findings.control)
    decisions = [line for run in pair for line in run["decisions"]]
    treated = next((run for run in pair if run["arm"] != findings.control), None)

    def paint(_: Sheet, axes: Sequence[Axes]) -> None:
        plot = axes[0]
        for place, run in enumerate(pair):
            times, rates = [point[0] for point in run["curve"]], [point[2] for point in run["curve"]]
            plot.plot(times, rates, color=LIGHT.series[place], linewidth=1.6, label=run["arm"])
            for low, high in run["neighbour_sec"]:
                plot.axvspan(low, high, color=LIGHT.series[place], alpha=0.1, linewidth=0, zorder=0)
        for number, line in enumerate(decisions, 1):
            if treated is not None:
                at = _second_of(line["images"], treated["curve"])
                plot.axvline(at, color=LIGHT.quiet, linewidth=0.8, linestyle=":")
                plot.annotate(str(number), (at, 1), xycoords=("data", "axes fraction"), color=LIGHT.ink, ha="center")
        plot.set_xlabel("seconds of training")
        plot.set_ylabel("images/s")
        plot.set_ylim(bottom=0)
        plot.legend(loc="lower right")

    drawn = draw(lambda sheet, axes: paint(sheet, axes), "svg", LIGHT, salt=f"experiment-{scenario}").decode()
    ends = ", ".join(f"{run['arm']} {run['time_sec']:.0f} s" for run in pair)
    alt = f"Images per second over time, seed {seed}: {ends}; {len(decisions)} decisions."
    return Picture(scenario, Markup(drawn[drawn.index("<svg") :]), alt, tuple(_sentence(line) for line in decisions))


def _second_of(images: int, curve: Sequence[Sequence[float]]) -> float:
    """When so many images were shown: by the first line that has as many."""
    return next((point[0] for point in curve if point[1] >= images), curve[-1][0])


def _sentence(line: Mapping[str, Any]) -> str:
    """A decision with its reason."""
    outcome = "" if line["outcome"] == "done" else f" ({line['outcome']})"
    return f"at {line['images']:,} images, {line['knob']}: {line['was']} to {line['value']}{outcome}: {line['reason']}"
