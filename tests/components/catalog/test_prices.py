"""Overlays of prices: found by their day, laid over the catalogue without hiding a newer one, named where broken."""

from datetime import date
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import Provider, load_bundled, load_bundled_tpus, load_provider, load_tpus
from gangway.components.catalog.prices import (
    KINDS,
    Kind,
    Overlay,
    is_overlaid,
    lay_over,
    newest_overlay,
    overlay_folder,
    overlay_text,
    read_overlay,
    resolve_price,
)
from gangway.components.catalog.schema import Fact, MachinePrice, TpuPrice
from gangway.components.catalog.validators import PRICE_FIELDS
from gangway.components.core.findings import InputError

DAY = date(2026, 11, 22)


def fact(value: float | None, day: date = DAY, confidence: str = "list-price") -> Fact[float | None]:
    about = {"source": "a list", "url": "https://example.com", "as_of": day, "confidence": confidence}
    return Fact[float | None].model_validate({"value": value, **about})


def row(machine: str = "p5.48xlarge", region: str = "us-east-1", day: date = DAY, **prices: float) -> MachinePrice:
    facts = {field: fact(prices.get(field), day) for field in PRICE_FIELDS}
    return MachinePrice.model_validate({"provider": "aws", "machine_type": machine, "region": region, **facts})


def chip(spot: float) -> TpuPrice:
    return TpuPrice(generation="v5p", region="us-central1", on_demand=fact(None), spot=fact(spot))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GANGWAY_PRICES", str(tmp_path))
    return tmp_path


def write(folder: Path, overlay: Overlay, provider: str = "aws", day: date = DAY) -> Path:
    path = folder / f"{provider}-{day}.yaml"
    path.write_text(overlay_text(provider, day, overlay), "utf-8")
    return path


def test_tests_see_no_overlay_of_the_developer() -> None:
    assert overlay_folder() is None
    assert newest_overlay("aws") is None


def test_overlays_are_in_the_users_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GANGWAY_PRICES")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert overlay_folder() == tmp_path / "gangway" / "prices"
    assert newest_overlay("aws") is None, "the folder is not there yet"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert overlay_folder() == tmp_path / ".config" / "gangway" / "prices"


def test_the_newest_of_the_provider_counts(folder: Path) -> None:
    for name in (
        "aws-2026-11-20.yaml",
        "aws-2026-11-22.yaml",
        "gcp-2026-12-01.yaml",
        "aws-notes.yaml",
        ".aws-x.yaml.1",
    ):
        (folder / name).write_text("", "utf-8")
    newest = newest_overlay("aws")
    assert newest is not None
    assert newest.path.name == "aws-2026-11-22.yaml"
    assert newest_overlay("azure") is None


def test_a_plan_sees_the_overlay_and_says_so(folder: Path) -> None:
    later = row(region="us-east-2", day=date(2026, 12, 1), spot_low=11.0, spot_high=12.0)
    write(folder, Overlay(machines=(row(on_demand=50.0), later)))
    rows = {price.region: price for price in load_provider("aws").get_prices("p5.48xlarge")}
    here, there = rows["us-east-1"], rows["us-east-2"]
    assert (here.on_demand.value, here.spot_high.value) == (50.0, 55.04)
    assert here.on_demand.source == "overlay, 2026-11-22: a list"
    assert is_overlaid(here.on_demand)
    assert not is_overlaid(here.spot_high)
    assert (there.spot_high.value, there.on_demand.value) == (12.0, 55.04)
    assert there.spot_typical.value is None, "another list's does not stand between its ends"
    spot = load_provider("aws").price("p5.48xlarge", "us-east-2", "spot")
    assert spot is not None
    assert (spot.low, spot.usd, spot.high) == (11.0, 12.0, 12.0)


def test_a_changed_overlay_is_read_again_and_a_removed_one_is_gone(folder: Path) -> None:
    bundled = load_bundled("aws")
    path = write(folder, Overlay(machines=(row(on_demand=50.0),)))
    first = load_provider("aws")
    assert load_provider("aws") is first
    write(folder, Overlay(machines=(row(on_demand=51.0),)), day=date(2026, 11, 23))
    price = load_provider("aws").price("p5.48xlarge", "us-east-1", "on-demand")
    assert price is not None
    assert price.usd == 51.0
    for path in folder.iterdir():
        path.unlink()
    assert load_provider("aws") is bundled


@pytest.mark.parametrize("days", ["as_of: ''", "as_of: null", "as_of: soon", "{}"])
def test_a_source_without_a_day_is_named(folder: Path, days: str) -> None:
    """What is old is judged by it, and the newer of two prices wins."""
    path = write(folder, Overlay(machines=(row(on_demand=50.0),)))
    data = yaml.safe_load(path.read_text("utf-8"))
    for about in data["sources"].values():
        about.pop("as_of")
        about.pop("read_on", None)
        about.update(yaml.safe_load(days))
    path.write_text(yaml.safe_dump(data), "utf-8")
    with pytest.raises(InputError, match=r"no overlay of prices(.|\n)*source s1 has no day") as caught:
        load_provider("aws")
    assert "move it to another folder" in caught.value.fix


