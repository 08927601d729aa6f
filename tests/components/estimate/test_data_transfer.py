"""The way of a job's data: its price, and how long one stream takes."""

import pytest

from gangway.components.catalog.routes import load_routes
from gangway.components.estimate.data_transfer import DataAt, carried
from gangway.components.estimate.regions import Place, read_place
from gangway.components.estimate.traffic import traffic_price

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
