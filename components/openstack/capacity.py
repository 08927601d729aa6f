"""The capacity ladder in OpenStack: one rung, on demand or in a Blazar reservation. Sources: Blazar's "Flavor-based
instance reservation", "Host reservation", and openstack/blazar-nova, blazar_filter.py: the hint `reservation` requests
reserved hosts only; a reserved flavour fits no host together with the hint.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gangway.components.core.capacity import LADDER, AnyRung, OnDemand, Reservation, RungPlan, Spot, check_kinds
from gangway.components.core.findings import InputError

OFFERED = ("reservation", "on-demand")  # the kinds of rungs in OpenStack
RESERVED_FLAVOUR = "reservation:"  # prefix of a reserved flavour; the reservation's id follows
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Placing:
    """Scheduling by Nova. `server_group`: not in a reservation, whose hosts Blazar chooses; `hints`: by API name."""

    server_group: bool
    hints: Mapping[str, str]


def plan_placing(rung: RungPlan, flavour: str) -> Placing:
    """The scheduling of a rung that `check_ladder` and `check_flavour` accept."""
    of_hosts = rung.reservation_id is not None and not flavour.startswith(RESERVED_FLAVOUR)
    return Placing(rung.placement_group, {"reservation": str(rung.reservation_id)} if of_hosts else {})


def check_ladder(rungs: Sequence[AnyRung], place: str = LADDER) -> None:
    """Check the ladder. InputError: unsupported kind, several rungs, a foreign id, extra machine types or zones."""
    for index, rung in enumerate(rungs):
        if isinstance(rung, Spot):
            raise InputError(
                f"{place}[{index}].kind",
                "OpenStack sells no spare capacity: nobody is outbid, and nobody's instances are taken back",
                value=rung.kind,
                allowed=", ".join(OFFERED),
                fix="write kind: on-demand",
            )
    check_kinds(rungs, OFFERED, "OpenStack", place)
    if len(rungs) > 1:
        raise InputError(
            place,
            "nothing in OpenStack turns to a second rung: `up` gets the first one's nodes, or fails",
            value=", ".join(rung.kind for rung in rungs),
            allowed="one rung",
            fix=f"keep {rungs[0].kind} alone",
        )
    for index, rung in enumerate(rungs):
        _check_rung(rung, f"{place}[{index}]")


def check_flavour(rungs: Sequence[AnyRung], flavour: str, place: str = LADDER) -> None:
    """Check a reserved flavour. InputError: the rung is on demand or has another reservation."""
    if not flavour.startswith(RESERVED_FLAVOUR):
        return
    reservation, rung = flavour.removeprefix(RESERVED_FLAVOUR), rungs[0]
    if not isinstance(rung, Reservation) or rung.id != reservation:
        raise InputError(
            f"{place}[0].{'id' if isinstance(rung, Reservation) else 'kind'}",
            f"not what the flavour {flavour} was reserved by",
            value=rung.id if isinstance(rung, Reservation) else rung.kind,
            allowed=f"kind: reservation, id: {reservation}",
            fix=f"write capacity: [{{kind: reservation, id: {reservation}}}], or another machine_type",
        )


def _check_rung(rung: AnyRung, here: str) -> None:
    if isinstance(rung, Reservation) and not _UUID.fullmatch(rung.id):
        raise InputError(
            f"{here}.id",
            "no id of a reservation of Blazar's",
            value=rung.id,
            allowed="a UUID",
            fix="copy the reservation's id (not the lease's) that `openstack reservation lease show LEASE` shows",
        )
    further = {"machine_types": "several flavours", "zones": "several zones", "zone": "a zone of its own"}
    for name, what in further.items():
        # On demand, flavour and zone are the cluster's.
        if isinstance(rung, OnDemand | Reservation) and (value := getattr(rung, name, None)):
            raise InputError(
                f"{here}.{name}",
                f"a rung of OpenStack's has not {what}",
                value=value if isinstance(value, str) else ", ".join(value),
                allowed="the cluster's own",
                fix=f"remove {name}" + ("" if name == "machine_types" else ", and set gangway:cluster.zone"),
            )
