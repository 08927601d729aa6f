"""What the launcher tells the trainer: each figure with its provenance, and nothing invented."""

import os

import pytest

from components.catalog import load
from stacks.config import StackConfig
from stacks.run_context import cloud_context, local_context


def test_the_clouds_figures_come_from_the_catalogue(demo_config: StackConfig) -> None:
    catalog = load()
    machine, region = catalog.machine("p5.48xlarge"), catalog.region("us-east-2", "aws")
    context = cloud_context(demo_config, machine, region, catalog.price("p5.48xlarge", "us-east-2"), "sha256:ab")
    assert (context.stack, context.provider, context.machine_type) == ("aws-demo", "aws", "p5.48xlarge")
    assert (context.capacity, context.num_nodes) == (("spot", "on-demand"), 2)
    price, pue, intensity = context.usd_per_hour, context.pue, context.intensity_g_per_kwh
    assert context.image_digest == "sha256:ab"
    assert price is not None
    assert (price.value, price.unit, price.provenance) == (22.98, "USD/h", "list-price")
    assert (price.source, price.as_of) == ("SkyPilot catalogue v9 (list-price)", "2026-09-06")
    assert price.note.startswith("spot, us-east-1"), "the region whose price stands in"
    assert pue is not None
    assert (pue.value, pue.unit) == (1.13, "1")
    assert intensity is not None
    assert (intensity.value, intensity.unit, intensity.as_of) == (396, "gCO2e/kWh", "2024-12-31")


@pytest.mark.parametrize("machine_type", ["g5.xlarge", "p9.none"])
def test_a_price_nobody_knows_is_absent_with_its_reason(demo_config: StackConfig, machine_type: str) -> None:
    """g5.xlarge has no spot price in the catalogue, p9.none has no price at all."""
    catalog = load()
    machine, region = catalog.machine("g5.xlarge"), catalog.region("us-east-2", "aws")
    price = cloud_context(demo_config, machine, region, catalog.price(machine_type, "us-east-2"), "").usd_per_hour
    assert price is not None
    assert (price.value, price.provenance) == (None, "absent")
    assert "the catalogue has no spot price" in str(price)


def test_this_machine_has_no_bill_and_an_assumed_grid() -> None:
    context = local_context("aws-demo", "run-1")
    assert (context.run_id, context.stack, context.provider) == ("run-1", "aws-demo", "local")
    assert context.machine_type == f"{os.cpu_count()} CPU cores"
    price, pue, intensity = context.usd_per_hour, context.pue, context.intensity_g_per_kwh
    assert price is not None
    assert (price.value, price.provenance) == (None, "absent")
    assert pue is not None
    assert (pue.value, pue.provenance) == (1.0, "assumed")
    assert intensity is not None
    assert (intensity.value, intensity.provenance) == (480.0, "assumed")
    assert "Ember" in str(intensity.source)
