"""The report on one run: a self-contained HTML page on its plan, sandbox and record."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import make_folder, write_whole
from gangway.components.estimate.cost import foreign_note
from gangway.render.drawing import BAR, DARK, LIGHT, PANEL_INCHES, ROW_INCHES, Theme, draw, name_rows
from gangway.render.rendering import Cell, Sources, duration, kimg_text, moment, number, render_template, unit_text
from gangway.report.decisions import find_decided
from gangway.runs.run_folders import hints, not_sealed
from gangway.runs.signatures import UNSIGNED
from gangway.trainer.core.regular_files import read_regular
from gangway.trainer.records.quality import QualityRecord
from gangway.trainer.records.run_record import RunRecord

if TYPE_CHECKING:
    from gangway.sandbox.rows import SandboxRow

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_SEVERITIES = ("error", "warning", "info")
# Worst first: differences must stay visible.
_STATUSES = ("refused", "different", "validated only", "accepted", "read back equal")


class Picture(NamedTuple):
    """A PNG to embed: bytes and size in pixels."""

    png: bytes
    width: int
    height: int


class _Problem(NamedTuple):
    """For the head of the page. `what`: the run, a finding's path, or a resource; `anchor`: of the details."""

    severity: str
    what: str
    text: str
    fix: str
    anchor: str


@dataclass(frozen=True)
class _Node:
    type: str
    name: str
    inputs: Mapping[str, Any]
    children: list[_Node] = field(default_factory=list)


def picture(png: bytes, place: str) -> Picture:
    """A PNG and its size from its first chunk. `place`: for the message. InputError: not a PNG."""
    if not png.startswith(_PNG_SIGNATURE) or len(png) < 24:
        raise InputError(place, "not a PNG image", fix="name the PNG grid that the trainer wrote")
    width, height = struct.unpack(">II", png[16:24])
    return Picture(png, width, height)


def _page(
    plan: Mapping[str, Any], sandbox: Sequence[SandboxRow], record: RunRecord, missing: Sequence[str], **shown: Any
) -> str:
    """The whole HTML file with embedded styles and images. `shown`: charts, pictures and notes, by the template."""
    sources, counts = Sources(), Counter(str(row.status) for row in sandbox)
    programs = sorted({*record.versions, *plan["versions"]}, key=str.lower)
    # Cells are made when the template prints them, so footnotes are numbered in reading order.
    context = {
        **shown,
        "plan": plan,
        "record": record,
        "sources": sources,
        "figure": sources.figure,
        "priced": lambda component: _price_cells(component, plan["cost"]["currency"], sources),
        "totals": lambda: _totals(plan, sources),
        "envelope": lambda: _envelope(plan, sources),
        "run_figures": [
            ("Training time", record.wall_sec),
            ("Throughput", record.images_per_sec),
            ("Time per thousand images", record.sec_per_kimg),
            ("Scaling efficiency", record.scaling_efficiency),
            ("Peak memory", record.peak_memory_gib),
        ],
        "improvement": _improvement(record),
        "wrong": _find_problems(plan, sandbox, record, missing),
        "tree": _tree(plan["resources"]),
        "findings": sorted(plan["findings"], key=lambda finding: _SEVERITIES.index(finding["severity"])),
        "sandbox": sorted(sandbox, key=lambda row: (_STATUSES.index(row.status), row.type, row.name)),
        "status_counts": [(status, counts[status]) for status in reversed(_STATUSES) if counts[status]],
        "versions": [(name, record.versions.get(name, ""), plan["versions"].get(name, "")) for name in programs],
    }
    filters = {
        "data_uri": lambda png: f"data:image/png;base64,{base64.b64encode(png).decode()}",
        "duration": duration,
        "json": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
        "kimg": kimg_text,
        "moment": moment,
        "number": number,
        "picture": lambda chart: picture(chart.light, chart.name),
    }
    return render_template("report.html.j2", ("report.css",), filters, context)


