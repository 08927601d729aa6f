"""The ladder as Compute Engine understands it."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.core.capacity import plan_rung
from gangway.components.core.findings import InputError
from gangway.components.gcp.capacity import (
    OFFERED,
    Provisioning,
    check_ladder,
    plan_provisioning,
    preferred_zone,
    rung_from_args,
    rung_zone,
)

MACHINES = cast("dict[str, GcpMachineType]", load_provider("gcp").machines)
RESERVED = {"kind": "reservation", "id": "ours"}
FLEX = {"kind": "flex-start", "max_hours": 24}
SPOT = {"kind": "spot"}
ON_DEMAND = {"kind": "on-demand"}


def check(*rungs: dict[str, Any]) -> None:
    check_ladder([rung_from_args(rung) for rung in rungs])


@pytest.mark.parametrize(
    ("rung", "machine_type", "expected"),
    [
        (SPOT, "a3-highgpu-8g", Provisioning("SPOT", False, "DELETE")),
        (ON_DEMAND, "a2-highgpu-8g", Provisioning("STANDARD", True)),
        (RESERVED, "a3-megagpu-8g", Provisioning("STANDARD", True, reservation="ours")),
        (RESERVED, "a4-highgpu-8g", Provisioning("RESERVATION_BOUND", True, "DELETE", "ours")),
        (FLEX, "a3-ultragpu-8g", Provisioning("FLEX_START", False, "DELETE", run_duration_sec=86400)),
    ],
)
def test_each_kind_has_its_model(rung: dict[str, Any], machine_type: str, expected: Provisioning) -> None:
    assert plan_provisioning(plan_rung(rung_from_args(rung)), MACHINES[machine_type]) == expected


@given(
    st.sampled_from([RESERVED, SPOT, ON_DEMAND])
    | st.floats(1, 168).map(lambda hours: {"kind": "flex-start", "max_hours": hours}),
    st.sampled_from(sorted(MACHINES)),
)
def test_what_compute_engine_lets_stand_together(rung: dict[str, Any], machine_type: str) -> None:
    plan = plan_provisioning(plan_rung(rung_from_args(rung)), MACHINES[machine_type])
    # Spot and flex-start instances are not started again, and end by being deleted; neither uses a reservation.
    assert plan.automatic_restart == (plan.model in {"STANDARD", "RESERVATION_BOUND"})
    assert (plan.termination_action == "DELETE") == (plan.model != "STANDARD")
    assert (plan.reservation is not None) == (rung["kind"] == "reservation")
    assert plan.model != "RESERVATION_BOUND" or plan.reservation is not None
    assert (plan.run_duration_sec is not None) == (plan.model == "FLEX_START")
    assert plan.run_duration_sec is None or 600 <= plan.run_duration_sec <= 604800, "what a resize request takes"


def test_a_capacity_block_is_not_googles() -> None:
    with pytest.raises(InputError, match="Google Cloud has no such capacity") as caught:
        check(SPOT, {"kind": "capacity-block", "id": "cr-0123456789abcdef0"})
    assert caught.value.place == "gangway:cluster.capacity[1].kind"
    assert caught.value.allowed == ", ".join(OFFERED)
    assert "flex-start" in caught.value.fix


@pytest.mark.parametrize("id_", ["ours", "a", "projects/other-lab/reservations/ours", "ours/reservationBlocks/b-1"])
def test_a_reservation_by_its_name(id_: str) -> None:
    check({**RESERVED, "id": id_})


@pytest.mark.parametrize(
    "id_", ["cr-", "Ours", "1st", "projects/x/ours", "ours/", "o" * 64, "us-east4-b/reservations/ours", "ours "]
)
def test_a_name_no_reservation_can_have_is_refused(id_: str) -> None:
    with pytest.raises(InputError, match="no reservation of this name") as caught:
        check({**RESERVED, "id": id_})
    assert (caught.value.place, caught.value.value) == ("gangway:cluster.capacity[0].id", id_)


@pytest.mark.parametrize("kind", ["spot", "on-demand"])
def test_one_group_has_one_machine_type_in_one_zone(kind: str) -> None:
    with pytest.raises(InputError, match="one machine type") as caught:
        check({"kind": kind, "machine_types": ["a2-ultragpu-8g"]})
    assert caught.value.place == "gangway:cluster.capacity[0].machine_types"
    with pytest.raises(InputError, match="lies in one zone") as caught:
        check(SPOT, {"kind": kind, "zones": ["us-east4-a", "us-east4-b"]})
    assert caught.value.place == "gangway:cluster.capacity[1].zones"
    assert f"{{kind: {kind}, zones: [us-east4-a]}}" in caught.value.fix
    check({"kind": kind, "zones": ["us-east4-a"]})


def test_the_zone_of_a_rung() -> None:
    rungs = [rung_from_args(r) for r in (SPOT, {**SPOT, "zones": ["b"]}, {**RESERVED, "zone": "c"}, RESERVED, FLEX)]
    assert [rung_zone(rung, "a") for rung in rungs] == ["a", "b", "c", "a", "a"]
    assert [rung_zone(plan_rung(rung), "a") for rung in rungs] == ["a", "b", "c", "a", "a"]
    assert preferred_zone(rungs) == ("c", "gangway:cluster.capacity[2], a reservation, is there")
    assert preferred_zone(rungs[:2]) is None
