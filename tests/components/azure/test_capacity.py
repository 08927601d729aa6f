"""The ladder as virtual machine scale sets understand it."""

from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.capacity import (
    OFFERED,
    UP_TO_ON_DEMAND,
    ScaleSetFields,
    check_ladder,
    plan_scale_set,
    preferred_zone,
    rung_from_args,
    rung_zones,
)
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import AzureMachineType
from gangway.components.core.capacity import plan_rung
from gangway.components.core.findings import InputError

MACHINES = cast("dict[str, AzureMachineType]", load_provider("azure").machines)
H100, NC = "Standard_ND96isr_H100_v5", "Standard_NC24ads_A100_v4"
GROUP = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/lab"
    "/providers/Microsoft.Compute/capacityReservationGroups/ours"
)
RESERVED = {"kind": "reservation", "id": GROUP}
SPOT = {"kind": "spot"}
ON_DEMAND = {"kind": "on-demand"}


def check(*rungs: dict[str, Any]) -> None:
    check_ladder([rung_from_args(rung) for rung in rungs])


def plan(rung: dict[str, Any], machine_type: str) -> ScaleSetFields:
    return plan_scale_set(plan_rung(rung_from_args(rung)), MACHINES[machine_type])


@pytest.mark.parametrize(
    ("rung", "machine_type", "expected"),
    [
        (SPOT, H100, ScaleSetFields("Spot", "Delete", -1.0, None, True)),
        ({**SPOT, "max_usd_per_hour": 40}, H100, ScaleSetFields("Spot", "Delete", 40.0, None, True)),
        (ON_DEMAND, H100, ScaleSetFields("Regular", None, None, None, True)),
        (ON_DEMAND, NC, ScaleSetFields("Regular", None, None, None, False)),
        (RESERVED, NC, ScaleSetFields("Regular", None, None, GROUP, False)),
    ],
)
def test_each_kind_of_rung(rung: dict[str, Any], machine_type: str, expected: ScaleSetFields) -> None:
    assert plan(rung, machine_type) == expected


RUNGS = st.sampled_from([RESERVED, SPOT, ON_DEMAND]) | st.floats(0.00001, 1000).map(
    lambda usd: {**SPOT, "max_usd_per_hour": usd}
)


@given(RUNGS, st.sampled_from(sorted(MACHINES)))
def test_what_excludes_each_other_never_stands_together(rung: dict[str, Any], machine_type: str) -> None:
    fields = plan(rung, machine_type)
    profile = fields.profile()
    spot, reserved = rung["kind"] == "spot", rung["kind"] == "reservation"
    assert profile["priority"] == ("Spot" if spot else "Regular")
    assert ("eviction_policy" in profile) == ("billing_profile" in profile) == spot
    assert ("capacity_reservation" in profile) == reserved
    # Azure takes no reservation in a single placement group, and InfiniBand nothing else.
    assert not (reserved and fields.single_placement_group)
    assert reserved or fields.single_placement_group == (MACHINES[machine_type].infiniband is not None)


@given(st.floats(0.00001, 1000))
def test_a_price_cap_is_rounded_down_to_what_azure_takes(usd: float) -> None:
    cap = plan({**SPOT, "max_usd_per_hour": usd}, H100).max_price
    assert cap is not None
    assert Decimal(repr(usd)) - Decimal("0.00001") < Decimal(repr(cap)) <= Decimal(repr(usd))
    assert Decimal(repr(cap)) % Decimal("0.00001") == 0
    assert cap != UP_TO_ON_DEMAND


def test_the_profile_is_in_pulumis_spelling() -> None:
    assert plan({**SPOT, "max_usd_per_hour": 40}, H100).profile() == {
        "priority": "Spot",
        "eviction_policy": "Delete",
        "billing_profile": {"max_price": 40.0},
    }
    assert plan(RESERVED, NC).profile() == {
        "priority": "Regular",
        "capacity_reservation": {"capacity_reservation_group": {"id": GROUP}},
    }


@pytest.mark.parametrize(
    "rung", [{"kind": "capacity-block", "id": "cr-0123456789abcdef0"}, {"kind": "flex-start", "max_hours": 24}]
)
def test_what_only_others_sell_is_refused(rung: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="Azure has no such capacity") as caught:
        check(SPOT, rung)
    assert caught.value.place == "gangway:cluster.capacity[1].kind"
    assert caught.value.allowed == ", ".join(OFFERED)
    assert caught.value.fix == "set gangway:cluster.capacity[1]: {kind: on-demand}", "never what Azure lacks as well"


@pytest.mark.parametrize("id_", [GROUP, GROUP.lower(), GROUP.replace("lab", "a.b_c-(d)")])
def test_a_group_by_its_id(id_: str) -> None:
    check({**RESERVED, "id": id_}, SPOT, ON_DEMAND)


@pytest.mark.parametrize(
    "id_",
    [
        "ours",
        "cr-0123456789abcdef0",
        GROUP.replace("Groups/ours", "s/ours"),
        f"{GROUP}/capacityReservations/h100",
        f"{GROUP} ",
        GROUP.removeprefix("/"),
    ],
)
def test_what_is_no_id_of_a_group_is_refused(id_: str) -> None:
    with pytest.raises(InputError, match="no id of a capacity reservation group") as caught:
        check({**RESERVED, "id": id_})
    assert (caught.value.place, caught.value.value) == ("gangway:cluster.capacity[0].id", id_)


@pytest.mark.parametrize("kind", ["spot", "on-demand"])
def test_a_scale_set_has_one_size(kind: str) -> None:
    with pytest.raises(InputError, match="one scale set, which has one size") as caught:
        check({"kind": kind, "machine_types": [NC]})
    assert caught.value.place == "gangway:cluster.capacity[0].machine_types"
    assert caught.value.fix == "remove machine_types"


def test_a_price_below_azures_smallest_is_refused() -> None:
    with pytest.raises(InputError, match="takes no such price") as caught:
        check({**SPOT, "max_usd_per_hour": 0.000009})
    assert caught.value.place == "gangway:cluster.capacity[0].max_usd_per_hour"
    assert caught.value.allowed == "US dollars, from 0.00001 on"


def test_the_zones_of_a_rung() -> None:
    assert rung_zones(rung_from_args(SPOT), "1") == ("1",)
    assert rung_zones(rung_from_args(SPOT), "") == ()
    assert rung_zones(rung_from_args({**SPOT, "zones": ["2", "3"]}), "1") == ("2", "3")
    assert rung_zones(rung_from_args({**RESERVED, "zone": "3"}), "1") == ("3",)
    assert rung_zones(plan_rung(rung_from_args({**RESERVED, "zone": "3"})), "1") == ("3",)


def test_a_reservation_draws_the_cluster_into_its_zone() -> None:
    rungs = [rung_from_args(rung) for rung in ({**SPOT, "zones": ["2"]}, {**RESERVED, "zone": "3"})]
    assert preferred_zone(rungs) == ("3", "gangway:cluster.capacity[1], a reservation, is there")
    assert preferred_zone(rungs[:1]) is None
    assert preferred_zone([rung_from_args(RESERVED)]) is None