def _find_problems(
    plan: Mapping[str, Any], sandbox: Sequence[SandboxRow], record: RunRecord, missing: Sequence[str]
) -> list[_Problem]:
    found = []
    if record.status != "done":
        done = f"{kimg_text(record.images)} of {kimg_text(record.config.total_images)} kimg"
        text = f"is {record.status}, at {done}: every figure below is of a part of it"
        found.append(
            _Problem("error", f"run {record.id}", text, "the same train command goes on with it", "interruptions")
        )
    for name in missing:
        found.append(
            _Problem("error", f"run {record.id}", f"has no {name}", "what comes of it is not below", "samples")
        )
    found += [
        _Problem("warning", metric.name, text, "", "quality")
        for metric in record.quality
        if (text := _quality_warning(metric))
    ]
    for row in sandbox:
        if row.status in ("refused", "different"):
            found.append(
                _Problem("error", row.name, f"{row.type} was {row.status} in the sandbox", row.note, "sandbox")
            )
    found += [
        _Problem("warning", f"run {record.id}", text.partition(": ")[2], "", "run") for text in not_sealed([record])
    ]
    found += [
        _Problem(finding["severity"], finding["path"], finding["message"], finding["fix"] or "", "plan-findings")
        for finding in plan["findings"]
        if finding["severity"] != "info"
    ]
    return sorted(found, key=lambda one: _SEVERITIES.index(one.severity))


def _quality_warning(metric: QualityRecord) -> str:
    before, after = metric.untrained.value, metric.trained.value
    if before is None or after is None or (after < before if metric.better == "lower" else after > before):
        return ""
    return f"training has not made it better: {number(before)} untrained, {number(after)} trained"


def _improvement(record: RunRecord) -> str:
    for metric in record.quality[:1]:
        before, after, floor = metric.untrained.value, metric.trained.value, metric.real_vs_real.value
        if before and after and floor and metric.better == "lower":
            verdict = f"{before / after:.1f} times lower" if after < before else "training made it worse"
            return (
                f"went from {number(before)} untrained to {number(after)} trained ({verdict}); "
                f"two halves of the real images are {number(floor)} apart."
            )
    return ""


def _tree(resources: Sequence[Mapping[str, Any]]) -> list[_Node]:
    nodes = {row["urn"]: _Node(row["type"], row["name"], row["inputs"] or {}) for row in resources}
    roots: list[_Node] = []
    for row in resources:
        parent = nodes.get(row["parent"] or "")
        (roots if parent is None else parent.children).append(nodes[row["urn"]])
    return roots


def _price_cells(component: Mapping[str, Any], currency: str, sources: Sources) -> tuple[Cell, Cell]:
    origin = (component["confidence"], component["source"], component["as_of"])
    reason = f"no price in {component['source']}" if component["source"] else "no price found"
    price = sources.cell(component["price"], currency, *origin, reason=reason)
    return price, sources.cell(component["hourly"], f"{currency}/h", *origin, reason=reason)


def _totals(plan: Mapping[str, Any], sources: Sources) -> list[tuple[str, Cell]]:
    cost = plan["cost"]
    unpriced = [row["name"] for row in cost["components"] if row["hourly"] is None and not row.get("standby")]
    missing = f"no price for {', '.join(unpriced)}" if unpriced else ""
    bound, foreign = cost.get("bound", "at least" if missing else ""), cost.get("foreign_regions") or ()
    notes = [f"{'lower bound: ' if bound == 'at least' else ''}{missing}"] if missing else []
    notes += [f"{foreign_note(foreign)}: no bound"] if foreign else []
    notes += ["upper bound: some prices are limits"] if bound == "at most" else []
    hours = cost.get("run_hours")
    run_note = f"{number(hours)} h" if hours is not None else "the stack file sets no length of a run"
    rows = (
        ("Per hour", cost["hourly"], "/h", "sum of the components in use"),
        ("Per month", cost["monthly"], "/month", "hourly total x 730 h"),
        ("Per run", cost["run"], "", f"hourly total x {run_note}" if hours is not None else "hourly total x hours"),
    )
    return [
        (
            f"{label}, {bound}" if bound and value is not None else f"{label} *" if foreign else label,
            sources.cell(
                value,
                f"{cost['currency']}{per}",
                "estimated",
                source,
                note="" if value is None else "; ".join(notes),
                reason=missing or (run_note if label == "Per run" else "the plan does not know it"),
            ),
        )
        for label, value, per, source in rows
    ]


