"""How often spot nodes are taken: the table, its buckets, and what stands where nobody knows."""

import math
from typing import get_args

import pytest

from gangway.components.catalog.loader import PROVIDERS, Provider, load_provider
from gangway.components.catalog.schema import Fact
from gangway.components.catalog.tables import (
    BUCKETS,
    OPEN_BUCKET,
    Bucket,
    least_taken,
    load_interruptions,
    taken_per_month,
)
from gangway.components.estimate.spot import rate_per_hour


def test_every_bucket_counts_as_its_upper_end() -> None:
    assert set(BUCKETS) == set(get_args(Bucket))
    assert list(BUCKETS.values()) == sorted(BUCKETS.values())
    for bucket, share in BUCKETS.items():
        assert least_taken(Fact[float | None](value=share, source="a test", confidence="assumed")) < share
        if bucket != OPEN_BUCKET:
            assert share == float(bucket.rpartition("-")[2].strip("<%")) / 100


def test_a_listed_pair_names_its_bucket_and_its_source() -> None:
    fact = taken_per_month("aws", "p5.48xlarge", "us-east-2")
    assert (fact.value, fact.confidence, fact.as_of_text) == (0.10, "assumed", "2025-06-28")
    assert fact.source.endswith(": 5-10% in the trailing month, counted as 10% of nodes in 720 h")
    assert least_taken(fact) == 0.05
    assert least_taken(fact.model_copy(update={"value": 0.10, "confidence": "stated"})) == 0.10, "a person's is exact"
    assert fact.url.startswith("https://")


def test_the_open_bucket_is_an_assumption_and_says_so() -> None:
    fact = taken_per_month("aws", "p5.48xlarge", "us-east-1")
    assert (fact.value, fact.confidence) == (0.40, "assumed")
    assert fact.source.endswith(">20% in the trailing month, counted as 40% of nodes in 720 h")
    assert least_taken(fact) == 0.20


@pytest.mark.parametrize(
    ("provider", "machine_type", "region", "words"),
    [
        ("aws", "p6-b200.48xlarge", "us-east-1", "lists no such machine type"),
        ("aws", "p5.48xlarge", "eu-west-1", "lists no such machine type"),
        ("gcp", "a3-megagpu-8g", "us-central1", "Google publishes no rate"),
        ("azure", "Standard_ND96isr_H100_v5", "eastus", "to a subscription alone"),
    ],
)
def test_what_nobody_publishes_is_null_with_the_reason(
    provider: str, machine_type: str, region: str, words: str
) -> None:
    fact = taken_per_month(provider, machine_type, region)
    assert fact.value is None
    assert words in fact.source


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_table_speaks_of_machines_and_regions_that_exist(provider: Provider) -> None:
    table, catalog = load_interruptions(provider), load_provider(provider)
    assert table.unpublished.value is None
    for name, row in table.rows.items():
        assert name in catalog.machines
        assert set(row.by_region.value) <= set(catalog.regions), name


@pytest.mark.parametrize(
    ("provider", "share", "within_hours"), [("aws", 0.40, 720), ("gcp", 0.10, 24), ("azure", 0.025, 1)]
)
def test_what_may_be_assumed_has_a_source_and_is_no_published_rate(
    provider: Provider, share: float, within_hours: int
) -> None:
    """A constant rate: the share within some hours is the same whatever the hours are."""
    assumed = load_interruptions(provider).assumed
    assert assumed.confidence == "assumed"
    assert (assumed.url[:8], bool(assumed.source)) == ("https://", True)
    assert -math.expm1(-rate_per_hour(assumed.value) * within_hours) == pytest.approx(share, rel=1e-6)
    assert taken_per_month(provider, "nothing", "nowhere").value is None
