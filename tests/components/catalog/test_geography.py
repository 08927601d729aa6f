"""Regions: measurements and prices of pairs that there are, grids by zone, and a country for each region."""

import re
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from gangway.components.catalog.geography import (
    load_grids,
    load_jurisdictions,
    load_routes,
    load_transfer,
    transfer_price,
)
from gangway.components.catalog.loader import PROVIDERS, Provider, load_provider, load_tpus
from gangway.components.catalog.schema import EVERYWHERE, Region
from gangway.components.estimate.energy import estimate_carbon, estimate_energy


def test_every_pair_is_of_two_known_regions_and_stands_once() -> None:
    table = load_routes()
    known = {
        f"{provider}:{name}" for provider in ("aws", "azure", "gcp") for name in load_jurisdictions().regions(provider)
    }
    tables = (table.pairs, table.round_trips)
    pairs = [(first, second) for each in tables for first, others in each.items() for second in others]
    assert len(pairs) == len(set(pairs)) > 1000
    assert all(first < second for first, second in pairs)
    assert {name for pair in pairs for name in pair} <= known
    figures = [figure for others in table.pairs.values() for figure in others.values()]
    assert all(0 < rtt_ms < 500 and 0 < mbps < 10_000 for rtt_ms, mbps in figures)
    assert all(0 < rtt_ms < 500 for others in table.round_trips.values() for rtt_ms in others.values())


def test_the_regions_of_azure_that_microsoft_measures_have_their_round_trips() -> None:
    measured = {name for pair in load_routes().round_trips.items() for name in (pair[0], *pair[1])}
    regions = [name for name in load_provider("azure").regions if f"azure:{name}" in measured]
    assert len(regions) >= 25
    for one, other in combinations(regions, 2):
        route = load_routes().route(f"azure:{one}", f"azure:{other}")
        assert route is not None, (one, other)
        assert route.stream_mbps is None
        assert (route.rtt_ms.confidence, route.rtt_ms.as_of_text) == ("documented", "2026-07-30")


@pytest.mark.parametrize(
    ("one", "other", "rtt_ms"), [("eastus", "eastus2", 9), ("westeurope", "eastus", 85), ("japaneast", "eastus", 162)]
)
def test_the_slower_direction_counts(one: str, other: str, rtt_ms: float) -> None:
    route = load_routes().route(f"azure:{one}", f"azure:{other}")
    assert route is not None
    assert route.rtt_ms.value == rtt_ms


@pytest.mark.parametrize(
    ("one", "other", "rtt_ms"),
    [("aws:eu-central-1", "aws:eu-west-1", 23.5), ("aws:us-east-1", "gcp:us-east4", 2.0)],
)
def test_routes_by_hand(one: str, other: str, rtt_ms: float) -> None:
    route = load_routes().route(one, other)
    assert route is not None
    assert route.rtt_ms.value == pytest.approx(rtt_ms, abs=2)
    assert route == load_routes().route(other, one)
    assert (route.rtt_ms.confidence, route.rtt_ms.as_of_text) == ("secondary", "2022-02-14")


@pytest.mark.parametrize(
    ("one", "other"), [("aws:eu-west-1", "azure:westeurope"), ("toy:a", "toy:b"), ("aws:eu-west-1", "aws:eu-west-1")]
)
def test_a_pair_that_nobody_measured_is_unknown(one: str, other: str) -> None:
    assert load_routes().route(one, other) is None


REGIONS = [region for provider in PROVIDERS for region in load_provider(provider).regions.values()]


def named(provider: str, name: str) -> Region:
    return next(one for one in REGIONS if (one.provider, one.name) == (provider, name))


def test_every_region_of_a_zone_has_the_zones_one_value_and_year() -> None:
    table, zones = load_grids(), defaultdict(set)
    for region in (region for region in REGIONS if region.grid):
        zones[region.grid].add((region.intensity_g_per_kwh.value, region.intensity_g_per_kwh.as_of_text))
    assert {zone: len(values) for zone, values in zones.items()} == dict.fromkeys(zones, 1)
    for zone, values in zones.items():
        ((value, as_of),) = values
        assert (value, as_of[:4]) == (table.grids[zone].average.value, str(table.year)), zone
    assert zones.keys() == table.grids.keys(), "a zone without a region is dead weight"


