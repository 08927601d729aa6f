"""The capacity ladder as Compute Engine understands it: which rungs there are, and what each makes of an instance.

Pure, without the SDK, so that a stack file is checked in no time. What is wrong by itself raises InputError here; what
only disagrees with the rest of the stack is a finding of `components.gcp.capacity_findings`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from components.capacity import AnyRung, OnDemand, Reservation, Rung, RungPlan, Spot, check_kinds
from components.catalog import GcpMachineType, RoceFabric
from components.findings import InputError

__all__ = [
    "LADDER",
    "OFFERED",
    "Provisioning",
    "check_ladder",
    "check_reservation_project",
    "plan_provisioning",
    "preferred_zone",
    "rung_from_args",
    "rung_zone",
]

LADDER = "gangway:cluster.capacity"
OFFERED = ("reservation", "flex-start", "spot", "on-demand")
"""The kinds of rungs that Compute Engine has."""

# A reservation of this project, or of one that shares it with us; a block of it where one is named.
_NAME = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_PROJECT = r"[a-z][-a-z0-9]{4,28}[a-z0-9]"
_RESERVATION = re.compile(rf"(projects/{_PROJECT}/reservations/)?{_NAME}(/reservationBlocks/{_NAME})?")


@dataclass(frozen=True)
class Provisioning:
    """The scheduling and the reservation of an instance template, in the API's words.

    Attributes:
        model: the provisioning model.
        automatic_restart: whether Compute Engine starts an instance again that it has ended.
        termination_action: what happens to an instance that is taken back; None where none is.
        reservation: the one to be used, None to use none: also not an open one that somebody else counts on.
        run_duration_sec: after which an instance is deleted; None for no such end.
    """

    model: Literal["STANDARD", "SPOT", "FLEX_START", "RESERVATION_BOUND"]
    automatic_restart: bool
    termination_action: Literal["DELETE"] | None = None
    reservation: str | None = None
    run_duration_sec: int | None = None


def rung_from_args(rung: Mapping[str, Any]) -> AnyRung:
    """A component's rung argument as the typed rung. Raises pydantic's ValidationError for a rung that is none."""
    adapter: TypeAdapter[AnyRung] = TypeAdapter(Rung)
    return adapter.validate_python(dict(rung))


def plan_provisioning(rung: RungPlan, machine: GcpMachineType) -> Provisioning:
    """What a rung makes of an instance template.

    Reserved A3 Ultra and A4 machines are bound to their reservation (AI Hypercomputer documentation, "Create a MIG
    with A4 or A3 Ultra"), those of earlier series are standard ones that use it.
    """
    if rung.max_hours is not None:
        return Provisioning("FLEX_START", False, "DELETE", run_duration_sec=round(rung.max_hours * 3600))
    if rung.reservation_id is not None:
        if isinstance(machine.gpu_fabric, RoceFabric):
            return Provisioning("RESERVATION_BOUND", True, "DELETE", rung.reservation_id)
        return Provisioning("STANDARD", True, reservation=rung.reservation_id)
    if rung.interruptible:
        return Provisioning("SPOT", False, "DELETE")
    return Provisioning("STANDARD", True)


def check_ladder(rungs: Sequence[AnyRung], place: str = LADDER) -> None:
    """Refuses what Compute Engine would refuse whatever the rest of the stack says.

    Args:
        rungs: the ladder, first choice first.
        place: config path of the ladder, put before each rung's.

    Raises:
        InputError: a kind that is another provider's, a reservation's name that can be none, several machine types or
            several zones in one rung.
    """
    check_kinds(rungs, OFFERED, "Google Cloud", place)
    for index, rung in enumerate(rungs):
        here = f"{place}[{index}]"
        if isinstance(rung, Reservation):
            check_reservation_project(rung.id, f"{here}.id")
        if isinstance(rung, Reservation) and not _RESERVATION.fullmatch(rung.id):
            raise InputError(
                f"{here}.id",
                "Compute Engine has no reservation of this name",
                value=rung.id,
                allowed="a name, or projects/PROJECT/reservations/NAME: lowercase letters, digits and -",
                fix="copy the name that `gcloud compute reservations list` shows",
            )
        if isinstance(rung, Spot | OnDemand):
            _check_market(rung, here)


def check_reservation_project(reservation: str, place: str) -> None:
    """Refuses the full name of a reservation in what can be no project, before anything is said of its name.

    Raises:
        InputError: the project's id is none.
    """
    named = re.match(r"projects/([^/]*)/(?:locations|reservations)/", reservation)
    if named is not None and not re.fullmatch(_PROJECT, named[1]):
        raise InputError(
            place,
            f"{named[1]!r} can be no project's id",
            value=reservation,
            allowed="an id of 6 to 30 lowercase letters, digits and -, beginning with a letter",
            fix="write the id of the project that shares it, or the reservation's name alone for one of your own",
        )


def _check_market(rung: Spot | OnDemand, here: str) -> None:
    """A managed instance group lies in one zone here, and its template has one machine type."""
    if rung.machine_types:
        raise InputError(
            f"{here}.machine_types",
            "one machine type a cluster on Google Cloud: their GPU networks differ",
            value=", ".join(rung.machine_types),
            allowed="no further machine types",
            fix="remove machine_types",
        )
    if len(rung.zones) > 1:
        raise InputError(
            f"{here}.zones",
            "a rung is one group of instances, which lies in one zone",
            value=", ".join(rung.zones),
            allowed="one zone, or none for the cluster's own",
            fix=f"write a rung for each: {{kind: {rung.kind}, zones: [{rung.zones[0]}]}} and so on",
        )


def rung_zone(rung: AnyRung | RungPlan, own: str) -> str:
    """The zone of a rung's nodes; `own`, the cluster's, where it names none."""
    zones: tuple[str, ...] = getattr(rung, "zones", ())
    zone: str | None = getattr(rung, "zone", None)
    return zone or next(iter(zones), own)


def preferred_zone(rungs: Iterable[AnyRung]) -> tuple[str, str] | None:
    """The zone a ladder ties the cluster to, where its owner chose none: (zone, why). None where any zone will do."""
    for index, rung in enumerate(rungs):
        if isinstance(rung, Reservation) and rung.zone is not None:
            return rung.zone, f"{LADDER}[{index}], a {rung.kind}, is there"
    return None
