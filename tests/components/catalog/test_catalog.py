"""The data of the catalogue, apart from the code: every value has a source, and known defects are absent."""

from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from gangway.components.catalog.loader import (
    PROVIDERS,
    Catalog,
    Provider,
    load,
    load_amlfs_subnets,
    load_amlfs_tiers,
    load_lustre_tiers,
    load_provider,
    load_tpus,
)
from gangway.components.catalog.prices import resolve_price
from gangway.components.catalog.schema import (
    EVERYWHERE,
    AzureMachineType,
    Confidence,
    EfaFabric,
    Fact,
    GcpMachineType,
    GpuDirectFabric,
    InfinibandFabric,
    RoceFabric,
    ServicePrice,
    TpuCatalog,
)
from gangway.components.core.findings import InputError
from gangway.components.gcp.slices import chip_prices
from gangway.stacks.base.registry import get_provider

PLACEHOLDER_PRICES = (700.0, 0.0, 98.32)
"""What price sources are known to hold for want of a price: 700 and 0; and p5's price of before June 2025."""

AZURE_UNPRICED = {"Standard_ND128isr_GB300_v6"}
"""Sizes that no public price list at hand holds."""

UNPRICED = {"p5e.48xlarge", "p6e-gb200.36xlarge", "trn2.3xlarge", "trn2.48xlarge", "trn2u.48xlarge"}
"""Sold in capacity blocks or outside us-east-1 only: the list has no on-demand price for them there."""


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
    elif isinstance(node, Iterable) and not isinstance(node, str):
        for index, value in enumerate(node):
            yield from facts(value, f"{path}[{index}]")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load()


@pytest.fixture(scope="module")
def gcp() -> Catalog:
    return load_provider("gcp")


@pytest.fixture(scope="module")
def azure() -> Catalog:
    return load_provider("azure")


@pytest.fixture(scope="module")
def tpus() -> TpuCatalog:
    return load_tpus()


@pytest.mark.parametrize(("provider", "least"), [("aws", 800), ("gcp", 500), ("azure", 400)])
def test_every_value_says_where_it_comes_from(provider: Provider, least: int) -> None:
    more = {"gcp": (load_tpus(), load_lustre_tiers()), "azure": (load_amlfs_tiers(), load_amlfs_subnets())}
    found = [pair for node in (load_provider(provider), *more.get(provider, ())) for pair in facts(node, provider)]
    assert len(found) > least
    for path, fact in found:
        assert len(fact.source) > 5, path
        assert date(2021, 12, 1) <= fact.seen_on <= date(2027, 1, 1), path
        assert fact.confidence in get_args(Confidence), path
        assert fact.url.startswith("https://") or fact.confidence in ("recalled", "assumed"), path


def test_a_day_of_reading_is_no_date_of_a_source(
    catalog: Catalog, gcp: Catalog, azure: Catalog, tpus: TpuCatalog
) -> None:
    """What was recalled, and what calls itself undated, has no date of its own that could make it look young."""
    found = [pair for each in (catalog, gcp, azure, tpus) for pair in facts(each)]
    for path, fact in found:
        if fact.confidence == "recalled" or "undated" in fact.source:
            assert fact.as_of is None, path
            assert fact.dated.endswith(str(fact.read_on)), path
    assert all(fact.dated.startswith("undated, read 2026-11-") for _, fact in found if "undated" in fact.source)


def test_on_demand_is_never_below_spot(catalog: Catalog) -> None:
    for price in catalog.prices:
        low, high, full = price.spot_low.value, price.spot_high.value, price.on_demand.value
        assert (low is None) == (high is None), price.machine_type
        if low is not None and high is not None and full is not None:
            assert low <= high <= full, price.machine_type


def test_known_defects_of_price_lists_are_absent(catalog: Catalog) -> None:
    for path, fact in facts(catalog.prices, "prices"):
        assert fact.value not in PLACEHOLDER_PRICES, path
        assert fact.value is None or 0 < fact.value < 500, path
    for price in catalog.services:
        most = 3 if price.service == "dashboard" else 1
        assert price.usd.value is None or 0 < price.usd.value <= most, price