def test_chips_are_overlaid_too(folder: Path) -> None:
    write(folder, Overlay(tpus=(chip(0.9),)), "gcp")
    price = next(price for price in load_tpus().get_prices("v5p") if price.region == "us-central1")
    assert (price.spot.value, price.on_demand.value) == (0.9, 4.2)
    bundled = next(price for price in load_bundled_tpus().get_prices("v5p") if price.region == "us-central1")
    assert bundled.spot.value == 0.78049


def test_an_old_overlay_does_not_hide_a_newer_catalogue() -> None:
    base = (row(on_demand=55.0, day=date(2027, 1, 1)),)
    (kept,) = lay_over(base, (row(on_demand=40.0, spot_low=11.0, spot_high=12.0),), "machine_type")
    assert (kept.on_demand.value, kept.spot_high.value) == (55.0, 12.0), "what it does not know, it takes"
    recalled = base[0].model_copy(update={"on_demand": fact(55.0, date(2027, 1, 1), "recalled")})
    (laid,) = lay_over((recalled,), (row(on_demand=40.0),), "machine_type")
    assert laid.on_demand.value == 40.0, "a list beats a recollection"


def test_both_ends_of_a_span_are_one_lists() -> None:
    older, newer = fact(3.0, date(2026, 9, 6)), fact(5.0, date(2026, 12, 1))
    base = row(on_demand=27.0).model_copy(update={"spot_low": newer, "spot_high": older})
    (laid,) = lay_over((base,), (row(spot_low=6.0, spot_high=7.0),), "machine_type")
    assert (laid.spot_low.value, laid.spot_high.value) == (6.0, 7.0)


prices = st.dictionaries(st.sampled_from(PRICE_FIELDS), st.floats(0.001, 999))
rows = st.builds(
    lambda machine, region, values: row(machine, region, **values),
    st.sampled_from(["p5.48xlarge", "g5.xlarge"]),
    st.sampled_from(["us-east-1", "us-east-2"]),
    prices,
)


@given(st.lists(rows, max_size=6), st.lists(rows, max_size=6))
def test_nothing_known_is_lost_and_nothing_is_made_up(base: list[MachinePrice], over: list[MachinePrice]) -> None:
    def values(table: list[MachinePrice]) -> dict[tuple[str, str, str], set[float | None]]:
        found: dict[tuple[str, str, str], set[float | None]] = {}
        for line in table:
            for field in PRICE_FIELDS:
                found.setdefault((line.machine_type, line.region, field), set()).add(getattr(line, field).value)
        return found

    before, newer, laid = values(base), values(over), values(list(lay_over(base, over, "machine_type")))
    for key, found in laid.items():
        assert found <= before.get(key, set()) | newer.get(key, set())
    assert set(laid) == set(before) | set(newer)
    for key, found in before.items():
        if found != {None} and key[2] != "spot_typical":
            assert laid[key] != {None}


@given(st.lists(rows, max_size=4, unique_by=lambda line: (line.machine_type, line.region)), st.floats(0.01, 99))
def test_an_overlay_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, table: list[MachinePrice], spot: float
) -> None:
    folder = tmp_path_factory.mktemp("overlays")
    known = tuple(line for line in table if any(getattr(line, field).value for field in PRICE_FIELDS))
    once = read_overlay(write(folder, Overlay(machines=tuple(table), tpus=(chip(spot),))))
    for was, now in zip(known, once.machines, strict=True):
        assert [getattr(was, f).value for f in PRICE_FIELDS] == [getattr(now, f).value for f in PRICE_FIELDS]
    assert once.tpus[0].spot.value == spot
    assert read_overlay(write(folder, once)) == once, "marks do not pile up"


SOURCES = "provider: aws\nsources: {s1: {title: t, as_of: 2026-11-22, confidence: list-price}}\ntpus: []\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "provider: aws",
        f"{SOURCES}machines: [{{machine_type: p5.48xlarge}}]",
        f"{SOURCES}machines: [{{source: s1, machine_type: a, region: b, on_demand: much}}]",
        f"{SOURCES}machines: [{{source: s1, machine_type: p5.48xlarge, region: us-east-1, on_demand: 0.0}}]",
        f"{SOURCES}machines: [{{source: s1, machine_type: p5.48xlarge, region: us-east-1, spot_high: -3}}]",
        f"{SOURCES}machines: [{{source: s1, machine_type: p5.48xlarge, region: us-east-1, block: .inf}}]",
    ],
)
def test_a_broken_overlay_is_named_and_not_skipped(folder: Path, text: str) -> None:
    path = folder / "aws-2026-11-22.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match="no overlay of prices") as caught:
        load_provider("aws")
    assert caught.value.place == str(path)
    assert "GANGWAY_PRICES=none" in caught.value.fix


def test_a_file_that_somebody_names_is_not_to_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "notes.yaml"
    path.write_text("mine", "utf-8")
    with pytest.raises(InputError, match="no overlay of prices") as caught:
        read_overlay(path)
    assert caught.value.fix == "name another"