def test_a_grid_that_nobody_publishes_is_unknown_and_no_zero() -> None:
    unknown = [region for region in REGIONS if not region.grid]
    assert {region.name for region in unknown} >= {"ap-southeast-5", "norwayeast"}
    for region in unknown:
        assert region.intensity_g_per_kwh.value is None, region.name
        energy = estimate_energy(load_provider("aws").machine("p5.48xlarge"), 1, 1, region)
        assert energy.kwh is not None
        assert estimate_carbon(energy, region).gco2e is None


@pytest.mark.parametrize(
    ("places", "zone", "average"),
    [
        ((("aws", "us-east-1"), ("azure", "eastus"), ("gcp", "us-east4"), ("gcp", "us-east5")), "US-MIDA-PJM", 396.25),
        ((("azure", "centralus"), ("gcp", "us-central1")), "US-MIDW-MISO", 501.42),
        ((("azure", "westeurope"), ("gcp", "europe-west4")), "NL", 283.17),
        ((("aws", "us-west-2"), ("azure", "westus2"), ("gcp", "us-west1")), "US-NW-BPAT", 119.76),
        ((("gcp", "southamerica-west1"),), "CL-SEN", 272.26),
    ],
)
def test_zones_are_those_of_the_green_software_foundations_table(
    places: tuple[tuple[str, str], ...], zone: str, average: float
) -> None:
    """Rows of 2023 of Cloud_Region_Metadata.csv."""
    for provider, name in places:
        region = named(provider, name)
        assert (region.grid, region.intensity_g_per_kwh.value) == (zone, average), name
        assert region.intensity_g_per_kwh.as_of_text == "2023-12-31"


def test_the_three_intensities_are_three_facts() -> None:
    region = named("aws", "us-east-1")
    facts = (region.intensity_g_per_kwh, region.marginal_g_per_kwh, region.market_g_per_kwh)
    assert [fact.value for fact in facts] == [396.25, 557.17, 0.0]
    assert named("azure", "eastus").market_g_per_kwh.value is None, "Microsoft publishes none there: not 0"
    energy = estimate_energy(load_provider("aws").machine("p5.48xlarge"), 1, 1, region)
    carbon = estimate_carbon(energy, region)
    assert energy.kwh is not None
    assert carbon.gco2e == pytest.approx(energy.kwh * 396.25), "the average alone is counted"
    assert (carbon.grid, carbon.marginal_g_per_kwh, carbon.market_g_per_kwh) == ("US-MIDA-PJM", 557.17, 0.0)


@pytest.mark.parametrize(("provider", "name"), [("gcp", "us-central2"), ("azure", "westus3")])
def test_a_grid_that_stands_in_for_another_says_so(provider: str, name: str) -> None:
    region = named(provider, name)
    assert region.intensity_g_per_kwh.confidence == "assumed"
    assert "taken" in region.intensity_g_per_kwh.source
    assert region.marginal_g_per_kwh.value is None


def get_regions(provider: Provider) -> set[str]:
    """Everything that any table of the catalogue calls a region."""
    catalog = load_provider(provider)
    found = {*catalog.regions, *(row.region for row in catalog.prices), *(row.region for row in catalog.services)}
    found.update(
        region for machine in catalog.machines.values() if machine.offered for region in machine.offered.regions
    )
    found.update(row.region for row in load_tpus().prices if provider == "gcp")
    return (found | set(load_transfer(provider).areas)) - {EVERYWHERE}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_region_of_the_catalogue_is_in_a_country(provider: Provider) -> None:
    assert get_regions(provider) - load_jurisdictions().regions(provider).keys() == set()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_regions_grid_is_in_its_country(provider: Provider) -> None:
    known = load_jurisdictions().regions(provider)
    regions = load_provider(provider).regions.items()
    grids = {name: region.grid.partition("-")[0] for name, region in regions if region.grid}
    assert {name: known[name].value for name in grids} == grids


