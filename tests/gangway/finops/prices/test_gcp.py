"""Google's Cloud Billing Catalog: parts added up to machines, what is dropped, spot by its description, pages."""

from collections.abc import Callable
from datetime import date
from typing import Any, cast

import pytest

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.catalog.validators import Observed
from gangway.finops.prices.gcp import FAMILIES, TPU_PARTS, GcpSource, Part, is_dropped, part_prices
from gangway.finops.prices.source import Gap, Query, SourceError

MACHINES = cast("dict[str, GcpMachineType]", dict(load_provider("gcp").machines))
PAGES = ("gcp_1.json", "gcp_2.json")


def source(session: Any, today: date, key: str | None = None) -> GcpSource:
    return GcpSource(session.web(), MACHINES, today, "a test", key)


def fetch(session: Any, today: date, *queries: tuple[str, str]) -> tuple[dict[tuple[str, str], float], list[Gap]]:
    answers = list(source(session, today).fetch([Query(*query) for query in queries]))
    observed = [each for each in answers if isinstance(each, Observed)]
    return {(each.item, each.field): each.value for each in observed}, [a for a in answers if isinstance(a, Gap)]


@pytest.fixture
def session(play: Callable[..., Any], answer: Callable[[str], Any]) -> Any:
    return play(*(answer(name) for name in PAGES))


def test_a_machine_is_its_cores_its_memory_and_its_cards(session: Any, today: date) -> None:
    found, gaps = fetch(session, today, ("a2-highgpu-8g", "us-central1"))
    on_demand = 96 * 0.031611 + 680 * 0.004237 + 8 * 2.933908
    spot = 96 * 0.015 + 680 * 0.002 + 8 * 1.6
    assert found == {
        ("a2-highgpu-8g", "on_demand"): pytest.approx(on_demand),
        ("a2-highgpu-8g", "spot_low"): pytest.approx(spot),
        ("a2-highgpu-8g", "spot_typical"): pytest.approx(spot),
        ("a2-highgpu-8g", "spot_high"): pytest.approx(spot),
    }
    assert on_demand == pytest.approx(29.387, abs=1e-3), "what the catalogue has from another list"
    assert [gap.what for gap in gaps] == ["Nvidia L4 GPU running in Americas"]


def test_local_ssds_that_come_with_a_machine_are_in_its_price(session: Any, today: date) -> None:
    found, _ = fetch(session, today, ("a3-highgpu-8g", "us-east4"), ("a2-ultragpu-8g", "us-central1"))
    h100 = 208 * 0.0293 + 1872 * 0.00255 + 8 * 9.6 + 6000 * 0.08 / 730
    a100 = 96 * 0.031611 + 1360 * 0.004237 + 8 * 3.93 + 3000 * 0.08 / 730
    assert found == {
        ("a3-highgpu-8g", "on_demand"): pytest.approx(h100),
        ("a2-ultragpu-8g", "on_demand"): pytest.approx(a100),
    }


def test_a_slice_of_a4_is_a_whole_machines_eighth_and_spot_by_its_description(session: Any, today: date) -> None:
    found, _ = fetch(session, today, ("a4-highgpu-8g", "us-central1"))
    assert found["a4-highgpu-8g", "on_demand"] == pytest.approx(8 * 16.11)
    assert found["a4-highgpu-8g", "spot_high"] == pytest.approx(8 * 4.9542), "usageType says OnDemand"


def test_chips_are_priced_by_the_chip(session: Any, today: date) -> None:
    (chip, *_) = [
        each
        for each in source(session, today).fetch([Query("v5e", "us-central1"), Query("v4", "us-central2")])
        if isinstance(each, Observed)
    ]
    assert (chip.item, chip.field, chip.value, chip.unit) == ("v5e", "on_demand", 1.2, "chip-hour")


def test_a_machine_that_lacks_a_part_has_no_price_and_says_which(session: Any, today: date) -> None:
    found, gaps = fetch(session, today, ("a3-megagpu-8g", "us-central1"), ("a3-megagpu-8g", "us-east4"))
    assert found == {}
    assert gaps[-1].what == "a3-megagpu-8g, on demand"
    assert gaps[-1].reason == "no unique price for its a3plus instance ram"
    assert {gap.region for gap in gaps} == {"", "us-central1"}, "no card there: not sold, so nothing is missing"


