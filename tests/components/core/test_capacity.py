"""The capacity ladder compiles to launch fields that never contradict each other."""

from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from gangway.components.core.capacity import (
    AnyRung,
    BlockPurchase,
    CapacityBlock,
    FlexStart,
    OnDemand,
    Reservation,
    Rung,
    Spot,
    check_kinds,
    plan_ladder,
    plan_rung,
)
from gangway.components.core.findings import InputError

RUNG: TypeAdapter[AnyRung] = TypeAdapter(Rung)
# `owned` or `bought`, and changes -> a capacity block as it is written.
Written = Callable[..., dict[str, Any]]
IDS = st.from_regex(r"\Acr-[0-9a-f]{8,17}\Z")
ZONES = st.sampled_from(["a1", "b1", "c1"])
STARTS = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))
MOMENTS = st.datetimes(datetime(2030, 1, 2), datetime(2040, 1, 1), timezones=st.just(UTC))
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
        starts_at=st.none() | STARTS,
        ends_at=st.none() | MOMENTS,
        zone=st.none() | ZONES,
    ),
    st.builds(
        CapacityBlock,
        kind=st.just("capacity-block"),
        purchase=st.just(True),
        offering_id=IDS,
        upfront_usd=DOLLARS,
        starts_at=STARTS,
        ends_at=MOMENTS,
        zone=st.none() | ZONES,
    ),
    st.builds(Reservation, kind=st.just("reservation"), id=IDS, zone=st.none() | ZONES),
    st.builds(FlexStart, kind=st.just("flex-start"), max_hours=st.floats(1, 168)),
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
    assert plan.placement_group or plan.reserved or len(plan.zones) > 1 or rung.kind == "flex-start"
    # Flex-start is a market of its own, whose nodes end together.
    assert (plan.market_type == "flex-start") == (plan.max_hours is not None) == (rung.kind == "flex-start")
    assert not (rung.kind == "flex-start" and (plan.placement_group or plan.machine_types or plan.zones))
    # The block is a market of its own, a plain reservation is not.
    assert (plan.market_type == "capacity-block") == (rung.kind == "capacity-block")
    assert plan.ends_at is None or rung.kind == "capacity-block"
    assert plan.starts_at is None or rung.kind == "capacity-block"


@given(st.lists(RUNGS, min_size=1, max_size=6))
def test_the_ladder_keeps_the_order_it_was_written_in(rungs: list[AnyRung]) -> None:
    assert [plan.kind for plan in plan_ladder(tuple(rungs))] == [rung.kind for rung in rungs]


@given(RUNGS)
def test_a_rung_survives_the_way_through_a_stack_file(rung: AnyRung) -> None:
    assert RUNG.validate_python(rung.model_dump(exclude_none=True)) == rung
    assert RUNG.validate_json(rung.model_dump_json(exclude_none=True)) == rung


