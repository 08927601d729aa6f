"""The ladder of OpenStack: one rung, on demand or reserved."""

from typing import Any

import pytest

from gangway.components.core.capacity import plan_rung, rung_from_args
from gangway.components.core.findings import InputError
from gangway.components.openstack.capacity import OFFERED, check_flavour, check_ladder, plan_placing

RESERVATION = "c1fb5090-e046-42a5-8287-2aa380a8d31a"
RESERVED = {"kind": "reservation", "id": RESERVATION}


def ladder(*rungs: dict[str, Any]) -> None:
    check_ladder([rung_from_args(rung) for rung in rungs])


def test_what_openstack_has_is_taken() -> None:
    rungs: list[dict[str, Any]] = [{"kind": "on-demand"}, RESERVED]
    assert {rung["kind"] for rung in rungs} == set(OFFERED)
    for rung in rungs:
        ladder(rung)


@pytest.mark.parametrize(
    ("rungs", "place", "problem", "fix"),
    [
        ([{"kind": "spot"}], "[0].kind", "sells no spare capacity", "write kind: on-demand"),
        ([{"kind": "on-demand"}, {"kind": "spot"}], "[1].kind", "sells no spare capacity", "write kind: on-demand"),
        ([{"kind": "flex-start", "max_hours": 5}], "[0].kind", "OpenStack has no such capacity", "on-demand"),
        ([{"kind": "capacity-block", "id": "cr-1"}], "[0].kind", "OpenStack has no such capacity", "on-demand"),
        (
            [RESERVED, {"kind": "on-demand"}],
            "",
            "nothing in OpenStack turns to a second rung",
            "keep reservation alone",
        ),
        ([{"kind": "reservation", "id": "cr-1"}], "[0].id", "no id of a reservation of Blazar's", "lease show"),
        ([{**RESERVED, "zone": "nova"}], "[0].zone", "not a zone of its own", "gangway:cluster.zone"),
        ([{"kind": "on-demand", "zones": ["a", "b"]}], "[0].zones", "not several zones", "remove zones"),
        ([{"kind": "on-demand", "machine_types": ["b"]}], "[0].machine_types", "several flavours", "remove"),
    ],
)
def test_what_it_has_not_is_refused_with_the_reason(
    rungs: list[dict[str, Any]], place: str, problem: str, fix: str
) -> None:
    with pytest.raises(InputError) as caught:
        ladder(*rungs)
    assert caught.value.place == f"gangway:cluster.capacity{place}"
    assert problem in caught.value.problem
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("rung", "flavour", "server_group", "hints"),
    [
        ({"kind": "on-demand"}, "gpu", True, {}),
        (RESERVED, "gpu", False, {"reservation": RESERVATION}),
        (RESERVED, f"reservation:{RESERVATION}", False, {}),
    ],
    ids=["on demand", "hosts", "flavour"],
)
def test_what_the_scheduler_is_told(
    rung: dict[str, Any], flavour: str, server_group: bool, hints: dict[str, str]
) -> None:
    """A reservation places its nodes itself; a hint beside a reserved flavour would leave no host."""
    placing = plan_placing(plan_rung(rung_from_args(rung)), flavour)
    assert (placing.server_group, dict(placing.hints)) == (server_group, hints)


@pytest.mark.parametrize(
    ("rung", "place"),
    [({"kind": "on-demand"}, "kind"), ({**RESERVED, "id": RESERVATION.replace("c1", "c2")}, "id")],
)
def test_a_reserved_flavour_goes_with_its_reservation(rung: dict[str, Any], place: str) -> None:
    check_flavour([rung_from_args(RESERVED)], f"reservation:{RESERVATION}")
    check_flavour([rung_from_args(rung)], "gpu")
    with pytest.raises(InputError) as caught:
        check_flavour([rung_from_args(rung)], f"reservation:{RESERVATION}")
    assert caught.value.place == f"gangway:cluster.capacity[0].{place}"
    assert f"id: {RESERVATION}" in caught.value.fix
