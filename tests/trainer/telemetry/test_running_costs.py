"""Prices and intensity now: from the launcher's figures, and from its forecast where that is a file at hand."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gangway.trainer.power.carbon_start import START_VARIABLE
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.telemetry.running_costs import GridIntensity, usd_per_hour


def usd(value: float) -> Quantity:
    return Quantity(value=value, unit="USD/h", provenance="assumed", source="list")


GRID = Quantity(value=300.0, unit="gCO2e/kWh", provenance="assumed", source="year")
NOON = datetime(2026, 12, 1, 12, 30, tzinfo=UTC)


def test_each_node_costs_what_its_kind_does() -> None:
    context = RunContext(
        capacity=("spot", "on-demand"), usd_per_hour_by_kind={"spot": usd(1.0), "on-demand": usd(3.0)}, num_nodes=3
    )
    assert usd_per_hour(context, ["spot", "on-demand", "spot"]) == 5.0
    assert usd_per_hour(context, ["spot", "reserved"]) is None, "one has no price"
    assert usd_per_hour(RunContext(usd_per_hour=usd(2.0)), ["", ""]) == 4.0
    assert usd_per_hour(RunContext(), [""]) is None


def test_the_grid_is_what_the_launcher_said() -> None:
    assert GridIntensity(RunContext(intensity_g_per_kwh=GRID)).now() == 300.0
    assert GridIntensity(RunContext()).now() is None


def test_a_forecast_at_hand_says_it_as_long_as_it_reaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "forecast.csv"
    file.write_text("time,g_per_kwh\n2026-12-01T12:00Z,120\n2026-12-01T13:00Z,180\n")
    monkeypatch.setenv(START_VARIABLE, json.dumps({"forecast": str(file)}))
    grid = GridIntensity(RunContext(intensity_g_per_kwh=GRID))
    assert grid.now(NOON) == 120.0
    assert grid.now(NOON.replace(hour=13)) == 180.0
    assert grid.now(NOON.replace(hour=20)) == 300.0


@pytest.mark.parametrize("where", ["https://127.0.0.1:9/forecast", "/no/such/file.csv"])
def test_a_forecast_that_is_not_here_is_not_fetched(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(START_VARIABLE, json.dumps({"forecast": where}))
    assert GridIntensity(RunContext(intensity_g_per_kwh=GRID)).now(NOON) == 300.0