def _envelope(plan: Mapping[str, Any], sources: Sources) -> list[tuple[str, Cell]]:
    sci = plan["carbon"].get("sci") or {}
    sci_method = "(emissions + those of making the machines) / thousands of images"
    energy, carbon, method = plan["energy"], plan["carbon"], plan["carbon"]["method"]
    watts = energy["source"].removeprefix("estimated: ")
    pue, intensity = "Power usage effectiveness", "Grid intensity"
    rows = (
        ("Machines, expected", energy["it_kwh"], "kWh", "estimated", watts, None),
        (pue, energy["pue"], "", energy["pue_confidence"], energy["pue_source"], energy["pue_as_of"]),
        ("Data centre, expected", energy["kwh"], "kWh", "estimated", f"{watts}, x PUE", None),
        ("Data centre, at most", energy.get("kwh_most"), "kWh", "estimated", f"{watts}, x PUE, all of max_hours", None),
        (intensity, carbon["intensity_g_per_kwh"], "gCO2e/kWh", "documented", carbon["source"], carbon.get("as_of")),
        ("Emissions, expected", carbon["gco2e"], "gCO2e", "estimated", method, None),
        ("Emissions, at most", carbon.get("gco2e_most"), "gCO2e", "estimated", method, None),
        ("SCI, 1,000 images, expected", sci.get("g_per_kimg"), "gCO2e", "estimated", sci_method, None),
        ("SCI, 1,000 images, at most", sci.get("g_per_kimg_most"), "gCO2e", "estimated", sci_method, None),
    )
    bands = {
        "Data centre, expected": (energy, "kwh"),
        "Emissions, expected": (carbon, "gco2e"),
        "SCI, 1,000 images, expected": (sci, "g_per_kimg"),
    }
    cells = []
    for label, value, unit, provenance, source, as_of in rows:
        cell = sources.cell(value, unit, provenance, source, as_of, reason="the plan does not know it")
        section, key = bands.get(label, ({}, ""))
        if section.get(f"{key}_low") is not None and section.get(f"{key}_high") is not None:
            cell = cell._replace(hint=f"from {number(section[f'{key}_low'])} to {number(section[f'{key}_high'])}")
        cells.append((label, cell))
    return cells


def write_report(
    out_dir: Path,
    *,
    plan: Mapping[str, Any],
    sandbox: Sequence[SandboxRow],
    record: RunRecord,
    stats: Sequence[Mapping[str, Any]],
    samples_png: Path | None,
    reals_png: Path | None,
    missing: Sequence[str] = (),
    signed: str = UNSIGNED.sentence,
) -> Path:
    """Render everything, then write `out_dir/report.html` and its plots, each atomically; return the page's path.
    InputError: an image is missing or not a PNG, or `out_dir` cannot be written.
    """
    curves = curve_charts(stats)
    cost = cost_chart(plan["cost"]["components"], plan["cost"]["currency"])
    quality = [chart for metric in record.quality if (chart := quality_chart(metric))]
    decided = find_decided(record, stats, "decisions")
    html = _page(
        plan,
        sandbox,
        record,
        missing,
        curves=curves,
        cost_chart=cost,
        quality_charts=quality,
        samples=_read(samples_png) if samples_png else None,
        reals=_read(reals_png) if reals_png else None,
        signed=signed,
        hints=hints(stats),
        decided=decided,
    )
    charts = [*quality, *curves, *([cost] if cost else [])]
    files = {
        f"{one.name}.{kind}": content for one in charts for kind, content in (("png", one.light), ("svg", one.svg))
    }
    if decided is not None and decided.drawing is not None:
        files[f"{decided.drawing.name}.svg"] = decided.drawing.as_file("svg")
    folder = out_dir / "plots"
    make_folder(folder if files else out_dir)
    for name, content in files.items():
        write_whole(folder / name, content)
    return write_whole(out_dir / "report.html", html.encode())


