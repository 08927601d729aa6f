"""Prices between regions, by the pair: AWS's list of 2023, Google's and Azure's continents, and pairs nobody knows."""

import pytest

from gangway.components.catalog.loader import PROVIDERS, Provider, load_provider
from gangway.components.catalog.transfer import load_transfer, transfer_price


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
def test_pairs_by_hand(provider: str, source: str, destination: str, usd: float) -> None:
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
def test_a_pair_without_a_row_is_unknown(provider: str, source: str, destination: str) -> None:
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
