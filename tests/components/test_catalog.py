"""The data of the catalogue, apart from the code: every value has a source, and known defects are absent."""

from collections.abc import Iterator
from datetime import date
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from components.catalog import Catalog, Confidence, Fact, load
from components.findings import InputError

PLACEHOLDER_PRICES = (700.0, 0.0, 98.32)
"""What price sources are known to hold for want of a price: 700 and 0; and p5's price of before June 2025."""


def facts(node: Any, path: str = "catalog") -> Iterator[tuple[str, Fact[Any]]]:
    """Every fact below `node`, with its path."""
    if isinstance(node, Fact):
        yield path, node
    elif isinstance(node, BaseModel):
        for name in type(node).model_fields:
            yield from facts(getattr(node, name), f"{path}.{name}")
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from facts(value, f"{path}[{key}]")
    elif isinstance(node, (list, tuple)):
        for index, value in enumerate(node):
            yield from facts(value, f"{path}[{index}]")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load()


def test_every_value_says_where_it_comes_from(catalog: Catalog) -> None:
    found = dict(facts(catalog))
    assert len(found) > 90
    for path, fact in found.items():
        assert len(fact.source) > 5, path
        assert date(2023, 1, 1) <= fact.as_of <= date(2027, 1, 1), path
        assert fact.confidence in get_args(Confidence), path


def test_on_demand_is_never_below_spot(catalog: Catalog) -> None:
    for price in catalog.prices:
        low, high, full = price.spot_low.value, price.spot_high.value, price.on_demand.value
        assert (low is None) == (high is None), price.machine_type
        if low is not None and high is not None and full is not None:
            assert low <= high < full, price.machine_type


def test_known_defects_of_price_lists_are_absent(catalog: Catalog) -> None:
    for path, fact in facts(catalog.prices, "prices"):
        assert fact.value not in PLACEHOLDER_PRICES, path
        assert fact.value is None or 0 < fact.value < 500, path
    for path, fact in facts(catalog.services, "services"):
        assert fact.value is None or 0 < fact.value < 1, path


def test_every_price_belongs_to_a_machine_and_a_region(catalog: Catalog) -> None:
    pairs = [(price.machine_type, price.region) for price in catalog.prices]
    assert len(set(pairs)) == len(pairs)
    for machine, region in pairs:
        assert catalog.machines[machine].provider == catalog.regions[region].provider


def test_the_efa_counts_are_those_of_the_vendors_guide(catalog: Catalog) -> None:
    """MaximumEfaInterfaces, which is not MaximumNetworkCards on every type."""
    documented = {"p4d.24xlarge": 4, "p4de.24xlarge": 4, "p5.48xlarge": 32, "p5en.48xlarge": 16, "g5.xlarge": 0}
    assert {name: catalog.machine(name).efa_interfaces.value for name in documented} == documented


def test_machines_are_plausible(catalog: Catalog) -> None:
    for machine in catalog.machines.values():
        assert machine.accelerator.endswith(f"x{machine.gpus.value}"), machine.name
        assert machine.gpus.value in (1, 2, 4, 8, 16), machine.name
        assert 100 <= machine.gpu_watts.value <= 1500, machine.name
        assert machine.host_watts.value > 0, machine.name
        assert machine.efa_interfaces.value <= machine.network_cards.value, machine.name


def test_regions_are_plausible(catalog: Catalog) -> None:
    for region in catalog.regions.values():
        assert region.zones, region.name
        assert len(set(region.zones)) == len(region.zones), region.name
        assert 1 <= region.pue.value < 2, region.name
        assert 0 <= region.intensity_g_per_kwh.value < 1000, region.name


def test_facts_of_the_brief_are_taken_over_unchanged(catalog: Catalog) -> None:
    ohio = catalog.region("us-east-2", "aws")
    assert (ohio.intensity_g_per_kwh.value, ohio.pue.value) == (396, 1.13)
    price = catalog.price("p5.48xlarge", "us-east-1")
    assert price is not None
    assert (price.on_demand.value, price.spot_low.value, price.spot_high.value) == (55.04, 17.25, 22.98)
    tiers = catalog.services["aws"].lustre_persistent_2_usd_per_gib_month
    assert {tier: fact.value for tier, fact in tiers.items()} == {"125": 0.145, "250": 0.21, "500": 0.34, "1000": 0.6}
    assert {int(tier) for tier in tiers} == set(catalog.lustre["aws"].throughput_mbps_per_tib.value)


def test_a_region_without_prices_gets_another_regions_and_can_see_which(catalog: Catalog) -> None:
    price = catalog.price("p5.48xlarge", "eu-north-1")
    assert price is not None
    assert price.region == "us-east-1"
    assert catalog.price("p9.huge", "us-east-1") is None


def test_an_unknown_machine_names_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(InputError) as caught:
        catalog.machine("p5.48xlarg", "gangway:cluster.machine_type")
    assert caught.value.place == "gangway:cluster.machine_type"
    assert caught.value.fix == "did you mean 'p5.48xlarge'?"
    assert caught.value.value == "p5.48xlarg"
    assert "p4d.24xlarge, p4de.24xlarge, p5.48xlarge" in caught.value.allowed


def test_an_unknown_accelerator_names_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(InputError, match="no such accelerator on aws") as caught:
        catalog.machine_for("h100X8", "aws")
    assert caught.value.fix == "did you mean 'H100x8'?"
    assert catalog.machine_for("H100x8", "aws").name == "p5.48xlarge"


def test_an_accelerator_that_several_machines_carry_does_not_pick_one(catalog: Catalog) -> None:
    twin = catalog.machine("p5.48xlarge").model_copy(update={"name": "p5.twin"})
    larger = catalog.model_copy(update={"machines": {**catalog.machines, "p5.twin": twin}})
    with pytest.raises(InputError, match="several machine types carry this accelerator") as caught:
        larger.machine_for("H100x8", "aws", "gangway:cluster.accelerator")
    assert (caught.value.place, caught.value.value) == ("gangway:cluster.accelerator", "H100x8")
    assert caught.value.allowed == "p5.48xlarge, p5.twin"
    assert caught.value.fix == "write machine_type: p5.48xlarge in place of accelerator"


def test_an_unknown_region_names_the_nearest_of_the_same_provider(catalog: Catalog) -> None:
    with pytest.raises(InputError, match="no such aws region") as caught:
        catalog.region("us-east-22", "aws")
    assert caught.value.fix in ("did you mean 'us-east-2'?", "did you mean 'us-east-1'?")
    with pytest.raises(InputError, match="no such gcp region"):
        catalog.region("us-east-2", "gcp")


def test_the_catalogue_is_read_once_and_cannot_be_changed(catalog: Catalog) -> None:
    assert load() is catalog
    with pytest.raises(ValueError, match="frozen"):
        catalog.prices = ()  # type: ignore[misc]  # the point of the test