def test_most_machines_have_a_price_and_those_without_are_known(catalog: Catalog) -> None:
    priced = {price.machine_type for price in catalog.prices if price.on_demand.value is not None}
    assert set(catalog.machines) - priced == UNPRICED
    assert {price.machine_type for price in catalog.prices} == set(catalog.machines), "null says nobody knows"


def test_a_service_is_priced_by_region_and_a_missing_region_shows(catalog: Catalog) -> None:
    price = catalog.service_price("aws", "us-east-1", "nat-gateway")
    assert (price.usd.value, price.unit, price.region) == (0.045, "hour", "us-east-1")
    assert catalog.service_price("aws", "eu-north-1", "nat-gateway").usd.value == 0.046, "its own"
    elsewhere = catalog.service_price("aws", "il-central-1", "nat-data")
    assert elsewhere == catalog.service_price("aws", "us-east-1", "nat-data")
    assert catalog.service_price("aws", "il-central-1", "public-ipv4").region == EVERYWHERE
    rows = [(p.provider, p.region, p.service) for p in catalog.services]
    assert len(set(rows)) == len(rows)
    with pytest.raises(AssertionError, match="no row for nat-gatway of aws"):
        catalog.service_price("aws", "us-east-1", "nat-gatway")


@pytest.mark.parametrize("provider", ["aws", "azure", "gcp"])
def test_every_service_has_a_price_row_also_where_prices_yaml_states_its_unit_alone(provider: Provider) -> None:
    catalog = load_provider(provider)
    for service in catalog.get_services(provider):
        assert catalog.service_price(provider, "", service).unit, service


@pytest.mark.parametrize(
    ("provider", "services"),
    [
        ("aws", ["ebs-gp3", "nat-gateway", "s3-standard", "interface-endpoint", "image-storage", "public-ipv4"]),
        ("azure", ["blob-hot-lrs", "premium-ssd-p10", "premium-ssd-p40", "public-ip", "nat-gateway", "nat-data"]),
    ],
)
def test_every_region_has_its_own_price_of_these(provider: Provider, services: list[str]) -> None:
    catalog = load_provider(provider)
    for region in catalog.regions:
        for service in services:
            assert catalog.service_price(provider, region, service).region in (region, EVERYWHERE), (region, service)


def test_a_value_may_come_from_elsewhere_than_its_row(catalog: Catalog) -> None:
    machine = catalog.machine("p5.48xlarge")
    assert "DescribeInstanceTypes" in machine.vcpus.source
    assert machine.accelerator_watts.source.startswith("Vendors' data sheets")
    assert (machine.accelerator_watts.url, machine.accelerator_watts.confidence) == ("", "recalled")


def test_every_price_belongs_to_a_machine_and_a_region(catalog: Catalog) -> None:
    pairs = [(price.machine_type, price.region) for price in catalog.prices]
    assert len(set(pairs)) == len(pairs)
    for machine, region in pairs:
        assert catalog.machines[machine].provider == catalog.regions[region].provider


def test_the_efa_counts_are_those_of_the_vendors_guide(catalog: Catalog) -> None:
    """MaximumEfaInterfaces, which is not MaximumNetworkCards on every type."""
    documented = {
        "p4d.24xlarge": (4, 4),
        "p4de.24xlarge": (4, 4),
        "p5.48xlarge": (32, 32),
        "p5e.48xlarge": (32, 32),
        "p5en.48xlarge": (16, 16),
        "p6-b200.48xlarge": (8, 8),
        "p6-b300.48xlarge": (16, 17),
        "p6e-gb200.36xlarge": (None, 17),
    }
    for name, counts in documented.items():
        fabric = catalog.machine(name).fabric
        assert fabric is not None
        assert (fabric.max_efa_interfaces.value, fabric.num_cards.value) == counts, name


