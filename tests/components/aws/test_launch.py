"""Launch templates: markets and targets that exclude each other, and price caps that reach EC2 unrounded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.capacity import rung_from_args
from gangway.components.aws.launch import launch_market
from gangway.components.core.capacity import plan_rung

IDS = st.from_regex(r"\Acr-[0-9a-f]{8,17}\Z")
RUNGS = st.one_of(
    st.fixed_dictionaries({"kind": st.sampled_from(["capacity-block", "reservation"]), "id": IDS}),
    st.fixed_dictionaries(
        {
            "kind": st.just("capacity-block"),
            "purchase": st.just(True),
            "offering_id": st.just("cbo-01234567"),
            "upfront_usd": st.floats(1, 1e6),
            "starts_at": st.just("2026-06-30T11:30:00Z"),
            "ends_at": st.just("2026-07-01T11:30:00Z"),
        }
    ),
    st.fixed_dictionaries({"kind": st.just("spot")}, optional={"max_usd_per_hour": st.floats(0.001, 1e4)}),
    st.just({"kind": "on-demand"}),
)


@given(RUNGS)
def test_market_and_reservation_are_what_the_rung_says(rung: dict[str, Any]) -> None:
    bought = "cr-bought" if rung.get("purchase") else None
    market, target = launch_market(plan_rung(rung_from_args(rung)), bought)
    kind = rung["kind"]
    assert (market is not None) == (kind in ("spot", "capacity-block"))
    assert (target is not None) == (kind in ("reservation", "capacity-block"))
    if market is not None:
        assert market.market_type == kind
        assert (market.spot_options is not None) == (kind == "spot"), "spot options belong to spot alone"
    if target is not None:
        reservation: Any = target.capacity_reservation_target
        assert reservation.capacity_reservation_id == (bought or rung["id"])
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
