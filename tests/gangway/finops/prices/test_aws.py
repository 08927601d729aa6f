"""AWS's own APIs behind boto3: every request passes botocore's validation, every answer has the shape of its model."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber

from gangway.components.catalog.validators import Observed
from gangway.finops.prices.aws import FILES_URL, FILTERS, AwsPublicSource, AwsSource
from gangway.finops.prices.source import Gap, Query, SourceError, UnreachableError

REGION = "us-east-1"


class StubbedAws:
    """The clients that a source asks for, each with its answers lined up."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.stubs: dict[tuple[str, str], Stubber] = {}

    def stub(self, service: str, region: str = REGION) -> Stubber:
        if (service, region) not in self.stubs:
            # The real one tries a throttled request again, which no stub sees.
            make: Any = boto3.client
            client = make(service, region_name=region, aws_access_key_id="x", aws_secret_access_key="x")
            self.stubs[service, region] = self._stack.enter_context(Stubber(client))
        return self.stubs[service, region]

    def client(self, service: str, region: str) -> Any:
        return self.stub(service, region).client

    def close(self) -> None:
        for stub in self.stubs.values():
            stub.assert_no_pending_responses()
        self._stack.close()


@pytest.fixture
def aws() -> Iterator[StubbedAws]:
    stubbed = StubbedAws()
    yield stubbed
    stubbed.close()


def products_request(type_: str) -> dict[str, Any]:
    wanted = {**FILTERS, "instanceType": type_, "regionCode": REGION}
    return {
        "ServiceCode": "AmazonEC2",
        "Filters": [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()],
    }


def spot_row(type_: str, zone: str, price: str, when: datetime, product: str = "Linux/UNIX") -> dict[str, Any]:
    return {
        "AvailabilityZone": zone,
        "InstanceType": type_,
        "ProductDescription": product,
        "SpotPrice": price,
        "Timestamp": when,
    }


def block(hours: int, fee: str, count: int = 1) -> dict[str, Any]:
    return {
        "CapacityBlockOfferingId": "cb-0123456789abcdefg",
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-1a",
        "InstanceCount": count,
        "CapacityBlockDurationHours": hours,
        "UpfrontFee": fee,
        "CurrencyCode": "USD",
        "Tenancy": "default",
    }


def no_products(aws: StubbedAws, *types: str) -> None:
    for type_ in types:
        aws.stub("pricing").add_response("get_products", {"PriceList": []}, products_request(type_))


def no_spot(aws: StubbedAws) -> None:
    aws.stub("ec2").add_response("describe_spot_price_history", {"SpotPriceHistory": []})


def split(answers: list[Any]) -> tuple[dict[tuple[str, str], float], list[Gap]]:
    observed = [each for each in answers if isinstance(each, Observed)]
    return {(each.item, each.field): each.value for each in observed}, [a for a in answers if isinstance(a, Gap)]


def test_the_price_list_gives_on_demand_and_what_a_reservation_costs_an_hour(
    aws: StubbedAws, answer: Callable[[str], Any], now: datetime
) -> None:
    texts = [json.dumps(product) for product in answer("aws_products.json")]
    types = ["p5.48xlarge", "p3.16xlarge"]
    aws.stub("pricing").add_response("get_products", {"PriceList": texts[:1]}, products_request(types[0]))
    aws.stub("pricing").add_response("get_products", {"PriceList": texts[4:]}, products_request(types[1]))
    no_spot(aws)
    aws.stub("ec2").add_response("describe_capacity_block_offerings", {"CapacityBlockOfferings": []})
    answers = list(AwsSource(aws.client, now).fetch([Query(type_, REGION) for type_ in types]))
    found, gaps = split(answers)
    assert found == {
        ("p5.48xlarge", "on_demand"): 55.04,
        ("p5.48xlarge", "reserved_1y"): 39.0,
        ("p5.48xlarge", "reserved_3y"): 27.5,
    }, "neither convertible nor upfront, and no price of next year"
    assert gaps == []
    first = answers[0]
    assert isinstance(first, Observed)
    assert (first.as_of, first.unit, first.currency, first.region) == (date(2026, 11, 18), "hour", "USD", REGION)


def test_pages_of_products_are_followed(aws: StubbedAws, answer: Callable[[str], Any], now: datetime) -> None:
    text = json.dumps(answer("aws_products.json")[3])
    request = products_request("g5.xlarge")
    aws.stub("pricing").add_response("get_products", {"PriceList": [], "NextToken": "two"}, request)
    aws.stub("pricing").add_response("get_products", {"PriceList": [text]}, {**request, "NextToken": "two"})
    no_spot(aws)
    found, _ = split(list(AwsSource(aws.client, now).fetch([Query("g5.xlarge", REGION)])))
    assert found == {("g5.xlarge", "on_demand"): 1.006}


@pytest.mark.parametrize("garbage", ["{}", "no json", '{"product": {}, "terms": {"OnDemand": {"a": {}}}}', "[1]"])
def test_a_product_of_another_shape_is_told_and_the_rest_read(aws: StubbedAws, now: datetime, garbage: str) -> None:
    aws.stub("pricing").add_response("get_products", {"PriceList": [garbage]}, products_request("g5.xlarge"))
    no_spot(aws)
    found, gaps = split(list(AwsSource(aws.client, now).fetch([Query("g5.xlarge", REGION)])))
    assert found == {}
    assert [gap.what for gap in gaps] == ["g5.xlarge"]
    assert gaps[0].reason.startswith("a product lacks documented fields")


