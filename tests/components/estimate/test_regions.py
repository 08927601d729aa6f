"""Limits on regions: what holds for any limits and any place, and the mistakes of who writes them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.geography import load_jurisdictions, load_routes, transfer_price
from gangway.components.catalog.loader import PROVIDERS
from gangway.components.core.findings import InputError
from gangway.components.estimate.regions import (
    SITES,
    DataAt,
    Place,
    RegionLimits,
    Why,
    carried,
    check_jurisdiction,
    check_name,
    read_place,
    refusal,
    traffic_price,
)

TABLE = load_jurisdictions()
KNOWN = [Place(provider, region) for provider in PROVIDERS for region in TABLE.regions(provider)]
NAMES = [
    *(place.name for place in KNOWN),
    *("aws:eu-", "aws:us-", "aws:", "gcp:europe-", "gcp:*", "azure:west*", "azure:uk*", "hosts:lab", "openstack:"),
]
places = st.one_of(
    st.sampled_from(KNOWN),
    st.builds(Place, st.sampled_from(SITES), st.sampled_from(["lab", "attic"]), st.sampled_from(["", "DE", "US"])),
    st.just(Place("aws", "xx-new-1")),
)
names = st.lists(st.sampled_from(NAMES), max_size=4).map(tuple)
jurisdictions = st.lists(st.sampled_from(TABLE.words), max_size=3).map(tuple)
limits = st.builds(RegionLimits, names, names, jurisdictions)


def permits(asked: RegionLimits, place: Place | None) -> bool:
    return refusal(asked, place) is None


@given(places)
def test_no_limits_permit_all(place: Place) -> None:
    assert permits(RegionLimits(), place)
    assert permits(RegionLimits(), None)


@given(limits)
def test_a_place_that_nobody_knows_is_refused_by_any_limit(asked: RegionLimits) -> None:
    found = refusal(asked, None)
    assert (found is not None) == bool(asked.allow or asked.deny or asked.residency)
    assert found is None or found.why is Why.UNKNOWN


@given(limits, places)
def test_whoever_denies_a_permitted_place_refuses_it(asked: RegionLimits, place: Place) -> None:
    found = refusal(replace(asked, deny=(*asked.deny, place.name)), place)
    assert found is not None
    assert found.why is Why.DENIED


@given(limits, places, names)
def test_denying_more_permits_no_more(asked: RegionLimits, place: Place, more: tuple[str, ...]) -> None:
    if permits(replace(asked, deny=(*asked.deny, *more)), place):
        assert permits(asked, place)


@given(limits, places, names, jurisdictions)
def test_lists_that_grow_permit_no_less(
    asked: RegionLimits, place: Place, more: tuple[str, ...], further: tuple[str, ...]
) -> None:
    if permits(asked, place):
        assert not asked.allow or permits(replace(asked, allow=(*asked.allow, *more)), place)
        assert not asked.residency or permits(replace(asked, residency=(*asked.residency, *further)), place)


@given(limits, places)
def test_the_limits_are_those_of_each_alone(asked: RegionLimits, place: Place) -> None:
    alone = (RegionLimits(asked.allow), RegionLimits(deny=asked.deny), RegionLimits(residency=asked.residency))
    assert permits(asked, place) == all(permits(one, place) for one in alone)


@given(limits, st.permutations(range(4)), places)
def test_their_order_is_no_matter(asked: RegionLimits, order: list[int], place: Place) -> None:
    def turned(words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(words[at] for at in order if at < len(words))

    other = RegionLimits(turned(asked.allow), turned(asked.deny), turned(asked.residency))
    found, again = refusal(asked, place), refusal(other, place)
    assert (found and found.why) == (again and again.why)


@given(places, jurisdictions.filter(bool))
def test_residency_is_of_the_country_alone(place: Place, asked: tuple[str, ...]) -> None:
    inside = place.jurisdiction is not None and any(place.jurisdiction in TABLE.members(word) for word in asked)
    assert permits(RegionLimits(residency=asked), place) == inside


@pytest.mark.parametrize(
    ("entry", "region", "permitted"),
    [
        ("azure:westus", "azure:westus2", False),
        ("azure:westus*", "azure:westus2", True),
        ("gcp:europe-west1", "gcp:europe-west12", False),
        ("aws:eu-", "aws:eu-west-2", True),
        ("aws:", "gcp:us-central1", False),
        ("azure:westeurope", "azure:westeurope", True),
    ],
)
def test_a_whole_name_is_no_beginning(entry: str, region: str, permitted: bool) -> None:
    assert permits(RegionLimits((check_name(entry, "allow"),)), read_place(region, "--on")) is permitted


@pytest.mark.parametrize("name", NAMES)
def test_names_that_are_taken(name: str) -> None:
    assert check_name(name, "allow") == name


@pytest.mark.parametrize(
    ("entry", "fix"),
    [
        ("aws", "write aws: for all of aws"),
        ("aws:eu-wset-1", "did you mean 'aws:eu-west-1'?"),
        ("azure:west", "write azure:west* for all that begin so"),
        ("aws:xx-", ""),
        ("amazon:eu-", ""),
        ("AWS:eu-", ""),
        ("hosts", "write hosts: for all of hosts"),
        ("", ""),
    ],
)
def test_names_that_are_not(entry: str, fix: str) -> None:
    with pytest.raises(InputError) as refused:
        check_name(entry, "regions.deny")
    mistake = refused.value
    assert (mistake.place, bool(mistake.allowed), bool(mistake.fix)) == ("regions.deny", True, True)
    assert fix in mistake.fix


@pytest.mark.parametrize(("word", "fix"), [("UK", "write GB"), ("eu", "write EU"), ("usa", "write US"), ("XX", "")])
def test_jurisdictions_that_are_none(word: str, fix: str) -> None:
    with pytest.raises(InputError) as refused:
        check_jurisdiction(word, "regions.residency")
    assert fix in refused.value.fix
    assert {"EU", "DE"} <= set(refused.value.allowed.split(", "))


def test_places_as_they_are_written() -> None:
    assert read_place("aws:eu-central-1", "--on").jurisdiction == "DE"
    assert read_place("hosts:lab/FR", "--on").jurisdiction == "FR"
    assert read_place("hosts:lab", "--on").jurisdiction is None
    assert read_place("gcp:us-east4/US", "--on").jurisdiction == "US"


@pytest.mark.parametrize("text", ["", "lab", "aws:", "aws:eu-west-9", "aws:eu-west-1/DE", "moon:base", "hosts:lab/de"])
def test_places_that_are_none(text: str) -> None:
    with pytest.raises(InputError) as refused:
        read_place(text, "--on")
    assert refused.value.fix


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
