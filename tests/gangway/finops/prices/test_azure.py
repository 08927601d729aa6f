"""Azure's retail prices: which meter is which price, pages, terms by the hour, and answers of another shape."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from gangway.components.catalog.validators import Observed
from gangway.finops.prices.azure import API_URL, AzureSource
from gangway.finops.prices.source import Gap, Query, SourceError

ND_A100, ND_H100, NC_A100 = "Standard_ND96asr_v4", "Standard_ND96isr_H100_v5", "Standard_NC24ads_A100_v4"
QUERIES = [Query(size, "eastus") for size in (ND_A100, ND_H100, NC_A100)]


def fetch(session: Any, today: date) -> tuple[dict[tuple[str, str], float], list[Gap]]:
    answers = list(AzureSource(session.web(), today).fetch(QUERIES))
    observed = [each for each in answers if isinstance(each, Observed)]
    assert {(each.unit, each.currency, each.region, each.as_of) for each in observed} <= {
        ("hour", "USD", "eastus", today)
    }
    return {(each.item, each.field): each.value for each in observed}, [a for a in answers if isinstance(a, Gap)]


def test_each_meter_is_the_price_it_is(play: Callable[..., Any], answer: Callable[[str], Any], today: date) -> None:
    found, gaps = fetch(play(answer("azure_1.json"), answer("azure_2.json")), today)
    assert found == pytest.approx(
        {
            (ND_A100, "on_demand"): 27.197,
            (ND_A100, "spot_low"): 5.9,
            (ND_A100, "spot_typical"): 5.9,
            (ND_A100, "spot_high"): 5.9,
            (ND_A100, "reserved_1y"): 164951 / 8760,
            (ND_A100, "reserved_3y"): 357932 / 26280,
            (ND_H100, "on_demand"): 98.32,
            (ND_H100, "spot_low"): 18.17,
            (ND_H100, "spot_typical"): 18.17,
            (ND_H100, "spot_high"): 18.17,
            (NC_A100, "on_demand"): 3.673,
            (NC_A100, "spot_low"): 0.0,
            (NC_A100, "spot_typical"): 0.0,
            (NC_A100, "spot_high"): 0.0,
        }
    )
    assert round(found[ND_A100, "reserved_1y"], 2) == 18.83, "the term's total over its hours"
    assert [gap.reason for gap in gaps] == ["a meter lacks documented fields"]


def test_one_filter_asks_for_a_region_and_the_next_page_is_followed(
    play: Callable[..., Any], answer: Callable[[str], Any], today: date
) -> None:
    session = play(answer("azure_1.json"), answer("azure_2.json"))
    fetch(session, today)
    (url, query), (following, nothing) = session.asked
    assert url == API_URL
    assert query["$filter"] == (
        "serviceName eq 'Virtual Machines' and armRegionName eq 'eastus' and (armSkuName eq 'Standard_ND96asr_v4' or "
        "armSkuName eq 'Standard_ND96isr_H100_v5' or armSkuName eq 'Standard_NC24ads_A100_v4')"
    )
    assert query["api-version"] == "2023-01-01-preview"
    assert following == answer("azure_1.json")["NextPageLink"]
    assert nothing == {}


def test_a_next_page_elsewhere_is_not_followed(
    play: Callable[..., Any], answer: Callable[[str], Any], today: date
) -> None:
    page = {**answer("azure_1.json"), "NextPageLink": "https://prices.azure.com.example.org/x"}
    with pytest.raises(SourceError, match="names a next page on another host"):
        fetch(play(page), today)


@pytest.mark.parametrize("page", [{}, {"Items": None}, {"error": {"code": "x"}}])
def test_an_answer_without_items_is_no_empty_list(play: Callable[..., Any], page: dict[str, Any], today: date) -> None:
    with pytest.raises(SourceError, match="answered without Items"):
        fetch(play(page), today)


def test_a_size_that_was_not_asked_about_is_left_out(
    play: Callable[..., Any], answer: Callable[[str], Any], today: date
) -> None:
    source = AzureSource(play(answer("azure_2.json")).web(), today)
    items = {each.item for each in source.fetch(QUERIES[:2]) if isinstance(each, Observed)}
    assert items == {ND_H100}


def test_the_unit_and_the_currency_are_passed_on_as_they_are(
    play: Callable[..., Any], answer: Callable[[str], Any], today: date
) -> None:
    page = answer("azure_2.json")
    page["Items"] = [{**page["Items"][0], "unitOfMeasure": "1/Month", "currencyCode": "EUR", "armRegionName": "westus"}]
    (each,) = AzureSource(play(page).web(), today).fetch(QUERIES)
    assert isinstance(each, Observed)
    assert (each.unit, each.currency, each.region) == ("1/Month", "EUR", "westus")