def _read(png: Path) -> Picture:
    try:
        return picture(read_regular(png.parent, png.name), str(png))
    except OSError as error:
        fix = "name the PNG grid that the trainer wrote"
        raise InputError(str(png), f"no such image: {error.strerror or error}", fix=fix) from None


# The charts of a run's report (hourly cost, curves, quality), as PNGs for the page and SVG for papers.

_WORDS = {"interrupt": "interrupted", "kill": "killed", "resume": "resumed", "restart": "restarted"}
_NEAR = 0.03
"""Events closer than this share of the run share a mark."""
_MOST_LABELS = 6
_Dash = Literal["-"] | tuple[float, tuple[float, float]]
_DASHES: Final[tuple[_Dash, _Dash]] = ("-", (0, (5, 1.2)))
_ROOM_FOR_WORDS = 0.25
"""Share of a chart's width below which a session has no label."""


@dataclass(frozen=True)
class Chart:
    """A finished chart. `name`: of its files, without the suffix; `alt`: its content in words and values."""

    name: str
    alt: str
    caption: str
    light: bytes
    dark: bytes
    svg: bytes


def _chart(name: str, alt: str, caption: str, inches: float, paint: Callable[[Axes, Theme], None]) -> Chart:
    def drawn(theme: Theme, kind: Literal["png", "svg"]) -> bytes:
        return draw(lambda _, axes: paint(axes[0], theme), kind, theme, inches=inches)

    return Chart(name, alt, caption, drawn(LIGHT, "png"), drawn(DARK, "png"), drawn(LIGHT, "svg"))


def cost_chart(components: Sequence[Mapping[str, Any]], currency: str) -> Chart | None:
    """Hourly cost by component, dearest first, unpriced ones last; None without data."""
    if not components:
        return None
    rows = sorted(components, key=lambda row: -1.0 if row["hourly"] is None else row["hourly"], reverse=True)
    top = max((row["hourly"] or 0.0 for row in rows), default=0.0) or 1.0

    def paint(axes: Axes, theme: Theme) -> None:
        for place, row in enumerate(rows):
            standby = bool(row.get("standby"))
            axes.barh(
                place,
                row["hourly"] or 0.0,
                height=BAR,
                align="edge",
                color="none" if standby else theme.series[0],
                edgecolor=theme.series[0],
                linewidth=1,
                linestyle="--" if standby else "-",
            )
        values = (_hourly_text(row["hourly"], currency) + (", standby" if row.get("standby") else "") for row in rows)
        _name_bars(axes, theme, [(str(row["name"]), value) for row, value in zip(rows, values, strict=True)])
        axes.set_xlim(0, top)

    spoken = "; ".join(f"{row['name']}: {_hourly_text(row['hourly'], currency)}" for row in rows)
    return _chart(
        "cost-hourly",
        f"Bar chart of hourly cost in {currency} by component. {spoken}.",
        f"Hourly cost by component, {currency} per hour. Dashed: standby, billed only when a fallback steps in.",
        ROW_INCHES * len(rows),
        paint,
    )


def _hourly_text(hourly: float | None, currency: str) -> str:
    return "unknown" if hourly is None else number(hourly, currency)


