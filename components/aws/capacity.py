"""The capacity ladder as EC2 understands it: how ids look, which machines a rung launches, when nodes start and stop.

Pure, without the AWS SDK, so that a stack file is checked in no time. What is wrong by itself raises InputError here;
what only disagrees with the rest of the stack is a finding of `components.aws.capacity_findings`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter

from components.capacity import AnyRung, CapacityBlock, Reservation, Rung, RungPlan, check_kinds
from components.catalog import MachineType, load
from components.findings import InputError, nearest_hint

__all__ = [
    "BEHIND_BLOCK_DELAY",
    "BLOCK_END_NOTICE",
    "BLOCK_STOP_LEAD",
    "LADDER",
    "block_stop_time",
    "check_ladder",
    "check_zones",
    "ladder_zones",
    "opening_times",
    "preferred_zone",
    "rung_from_args",
    "rung_machines",
    "zones_of",
]

LADDER = "gangway:cluster.capacity"
OFFERED = ("capacity-block", "reservation", "spot", "on-demand")
"""The kinds of capacity that EC2 sells."""

BLOCK_END_NOTICE = timedelta(minutes=30)
"""EC2 begins to end a block's nodes so long before its end (EC2 user guide, "Capacity Blocks for ML")."""
BLOCK_STOP_LEAD = timedelta(minutes=10)
"""How much earlier we empty the group: the hook's five minutes for a last checkpoint, and as much again to be late."""

BEHIND_BLOCK_DELAY = timedelta(hours=1)
"""How long a rung leaves a block that begins to come up: large machines boot, and the fill alarm looks back as long."""

_RESERVATION = re.compile(r"cr-[0-9a-f]{8,17}")
_OFFERING = re.compile(r"cbo?-[0-9a-f]{8,17}")


def rung_from_args(rung: Mapping[str, Any]) -> AnyRung:
    """A component's rung argument as the typed rung. Raises pydantic's ValidationError for a rung that is none."""
    adapter: TypeAdapter[AnyRung] = TypeAdapter(Rung)
    return adapter.validate_python(dict(rung))


def check_ladder(rungs: Sequence[AnyRung], machine: MachineType, place: str = LADDER) -> None:
    """Refuses what EC2 would refuse whatever the rest of the stack says.

    Args:
        rungs: the ladder, first choice first.
        machine: the cluster's own machine type.
        place: config path of the ladder, put before each rung's.

    Raises:
        InputError: a kind EC2 does not sell, an id it never gives, or a machine type nobody knows, with its path.
    """
    check_kinds(rungs, OFFERED, "AWS", place)
    for index, rung in enumerate(rungs):
        here = f"{place}[{index}]"
        if isinstance(rung, CapacityBlock | Reservation) and rung.id is not None:
            _check_id(rung.id, _RESERVATION, f"{here}.id", "cr-", "the id that EC2 shows among Capacity Reservations")
        if isinstance(rung, CapacityBlock) and rung.offering_id is not None:
            hint = "the id that `aws ec2 describe-capacity-block-offerings` shows"
            _check_id(rung.offering_id, _OFFERING, f"{here}.offering_id", "cbo-", hint)
        rung_machines(rung, machine, here)


def _check_id(value: str, form: re.Pattern[str], place: str, prefix: str, where: str) -> None:
    if not form.fullmatch(value):
        raise InputError(
            place,
            "EC2 has no id of this form",
            value=value,
            allowed=f"{prefix} and 8 to 17 hexadecimal digits, such as {prefix}0123456789abcdef0",
            fix=f"copy {where}",
        )


def rung_machines(rung: AnyRung | RungPlan, machine: MachineType, place: str = LADDER) -> tuple[MachineType, ...]:
    """The machine types a rung may launch, the cluster's own first. Raises InputError for one nobody knows."""
    known = {name: row for name, row in load().machines.items() if row.provider == "aws"}
    found = {machine.name: machine}
    for index, name in enumerate(getattr(rung, "machine_types", ())):
        if name not in known:
            raise InputError(
                f"{place}.machine_types[{index}]",
                "no such machine type",
                value=name,
                allowed=", ".join(sorted(known)),
                fix=nearest_hint(name, known),
            )
        found[name] = known[name]
    return tuple(found.values())


def zones_of(rung: AnyRung | RungPlan) -> tuple[str, ...]:
    """The zones a rung names; empty where it takes the cluster's own."""
    zones: tuple[str, ...] = getattr(rung, "zones", ())
    zone: str | None = getattr(rung, "zone", None)
    return zones if zone is None else (zone,)


def ladder_zones(rungs: Iterable[AnyRung], zone: str) -> tuple[str, ...]:
    """Every zone the ladder needs a subnet in: the cluster's own first, then the rungs' in their order."""
    return tuple(dict.fromkeys([zone, *(name for rung in rungs for name in zones_of(rung))]))


def preferred_zone(rungs: Iterable[AnyRung]) -> tuple[str, str] | None:
    """The zone a ladder ties the cluster to, where its owner chose none: (zone, why). None where any zone will do."""
    for index, rung in enumerate(rungs):
        if isinstance(rung, CapacityBlock | Reservation) and rung.zone is not None:
            return rung.zone, f"{LADDER}[{index}], a {rung.kind}, is there"
    return None


def check_zones(rungs: Sequence[AnyRung | RungPlan], zones: Sequence[str], place: str = LADDER) -> None:
    """Refuses a rung in a zone that is none of `zones`. Raises InputError with the zone's path."""
    for index, rung in enumerate(rungs):
        single = isinstance(rung, CapacityBlock | Reservation)
        for position, name in enumerate(zones_of(rung)):
            if name not in zones:
                raise InputError(
                    f"{place}[{index}].{'zone' if single else f'zones[{position}]'}",
                    "no such zone here",
                    value=name,
                    allowed=", ".join(zones),
                    fix=nearest_hint(name, zones),
                )


def block_stop_time(ends_at: datetime, lead: timedelta = BLOCK_STOP_LEAD) -> datetime:
    """When a block's group is set to zero, in UTC: `lead` before EC2 begins to end the nodes itself."""
    return ends_at.astimezone(UTC) - BLOCK_END_NOTICE - lead


def opening_times(rungs: Sequence[RungPlan]) -> tuple[datetime | None, ...]:
    """When each rung may ask for nodes, in UTC; None for at any time.

    A block has to begin. A rung behind the first one makes up for those above, so one of them has to have had its
    chance.
    """
    times: list[datetime | None] = []
    for rung in rungs:
        above = [time + BEHIND_BLOCK_DELAY for time in times if time is not None]
        waits = [min(above)] if times and len(above) == len(times) else []
        starts = [] if rung.starts_at is None else [rung.starts_at.astimezone(UTC)]
        times.append(max([*waits, *starts], default=None))
    return tuple(times)
