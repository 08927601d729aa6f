"""One rule for a price: the region's own, its limit, another region's, marked; against rows read off the lists."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import Provider, load_provider
from gangway.components.catalog.resolve import KINDS, Kind, resolve_price
from gangway.components.catalog.schema import Fact, MachinePrice

FIELDS = ("on_demand", "spot_low", "spot_typical", "spot_high", "reserved_1y", "reserved_3y", "block")

# Read off the lists by hand. SkyPilot: catalogs/v9/aws/vms.csv of commit 2c3d7ea7, p5.48xlarge. Karpenter:
# zz_generated.pricing.go of 2026-06-18, Standard_ND96isr_H100_v5. Cyclenerd: pricing.yml of 2026-07-30, a3-highgpu-8g.
BY_HAND: list[tuple[Provider, str, str, float]] = [
    ("aws", "p5.48xlarge", "us-east-1", 55.04),
    ("aws", "p5.48xlarge", "us-east-2", 55.04),
    ("aws", "p5.48xlarge", "us-west-1", 68.8),
    ("aws", "p5.48xlarge", "us-west-2", 55.04),
    ("aws", "p5.48xlarge", "ap-northeast-1", 68.8),
    ("aws", "p5.48xlarge", "ap-south-1", 66.048),
    ("aws", "p5.48xlarge", "eu-north-1", 58.8928),
    ("aws", "p5.48xlarge", "eu-west-2", 71.552),
    ("aws", "p5.48xlarge", "ca-central-1", 63.296),
    ("azure", "Standard_ND96isr_H100_v5", "eastus", 98.32),
    ("azure", "Standard_ND96isr_H100_v5", "uksouth", 122.9),
    ("azure", "Standard_ND96isr_H100_v5", "japaneast", 142.564),
    ("gcp", "a3-highgpu-8g", "us-central1", 88.49),
    ("gcp", "a3-highgpu-8g", "us-east4", 88.555756),
]


def fact(value: float | None) -> Fact[float | None]:
    return Fact[float | None](value=value, source="a list", as_of=date(2026, 11, 1), confidence="list-price")


def row(region: str, **prices: float) -> MachinePrice:
    facts = {name: fact(prices.get(name)) for name in FIELDS}
    return MachinePrice(provider="aws", machine_type="m", region=region, **facts)


@pytest.mark.parametrize(("provider", "machine", "region", "usd"), BY_HAND)
def test_every_region_has_the_price_of_the_list(provider: Provider, machine: str, region: str, usd: float) -> None:
    found = load_provider(provider).price(machine, region, "on-demand")
    assert found is not None
    assert (found.usd, found.priced_in, found.is_bounded) == (usd, region, True)


def test_spot_is_what_its_zones_asked() -> None:
    """p5.48xlarge in Ohio: 13.4628, 14.0818 and 15.4417 in the newer copy, from 11.2276 on in the older one."""
    found = load_provider("aws").price("p5.48xlarge", "us-east-2", "spot")
    assert found is not None
    assert (found.low, found.usd, found.high) == (11.2276, 14.0818, 15.4417)


def test_the_regions_own_limit_is_nearer_than_another_regions_price() -> None:
    rows = [row("home", on_demand=10, spot_low=2, spot_typical=3, spot_high=4), row("here", on_demand=12)]
    found = resolve_price(rows, "here", "spot")
    assert found is not None
    assert (found.usd, found.high, found.foreign_region) == (12, 12, "")
    assert found.limit
    assert found.is_bounded


def test_another_regions_price_stands_in_and_bounds_nothing() -> None:
    rows = [row("home", on_demand=10, spot_low=2, spot_typical=3, spot_high=4)]
    for kind, usd in (("spot", 3), ("on-demand", 10), ("flex-start", 10)):
        found = resolve_price(rows, "there", kind)  # type: ignore[arg-type]  # the literals above
        assert found is not None
        assert (found.usd, found.foreign_region, found.is_bounded) == (usd, "home", False)
    assert resolve_price(rows, "there", "capacity-block") is None


@given(
    st.lists(
        st.builds(
            lambda region, prices: row(region, **prices),
            st.sampled_from(["a", "b", "c"]),
            st.dictionaries(st.sampled_from(FIELDS), st.floats(0.1, 99)),
        ),
        unique_by=lambda each: each.region,
    ),
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(KINDS),
)
def test_a_price_is_never_made_up(rows: list[MachinePrice], region: str, kind: Kind) -> None:
    found = resolve_price(rows, region, kind)
    stated = {getattr(each, name).value for each in rows for name in FIELDS}
    if found is not None:
        assert found.usd in stated
        assert found.is_bounded == (found.priced_in == region)
        own = [each for each in rows if each.region == found.priced_in]
        assert found.usd in {getattr(own[0], name).value for name in FIELDS}


@pytest.mark.parametrize("provider", ["aws", "azure", "gcp"])
def test_what_is_made_without_checks_would_pass_them(provider: Provider) -> None:
    catalog = load_provider(provider)
    for price in (*catalog.prices, *catalog.services):
        assert type(price).model_validate(price.model_dump()) == price
    for price in catalog.prices:
        low, typical, high = price.spot_low.value, price.spot_typical.value, price.spot_high.value
        assert typical is None or (low or 0) <= typical <= (high or 0), price