def _name_bars(axes: Axes, theme: Theme, rows: Sequence[tuple[str, str]]) -> None:
    name_rows(axes, theme, rows)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def quality_chart(quality: QualityRecord) -> Chart | None:
    """The three values of a quality metric on one line; None if one is absent."""
    labelled = [
        ("untrained", quality.untrained),
        ("trained", quality.trained),
        ("real against real", quality.real_vs_real),
    ]
    values = [(label, figure.value) for label, figure in labelled if figure.value is not None]
    if len(values) < len(labelled):
        return None

    def paint(axes: Axes, theme: Theme) -> None:
        colours = (theme.quiet, theme.series[0], theme.quiet)
        top = max(value for _, value in values) or 1.0
        for place, ((_, value), colour) in enumerate(zip(values, colours, strict=True)):
            axes.barh(place, value, height=BAR, align="edge", color=colour)
        _name_bars(axes, theme, [(label, number(value)) for label, value in values])
        axes.set_xlim(0, top)

    spoken = ", ".join(f"{label} {number(value)}" for label, value in values)
    unit = f", {unit_text(quality.trained.unit)}" if quality.trained.unit else ""
    slug = "".join(letter if letter.isalnum() else "-" for letter in quality.name.lower())
    return _chart(
        f"quality-{slug}",
        f"Bar chart of {quality.name}: {spoken}. {quality.better.capitalize()} is better.",
        f"{quality.name}{unit}; {quality.better} is better.",
        ROW_INCHES * len(values),
        paint,
    )


Line = Mapping[str, Any]
Series = tuple[str, str]
"""The key and the label of a curve."""


@dataclass(frozen=True)
class Mark:
    """A vertical line for an event, at thousands of images."""

    kimg: float
    label: str


def curve_charts(stats: Sequence[Line]) -> list[Chart]:
    """Losses, throughput and gradient norms; empty without data lines. `stats`: lines of stats.jsonl."""
    sessions = _sessions(stats)
    if not sessions:
        return []
    events = marks(stats)
    losses = ("loss_g", "generator"), ("loss_d", "discriminator")
    norms = ("grad_norm_g", "generator"), ("grad_norm_d", "discriminator")
    return [
        _line_chart("losses", "Loss", "Loss of both networks", losses, sessions, events),
        _throughput_chart(sessions, events),
        _line_chart("gradients", "Gradient norm", "Gradient norm of both networks", norms, sessions, events),
    ]


def marks(stats: Sequence[Line]) -> list[Mark]:
    """Interruptions and resumptions; neighbours share a mark, in order."""
    reach = _NEAR * max((line["images"] / 1000 for line in stats), default=0.0)
    merged: list[Mark] = []
    for mark in _moments(stats):
        if merged and mark.kimg - merged[-1].kimg <= reach:
            labels = merged[-1].label.split(", ")
            label = merged[-1].label if mark.label in labels else f"{merged[-1].label}, {mark.label}"
            merged[-1] = Mark(merged[-1].kimg, label)
        else:
            merged.append(mark)
    return merged


def _moments(stats: Sequence[Line]) -> Iterator[Mark]:
    for line in sorted((line for line in stats if "event" in line), key=lambda line: float(line["images"])):
        words = [said for stem, said in _WORDS.items() if stem in str(line["event"])]
        if words:
            yield Mark(line["images"] / 1000, words[0])


def _sessions(stats: Sequence[Line]) -> list[list[Line]]:
    data = [line for line in stats if "event" not in line]
    return [list(lines) for _, lines in groupby(data, key=lambda line: line["session"])]


def _values(lines: Sequence[Line], key: str) -> list[float]:
    return [math.nan if line[key] is None else float(line[key]) for line in lines]


