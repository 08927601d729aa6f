"""The way of a job's data: its price, and how long one stream takes."""

import pytest

from gangway.components.catalog.geography import load_routes, transfer_price
from gangway.components.estimate.data_transfer import DataAt, carried, traffic_price
from gangway.components.estimate.regions import Place, read_place

US, EU = read_place("aws:us-east-1", ""), read_place("aws:eu-central-1", "")


def test_price_and_time_by_what_is_published_and_measured() -> None:
    data = DataAt(US, 40)
    found, route = carried(data, EU), load_routes().route(US.name, EU.name)
    price = traffic_price(US, EU).value
    assert route is not None
    assert route.stream_mbps is not None
    assert price is not None
    assert found.usd == pytest.approx(40 * price)
    assert found.stream_hours == pytest.approx(40 * 2**30 * 8 / (route.stream_mbps.value * 1e6) / 3600)
    words = found.in_words(data)
    assert words.startswith(f"40 GiB from aws:us-east-1 at {price:g} USD, ")
    assert f"{route.rtt_ms.value:g} ms" in words


def test_within_a_region_there_is_no_way() -> None:
    found = carried(DataAt(US, 40), US)
    assert (found.usd, found.stream_hours, found.route) == (0.0, None, None)


def test_what_nobody_knows_is_none() -> None:
    found = carried(DataAt(Place("hosts", "lab", "DE"), 40), US)
    assert (found.usd, found.stream_hours) == (None, None)
    assert "nobody has priced" in found.in_words(DataAt(Place("hosts", "lab", "DE"), 40))
    apart = DataAt(read_place("azure:eastus", ""), 40)
    known = carried(apart, read_place("azure:westeurope", ""))
    assert known.stream_hours is None
    assert known.in_words(apart).endswith(", 85 ms there and back (2026-07-30)")
    azure = carried(DataAt(US, 40), read_place("azure:westeurope", ""))
    assert azure.usd is not None
    assert azure.stream_hours is None


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