def test_the_types_with_efa_are_those_the_vendor_lists(catalog: Catalog) -> None:
    """Accelerated computing in "Supported instance types" of the EFA page, less FPGA and inference-only cards."""
    listed = """
        dl1.24xlarge g4dn.8xlarge g4dn.12xlarge g4dn.16xlarge g4dn.metal g5.8xlarge g5.12xlarge g5.16xlarge g5.24xlarge
        g5.48xlarge g6.8xlarge g6.12xlarge g6.16xlarge g6.24xlarge g6.48xlarge g6e.8xlarge g6e.12xlarge g6e.16xlarge
        g6e.24xlarge g6e.48xlarge g7e.8xlarge g7e.12xlarge g7e.24xlarge g7e.48xlarge gr6.8xlarge inf1.24xlarge
        p3dn.24xlarge p4d.24xlarge p4de.24xlarge p5.4xlarge p5.48xlarge p5e.48xlarge p5en.48xlarge p6-b200.48xlarge
        p6-b300.48xlarge p6e-gb200.36xlarge trn1.32xlarge trn1n.32xlarge trn2.3xlarge trn2.48xlarge trn2u.48xlarge
        """
    with_efa = {name for name, machine in catalog.machines.items() if isinstance(machine.fabric, EfaFabric)}
    assert with_efa - set(listed.split()) == {"g7.8xlarge", "g7.12xlarge", "g7.24xlarge", "g7.48xlarge"}, (
        "newer than the page"
    )
    assert set(listed.split()) <= with_efa


def test_the_types_with_several_network_cards_are_those_the_vendor_lists(catalog: Catalog) -> None:
    """The table "Network cards" of the EC2 user guide, less the types without accelerators."""
    listed = {
        "dl1.24xlarge": 4, "g6e.24xlarge": 2, "g6e.48xlarge": 4, "g7.48xlarge": 2, "g7e.24xlarge": 2, "g7e.48xlarge": 4,
        "p4d.24xlarge": 4, "p4de.24xlarge": 4, "p5.48xlarge": 32, "p5e.48xlarge": 32, "p5en.48xlarge": 16,
        "p6-b200.48xlarge": 8, "p6-b300.48xlarge": 17, "p6e-gb200.36xlarge": 17, "trn1.32xlarge": 8,
        "trn1n.32xlarge": 16, "trn2.48xlarge": 16, "trn2u.48xlarge": 16,
    }  # fmt: skip
    fabrics = {name: machine.fabric for name, machine in catalog.machines.items()}
    cards = {name: fabric.num_cards.value for name, fabric in fabrics.items() if isinstance(fabric, EfaFabric)}
    assert {name: count for name, count in cards.items() if count > 1} == listed


def test_machines_are_plausible(catalog: Catalog) -> None:
    for machine in catalog.machines.values():
        assert machine.accelerator.endswith(f"x{machine.num_accelerators.value}"), machine.name
        assert machine.num_accelerators.value in (1, 2, 4, 8, 16), machine.name
        assert machine.accelerator_watts.value is not None, machine.name
        assert 50 <= machine.accelerator_watts.value <= 1500, machine.name
        assert machine.host_watts.value > 0, machine.name
        assert 2 <= machine.vcpus_per_accelerator <= 96, machine.name
        assert machine.memory_gib.value >= machine.vcpus.value * 2, machine.name
        assert (machine.interconnect.value == "none") == (machine.num_accelerators.value == 1), machine.name


def test_regions_are_plausible(catalog: Catalog) -> None:
    for region in catalog.regions.values():
        assert region.zones, region.name
        assert len(set(region.zones)) == len(region.zones), region.name
        assert 1 <= region.pue.value < 2, region.name
        assert 0 <= (region.intensity_g_per_kwh.value or 0) < 1000, region.name


def test_facts_of_the_brief_are_taken_over_unchanged(catalog: Catalog) -> None:
    ohio = catalog.region("us-east-2", "aws")
    assert (ohio.intensity_g_per_kwh.value, ohio.pue.value) == (396.25, 1.13)
    price = catalog.price("p5.48xlarge", "us-east-1", "on-demand")
    assert price is not None
    assert price.usd == 55.04
    tiers = {
        tier: catalog.service_price("aws", "us-east-1", f"lustre-persistent-2-{tier}").usd.value
        for tier in catalog.lustre["aws"].throughput_mbps_per_tib.value
    }
    assert tiers == {125: 0.145, 250: 0.21, 500: 0.34, 1000: 0.6}


