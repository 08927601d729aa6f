"""The report on one run: a self-contained HTML page on its plan, sandbox and record."""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import make_folder, write_whole
from gangway.components.estimate.cost import foreign_note
from gangway.render.rendering import Cell, Sources, duration, kimg_text, moment, number, render_template
from gangway.report.decisions import find_decided
from gangway.report.plots import cost_chart, curve_charts, quality_chart
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
