"""What costs nothing and what is paid by use: each type once, with its source."""

from collections import Counter
from typing import Any

from gangway.components.catalog.billing import load_billing
from gangway.components.catalog.schema import Fact


def test_no_type_is_both_free_and_paid_by_use() -> None:
    table = load_billing()
    free = Counter(kind for row in table.free for kind in row.types)
    used = Counter(kind for row in table.by_use for kind in row.types)
    assert {kind: number for kind, number in (free + used).items() if number > 1} == {}


def test_every_row_says_where_it_is_from() -> None:
    table = load_billing()
    facts: list[Fact[Any]] = [*(row.usd for row in table.free), *(row.per for row in table.by_use)]
    for fact in facts:
        assert fact.source
        assert fact.url.startswith("https://") or fact.confidence in ("recalled", "assumed"), fact
    assert {row.usd.value for row in table.free} == {0}


def test_what_is_free_in_one_kind_alone_is_not_free_in_another() -> None:
    table, kind = load_billing(), "aws:ec2/vpcEndpoint:VpcEndpoint"
    assert table.free_of(kind, {"vpcEndpointType": "Gateway"}) is not None
    assert table.free_of(kind, {"vpcEndpointType": "Interface"}) is None
    assert table.free_of("gcp:compute/address:Address", {"addressType": "EXTERNAL"}) is None
    assert table.free_of("aws:rds/instance:Instance", {}) is None


def test_what_is_paid_by_use_names_what_by() -> None:
    bucket = load_billing().by_use_of("aws:s3/bucket:Bucket")
    assert bucket is not None
    assert (bucket.per.value, bucket.settings) == ("objects kept and requests", ("run_bucket_gib",))
    assert load_billing().by_use_of("aws:ec2/vpc:Vpc") is None


def test_a_providers_delay_has_a_source_and_the_stops_own_question_counts() -> None:
    delays = load_billing().delays
    for delay in delays.values():
        least, most = delay.stop_hours
        assert 0 <= least < most
        assert delay.most_hours.url.startswith("https://")
    assert delays["aws"].stop_hours == (8, 12)
    assert delays["azure"].stop_hours == (8, 25), "the workflow asks each hour"