def test_what_leaves_costs_less_the_more_it_is() -> None:
    tiers: dict[Provider, list[float]] = {
        "aws": [0.09, 0.085, 0.07, 0.05],
        "gcp": [0.12, 0.11, 0.08],
        "azure": [0.087, 0.083, 0.07, 0.05],
    }
    for provider, expected in tiers.items():
        tiers_by_region: dict[str, list[ServicePrice]] = {}
        for row in load_provider(provider).services:
            if row.service.startswith("egress-internet"):
                tiers_by_region.setdefault(row.region, []).append(row)
        assert [row.usd.value for row in tiers_by_region[get_provider(provider).home_region]] == expected
        for region, rows in tiers_by_region.items():
            usd = [row.usd.value or 0.0 for row in rows]
            assert usd == sorted(usd, reverse=True), (provider, region)
            assert {row.unit for row in rows} == {"GiB"}
    zones = {name: load_provider(name).service_price(name, "", "transfer-between-zones").usd.value for name in tiers}
    assert zones == {"aws": 0.01, "gcp": 0.01, "azure": None}


@pytest.mark.parametrize(
    ("provider", "service"), [("aws", "eks-cluster"), ("gcp", "gke-cluster"), ("azure", "aks-cluster")]
)
def test_a_control_plane_costs_the_same_everywhere(provider: Provider, service: str) -> None:
    price = load_provider(provider).service_price(provider, "", service)
    assert (price.usd.value, price.unit, price.usd.confidence) == (0.10, "hour", "list-price")


@pytest.mark.parametrize(
    ("size", "spot"),
    [
        ("Standard_NC24ads_A100_v4", (0.444433, 0.679)),
        ("Standard_ND96asr_v4", (2.99167, 5.90)),
        ("Standard_ND96isr_H100_v5", (18.17, 18.17)),
    ],
)
def test_spot_of_azure_spans_the_lists(azure: Catalog, size: str, spot: tuple[float, float]) -> None:
    price = azure.price(size, "eastus", "spot")
    assert price is not None
    assert (price.low, price.high) == spot


def test_an_unknown_machine_names_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(InputError) as caught:
        catalog.machine("p5.48xlarg", "gangway:cluster.machine_type")
    assert caught.value.place == "gangway:cluster.machine_type"
    assert caught.value.fix == "did you mean 'p5.48xlarge'?"
    assert caught.value.value == "p5.48xlarg"
    assert "p4d.24xlarge, p4de.24xlarge, p5.48xlarge, p5.4xlarge" in caught.value.allowed


