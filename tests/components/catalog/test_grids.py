"""One intensity a grid zone, whoever's region is on it; average, marginal and market-based apart."""

from collections import defaultdict

import pytest

from gangway.components.catalog.grids import load_grids
from gangway.components.catalog.loader import PROVIDERS, load_provider
from gangway.components.catalog.schema import Region
from gangway.components.estimate.energy import estimate_carbon, estimate_energy

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