def test_a_bought_block_carries_its_offering_and_price(written: Written) -> None:
    plan = plan_rung(RUNG.validate_python(written("bought")))
    assert plan.purchase == BlockPurchase("cbo-0123456789abcdef0", 16000)
    assert plan.reservation_id is None
    assert plan.starts_at == datetime(2026, 6, 30, 11, 30, tzinfo=UTC)
    assert plan.ends_at == datetime(2026, 7, 1, 11, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("rung", "words"),
    [
        ({"kind": "spot", "id": "cr-0123456789abcdef0"}, "id"),
        ({"kind": "on-demand", "max_usd_per_hour": 3}, "max_usd_per_hour"),
        ({"kind": "on-demand", "allocation": "lowest-price"}, "allocation"),
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
    ],
)
def test_a_contradictory_rung_cannot_be_written(rung: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        RUNG.validate_python(rung)


def test_a_block_is_written_with_these_fields() -> None:
    """Stack files in the world have them."""
    names = {
        "kind",
        "id",
        "purchase",
        "offering_id",
        "upfront_usd",
        "starts_at",
        "ends_at",
        "zone",
        "paid_usd_per_hour",
    }
    assert set(CapacityBlock.model_fields) == names | {"paid_usd_per_hour"}
    assert {field.name for field in fields(BlockPurchase)} == {"offering_id", "upfront_usd"}


@pytest.mark.parametrize(
    ("block", "changes", "message"),
    [
        ({}, {}, "id of an owned block, or purchase: true; add id"),
        ({"id": "cr-1"}, {"offering_id": "cbo-1"}, "offering_id beside purchase: true only; remove offering_id"),
        ({"purchase": True}, {"paid_usd_per_hour": 3}, "paid_usd_per_hour beside id only; remove paid_usd_per_hour"),
        ({"id": "cr-1"}, {"upfront_usd": 3}, "upfront_usd beside purchase: true only; remove upfront_usd"),
        (
            {"id": "cr-1"},
            {"offering_id": "cbo-1", "upfront_usd": 3},
            "offering_id beside purchase: true only; remove offering_id and upfront_usd",
        ),
        (
            {"id": "cr-1"},
            {"purchase": True},
            "either id (an owned block) or purchase: true (a new one); remove one of them",
        ),
        (
            {"purchase": True},
            {},
            "offering_id, upfront_usd, starts_at and ends_at beside purchase: true; "
            "add offering_id and upfront_usd and starts_at and ends_at",
        ),
        (
            {"id": "cr-1"},
            {"starts_at": "2026-07-02T11:30:00Z", "ends_at": "2026-07-01T11:30:00Z"},
            "starts_at before ends_at; set both to what the provider shows for the block",
        ),
    ],
)
def test_what_a_block_lacks_or_has_too_much_is_told_by_its_fields_names(
    block: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        RUNG.validate_python({"kind": "capacity-block", **block, **changes})
    assert [mistake["msg"] for mistake in caught.value.errors()] == [f"Value error, {message}"]


@pytest.mark.parametrize(
    ("block", "changes", "words"),
    [
        ("owned", {"max_usd_per_hour": 3}, "max_usd_per_hour"),
        ("owned", {"machine_types": ["p5.48xlarge"]}, "machine_types"),
        ("bought", {"id": "cr-0123456789abcdef0"}, "remove one of them"),
        ("bought", {"upfront_usd": None}, "add upfront_usd"),
        ("bought", {"ends_at": None, "offering_id": None}, "add offering_id and ends_at"),
        ("bought", {"starts_at": None}, "add starts_at"),
        ("bought", {"starts_at": "2026-07-01T11:30:00Z"}, "starts_at before ends_at"),
        ("owned", {"starts_at": "2026-07-02"}, "a time with its zone"),
        ("bought", {"purchase": "yes"}, "purchase"),
        ("bought", {"upfront_usd": 0}, "upfront_usd"),
    ],
)
def test_a_contradictory_block_cannot_be_written(
    written: Written, block: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        RUNG.validate_python(written(block, **changes))


@pytest.mark.parametrize(
    ("ends_at", "fix"),
    [
        ("2026-07-01", "write 2026-07-01T00:00:00Z, with the hour"),
        ("2026-07-01T11:30:00", "write 2026-07-01T11:30:00Z, with the hour"),
        (datetime(2026, 7, 1, 11, 30), "write 2026-07-01T11:30:00Z, with the hour"),
        ("tomorrow", "write it like 2026-07-01T11:30:00Z"),
        (1782905400, "write it like 2026-07-01T11:30:00Z"),
        (datetime.min.date(), "write it like 2026-07-01T11:30:00Z"),
    ],
)
def test_an_end_needs_a_time_and_a_zone(written: Written, ends_at: object, fix: str) -> None:
    with pytest.raises(ValidationError, match=f"with its zone; {fix}"):
        RUNG.validate_python(written("owned", ends_at=ends_at))


@pytest.mark.parametrize("hours", [1, 24, 168, 1.5])
def test_a_flex_start_rung_lives_for_its_hours(hours: float) -> None:
    plan = plan_rung(RUNG.validate_python({"kind": "flex-start", "max_hours": hours}))
    assert (plan.market_type, plan.max_hours) == ("flex-start", hours)
    assert not plan.interruptible
    assert not plan.placement_group, "nodes that come together stand together"
    assert not plan.reserved
    assert plan.ends_at is None, "when it ends is known only once it has begun"


@pytest.mark.parametrize("hours", [None, 0, 0.9, 168.1, -1, True, "24h", float("nan"), float("inf")])
def test_flex_start_takes_an_hour_to_a_week(hours: Any) -> None:
    with pytest.raises(ValidationError):
        RUNG.validate_python({"kind": "flex-start", "max_hours": hours})


def test_a_kind_that_a_provider_does_not_have_is_refused_with_those_it_has() -> None:
    ladder = [RUNG.validate_python(r) for r in ({"kind": "spot"}, {"kind": "flex-start", "max_hours": 24})]
    check_kinds(ladder, ("spot", "flex-start"), "Google Cloud", "capacity")
    with pytest.raises(InputError, match="AWS has no such capacity") as caught:
        check_kinds(ladder, ("capacity-block", "spot", "on-demand"), "AWS", "gangway:cluster.capacity")
    assert (caught.value.place, caught.value.value) == ("gangway:cluster.capacity[1].kind", "flex-start")
    assert caught.value.allowed == "capacity-block, spot, on-demand"
    assert caught.value.fix == "set gangway:cluster.capacity[1]: {kind: on-demand}, or write capacity-block"
