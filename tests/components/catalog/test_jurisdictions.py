"""Countries of regions: each of the catalogue's has one, and the grids of the same regions agree."""

import re
from pathlib import Path

import pytest
import yaml

from gangway.components.catalog.jurisdictions import load_jurisdictions
from gangway.components.catalog.loader import PROVIDERS, Provider, load_provider, load_tpus
from gangway.components.catalog.schema import EVERYWHERE
from gangway.components.catalog.transfer import load_transfer


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
