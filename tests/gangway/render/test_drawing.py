"""Every picture can be read on a telephone: at 400 pixels no letter is below 10, none is cut off or lies on another."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure as Sheet
from typer.testing import CliRunner

from gangway.bench.local import Placement
from gangway.bench.scaling import Mode, Sample, draw_scaling, find_target, study
from gangway.cli.main import app
from gangway.finops.forecasts.plot import draw_forecast
from gangway.finops.forecasts.tables import Answer
from gangway.render.drawing import LIGHT, draw, name_rows
from gangway.sim.forecast.accuracy import Drift, accuracy
from gangway.sim.forecast.forecaster import Backtest, Forecast, Setting
from gangway.sim.forecast.series import Series

SOURCES = sorted((Path(__file__).parents[3] / "gangway").rglob("*.py"))


@pytest.mark.slow
@pytest.mark.usefixtures("faults")
@pytest.mark.parametrize("years", ["1", "3", "7"])
def test_renting_and_owning(years: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["tco", "--accelerator", "H100x8", "--years", years, "--out", str(tmp_path / "tco")])
    assert done.exit_code == 0, done.output


@pytest.mark.usefixtures("faults")
@pytest.mark.parametrize("step", [timedelta(minutes=5), timedelta(hours=1), timedelta(days=1)])
def test_a_forecast(step: timedelta) -> None:
    """Made by hand, so that nothing is fitted: what is drawn are its values alone."""
    values = tuple(1000.0 + 300 * (index % 7) for index in range(200))
    series = Series("interruptions_per_hour", datetime(2026, 12, 30, tzinfo=UTC), step, values, "SIMULATED: so")
    model, naive = (Forecast(200, (900.0,) * 24, (1200.0,) * 24, (high,) * 24) for high in (1500.0, 1900.0))
    figures = accuracy([naive.beside((1000.0,) * 24)], 0.9)
    tested = Backtest((model,), (naive,), figures, figures, None, Drift(None, None, False, 5.0, 30))
    draw_forecast(Answer(series, Setting(24, 24, 0.9), model, naive, tested), "png")


@pytest.mark.usefixtures("faults")
def test_scaling_measured_and_projected() -> None:
    steps = {1: 0.1, 2: 0.062, 4: 0.046, 8: 0.04, 16: 0.03}
    modes: tuple[Mode, ...] = ("weak", "strong")
    samples = {
        (mode, n): Sample(seconds, {} if n == 1 else {1_000: 1e-3, 2_000: 1e-3}, 3_000_000, "NVIDIA H100 80GB HBM3", "")
        for mode, by_workers in zip(modes, (steps, steps), strict=True)
        for n, seconds in by_workers.items()
    }
    targets = [find_target(name) for name in ("p5.48xlarge", "Standard_ND96isr_H100_v5", "v5e-256")]
    made = study([samples], 64, 9000.0, (0.0, 0.0), targets, Placement("cpu", 1, "made up"))
    assert made.projections
    draw_scaling(made, "png")


def test_what_cannot_be_read_would_be_seen(unreadable: Callable[[Sheet], list[str]]) -> None:
    sheet = Sheet(figsize=(9, 3))
    for place, size in (((0.1, 0.5), 9.0), ((0.11, 0.5), 30.0), ((0.95, 0.9), 30.0)):
        sheet.text(*place, f"words {size:g}", fontsize=size)
    said = unreadable(sheet)
    assert any("pixels" in one for one in said)
    assert any("cut off" in one for one in said)
    assert any("' on '" in one for one in said)


@pytest.mark.usefixtures("faults")
def test_a_row_keeps_what_is_said_of_it() -> None:
    def paint(_: Sheet, axes: Any) -> None:
        name_rows(axes[0], LIGHT, [("x" * 200, "9.99"), ("short", ""), ("x" * 200, "y" * 20)])
        shown = [one.get_text() for one in axes[0].texts]
        assert [text[-25:] for text in shown[::2]] == [f"{'x' * 16}...: 9.99", f"...: {'y' * 20}"]
        assert shown[1] == "short"

    draw(paint, "png", LIGHT, inches=2)


def test_sizes_stand_in_one_file() -> None:
    named = [path.name for path in SOURCES if any(word in path.read_text("utf-8") for word in ("fontsize", "figsize"))]
    assert named == ["drawing.py"]
