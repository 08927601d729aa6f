"""The charts: images that show something, interruptions drawn and spoken, gaps left open."""

import math
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageStat

from gangway.report.page import Chart, cost_chart, curve_charts, marks, quality_chart
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunRecord

CHARTS = ["cost-hourly", "gradients", "losses", "quality-fd-enl0", "throughput"]
Event = Callable[[str, int], dict[str, Any]]


def colours(png: bytes) -> int:
    image = Image.open(BytesIO(png)).convert("RGB")
    assert image.width > 1000
    assert image.height > 150
    assert max(ImageStat.Stat(image).stddev) > 5
    return len(image.getcolors(maxcolors=1 << 24) or [])


@pytest.mark.slow
def test_charts_are_written_as_png_and_svg(written: Path) -> None:
    assert sorted(path.name for path in (written / "plots").iterdir()) == sorted(
        f"{name}.{kind}" for name in CHARTS for kind in ("png", "svg")
    )
    for name in CHARTS:
        assert colours((written / "plots" / f"{name}.png").read_bytes()) > 20
        assert (written / "plots" / f"{name}.svg").read_text().count("<path") > 10


def lines(chart: Chart) -> int:
    return chart.svg.decode().count('<g id="line2d_')


@pytest.mark.slow
def test_events_are_drawn_and_spoken(stats: list[dict[str, Any]]) -> None:
    quiet = [line for line in stats if line.get("event") not in ("interrupt", "resume")]
    for with_event, without in zip(curve_charts(stats), curve_charts(quiet), strict=True):
        assert "Marked: interrupted, resumed at 60.03 kimg." in with_event.alt
        assert "No interruption." in without.alt
        assert lines(with_event) == lines(without) + 1
        assert with_event.light != without.light
        assert with_event.dark != with_event.light


@pytest.mark.slow
def test_sessions_are_not_joined(stats: list[dict[str, Any]]) -> None:
    one = [{**line, "session": 0} if "session" in line else line for line in stats]
    assert all(lines(two) > lines(joined) for two, joined in zip(curve_charts(stats), curve_charts(one), strict=True))


def test_marks_merge_neighbours_and_ignore_other_events(make_event: Event) -> None:
    lines = [
        make_event("done", 100_000),
        make_event("checkpoint", 10_000),
        make_event("killed", 20_000),
        make_event("resumed", 20_500),
    ]
    found = marks(
        [*lines, make_event("interrupt", 60_000), make_event("resume", 60_000), make_event("interrupt", 61_000)]
    )
    assert [(mark.kimg, mark.label) for mark in found] == [(20, "killed, resumed"), (60, "interrupted, resumed")]


@pytest.mark.slow
def test_many_interruptions_are_counted_instead_of_labelled(stats: list[dict[str, Any]], make_event: Event) -> None:
    often = [*stats, *(make_event("interrupt", kimg * 1000) for kimg in range(5, 150, 15))]
    assert "11 of them" in curve_charts(often)[0].caption


@pytest.mark.slow
def test_losses_that_end_together_or_are_not_numbers_still_draw(stats: list[dict[str, Any]]) -> None:
    stats[-2] |= {"loss_g": 1.2, "loss_d": 1.2}
    stats[10] |= {"loss_g": math.nan}
    assert "generator 1.2 and discriminator 1.2" in curve_charts(stats)[0].alt
    stats[-2] |= {"loss_g": math.nan}
    assert "generator not a number" in curve_charts(stats)[0].alt


def test_cost_chart_speaks_unknown_prices_and_quality_needs_all_three(plan: dict[str, Any], record: RunRecord) -> None:
    chart = cost_chart(plan["cost"]["components"], "USD")
    assert chart is not None
    assert "nodes, on-demand: 110.08; nodes, spot: 45.96" in chart.alt
    assert chart.alt.endswith("head node: unknown.")
    assert cost_chart([], "USD") is None
    unjudged = record.quality[0].model_copy(update={"untrained": Quantity.absent("", "not kept")})
    assert quality_chart(unjudged) is None


@pytest.mark.slow
@pytest.mark.usefixtures("faults")
def test_charts_of_a_run(plan: dict[str, Any], stats: list[dict[str, Any]], record: RunRecord) -> None:
    assert cost_chart(plan["cost"]["components"], "USD")
    long = [{"name": "a part with a name that is longer than any sheet is wide, as some are", "hourly": 1234.5}] * 12
    assert cost_chart(long, "USD")
    assert quality_chart(record.quality[0])
    assert len(curve_charts(stats)) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("faults")
def test_curves_of_a_run_in_many_short_sessions(make_event: Callable[..., dict[str, Any]]) -> None:
    line = {
        "wall_sec": 1.0,
        "images_per_sec": 12345.6,
        "loss_g": 1e-4,
        "loss_d": 2e-4,
        "grad_norm_g": 1,
        "grad_norm_d": 9,
    }
    stats: list[dict[str, Any]] = []
    for kimg in range(1, 101):
        session = kimg // 17
        stats.append(
            {**line, "images": kimg * 1000, "kimg": float(kimg), "session": session, "world_size": 8 - session}
        )
        if kimg % 17 == 16:
            stats.append(make_event("interrupt", kimg * 1000))
    assert len(curve_charts(stats)) == 3