def test_spot_is_the_newest_price_of_each_zone(aws: StubbedAws, now: datetime) -> None:
    no_products(aws, "g5.xlarge")
    earlier = now - timedelta(hours=5)
    request = {"InstanceTypes": ["g5.xlarge"], "ProductDescriptions": ["Linux/UNIX"], "StartTime": now}
    pages = [
        [spot_row("g5.xlarge", "us-east-1a", "0.41", now), spot_row("g5.xlarge", "us-east-1a", "0.30", earlier)],
        [
            spot_row("g5.xlarge", "us-east-1b", "0.52", earlier),
            spot_row("g5.xlarge", "us-east-1c", "0.90", now, "Windows"),
        ],
    ]
    ec2 = aws.stub("ec2")
    ec2.add_response("describe_spot_price_history", {"SpotPriceHistory": pages[0], "NextToken": "two"}, request)
    ec2.add_response("describe_spot_price_history", {"SpotPriceHistory": pages[1]}, {**request, "NextToken": "two"})
    answers = list(AwsSource(aws.client, now).fetch([Query("g5.xlarge", REGION)]))
    found, _ = split(answers)
    assert found == {
        ("g5.xlarge", "spot_low"): 0.41,
        ("g5.xlarge", "spot_typical"): pytest.approx(0.465),
        ("g5.xlarge", "spot_high"): 0.52,
    }
    assert isinstance(answers[0], Observed)
    assert answers[0].source == "EC2 spot price history, 2 zones, newest of each"


def test_a_block_is_its_fee_over_its_node_hours(aws: StubbedAws, now: datetime) -> None:
    no_products(aws, "p5.48xlarge")
    no_spot(aws)
    aws.stub("ec2").add_response(
        "describe_capacity_block_offerings",
        {"CapacityBlockOfferings": [block(24, "960.0"), block(24, "1440.0", count=2), block(23, "759.0")]},
        {"InstanceType": "p5.48xlarge", "InstanceCount": 1, "CapacityDurationHours": 24},
    )
    found, _ = split(list(AwsSource(aws.client, now).fetch([Query("p5.48xlarge", REGION)])))
    assert found == {("p5.48xlarge", "block"): 30.0}


def test_what_ec2_refuses_costs_nothing_of_the_price_list(
    aws: StubbedAws, answer: Callable[[str], Any], now: datetime
) -> None:
    types = ["p5.48xlarge", "p4d.24xlarge"]
    products = answer("aws_products.json")
    for type_, product in zip(types, products, strict=False):
        aws.stub("pricing").add_response("get_products", {"PriceList": [json.dumps(product)]}, products_request(type_))
    aws.stub("ec2").add_client_error("describe_spot_price_history", "UnauthorizedOperation", "not authorized")
    for _ in types:
        aws.stub("ec2").add_client_error("describe_capacity_block_offerings", "UnauthorizedOperation", "not authorized")
    found, gaps = split(list(AwsSource(aws.client, now).fetch([Query(type_, REGION) for type_ in types])))
    assert found["p4d.24xlarge", "on_demand"] == 21.957642
    assert [gap.what for gap in gaps] == ["spot prices", "capacity blocks of p5.48xlarge"], "the same reason once"
    assert "UnauthorizedOperation" in gaps[0].reason


def test_a_price_list_that_refuses_is_an_error(aws: StubbedAws, now: datetime) -> None:
    aws.stub("pricing").add_client_error("get_products", "AccessDeniedException", "not authorized")
    with pytest.raises(SourceError, match="AccessDeniedException"):
        list(AwsSource(aws.client, now).fetch([Query("g5.xlarge", REGION)]))


def test_no_network_is_said_to_be_none(now: datetime) -> None:
    class Unreached:
        def get_paginator(self, operation: str) -> Any:
            raise EndpointConnectionError(endpoint_url="https://api.pricing.us-east-1.amazonaws.com/")

    with pytest.raises(UnreachableError, match="Could not connect to the endpoint"):
        list(AwsSource(lambda service, region: Unreached(), now).fetch([Query("g5.xlarge", REGION)]))


class ThrottledOnce(BaseHTTPRequestHandler):
    """The Price List API, busy the first time."""

    calls = 0

    def do_POST(self) -> None:
        type(self).calls += 1
        assert self.headers["X-Amz-Target"] == "AWSPriceListService.GetProducts"
        throttled = type(self).calls == 1
        answer: dict[str, Any] = (
            {"__type": "ThrottlingException", "message": "Rate exceeded"} if throttled else {"PriceList": []}
        )
        body = json.dumps(answer).encode()
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(400 if throttled else 200)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Keep the test output clean."""


def test_boto3_tries_a_throttled_price_list_again(now: datetime, aws: StubbedAws) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), ThrottledOnce)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    no_spot(aws)
    try:
        make: Any = boto3.client
        pricing = make(
            "pricing",
            region_name=REGION,
            endpoint_url=f"http://127.0.0.1:{server.server_port}",
            aws_access_key_id="x",
            aws_secret_access_key="x",
            config=Config(retries={"mode": "standard", "max_attempts": 3}, proxies={}),
        )
        source = AwsSource(
            lambda service, region: pricing if service == "pricing" else aws.client(service, region), now
        )
        assert list(source.fetch([Query("g5.xlarge", REGION)])) == []
        pricing.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert ThrottledOnce.calls == 2


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
