"""AWS's public offer file: which rows are which price, its date, and files that are none."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from gangway.components.catalog.validators import Observed
from gangway.finops.prices.aws import FILES_URL, AwsPublicSource
from gangway.finops.prices.source import Gap, Query, SourceError

QUERIES = [Query("p5.48xlarge", "us-east-1"), Query("p4d.24xlarge", "us-east-1")]


def test_only_rows_of_a_plain_linux_machine_there_and_now_count(
    play: Callable[..., Any], answer: Callable[[str], Any], today: date
) -> None:
    session = play(answer("aws_offer.csv"))
    answers = list(AwsPublicSource(session.web(), today).fetch(QUERIES))
    observed = [each for each in answers if isinstance(each, Observed)]
    assert {(each.item, each.field): each.value for each in observed} == {
        ("p5.48xlarge", "on_demand"): 55.04,
        ("p5.48xlarge", "reserved_1y"): 39.0,
    }
    assert {(each.as_of, each.unit, each.currency, each.region) for each in observed} == {
        (date(2026, 11, 18), "hour", "USD", "us-east-1")
    }
    (gap,) = [each for each in answers if isinstance(each, Gap)]
    assert (gap.what, "on request" in gap.reason) == ("p4d.24xlarge", True)
    assert session.asked == [(f"{FILES_URL}/AmazonEC2/current/us-east-1/index.csv", {})]


@pytest.mark.parametrize("text", ["", "<html></html>", '"FormatVersion","v1.0"\n', "a\nb\nc\nd\ne\nf\n"])
def test_a_file_of_another_shape_is_an_error(play: Callable[..., Any], text: str, today: date) -> None:
    with pytest.raises(SourceError, match="is not an offer file: missing Instance Type, Region Code"):
        list(AwsPublicSource(play(text).web(), today).fetch(QUERIES))


def test_a_file_without_its_date_is_an_error(
    play: Callable[..., Any], answer: Callable[[str], Any], today: date
) -> None:
    text = answer("aws_offer.csv").replace("Publication Date", "Printed")
    with pytest.raises(SourceError, match="missing its date"):
        list(AwsPublicSource(play(text).web(), today).fetch(QUERIES))