def test_an_unknown_accelerator_names_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(InputError, match="no such accelerator on aws") as caught:
        catalog.machine_for("h100X8", "aws")
    assert caught.value.fix == "did you mean 'H100x8'?"
    assert catalog.machine_for("H100x8", "aws").name == "p5.48xlarge"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("H100x4", "H100x8"), ("a10gx2", "A10Gx4"), ("H100x16", "H100x8"), ("H100xx8", "H100x8"), ("H10x8", "H100x8")],
)
def test_a_number_that_nobody_offers_keeps_its_model(catalog: Catalog, written: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        catalog.machine_for(written, "aws")
    assert caught.value.fix == f"did you mean {meant!r}?"


def test_an_accelerator_that_several_machines_carry_does_not_pick_one(catalog: Catalog) -> None:
    twin = catalog.machine("p5.48xlarge").model_copy(update={"name": "p5.twin"})
    larger = catalog.model_copy(update={"machines": {**catalog.machines, "p5.twin": twin}})
    with pytest.raises(InputError, match="several machine types carry this accelerator") as caught:
        larger.machine_for("H100x8", "aws", "gangway:cluster.accelerator")
    assert (caught.value.place, caught.value.value) == ("gangway:cluster.accelerator", "H100x8")
    known = "p5.48xlarge (55.04 USD an hour on demand in us-east-1)"
    assert caught.value.allowed == f"{known}, p5.twin (price unknown)"
    fix = "write machine_type: {} in place of accelerator, {}"
    assert caught.value.fix == fix.format("p5.48xlarge", "the cheapest with a known price")
    slow = {"p5.48xlarge": "it is slow", "g5.xlarge": "it is small"}
    with pytest.raises(InputError) as caught:
        larger.machine_for("H100x8", "aws", unfit=slow)
    assert caught.value.allowed.startswith(f"{known.removesuffix(')')}; it is slow), p5.twin")
    why = "one of those without a known price, and without that drawback"
    assert caught.value.fix == fix.format("p5.twin", why)


def test_of_several_machines_the_cheapest_is_named(catalog: Catalog) -> None:
    with pytest.raises(InputError) as caught:
        catalog.machine_for("A10Gx4", "aws", region="us-east-1")
    assert caught.value.fix.startswith("write machine_type: g5.12xlarge in place of accelerator, the cheapest")
    cheap = [
        price.model_copy(update={"on_demand": price.on_demand.model_copy(update={"value": 1.0})})
        if price.machine_type == "g5.24xlarge"
        else price
        for price in catalog.prices
    ]
    with pytest.raises(InputError) as caught:
        catalog.model_copy(update={"prices": tuple(cheap)}).machine_for("A10Gx4", "aws", region="us-east-1")
    assert caught.value.fix.startswith("write machine_type: g5.24xlarge in place")
    with pytest.raises(InputError) as caught:
        catalog.machine_for("H200x8", "aws", region="us-east-1")
    assert "machine_type: p5en.48xlarge" in caught.value.fix, "the other's price is not known"


def test_a_machine_type_in_place_of_an_accelerator_is_told_where_it_belongs(catalog: Catalog) -> None:
    with pytest.raises(InputError, match="no such accelerator on aws") as caught:
        catalog.machine_for("p5.48xlarge", "aws", "gangway:cluster.accelerator")
    assert caught.value.fix == "write machine_type: p5.48xlarge in place of accelerator"
    with pytest.raises(InputError) as caught:
        catalog.machine_for("p5.48xlrge", "aws")
    assert "machine_type" not in caught.value.fix


@pytest.mark.parametrize(
    ("provider", "written", "meant"),
    [
        ("aws", "us-esat-1", "us-east-1"),
        ("aws", "us-east1", "us-east-1"),
        ("aws", "US-EAST-1", "us-east-1"),
        ("aws", "us_east_1", "us-east-1"),
        ("gcp", "us-central", ""),
        ("gcp", "us-centrall1", "us-central1"),
        ("gcp", "asia-northest1", "asia-northeast1"),
        ("azure", "eastuss", "eastus"),
        ("azure", "estus", "eastus"),
        ("azure", "eastus3", ""),
        ("azure", "chinaeast", ""),
        ("aws", "us-east-3", ""),
        ("aws", "us-west-3", ""),
        ("aws", "eu-west-4", ""),
        ("aws", "ca-west-1", ""),
        ("aws", "mars", ""),
        ("gcp", "us-east-2", ""),
    ],
)
def test_of_regions_a_typo_alone_is_mended(provider: Provider, written: str, meant: str) -> None:
    """Another number, first word or point of the compass is another region, where other laws may hold."""
    with pytest.raises(InputError, match=f"this {provider} region is not in the catalogue") as caught:
        load_provider(provider).region(written, provider)
    assert caught.value.fix == (f"did you mean '{meant}'?" if meant else "choose one of the known regions")
    assert caught.value.allowed.startswith("known are ")


def test_the_catalogue_is_read_once_and_cannot_be_changed(catalog: Catalog) -> None:
    assert load() is catalog
    with pytest.raises(ValueError, match="frozen"):
        catalog.prices = ()  # type: ignore[misc]  # the point of the test


def test_each_provider_is_read_alone(catalog: Catalog) -> None:
    for provider in (*PROVIDERS, "azure"):
        own = load_provider(provider)
        assert {machine.provider for machine in own.machines.values()} == {provider}
        assert {price.provider for price in own.prices} == {provider}
        assert {service.provider for service in own.services} == {provider}
        assert {region.provider for region in own.regions.values()} == {provider}
    assert load_provider("aws") is catalog


@pytest.mark.parametrize(("provider", "least", "most"), [("gcp", 0, 200), ("azure", 0.5, 250)])
def test_prices_are_plausible_and_spot_is_cheaper(provider: Provider, least: float, most: float) -> None:
    catalog = load_provider(provider)
    pairs = [(price.machine_type, price.region) for price in catalog.prices]
    assert len(set(pairs)) == len(pairs)
    assert {name for name, _ in pairs} == set(catalog.machines), "null says nobody knows"
    for price in catalog.prices:
        low, high, full = price.spot_low.value, price.spot_high.value, price.on_demand.value
        assert price.region in catalog.regions, price
        assert (low is None) == (high is None), price
        assert full is None or least < full < most, price
        assert low is None or high is None or 0 < low <= high <= (full or 100), price
        assert provider == "gcp" or (full is None) == (price.machine_type in AZURE_UNPRICED), price


def test_prices_of_chips_are_plausible_and_spot_is_cheaper(gcp: Catalog, tpus: TpuCatalog) -> None:
    for chip in tpus.prices:
        assert chip.region in gcp.regions, chip
        assert chip.on_demand.value is not None, chip
        assert 0 < (chip.spot.value or 0.1) < chip.on_demand.value < 20, chip


def test_a_machine_of_google_cloud_is_priced_where_it_is_offered(gcp: Catalog) -> None:
    for price in gcp.prices:
        machine = gcp.machine(price.machine_type)
        assert isinstance(machine, GcpMachineType)
        assert machine.offered is not None
        assert price.region in machine.offered.regions, price


def test_zones_of_google_cloud_are_those_of_its_regions(gcp: Catalog, tpus: TpuCatalog) -> None:
    for generation in tpus.generations.values():
        assert set(generation.offered.regions) <= set(gcp.regions), generation.name
        priced = {p.region for p in tpus.prices if p.generation == generation.name}
        assert priced <= set(generation.offered.regions), generation.name
    lists = {machine.name: machine.offered for machine in gcp.machines.values()}
    for name, offered in (lists | {tpu.name: tpu.offered for tpu in tpus.generations.values()}).items():
        assert offered is not None, name
        assert offered.zones.value, name
        for region in set(offered.regions) & set(gcp.regions):
            assert set(offered.zones.value[region]) <= set(gcp.regions[region].zones), (name, region)


def test_machines_of_google_cloud_are_plausible(gcp: Catalog) -> None:
    test_machines_are_plausible(gcp)
    test_regions_are_plausible(gcp)
    for machine in gcp.machines.values():
        assert isinstance(machine, GcpMachineType)
        assert machine.fabric is None, "that field means EFA"
        assert "spot" in machine.capacity.value, machine.name
        assert machine.network_gbps.value is not None, machine.name
        assert (machine.gpu_fabric is not None) == (machine.network_gbps.value >= 1000), machine.name


def test_the_fabrics_of_google_cloud_are_those_of_its_blueprints(gcp: Catalog) -> None:
    """NICs for GPUs, MTU and what they are attached to."""
    direct = {"a3-highgpu-8g": ("tcpx", 4), "a3-megagpu-8g": ("tcpxo", 8)}
    for name, expected in direct.items():
        fabric = gcp.machine(name).gpu_fabric  # type: ignore[attr-defined]  # isinstance follows
        assert isinstance(fabric, GpuDirectFabric)
        assert (fabric.protocol.value, fabric.num_gpu_nics.value) == expected
        assert (fabric.mtu_bytes.value, fabric.nic_type.value) == (8244, "GVNIC")
    for name in ("a3-ultragpu-8g", "a4-highgpu-8g"):
        fabric = gcp.machine(name).gpu_fabric  # type: ignore[attr-defined]  # isinstance follows
        assert isinstance(fabric, RoceFabric)
        assert (fabric.num_gpu_nics.value, fabric.num_host_nics.value) == (8, 2)
        assert (fabric.mtu_bytes.value, fabric.nic_type.value) == (8896, "MRDMA")
        assert f"us-central1-b{fabric.profile_suffix.value}" == "us-central1-b-vpc-roce"


def test_facts_of_google_cloud_are_taken_over_unchanged(gcp: Catalog, tpus: TpuCatalog) -> None:
    stated = {"us-central1": (501.42, 1.10), "us-west1": (119.76, 1.07), "europe-north1": (82.34, 1.09)}
    for name, figures in stated.items():
        region = gcp.region(name, "gcp")
        assert (region.intensity_g_per_kwh.value, region.pue.value) == figures
    assert gcp.machine_for("H200x8", "gcp").name == "a3-ultragpu-8g"
    with pytest.raises(InputError, match="several machine types carry this accelerator"):
        gcp.machine_for("H100x8", "gcp")
    per_chip = {n: (g.hbm_gib.value, g.chip_watts.value) for n, g in tpus.generations.items()}
    assert per_chip == {"v4": (32, 192), "v5e": (16, None), "v5p": (95, None), "v6e": (32, None), "tpu7x": (192, None)}


def test_a_tpu_price_of_another_region_can_be_seen_to_be_one(tpus: TpuCatalog) -> None:
    here, elsewhere = (
        resolve_price(chip_prices("v6e"), region, "on-demand") for region in ("europe-west4", "us-west1")
    )
    assert here is not None
    assert elsewhere is not None
    assert (here.foreign_region, here.usd) == ("", 2.97)
    assert (elsewhere.foreign_region, elsewhere.usd) == ("us-central1", 2.7)
    assert tpus.get_prices("v9") == []


def test_tiers_of_managed_lustre_scale_with_their_throughput(gcp: Catalog) -> None:
    assert gcp.lustre == {}, "no offer of the AWS shape"
    tiers = load_lustre_tiers()
    assert {tier: row.smallest_gib.value for tier, row in tiers.items()} == {
        125: 72000,
        250: 36000,
        500: 18000,
        1000: 9000,
    }
    for tier in tiers.values():
        assert tier.smallest_gib.value == tier.step_gib.value
        assert tier.step_until_gib.value % tier.step_gib.value == 0
        assert tier.largest_gib.value % tier.large_step_gib.value == 0
    each = [gcp.service_price("gcp", "us-central1", f"managed-lustre-{tier}").usd for tier in sorted(tiers)]
    assert [fact.value for fact in each] == sorted(fact.value or 0.0 for fact in each), "faster is dearer"
    assert {fact.confidence for fact in each} == {"recalled"}, "a second-hand quotation"


def azure_machines(azure: Catalog) -> Iterator[AzureMachineType]:
    for machine in azure.machines.values():
        assert isinstance(machine, AzureMachineType)
        yield machine


def test_services_of_azure_have_one_row_each_and_a_plausible_price(azure: Catalog) -> None:
    rows = [(service.region, service.service) for service in azure.services]
    assert len(set(rows)) == len(rows)
    largest = {"hour": 1, "month": 500, "GiB-month": 1, "GiB": 3, "10k-operations": 1}
    for service in azure.services:
        assert service.usd.value is None or 0 < service.usd.value <= largest[service.unit], service
    for tier in load_amlfs_tiers():
        assert azure.service_price("azure", "westeurope", f"managed-lustre-{tier}").unit == "GiB-month"
    assert azure.service_price("azure", "eastus", "instance-Standard_B2s").usd.value == 0.0416


def test_machines_of_azure_are_plausible(azure: Catalog) -> None:
    test_machines_are_plausible(azure)
    for machine in azure_machines(azure):
        assert machine.fabric is None, "that field means EFA"
        assert "on-demand" in machine.capacity.value, machine.name
        assert (machine.infiniband is not None) == machine.name.startswith("Standard_ND"), machine.name
        assert (machine.runtime == "rocm") == machine.accelerator.startswith("MI"), machine.name
        assert (machine.architecture == "arm64") == machine.accelerator.startswith("GB"), machine.name
        if machine.infiniband is None:
            assert machine.network_gbps.value == machine.ethernet_gbps.value, machine.name
        else:
            ports, gbps = machine.infiniband.num_hcas.value, machine.infiniband.gbps_each.value
            assert machine.network_gbps.value == ports * gbps, machine.name
            assert ports == machine.num_accelerators.value, "one for each"


def test_images_of_azure_fit_their_machines(azure: Catalog) -> None:
    for machine in azure_machines(azure):
        image = machine.image.value
        if image is None:
            assert machine.architecture == "arm64" or machine.accelerator.startswith("A10x"), machine.name
            assert not machine.nccl_conf.value, "no image, no file of it"
        else:
            publisher, offer, sku = image.split(":")
            assert (publisher, offer) == ("microsoft-dsvm", "ubuntu-hpc"), machine.name
            assert sku.endswith("-rocm") == (machine.runtime == "rocm"), machine.name


def test_the_infiniband_of_azure_is_that_of_its_documentation(azure: Catalog) -> None:
    documented = {
        "Standard_ND96asr_v4": (8, 200, "HDR"),
        "Standard_ND96amsr_A100_v4": (8, 200, "HDR"),
        "Standard_ND96isr_H100_v5": (8, 400, "NDR"),
        "Standard_ND96isr_H200_v5": (8, 400, "NDR"),
        "Standard_ND96isr_MI300X_v5": (8, 400, "NDR"),
        "Standard_ND128isr_NDR_GB200_v6": (4, 400, "NDR"),
        "Standard_ND128isr_GB300_v6": (4, 800, "XDR"),
    }
    found = {machine.name: machine.infiniband for machine in azure_machines(azure)}
    seen = {
        name: (fabric.num_hcas.value, fabric.gbps_each.value, fabric.generation.value)
        for name, fabric in found.items()
        if fabric is not None
    }
    assert seen == documented


def test_a_wrong_row_of_azure_cannot_be_loaded(azure: Catalog) -> None:
    machine = azure.machine("Standard_ND96isr_H100_v5")
    assert isinstance(machine, AzureMachineType)
    assert machine.infiniband is not None
    fabric = machine.infiniband.model_dump()
    with pytest.raises(ValueError, match="NDR is 400 Gbit/s"):
        InfinibandFabric.model_validate({**fabric, "gbps_each": {**fabric["gbps_each"], "value": 200}})
    row = machine.model_dump()
    with pytest.raises(ValueError, match="name different files"):
        AzureMachineType.model_validate({**row, "topology_file": {**row["topology_file"], "value": "/elsewhere"}})
    with pytest.raises(ValueError, match="takes no scale set with a single placement group"):
        AzureMachineType.model_validate({**row, "capacity": {**row["capacity"], "value": ("reservation",)}})


def test_regions_of_azure_are_plausible(azure: Catalog) -> None:
    for region in azure.regions.values():
        assert region.zones in ((), ("1", "2", "3")), region.name
        assert 1 <= region.pue.value < 1.5, region.name
        assert 0 < (region.intensity_g_per_kwh.value or 1) < 1000, region.name
    stated = {"eastus": (396.25, 1.14), "southcentralus": (388.76, 1.28), "swedencentral": (24.71, 1.16)}
    for name, figures in stated.items():
        row = azure.region(name, "azure")
        assert (row.intensity_g_per_kwh.value, row.pue.value) == figures


def test_tiers_of_azure_managed_lustre_are_those_of_its_documentation(azure: Catalog) -> None:
    assert azure.lustre == {}, "no offer of the AWS shape"
    sizes = {tier: (row.step_tib.value, row.largest_tib.value) for tier, row in load_amlfs_tiers().items()}
    assert sizes == {40: (48, 768), 125: (16, 128), 250: (8, 128), 500: (4, 128)}
    assert all(row.sku == f"AMLFS-Durable-Premium-{tier}" for tier, row in load_amlfs_tiers().items())