def test_two_prices_for_a_part_are_no_price(
    play: Callable[..., Any], answer: Callable[[str], Any], today: date
) -> None:
    page = answer("gcp_1.json")
    twin = {**page["skus"][2], "pricingInfo": page["skus"][3]["pricingInfo"]}
    session = play({"skus": [*page["skus"], twin]})
    found, gaps = fetch(session, today, ("a2-highgpu-8g", "us-central1"))
    assert ("a2-highgpu-8g", "on_demand") not in found
    assert gaps[-1].reason == "no unique price for its nvidia tesla a100 gpu"


def test_a_part_for_nothing_makes_the_machine_suspicious(
    play: Callable[..., Any], answer: Callable[[str], Any], today: date
) -> None:
    page = answer("gcp_1.json")
    page["skus"][0]["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]["nanos"] = 0
    found, _ = fetch(play({"skus": page["skus"]}), today, ("a2-highgpu-8g", "us-central1"))
    assert found["a2-highgpu-8g", "on_demand"] == 0, "which is refused"


def test_one_walk_answers_for_every_region(session: Any, today: date) -> None:
    one = source(session, today, "a-key")
    list(one.fetch([Query("a2-highgpu-8g", "us-central1")]))
    list(one.fetch([Query("a2-highgpu-8g", "us-east1")]))
    (_, first), (_, second) = session.asked
    assert first["key"] == "a-key"
    assert "pageToken" not in first
    assert second["pageToken"] == "page-2"
    assert first["pageSize"] == "5000"


@pytest.mark.parametrize("page", [{}, {"skus": "none"}, {"error": {"code": 403}}])
def test_an_answer_without_entries_is_no_empty_list(play: Callable[..., Any], page: Any, today: date) -> None:
    with pytest.raises(SourceError, match="answered without skus"):
        fetch(play(page), today, ("a2-highgpu-8g", "us-central1"))


@pytest.mark.parametrize(
    "description",
    [
        "Reserved Nvidia H100 80GB GPU in Virginia",
        "Commitment v1: A3 Cpu in Virginia for 1 Year",
        "DWS Defined Duration A3 Instance Core running in Virginia",
        "Nvidia H100 80GB GPU attached to DWS Defined Duration VMs running in Virginia",
        "Nvidia H100 80GB GPU in Calendar Mode running in Virginia",
        "A2 Sole Tenancy Instance Core running in Americas",
        "G2 Custom Instance Core running in Americas",
        "Capacity Optimized TpuV6e running in Columbus",
    ],
)
def test_what_nobody_pays_who_rents_a_plain_machine_is_dropped(description: str) -> None:
    assert is_dropped(description)


@pytest.mark.parametrize(
    ("description", "usage", "name", "spot"),
    [
        ("A3 Instance Core running in Virginia", "OnDemand", "a3 instance core", False),
        ("Spot Preemptible A3 Instance Ram running in Tokyo", "Preemptible", "a3 instance ram", True),
        ("Nvidia H100 80GB Mega GPU attached to Spot Preemptible VMs running in Tokyo", "Preemptible",
         "nvidia h100 80gb mega gpu", True),
        ("SSD backed Local Storage attached to Spot Preemptible VMs", "Preemptible", "ssd backed local storage", True),
        ("SSD backed Local Storage in Virginia", "OnDemand", "ssd backed local storage", False),
        ("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", "OnDemand",
         "a4 nvidia b200 (1 gpu slice)", True),
        ("TpuV6e running in Columbus", "OnDemand", "tpuv6e", False),
    ],
)  # fmt: skip
def test_a_part_is_known_by_its_description(description: str, usage: str, name: str, spot: bool) -> None:
    price = {
        "usageUnit": "h",
        "tieredRates": [{"unitPrice": {"currencyCode": "USD", "units": "1", "nanos": 500000000}}],
    }
    sku = {
        "description": description,
        "category": {"usageType": usage},
        "serviceRegions": ["r"],
        "pricingInfo": [{"pricingExpression": price}],
    }
    ((part, cost),) = part_prices(sku)
    assert (part, cost) == (Part(name, "r", spot), 1.5)
    foreign = {**price, "tieredRates": [{"unitPrice": {"currencyCode": "JPY", "units": "200"}}]}
    with pytest.raises(ValueError, match="JPY"):
        list(part_prices({**sku, "pricingInfo": [{"pricingExpression": foreign}]}))


def test_every_machine_and_chip_of_the_catalogue_has_its_parts() -> None:
    assert {name.rpartition("-")[0] for name in MACHINES} == set(FAMILIES)
    assert set(TPU_PARTS) == {"v5e", "v5p", "v6e"}, "no entries are known of v4 and tpu7x"