def _line_chart(
    name: str,
    axis: str,
    title: str,
    series: tuple[Series, Series],
    sessions: Sequence[Sequence[Line]],
    events: Sequence[Mark],
) -> Chart:
    def paint(axes: Axes, theme: Theme) -> None:
        for (key, _), colour, style in zip(series, theme.series[:2], _DASHES, strict=True):
            for lines in sessions:
                kimg = [line["kimg"] for line in lines]
                axes.plot(kimg, _values(lines, key), color=colour, linestyle=style, linewidth=1.5)
        _dress(axes, theme, axis, sessions, events)
        handles = [
            Line2D([], [], color=colour, linestyle=style, linewidth=1.5, label=label)
            for (_, label), colour, style in zip(series, theme.series[:2], _DASHES, strict=True)
        ]
        axes.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(0, -0.17), ncols=2, frameon=False, labelcolor=theme.ink,
            borderaxespad=0, borderpad=0,
        )  # fmt: skip

    ends = " and ".join(f"{label} {number(_values(sessions[-1], key)[-1])}" for key, label in series)
    return _chart(
        name,
        f"Line chart: {title.lower()} over thousands of images shown; at the end {ends}. {_spoken(events)}",
        f"{title} over thousands of real images shown (kimg). {_legend(events)}".strip(),
        PANEL_INCHES,
        paint,
    )


def _throughput_chart(sessions: Sequence[Sequence[Line]], events: Sequence[Mark]) -> Chart:
    speeds = [value for lines in sessions for value in _values(lines, "images_per_sec")]
    top = max((value for value in speeds if math.isfinite(value)), default=1.0)

    def paint(axes: Axes, theme: Theme) -> None:
        for lines in sessions:
            kimg, speed = [line["kimg"] for line in lines], _values(lines, "images_per_sec")
            axes.plot(kimg, speed, color=theme.series[0], linewidth=1.5)
            axes.fill_between(kimg, speed, color=theme.series[0], alpha=0.12, linewidth=0)
            count = lines[0]["world_size"]
            text = f"{count} process{'' if count == 1 else 'es'}"
            if kimg[-1] - kimg[0] > _ROOM_FOR_WORDS * _span(sessions):
                axes.text(kimg[0] + 0.01 * _span(sessions), top * 0.05, text, color=theme.quiet)
        axes.set_ylim(0, top * 1.12)
        _dress(axes, theme, "Images per second", sessions, events)

    sizes = " then ".join(str(lines[0]["world_size"]) for lines in sessions)
    return _chart(
        "throughput",
        f"Line chart: images per second over thousands of images shown, at most {number(top)}; "
        f"processes: {sizes}. {_spoken(events)}",
        f"Throughput over thousands of real images shown (kimg), with the number of processes. {_legend(events)}",
        PANEL_INCHES,
        paint,
    )


def _span(sessions: Sequence[Sequence[Line]]) -> float:
    return float(max(line["kimg"] for lines in sessions for line in lines))


def _dress(axes: Axes, theme: Theme, axis: str, sessions: Sequence[Sequence[Line]], events: Sequence[Mark]) -> None:
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.set_xlim(0, _span(sessions) * 1.005)
    axes.set_xlabel("kimg", loc="right", color=theme.quiet)
    axes.set_title(axis, color=theme.quiet, pad=8 + 13 * min(len(events), 2))
    for place, mark in enumerate(events):
        axes.axvline(mark.kimg, color=theme.quiet, linewidth=1, linestyle=(0, (2, 2)))
        if len(events) <= _MOST_LABELS:
            # Every second label is higher, against overlaps.
            axes.annotate(
                mark.label,
                (mark.kimg, 1),
                (0, 3 + 13 * (place % 2)),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
                color=theme.quiet,
            )


def _spoken(events: Sequence[Mark]) -> str:
    if not events:
        return "No interruption."
    return "Marked: " + "; ".join(f"{mark.label} at {number(mark.kimg)} kimg" for mark in events) + "."


def _legend(events: Sequence[Mark]) -> str:
    if not events:
        return ""
    several = f"; {len(events)} of them" if len(events) > _MOST_LABELS else ""
    return f"Dashed verticals: the run was interrupted or resumed{several}."
