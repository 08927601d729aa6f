"""What in a capacity ladder disagrees with the rest of the stack: its kinds, zones, number of nodes and quotas.

Pure. Each finding names the rung, the value and the change that mends it. A rung that is wrong by itself never gets
here: `components.azure.capacity.check_ladder` refuses it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from components.azure.capacity import LADDER, rung_zones
from components.capacity import AnyRung, Reservation, Spot
from components.capacity_findings import not_sold
from components.catalog import AzureMachineType
from components.findings import Finding, Severity

__all__ = ["SPOT_QUOTA", "LadderContext", "capacity_findings"]

NODES = "gangway:cluster.nodes"
SPOT_QUOTA = "Total Regional Spot vCPUs"
"""What all spot machines of a region count against, whatever their family."""


@dataclass(frozen=True)
class LadderContext:
    """The part of a stack that a ladder has to agree with.

    Attributes:
        machine: the cluster's machine type.
        region: the cluster's region.
        region_zones: the zones of that region; empty where it has none.
        zone: the cluster's zone, where the file system is; empty for none.
        num_nodes_min: the job goes on with so many nodes.
        num_nodes_max: and asks for so many.
    """

    machine: AzureMachineType
    region: str
    region_zones: tuple[str, ...]
    zone: str
    num_nodes_min: int
    num_nodes_max: int


def capacity_findings(rungs: Sequence[AnyRung], context: LadderContext) -> list[Finding]:
    """Everything that does not fit, rung by rung. The ladder has passed `check_ladder`."""
    found = [*_same_reservation(rungs), *_group_size(context), *_rungs_apart(rungs, context), *_own_zone(context)]
    machine, sold = context.machine, context.machine.capacity
    for index, rung in enumerate(rungs):
        path = f"{LADDER}[{index}]"
        found += not_sold(rung, path, machine.name, sold.value, f"{sold.source}, {sold.as_of}")
        found += _zones(rung, path, context)
        found += _ignored(rung, path)
    return [*found, *_quotas(rungs, context)]


def _same_reservation(rungs: Sequence[AnyRung]) -> Iterable[Finding]:
    first: dict[str, int] = {}
    for index, rung in enumerate(rungs):
        # Azure's ids mean the same in any case.
        if isinstance(rung, Reservation) and first.setdefault(rung.id.lower(), index) != index:
            yield Finding(
                Severity.ERROR,
                "capacity.same-reservation",
                f"{LADDER}[{index}].id",
                f"{rung.id} is already what rung {first[rung.id.lower()]} uses",
                "remove this rung",
            )


def _group_size(context: LadderContext) -> Iterable[Finding]:
    """A single placement group holds so many machines, and InfiniBand reaches no further."""
    fabric, nodes = context.machine.infiniband, context.num_nodes_max
    if fabric is None or nodes <= (usual := fabric.largest_group.value):
        return
    most = fabric.largest_group_on_request.value
    if nodes > most:
        yield Finding(
            Severity.ERROR,
            "capacity.placement-group-size",
            NODES,
            f"{nodes} nodes: InfiniBand reaches no further than a single placement group, of {most} machines at most",
            f"set max: {most}, or {usual} without asking Microsoft",
        )
    else:
        yield Finding(
            Severity.WARNING,
            "capacity.placement-group-size",
            NODES,
            f"{nodes} nodes: a single placement group holds {usual} machines; Microsoft's support raises that to "
            f"{most} for a subscription that asks",
            f"set max: {usual}, or ask for the raise before `up`",
        )


def _rungs_apart(rungs: Sequence[AnyRung], context: LadderContext) -> Iterable[Finding]:
    if context.machine.infiniband is not None and context.num_nodes_max > 1 and len(rungs) > 1:
        yield Finding(
            Severity.WARNING,
            "capacity.rungs-apart",
            LADDER,
            f"each of the {len(rungs)} rungs is a scale set, and no InfiniBand connects two: nodes of different rungs "
            f"cannot run one job together, so a rung is of use only with all of the {context.num_nodes_min} nodes that "
            "the job needs",
            "keep one rung, or expect the job to move to the next one as a whole",
        )


def _own_zone(context: LadderContext) -> Iterable[Finding]:
    if context.zone and context.zone not in context.region_zones:
        yield _no_such_zone(context.zone, "gangway:cluster.zone", context)
    elif context.zone and context.machine.zones.value is None:
        yield Finding(
            Severity.INFO,
            "capacity.zone-unpublished",
            "gangway:cluster.zone",
            f"whether zone {context.zone} of {context.region} offers {context.machine.name} is not published: "
            f"`az vm list-skus --location {context.region} --size {context.machine.name} --zone` shows it",
        )


def _no_such_zone(zone: str, path: str, context: LadderContext) -> Finding:
    if not context.region_zones:
        return Finding(
            Severity.ERROR, "capacity.no-such-zone", path, f"{context.region} has no zones", "leave the zone out"
        )
    return Finding(
        Severity.ERROR,
        "capacity.no-such-zone",
        path,
        f"{context.region} has no zone {zone}",
        f"write one of: {', '.join(context.region_zones)}",
    )


def _zones(rung: AnyRung, path: str, context: LadderContext) -> Iterable[Finding]:
    zones = rung_zones(rung, context.zone)
    named = f"{path}.zone" if isinstance(rung, Reservation) else f"{path}.zones"
    # The cluster's own zone is looked at once for all rungs.
    strange = [zone for zone in zones if zone != context.zone and zone not in context.region_zones]
    if strange:
        yield _no_such_zone(strange[0], named, context)
    elif len(zones) > 1 and context.machine.infiniband is not None:
        yield Finding(
            Severity.ERROR,
            "capacity.zones-with-fabric",
            named,
            f"{', '.join(zones)}: a single placement group, and so InfiniBand, lies in one zone",
            f"set zones: ['{context.zone or zones[0]}'], or write a rung for each",
        )
    elif context.zone and any(zone != context.zone for zone in zones):
        yield Finding(
            Severity.WARNING,
            "capacity.several-zones",
            named,
            f"{', '.join(zones)}: traffic to the file system and the head in zone {context.zone} crosses zones, which "
            "is slower",
            f"write zone '{context.zone}' where speed matters more than finding capacity",
        )
    if isinstance(rung, Reservation) and rung.zone is None and zones:
        yield Finding(
            Severity.INFO,
            "capacity.reservation-zone",
            path,
            f"the group must reserve in zone {context.zone}: one that was made without zones takes no machines of a "
            "scale set that has one",
        )


def _ignored(rung: AnyRung, path: str) -> Iterable[Finding]:
    """A setting of a spot rung that has no counterpart: nothing is ignored without a word."""
    if isinstance(rung, Spot) and "allocation" in rung.model_fields_set:
        yield Finding(
            Severity.WARNING,
            "capacity.ignored-setting",
            f"{path}.allocation",
            f"{rung.allocation} has no effect on Azure: a rung has one machine type, nothing to choose among",
            "remove allocation",
        )


def _quotas(rungs: Sequence[AnyRung], context: LadderContext) -> Iterable[Finding]:
    """Quotas are counted in vCPUs, and those of large sizes begin at zero."""
    vcpus = context.machine.vcpus.value * context.num_nodes_max
    told: set[str] = set()
    for index, rung in enumerate(rungs):
        quota = SPOT_QUOTA if isinstance(rung, Spot) else context.machine.quota_family.value
        # A reservation has taken its share of the quota when it was made.
        if isinstance(rung, Reservation) or quota in told:
            continue
        told.add(quota)
        yield Finding(
            Severity.INFO,
            "capacity.quota",
            f"{LADDER}[{index}]",
            f"{context.num_nodes_max} nodes take {vcpus} vCPUs of the quota {quota!r} in {context.region}; "
            f"`az vm list-usage --location {context.region}` shows what is left",
        )