@pytest.mark.parametrize(
    ("provider", "region", "country", "in_eu"),
    [
        ("aws", "eu-west-2", "GB", False),
        ("aws", "eu-central-2", "CH", False),
        ("aws", "eu-south-1", "IT", True),
        ("aws", "us-gov-west-1", "US", False),
        ("gcp", "europe-west6", "CH", False),
        ("gcp", "europe-west12", "IT", True),
        ("azure", "northeurope", "IE", True),
        ("azure", "norwayeast", "NO", False),
        ("azure", "eastasia", "HK", False),
    ],
)
def test_europe_is_not_the_eu(provider: str, region: str, country: str, in_eu: bool) -> None:
    table = load_jurisdictions()
    fact = table.regions(provider)[region]
    assert (fact.value, fact.value in table.members("EU")) == (country, in_eu)
    assert fact.source


def test_groups() -> None:
    table = load_jurisdictions()
    assert len(table.members("EU")) == 27
    assert table.members("EEA") - table.members("EU") == {"IS", "LI", "NO"}
    assert table.members("EU") <= table.members("EEA")
    assert table.members("DE") == {"DE"}
    assert all(re.fullmatch("[A-Z]{2}", word) for word in table.words if word not in table.groups)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_region_is_in_two_countries(repo: Path, provider: str) -> None:
    rows = yaml.safe_load((repo / "components/catalog/jurisdictions.yaml").read_text("utf-8"))["countries"]
    named = [region for row in rows[provider] for region in row["regions"]]
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    ("provider", "source", "destination", "usd"),
    [
        ("aws", "us-east-1", "us-east-2", 0.01),
        ("aws", "us-east-2", "us-east-1", 0.01),
        ("aws", "us-east-1", "us-west-2", 0.02),
        ("aws", "sa-east-1", "us-east-2", 0.138),
        ("aws", "us-east-2", "sa-east-1", 0.02),
        ("aws", "ap-south-1", "eu-west-1", 0.086),
        ("aws", "ap-south-2", "us-west-1", 0.086),
        ("gcp", "us-east4", "us-central1", 0.02),
        ("gcp", "europe-north1", "asia-southeast1", 0.08),
        ("gcp", "europe-west4", "us-central1", 0.05),
        ("azure", "eastus", "westus3", 0.02),
        ("azure", "westeurope", "eastus", 0.05),
        ("azure", "brazilsouth", "eastus", 0.16),
        ("azure", "japaneast", "koreacentral", 0.08),
    ],
)
def test_prices_by_hand(provider: str, source: str, destination: str, usd: float) -> None:
    fact = transfer_price(provider, source, destination)
    assert fact.value == usd
    assert fact.source


@pytest.mark.parametrize(
    ("provider", "source", "destination"),
    [
        ("aws", "ap-south-2", "us-east-1"),
        ("aws", "ap-southeast-3", "sa-east-1"),
        ("aws", "us-east-1", "mx-central-1"),
        ("gcp", "us", "us-central1"),
        ("gcp", "australia-southeast1", "us-central1"),
        ("azure", "southafricanorth", "eastus"),
        ("toy", "here", "there"),
    ],
)
def test_a_pair_without_a_price_is_unknown(provider: str, source: str, destination: str) -> None:
    fact = transfer_price(provider, source, destination)
    assert (fact.value, fact.url) == (None, "")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_pair_of_the_catalogues_regions_in_an_area_is_known(provider: Provider) -> None:
    areas = load_transfer(provider).areas
    regions = [name for name in load_provider(provider).regions if areas.get(name)]
    assert len(regions) > 15
    pairs = [(one, other) for one in regions for other in regions if one != other]
    unknown = {("ap-southeast-3", "ap-northeast-3"), ("ap-southeast-3", "sa-east-1")}
    assert {pair for pair in pairs if transfer_price(provider, *pair).value is None} <= unknown


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_name_of_a_row_is_a_region_or_an_area(provider: str) -> None:
    """A misspelt name would fit nothing, and nobody would hear of it."""
    table = load_transfer(provider)
    areas = {area for found in table.areas.values() for area in found}
    newest = {"ap-south-2", "ap-southeast-5", "ca-west-1", "il-central-1", "us-gov-west-1"}
    names = {name for row in table.pairs for name in (*row.sources, *row.destinations)}
    assert names <= areas | set(table.areas) | newest
