"""The capacity ladder as virtual machine scale sets understand it: which rungs there are, what each makes of a set.

Pure, without the SDK, so that a stack file is checked in no time. What is wrong by itself raises InputError here; what
only disagrees with the rest of the stack is a finding of `components.azure.capacity_findings`. Facts are of Azure's
documentation: "Azure Spot Virtual Machines for Virtual Machine Scale Sets" and "On-demand capacity reservation".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal
from typing import Any, Literal

from pydantic import TypeAdapter

from components.capacity import AnyRung, OnDemand, Reservation, Rung, RungPlan, Spot, check_kinds
from components.catalog import AzureMachineType
from components.findings import InputError

__all__ = [
    "LADDER",
    "OFFERED",
    "UP_TO_ON_DEMAND",
    "ScaleSetFields",
    "check_infiniband",
    "check_ladder",
    "check_proximity",
    "plan_scale_set",
    "preferred_zone",
    "rung_from_args",
    "rung_zones",
]

LADDER = "gangway:cluster.capacity"
OFFERED = ("reservation", "spot", "on-demand")
"""The kinds of rungs that Azure has: it sells no blocks of time, and queues nothing."""
UP_TO_ON_DEMAND = -1.0
"""The price cap that means: pay up to the on-demand price, and never evict for the price."""
PRICE_STEP_USD = 0.00001
"""Azure takes five decimals of a price cap."""

_GROUP = re.compile(
    r"/subscriptions/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/resourceGroups/[-\w.()]{1,90}"
    r"/providers/Microsoft\.Compute/capacityReservationGroups/[-\w.]{1,80}",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True)
class ScaleSetFields:
    """What a rung makes of a scale set, in the API's words. Spot and a reservation exclude each other.

    Attributes:
        priority: of the machines.
        eviction_policy: spot only. Delete: a machine that is evicted costs nothing more, counts against no quota, and
            the set's size says how many are left; Deallocate would keep its disks and its place in the quota.
        max_price: spot only, US dollars an hour of one machine; UP_TO_ON_DEMAND without a cap.
        capacity_reservation_group: the id of the group whose reservations are used.
        single_placement_group: as InfiniBand wants it, and a capacity reservation does not.
    """

    priority: Literal["Regular", "Spot"]
    eviction_policy: Literal["Delete"] | None
    max_price: float | None
    capacity_reservation_group: str | None
    single_placement_group: bool

    def profile(self) -> dict[str, Any]:
        """The fields of the set's virtual machine profile, in the spelling of Pulumi's inputs."""
        fields: dict[str, Any] = {"priority": self.priority}
        if self.eviction_policy is not None:
            fields["eviction_policy"] = self.eviction_policy
        if self.max_price is not None:
            fields["billing_profile"] = {"max_price": self.max_price}
        if self.capacity_reservation_group is not None:
            fields["capacity_reservation"] = {"capacity_reservation_group": {"id": self.capacity_reservation_group}}
        return fields


def rung_from_args(rung: Mapping[str, Any]) -> AnyRung:
    """A component's rung argument as the typed rung. Raises pydantic's ValidationError for a rung that is none."""
    adapter: TypeAdapter[AnyRung] = TypeAdapter(Rung)
    return adapter.validate_python(dict(rung))


def plan_scale_set(rung: RungPlan, machine: AzureMachineType) -> ScaleSetFields:
    """What a rung makes of its scale set. The ladder has passed `check_ladder`.

    A scale set is all spot or not at all, so each rung has one of its own. Azure's "Try & restore" of evicted machines
    is not asked for: the head refills the sets, and one of them is enough.
    """
    single = machine.infiniband is not None
    if rung.interruptible:
        cap = UP_TO_ON_DEMAND if rung.max_usd_per_hour is None else _price(rung.max_usd_per_hour)
        return ScaleSetFields("Spot", "Delete", cap, None, single)
    # A set on a reservation never lies in a single placement group. With InfiniBand that is an error of the findings:
    # Azure reserves no such sizes.
    return ScaleSetFields("Regular", None, None, rung.reservation_id, single and rung.reservation_id is None)


def _price(cap_usd: float) -> float:
    """A price cap in the steps Azure takes, never above what was written."""
    return float(Decimal(repr(cap_usd)).quantize(Decimal("0.00001"), rounding=ROUND_DOWN))


def check_ladder(rungs: Sequence[AnyRung], place: str = LADDER) -> None:
    """Refuses what Azure would refuse whatever the rest of the stack says.

    Args:
        rungs: the ladder, first choice first.
        place: config path of the ladder, put before each rung's.

    Raises:
        InputError: a kind that is another provider's, an id that no capacity reservation group can have, several
            machine types in one rung, or a price cap below what Azure takes.
    """
    check_kinds(rungs, OFFERED, "Azure", place)
    for index, rung in enumerate(rungs):
        here = f"{place}[{index}]"
        if isinstance(rung, Reservation) and not _GROUP.fullmatch(rung.id):
            raise InputError(
                f"{here}.id",
                "no id of a capacity reservation group",
                value=rung.id,
                allowed="/subscriptions/.../resourceGroups/.../providers/Microsoft.Compute/capacityReservationGroups/NAME",
                fix="copy the id that `az capacity reservation group list` shows",
            )
        if isinstance(rung, Spot | OnDemand):
            _check_market(rung, here)


def _check_market(rung: Spot | OnDemand, here: str) -> None:
    if rung.machine_types:
        raise InputError(
            f"{here}.machine_types",
            "a rung is one scale set, which has one size, and sizes of two scale sets share no InfiniBand",
            value=", ".join(rung.machine_types),
            allowed="no further machine types",
            fix="remove machine_types",
        )
    if isinstance(rung, Spot) and rung.max_usd_per_hour is not None and rung.max_usd_per_hour < PRICE_STEP_USD:
        raise InputError(
            f"{here}.max_usd_per_hour",
            "Azure takes no such price",
            value=rung.max_usd_per_hour,
            allowed=f"US dollars, from {PRICE_STEP_USD:.5f} on",
            fix="leave max_usd_per_hour out to pay up to the on-demand price",
        )


def check_infiniband(
    machine: AzureMachineType,
    rungs: Sequence[AnyRung],
    num_nodes_max: int,
    place: str = "capacity",
    nodes_place: str = "num_nodes_max",
) -> None:
    """Refuses what the single placement group, which InfiniBand needs, leaves out.

    Raises:
        InputError: a reservation, or more nodes than any such group holds.
    """
    if machine.infiniband is None:
        return
    for index, rung in enumerate(rungs):
        if isinstance(rung, Reservation):
            raise InputError(
                f"{place}[{index}].kind",
                f"{machine.name} cannot be reserved: a reservation refuses the single placement group of InfiniBand",
                value=rung.kind,
                allowed="spot, on-demand",
                fix=f"remove rung {index}" if len(rungs) > 1 else "write kind: on-demand, without id",
            )
    largest = machine.infiniband.largest_group_on_request.value
    if num_nodes_max > largest:
        raise InputError(
            nodes_place,
            "more nodes than one InfiniBand partition holds",
            value=num_nodes_max,
            allowed=f"at most {largest}",
            fix="make several pools, for jobs that do not talk to each other",
        )


def check_proximity(machine: AzureMachineType, wanted: bool, place: str = "proximity") -> None:
    """Refuses a proximity placement group around a single placement group.

    Raises:
        InputError: the size has InfiniBand.
    """
    if wanted and machine.infiniband is not None:
        raise InputError(
            place,
            f"{machine.name} has InfiniBand, whose single placement group is narrower",
            value=True,
            allowed="false",
            fix="remove proximity",
        )


def rung_zones(rung: AnyRung | RungPlan, own: str) -> tuple[str, ...]:
    """The zones of a rung's nodes, those of one scale set; `own`, the cluster's, where it names none.

    Empty where the cluster has none either: its region has no zones, or any will do.
    """
    zones: tuple[str, ...] = getattr(rung, "zones", ())
    zone: str | None = getattr(rung, "zone", None)
    if zone is not None:
        return (zone,)
    return zones or ((own,) if own else ())


def preferred_zone(rungs: Iterable[AnyRung]) -> tuple[str, str] | None:
    """The zone a ladder ties the cluster to, where its owner chose none: (zone, why). None where any zone will do."""
    for index, rung in enumerate(rungs):
        if isinstance(rung, Reservation) and rung.zone is not None:
            return rung.zone, f"{LADDER}[{index}], a {rung.kind}, is there"
    return None
