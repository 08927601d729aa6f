"""The capacity ladder compiles to launch fields that never contradict each other."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from components.capacity import (
    AnyRung,
    BlockPurchase,
    CapacityBlock,
    OnDemand,
    Reservation,
    Rung,
    Spot,
    plan_ladder,
    plan_rung,
)

RUNG: TypeAdapter[AnyRung] = TypeAdapter(Rung)
IDS = st.from_regex(r"\Acr-[0-9a-f]{8,17}\Z")
ZONES = st.sampled_from(["a1", "b1", "c1"])
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))
MARKET = {
    "machine_types": st.lists(st.sampled_from(["big", "bigger"]), unique=True).map(tuple),
    "zones": st.lists(ZONES, unique=True).map(tuple),
}
DOLLARS = st.floats(min_value=1e-3, max_value=1e6)
RUNGS: st.SearchStrategy[AnyRung] = st.one_of(
    st.builds(
        CapacityBlock,
        kind=st.just("capacity-block"),
        id=IDS,
        ends_at=st.none() | MOMENTS,
        zone=st.none() | ZONES,
    ),
    st.builds(
        CapacityBlock,
        kind=st.just("capacity-block"),
        purchase=st.just(True),
        offering_id=IDS,
        upfront_usd=DOLLARS,
        ends_at=MOMENTS,
        zone=st.none() | ZONES,
    ),
    st.builds(Reservation, kind=st.just("reservation"), id=IDS, zone=st.none() | ZONES),
    st.builds(
        Spot,
        kind=st.just("spot"),
        max_usd_per_hour=st.none() | DOLLARS,
        allocation=st.sampled_from(["price-capacity-optimized", "capacity-optimized", "lowest-price"]),
        **MARKET,
    ),
    st.builds(OnDemand, kind=st.just("on-demand"), **MARKET),
)


@given(RUNGS)
def test_a_rungs_fields_exclude_each_other(rung: AnyRung) -> None:
    plan = plan_rung(rung)
    assert plan.kind == rung.kind
    # Spot has price cap and allocation, and no reservation.
    assert (plan.market_type == "spot") == plan.interruptible == (rung.kind == "spot")
    assert plan.max_usd_per_hour is None or plan.market_type == "spot"
    assert (plan.allocation is not None) == (plan.market_type == "spot")
    assert not (plan.reserved and plan.market_type == "spot")
    # Reserved capacity is owned or bought, never both, of one machine type in at most one zone, in no group of ours.
    assert plan.reserved == (rung.kind in ("capacity-block", "reservation"))
    assert plan.reservation_id is None or plan.purchase is None
    assert plan.purchase is None or rung.kind == "capacity-block"
    assert not (plan.reserved and plan.placement_group)
    assert not (plan.reserved and (plan.machine_types or len(plan.zones) > 1))
    # A cluster placement group lies in one zone.
    assert not (plan.placement_group and len(plan.zones) > 1)
    assert plan.placement_group or plan.reserved or len(plan.zones) > 1
    # The block is a market of its own, a plain reservation is not.
    assert (plan.market_type == "capacity-block") == (rung.kind == "capacity-block")
    assert plan.ends_at is None or rung.kind == "capacity-block"


@given(st.lists(RUNGS, min_size=1, max_size=6))
def test_the_ladder_keeps_the_order_it_was_written_in(rungs: list[AnyRung]) -> None:
    assert [plan.kind for plan in plan_ladder(tuple(rungs))] == [rung.kind for rung in rungs]


@given(RUNGS)
def test_a_rung_survives_the_way_through_a_stack_file(rung: AnyRung) -> None:
    assert RUNG.validate_python(rung.model_dump(exclude_none=True)) == rung
    assert RUNG.validate_json(rung.model_dump_json(exclude_none=True)) == rung


BOUGHT = {
    "kind": "capacity-block",
    "purchase": True,
    "offering_id": "cbo-0123456789abcdef0",
    "upfront_usd": 16000,
    "ends_at": "2026-07-01T11:30:00Z",
}
OWNED = {"kind": "capacity-block", "id": "cr-0123456789abcdef0"}


def without(written: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in written.items() if key not in keys}


def test_a_bought_block_carries_its_offering_and_price() -> None:
    plan = plan_rung(RUNG.validate_python(BOUGHT))
    assert plan.purchase == BlockPurchase("cbo-0123456789abcdef0", 16000)
    assert plan.reservation_id is None
    assert plan.ends_at == datetime(2026, 7, 1, 11, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"kind": "spot", "id": "cr-0123456789abcdef0"}, "id"),
        ({"kind": "on-demand", "max_usd_per_hour": 3}, "max_usd_per_hour"),
        ({"kind": "on-demand", "allocation": "lowest-price"}, "allocation"),
        ({**OWNED, "max_usd_per_hour": 3}, "max_usd_per_hour"),
        ({**OWNED, "machine_types": ["p5.48xlarge"]}, "machine_types"),
        ({"kind": "reservation"}, "id"),
        ({"kind": "reservation", "id": ""}, "id"),
        ({"kind": "spot", "max_usd_per_hour": 0}, "max_usd_per_hour"),
        ({"kind": "spot", "max_usd_per_hour": float("inf")}, "max_usd_per_hour"),
        ({"kind": "spot", "allocation": "cheapest"}, "price-capacity-optimized"),
        ({"kind": "spot", "zones": ["a", "b", "a"]}, "each name once; remove the second a"),
        ({"kind": "spot", "machine_types": [""]}, "machine_types"),
        ({"kind": "preemptible"}, "preemptible"),
        ({}, "kind"),
        ({"kind": "capacity-block"}, "add id"),
        ({**OWNED, "upfront_usd": 3}, "remove upfront_usd"),
        ({**OWNED, "offering_id": "cbo-1", "upfront_usd": 3}, "remove offering_id and upfront_usd"),
        ({**BOUGHT, "id": "cr-0123456789abcdef0"}, "remove one of them"),
        (without(BOUGHT, "upfront_usd"), "add upfront_usd"),
        (without(BOUGHT, "ends_at", "offering_id"), "add offering_id and ends_at"),
        ({**BOUGHT, "purchase": "yes"}, "purchase"),
        ({**BOUGHT, "upfront_usd": 0}, "upfront_usd"),
    ],
)
def test_a_contradictory_rung_cannot_be_written(written: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        RUNG.validate_python(written)


@pytest.mark.parametrize(
    "ends_at",
    ["2026-07-01", "2026-07-01T11:30:00", "tomorrow", 1782905400, datetime(2026, 7, 1, 11, 30), datetime.min.date()],
)
def test_an_end_needs_a_time_and_a_zone(ends_at: object) -> None:
    with pytest.raises(ValidationError, match="with its zone; write it like 2026-07-01T11:30:00Z"):
        RUNG.validate_python({**OWNED, "ends_at": ends_at})
