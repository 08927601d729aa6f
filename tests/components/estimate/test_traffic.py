"""Prices of a GiB between places, by hand."""

import pytest

from gangway.components.catalog.transfer import transfer_price
from gangway.components.estimate.regions import read_place
from gangway.components.estimate.traffic import traffic_price


@pytest.mark.parametrize(
    ("source", "target", "usd"),
    [
        ("aws:us-east-1", "aws:us-east-1", 0.0),
        ("aws:us-east-1", "aws:us-east-2", 0.01),
        ("aws:us-east-1", "aws:us-west-2", 0.02),
        ("aws:ap-south-1", "aws:eu-west-1", 0.086),
        ("gcp:europe-west4", "gcp:us-central1", 0.05),
        ("aws:us-east-1", "gcp:us-east4", 0.09),
        ("gcp:us-central1", "hosts:lab/DE", 0.12),
        ("azure:eastus", "aws:us-east-1", 0.087),
        ("aws:ap-south-2", "aws:us-east-1", None),
        ("hosts:lab/DE", "aws:eu-central-1", None),
        ("hosts:lab/DE", "hosts:lab/DE", 0.0),
        ("hosts:lab/DE", "hosts:attic/DE", None),
        ("openstack:one", "hosts:one", None),
    ],
)
def test_by_hand(source: str, target: str, usd: float | None) -> None:
    fact = traffic_price(read_place(source, "--on"), read_place(target, "--to"))
    assert fact.value == usd
    assert fact.source


def test_within_a_provider_it_is_the_pairs() -> None:
    found = traffic_price(read_place("aws:sa-east-1", "--on"), read_place("aws:us-east-2", "--to"))
    assert found == transfer_price("aws", "sa-east-1", "us-east-2")


def test_another_regions_price_of_the_internet_is_assumed_and_said() -> None:
    own = traffic_price(read_place("aws:us-east-1", "--on"), read_place("gcp:us-east4", "--to"))
    other = traffic_price(read_place("aws:il-central-1", "--on"), read_place("gcp:us-east4", "--to"))
    assert (own.confidence, other.confidence) == ("list-price", "assumed")
    assert own.value == other.value
    assert "price of us-east-1" in other.source
