"""The capacity ladder compiles to launch fields that never contradict each other."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from components.capacity import CapacityBlock, OnDemand, Reservation, Rung, Spot, plan_ladder, plan_rung

AnyRung = CapacityBlock | Reservation | Spot | OnDemand
RUNG: TypeAdapter[AnyRung] = TypeAdapter(Rung)
IDS = st.from_regex(r"\Acr-[0-9a-f]{8,17}\Z")
CAPS = st.none() | st.floats(min_value=1e-3, max_value=1e4)
RUNGS: st.SearchStrategy[AnyRung] = st.one_of(
    st.builds(CapacityBlock, kind=st.just("capacity-block"), id=IDS),
    st.builds(Reservation, kind=st.just("reservation"), id=IDS),
    st.builds(Spot, kind=st.just("spot"), max_usd_per_hour=CAPS),
    st.builds(OnDemand, kind=st.just("on-demand")),
)


@given(RUNGS)
def test_a_rungs_fields_exclude_each_other(rung: AnyRung) -> None:
    plan = plan_rung(rung)
    reserved = plan.reservation_id is not None
    assert plan.kind == rung.kind
    # Spot has a price cap and no reservation; reserved capacity has a target and no placement group of ours.
    assert (plan.market_type == "spot") == plan.interruptible == (rung.kind == "spot")
    assert plan.max_usd_per_hour is None or plan.market_type == "spot"
    assert not (reserved and plan.market_type == "spot")
    assert plan.placement_group is not reserved
    assert reserved == (rung.kind in ("capacity-block", "reservation"))
    # The block is a market of its own, a plain reservation is not.
    assert (plan.market_type == "capacity-block") == (rung.kind == "capacity-block")


@given(st.lists(RUNGS, min_size=1, max_size=6))
def test_the_ladder_keeps_the_order_it_was_written_in(rungs: list[AnyRung]) -> None:
    assert [plan.kind for plan in plan_ladder(tuple(rungs))] == [rung.kind for rung in rungs]


@given(RUNGS)
def test_a_rung_survives_the_way_through_a_stack_file(rung: AnyRung) -> None:
    assert RUNG.validate_python(rung.model_dump(exclude_none=True)) == rung


@pytest.mark.parametrize(
    "written",
    [
        {"kind": "spot", "id": "cr-0123456789abcdef0"},
        {"kind": "on-demand", "max_usd_per_hour": 3},
        {"kind": "reservation"},
        {"kind": "reservation", "id": "0123456789abcdef0"},
        {"kind": "capacity-block", "id": "cr-XYZ"},
        {"kind": "spot", "max_usd_per_hour": 0},
        {"kind": "spot", "max_usd_per_hour": float("inf")},
        {"kind": "preemptible"},
        {},
    ],
)
def test_a_contradictory_rung_cannot_be_written(written: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RUNG.validate_python(written)