FIELDS = ("on_demand", "spot_low", "spot_typical", "spot_high", "reserved_1y", "reserved_3y", "block")

# Read off the lists by hand. SkyPilot: catalogs/v9/aws/vms.csv of commit 2c3d7ea7, p5.48xlarge. Karpenter:
# zz_generated.pricing.go of 2026-06-18, Standard_ND96isr_H100_v5. Cyclenerd: pricing.yml of 2026-07-30, a3-highgpu-8g.
BY_HAND: list[tuple[Provider, str, str, float]] = [
    ("aws", "p5.48xlarge", "us-east-1", 55.04),
    ("aws", "p5.48xlarge", "us-east-2", 55.04),
    ("aws", "p5.48xlarge", "us-west-1", 68.8),
    ("aws", "p5.48xlarge", "us-west-2", 55.04),
    ("aws", "p5.48xlarge", "ap-northeast-1", 68.8),
    ("aws", "p5.48xlarge", "ap-south-1", 66.048),
    ("aws", "p5.48xlarge", "eu-north-1", 58.8928),
    ("aws", "p5.48xlarge", "eu-west-2", 71.552),
    ("aws", "p5.48xlarge", "ca-central-1", 63.296),
    ("azure", "Standard_ND96isr_H100_v5", "eastus", 98.32),
    ("azure", "Standard_ND96isr_H100_v5", "uksouth", 122.9),
    ("azure", "Standard_ND96isr_H100_v5", "japaneast", 142.564),
    ("gcp", "a3-highgpu-8g", "us-central1", 88.49),
    ("gcp", "a3-highgpu-8g", "us-east4", 88.555756),
]


def price_fact(value: float | None) -> Fact[float | None]:
    return Fact[float | None](value=value, source="a list", as_of=date(2026, 11, 1), confidence="list-price")


def price_row(region: str, **prices: float) -> MachinePrice:
    facts = {name: price_fact(prices.get(name)) for name in FIELDS}
    return MachinePrice(provider="aws", machine_type="m", region=region, **facts)


@pytest.mark.parametrize(("provider", "machine", "region", "usd"), BY_HAND)
def test_every_region_has_the_price_of_the_list(provider: Provider, machine: str, region: str, usd: float) -> None:
    found = load_provider(provider).price(machine, region, "on-demand")
    assert found is not None
    assert (found.usd, found.priced_in, found.is_bounded) == (usd, region, True)


def test_spot_is_what_its_zones_asked() -> None:
    """p5.48xlarge in Ohio: 13.4628, 14.0818 and 15.4417 in the newer copy, from 11.2276 on in the older one."""
    found = load_provider("aws").price("p5.48xlarge", "us-east-2", "spot")
    assert found is not None
    assert (found.low, found.usd, found.high) == (11.2276, 14.0818, 15.4417)


def test_the_regions_own_limit_is_nearer_than_another_regions_price() -> None:
    rows = [price_row("home", on_demand=10, spot_low=2, spot_typical=3, spot_high=4), price_row("here", on_demand=12)]
    found = resolve_price(rows, "here", "spot")
    assert found is not None
    assert (found.usd, found.high, found.foreign_region) == (12, 12, "")
    assert found.limit
    assert found.is_bounded


def test_another_regions_price_stands_in_and_bounds_nothing() -> None:
    rows = [price_row("home", on_demand=10, spot_low=2, spot_typical=3, spot_high=4)]
    for kind, usd in (("spot", 3), ("on-demand", 10), ("flex-start", 10)):
        found = resolve_price(rows, "there", kind)  # type: ignore[arg-type]  # the literals above
        assert found is not None
        assert (found.usd, found.foreign_region, found.is_bounded) == (usd, "home", False)
    assert resolve_price(rows, "there", "capacity-block") is None


@given(
    st.lists(
        st.builds(
            lambda region, prices: price_row(region, **prices),
            st.sampled_from(["a", "b", "c"]),
            st.dictionaries(st.sampled_from(FIELDS), st.floats(0.1, 99)),
        ),
        unique_by=lambda each: each.region,
    ),
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(KINDS),
)
def test_a_price_is_never_made_up(rows: list[MachinePrice], region: str, kind: Kind) -> None:
    found = resolve_price(rows, region, kind)
    stated = {getattr(each, name).value for each in rows for name in FIELDS}
    if found is not None:
        assert found.usd in stated
        assert found.is_bounded == (found.priced_in == region)
        own = [each for each in rows if each.region == found.priced_in]
        assert found.usd in {getattr(own[0], name).value for name in FIELDS}


@pytest.mark.parametrize("provider", ["aws", "azure", "gcp"])
def test_what_is_made_without_checks_would_pass_them(provider: Provider) -> None:
    catalog = load_provider(provider)
    for price in (*catalog.prices, *catalog.services):
        assert type(price).model_validate(price.model_dump()) == price
    for price in catalog.prices:
        low, typical, high = price.spot_low.value, price.spot_typical.value, price.spot_high.value
        assert typical is None or (low or 0) <= typical <= (high or 0), price
