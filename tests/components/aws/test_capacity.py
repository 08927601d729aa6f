"""Capacity as EC2 spells it: market options and targets that exclude each other, and the Spot Fleet."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from components.aws.capacity import SpotFleet, launch_market, rung_from_args
from components.capacity import plan_rung

IDS = st.from_regex(r"\Acr-[0-9a-f]{8,17}\Z")
RUNGS = st.one_of(
    st.fixed_dictionaries({"kind": st.sampled_from(["capacity-block", "reservation"]), "id": IDS}),
    st.fixed_dictionaries({"kind": st.just("spot")}, optional={"max_usd_per_hour": st.floats(0.001, 1e4)}),
    st.just({"kind": "on-demand"}),
)


@given(RUNGS)
def test_market_and_reservation_are_what_the_rung_says(rung: dict[str, Any]) -> None:
    market, target = launch_market(plan_rung(rung_from_args(rung)))
    kind = rung["kind"]
    assert (market is not None) == (kind in ("spot", "capacity-block"))
    assert (target is not None) == (kind in ("reservation", "capacity-block"))
    if market is not None:
        assert market.market_type == kind
        assert (market.spot_options is not None) == (kind == "spot"), "spot options belong to spot alone"
    if target is not None:
        reservation: Any = target.capacity_reservation_target
        assert reservation.capacity_reservation_id == rung["id"]
        assert target.capacity_reservation_preference is None, "a preference excludes a target"


@pytest.mark.parametrize(
    ("cap", "written"), [(25, "25"), (25.5, "25.5"), (0.0125, "0.0125"), (123.456789, "123.456789"), (None, None)]
)
def test_a_price_cap_reaches_ec2_unrounded(cap: float | None, written: str | None) -> None:
    market, _ = launch_market(plan_rung(rung_from_args({"kind": "spot", "max_usd_per_hour": cap})))
    assert market is not None
    options: Any = market.spot_options
    assert options.max_price == written
    assert (options.spot_instance_type, options.instance_interruption_behavior) == ("one-time", "terminate")


def test_a_rung_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="id"):
        rung_from_args({"kind": "reservation"})


def test_the_fleet_spreads_over_machines_and_subnets_and_leaves_nothing_behind(make: Callable[..., Any]) -> None:
    fleet = make(SpotFleet).one("SpotFleetRequest").inputs
    expected = {
        "allocationStrategy": "priceCapacityOptimized",
        "targetCapacity": 2,
        "spotPrice": "23.125",
        "fleetType": "maintain",
        "terminateInstancesOnDelete": "true",
        "instanceInterruptionBehaviour": "terminate",
        "waitForFulfillment": False,
        "iamFleetRole": "arn:aws:iam::1:role/fleet",
    }
    assert {key: fleet[key] for key in expected} == expected
    (template,) = fleet["launchTemplateConfigs"]
    assert template["launchTemplateSpecification"] == {"id": "lt-1", "version": "1"}
    assert [(o["instanceType"], o["subnetId"]) for o in template["overrides"]] == [
        ("p4d.24xlarge", "subnet-1"),
        ("p4d.24xlarge", "subnet-2"),
        ("p5.48xlarge", "subnet-1"),
        ("p5.48xlarge", "subnet-2"),
    ]
