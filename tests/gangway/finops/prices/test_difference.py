"""`gangway prices diff`: the catalogue, overlays by day or file, side by side."""

from datetime import date
from pathlib import Path

import pytest

from gangway.components.catalog.prices import Overlay, overlay_text
from gangway.components.catalog.schema import Fact, MachinePrice, TpuPrice
from gangway.components.catalog.validators import PRICE_FIELDS
from gangway.components.core.findings import InputError
from gangway.finops.prices.difference import Difference, difference, get_prices


def write(folder: Path, provider: str, day: date, on_demand: float, chip: float | None = None) -> Path:
    def fact(value: float | None) -> Fact[float | None]:
        return Fact[float | None](value=value, source="a list", url="https://e.com", as_of=day, confidence="list-price")

    facts = {field: fact(on_demand if field == "on_demand" else None) for field in PRICE_FIELDS}
    names = {"aws": ("p5.48xlarge", "us-east-1"), "gcp": ("a3-highgpu-8g", "us-east4")}[provider]
    row = MachinePrice.model_validate({"provider": provider, "machine_type": names[0], "region": names[1], **facts})
    chips = TpuPrice(generation="v5e", region="us-central1", on_demand=fact(chip), spot=fact(None))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{provider}-{day}.yaml"
    path.write_text(overlay_text(provider, day, Overlay(machines=(row,), tpus=(chips,))), "utf-8")
    return path


def compare(before: str, now: str) -> list[Difference]:
    return difference(get_prices(before, "A"), get_prices(now, "B"))


def test_the_newest_overlays_are_compared_with_the_catalogue(overlays: Path) -> None:
    write(overlays, "aws", date(2026, 11, 21), 60.0)
    write(overlays, "aws", date(2026, 11, 22), 50.0)
    write(overlays, "gcp", date(2026, 11, 21), 88.555756, chip=1.3)
    assert compare("catalogue", "overlay") == [
        Difference("p5.48xlarge", "us-east-1", "on_demand", 55.04, 50.0),
        Difference("v5e", "us-central1", "on_demand", 1.2, 1.3),
    ]


def test_two_days_or_a_file_can_be_compared(overlays: Path, tmp_path: Path) -> None:
    write(overlays, "aws", date(2026, 11, 21), 60.0)
    write(overlays, "aws", date(2026, 11, 22), 50.0)
    kept = write(tmp_path / "elsewhere", "aws", date(2026, 11, 23), 40.0)
    assert compare("2026-11-21", "2026-11-22") == [Difference("p5.48xlarge", "us-east-1", "on_demand", 60.0, 50.0)]
    assert compare(str(kept), "overlay")[0].to_json() == {
        "item": "p5.48xlarge",
        "region": "us-east-1",
        "field": "on_demand",
        "before": 40.0,
        "now": 50.0,
    }
    assert compare("overlay", "overlay") == []


def test_a_state_that_is_not_there_names_those_that_are(overlays: Path) -> None:
    with pytest.raises(InputError, match="no prices have been refreshed yet") as caught:
        compare("catalogue", "overlay")
    assert caught.value.fix == f"run `gangway prices refresh`, which writes the first overlay in {overlays}"
    assert caught.value.allowed == "catalogue, the path of an overlay"
    write(overlays, "aws", date(2026, 11, 21), 60.0)
    with pytest.raises(InputError, match="no such prices") as caught:
        compare("2026-11-20", "overlay")
    assert (caught.value.place, caught.value.value) == ("A", "2026-11-20")
    assert "2026-11-21" in caught.value.allowed


def test_where_overlays_are_turned_off_the_catalogue_is_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGWAY_PRICES", "none")
    with pytest.raises(InputError, match="overlays are turned off") as caught:
        compare("catalogue", "overlay")
    assert caught.value.fix == "unset GANGWAY_PRICES"
    with pytest.raises(InputError, match="overlays are turned off"):
        compare("2026-11-21", "catalogue")
    assert compare("catalogue", "catalogue") == []
