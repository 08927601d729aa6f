"""What one accelerator costs everywhere: which offers there are, and that no price is made up or travels."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date

import pytest

from gangway.components.catalog.loader import PROVIDERS, Catalog, Provider, load_provider
from gangway.components.catalog.prices import KINDS
from gangway.components.catalog.schema import Fact, MachinePrice, Offered
from gangway.components.core.findings import InputError
from gangway.components.estimate.offers import Carrier, Offer, find_offers, get_carriers, unknown_accelerator

Prices = dict[str, float | None]


@pytest.fixture(scope="module")
def catalogs() -> dict[str, Catalog]:
    return {provider: load_provider(provider) for provider in PROVIDERS}


def fact(value: float | None) -> Fact[float | None]:
    return Fact[float | None](value=value, source="a test", as_of=date(2026, 11, 1), confidence="list-price")


def carrier(catalog: Catalog, machine_type: str, region: str, **prices: float) -> Carrier:
    """A machine with a price row of its own in one region, and sold nowhere else."""
    fields = ("on_demand", "spot_low", "spot_typical", "spot_high", "reserved_1y", "reserved_3y", "block")
    machine = catalog.machines[machine_type].model_copy(update={"offered": None})
    row = MachinePrice(
        provider=machine.provider,
        machine_type=machine_type,
        region=region,
        **{name: fact(prices.get(name)) for name in fields},
    )
    return Carrier(machine, [row], catalog.regions, catalog.interruptions)


def by_kind(offers: list[Offer]) -> dict[str, float | None]:
    return {offer.kind: offer.price.value for offer in offers}


def test_every_kind_has_its_own_price(catalogs: dict[str, Catalog]) -> None:
    offers = find_offers(
        [
            carrier(
                catalogs["aws"],
                "p5.48xlarge",
                "us-east-1",
                on_demand=55,
                spot_low=17,
                spot_typical=19,
                spot_high=23,
                reserved_1y=40,
                reserved_3y=30,
                block=35,
            )
        ]
    )
    assert by_kind(offers) == {
        "on-demand": 55,
        "spot": 19,
        "reserved-1y": 40,
        "reserved-3y": 30,
        "capacity-block": 35,
    }
    spot = next(offer for offer in offers if offer.kind == "spot")
    assert "17 to 23" in spot.note
    assert spot.quote is not None
    assert (spot.quote.low, spot.quote.high) == (17, 23)
    assert spot.interruptions is not None
    assert (spot.interruptions.value, spot.on_demand) == (0.4, 55)
    assert all(offer.interruptions is None for offer in offers if offer.kind != "spot")


def test_a_price_nobody_knows_stays_unknown_and_spot_has_its_limit(catalogs: dict[str, Catalog]) -> None:
    offers = find_offers([carrier(catalogs["aws"], "p5.48xlarge", "us-east-1", on_demand=55)])
    assert by_kind(offers)["capacity-block"] is None
    assert by_kind(offers)["spot"] == 55, "as a plan counts it: no more is paid than on demand"
    assert "as a limit" in next(offer.note for offer in offers if offer.kind == "spot")


def test_google_sells_what_a_machine_type_says(catalogs: dict[str, Catalog]) -> None:
    """A3 with one GPU cannot be had on demand, though it has a list price; commitments are on what can."""
    offers = find_offers(get_carriers("H100x1", {"gcp": catalogs["gcp"]}))
    assert {offer.kind for offer in offers} == {"spot", "flex-start"}
    flexible = next(offer for offer in offers if offer.kind == "flex-start" and offer.price.value)
    assert flexible.price.value == flexible.on_demand
    assert "at most" in flexible.note


def test_only_aws_has_blocks_and_only_google_flex_start(catalogs: dict[str, Catalog]) -> None:
    offers = find_offers(get_carriers("H100x8", catalogs))
    assert {offer.provider for offer in offers} == set(PROVIDERS)
    assert {offer.provider for offer in offers if offer.kind == "capacity-block"} == {"aws"}
    assert {offer.provider for offer in offers if offer.kind == "flex-start"} == {"gcp"}
    assert {offer.kind for offer in offers} == set(KINDS)


def test_in_regions_without_a_price_another_stands_in_and_says_so(catalogs: dict[str, Catalog]) -> None:
    """As in a plan."""
    offers = find_offers(get_carriers("H100x8", catalogs))
    rows = [price for catalog in catalogs.values() for price in catalog.prices]
    priced = {(p.machine_type, p.region) for p in rows if p.on_demand.value is not None}
    foreign = [offer for offer in offers if offer.kind == "on-demand" and offer.quote and offer.quote.foreign_region]
    assert {offer.region for offer in foreign} >= {"sa-east-1"}
    for offer in offers:
        if offer.kind == "on-demand":
            assert (offer in foreign) == ((offer.machine.name, offer.region) not in priced), offer.label
    assert all("price of" in offer.note and offer.on_demand is None for offer in foreign)


def test_a_list_names_the_regions_that_have_a_machine(catalogs: dict[str, Catalog]) -> None:
    """Of those that the catalogue has: no grid and no building is known of any other."""
    machine = catalogs["azure"].machines["Standard_ND96isr_H100_v5"]
    zones = Fact[Mapping[str, tuple[str, ...]] | None](
        value={"spaincentral": ("1",), "mars": ()}, source="a test", as_of=date(2026, 11, 1), confidence="assumed"
    )
    placed = machine.model_copy(update={"offered": Offered(zones=zones, complete="none")})
    catalog = catalogs["azure"].model_copy(update={"machines": {machine.name: placed}, "prices": ()})
    offers = find_offers(get_carriers("H100x8", {"azure": catalog}))
    assert [(offer.region, offer.price.value) for offer in offers] == [("spaincentral", None)] * 4


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_price_is_of_a_region_that_sells_the_machine(catalogs: dict[str, Catalog], provider: Provider) -> None:
    for price in catalogs[provider].prices:
        offered = catalogs[provider].machines[price.machine_type].offered
        assert offered is not None, price.machine_type
        assert price.on_demand.value is None or not offered.excludes(price.region), (price.machine_type, price.region)


def test_nothing_is_offered_where_a_complete_list_lacks_it(catalogs: dict[str, Catalog]) -> None:
    """A price there would make an offer that nobody can take."""
    priced = carrier(catalogs["aws"], "trn2u.48xlarge", "us-east-1", on_demand=55)
    assert {offer.region for offer in find_offers([priced])} == {"us-east-1"}, "without a list"
    listed = replace(priced, machine=catalogs["aws"].machines["trn2u.48xlarge"])
    assert "us-east-1" not in {offer.region for offer in find_offers([listed])}


def test_each_offer_knows_its_grid_and_says_where_it_is(catalogs: dict[str, Catalog]) -> None:
    offers = find_offers(get_carriers("H100x8", {"aws": catalogs["aws"]}))
    assert all(offer.place is not None and offer.place.name == offer.region for offer in offers)
    assert offers[0].label == "aws us-east-1 p5.48xlarge on-demand"


def test_an_unknown_accelerator_names_the_nearest(catalogs: dict[str, Catalog]) -> None:
    assert get_carriers("H100x9", catalogs) == []
    mistake = unknown_accelerator("H100x9", catalogs, "--accelerator", "; and more")
    assert isinstance(mistake, InputError)
    assert str(mistake).startswith("--accelerator: no such accelerator on aws, gcp, azure")
    assert "did you mean 'H100x8'?" in str(mistake)
    assert mistake.allowed.endswith("; and more")
