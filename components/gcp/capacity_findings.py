"""What in a capacity ladder disagrees with the rest of the stack: its machine type, zone, hours and settings.

Pure. Each finding names the rung, the value and the change that mends it. A rung that is wrong by itself never gets
here: `components.gcp.capacity.check_ladder` refuses it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from components.capacity import AnyRung, FlexStart, OnDemand, Reservation, Spot
from components.capacity_findings import not_sold
from components.catalog import GcpMachineType
from components.findings import Finding, Severity
from components.gcp.capacity import LADDER, rung_zone

__all__ = ["LadderContext", "capacity_findings", "ignored_settings", "zone_unnamed"]


@dataclass(frozen=True)
class LadderContext:
    """The part of a stack that a ladder has to agree with.

    Attributes:
        machine: the cluster's machine type.
        zone: the cluster's zone, where the file system is.
        zone_assumed: whether nobody has named it, neither for the cluster nor for a rung.
        num_nodes_min: the job goes on with so many nodes.
        num_nodes_max: and asks for so many.
        max_hours: the longest the job may run.
    """

    machine: GcpMachineType
    zone: str
    zone_assumed: bool
    num_nodes_min: int
    num_nodes_max: int
    max_hours: float


def capacity_findings(rungs: Sequence[AnyRung], context: LadderContext) -> list[Finding]:
    """Everything that does not fit, rung by rung. The ladder has passed `check_ladder`."""
    found = list(_same_reservation(rungs))
    machine, sold = context.machine, context.machine.capacity
    for index, rung in enumerate(rungs):
        path = f"{LADDER}[{index}]"
        found += not_sold(rung, path, machine.name, sold.value, f"{sold.source}, {sold.as_of}")
        found += _zone(rung, path, context)
        if context.zone_assumed:
            found += zone_unnamed(rung, path, context.zone)
        found += ignored_settings(rung, path)
        if isinstance(rung, FlexStart):
            found += _flex_start(rung, path, last=index == len(rungs) - 1, context=context)
        elif isinstance(rung, Reservation) and context.machine.gpu_fabric is not None:
            found.append(_placed_already(rung, path))
    return [*found, *_apart(rungs, context)]


def _apart(rungs: Sequence[AnyRung], context: LadderContext) -> Iterable[Finding]:
    """A policy that several groups share is applied to each by itself (Google, "About workload policies in MIGs")."""
    if context.machine.gpu_fabric is not None and len(rungs) > 1 and context.num_nodes_max > 1:
        yield Finding(
            Severity.INFO,
            "capacity.rungs-apart",
            LADDER,
            "nodes of one rung stand together; those of different rungs, which are different groups, may be far apart "
            "in the zone, and the job is as fast as the way between them",
            "keep one rung where that matters more than having nodes at all",
        )


def _same_reservation(rungs: Sequence[AnyRung]) -> Iterable[Finding]:
    first: dict[str, int] = {}
    for index, rung in enumerate(rungs):
        if isinstance(rung, Reservation) and first.setdefault(rung.id, index) != index:
            yield Finding(
                Severity.ERROR,
                "capacity.same-reservation",
                f"{LADDER}[{index}].id",
                f"{rung.id} is already what rung {first[rung.id]} uses",
                "remove this rung",
            )


def _zone(rung: AnyRung, path: str, context: LadderContext) -> Iterable[Finding]:
    machine, zone = context.machine, rung_zone(rung, context.zone)
    named = f"{path}.zone" if isinstance(rung, Reservation) else f"{path}.zones"
    if zone not in machine.zones.value:
        region = zone.rpartition("-")[0]
        near = [known for known in machine.zones.value if known.startswith(f"{region}-")]
        # A warning: public lists lag behind, and a reservation's owner knows better.
        yield Finding(
            Severity.WARNING,
            "capacity.zone-without-machine",
            named if zone != context.zone else "gangway:cluster.zone",
            f"{machine.name} is not known to be offered in {zone} (list of {machine.zones.as_of})",
            f"set zone: {near[0]}" if near else f"zones that have it: {', '.join(machine.zones.value)}",
        )
    if zone != context.zone:
        yield _other_zone(rung, named, zone, context)


def _other_zone(rung: AnyRung, named: str, zone: str, context: LadderContext) -> Finding:
    if isinstance(rung, Reservation):
        return Finding(
            Severity.ERROR,
            "capacity.other-zone",
            named,
            f"the reservation is in {zone}, the cluster and its file system in {context.zone}",
            f"set gangway:cluster.zone: {zone}",
        )
    if context.machine.gpu_fabric is not None:
        return Finding(
            Severity.ERROR,
            "capacity.zones-with-fabric",
            named,
            f"{zone}: the GPU network of {context.machine.name} and placing nodes together reach no further than one "
            f"zone, and the other nodes are in {context.zone}",
            f"set zones: [{context.zone}], or leave it out",
        )
    return Finding(
        Severity.WARNING,
        "capacity.several-zones",
        named,
        f"{zone}: traffic to nodes and file system in {context.zone} crosses zones, which is slower and billed",
        f"set zones: [{context.zone}] where speed matters more than finding capacity",
    )


def zone_unnamed(rung: AnyRung, path: str, assumed: str) -> Iterable[Finding]:
    """Reserved machines are in one zone, which their owner alone knows."""
    if isinstance(rung, Reservation) and rung.zone is None:
        yield Finding(
            Severity.WARNING,
            "capacity.zone-unnamed",
            f"{path}.zone",
            f"nobody has named the zone of {rung.id}: {assumed} is assumed, and anywhere else no node would start",
            "set zone: to where `gcloud compute reservations list` shows it",
        )


def ignored_settings(rung: AnyRung, path: str) -> Iterable[Finding]:
    """Settings of a spot rung that have no counterpart: nothing is ignored without a word."""
    reasons = {
        "max_usd_per_hour": "Google's spot price is a list price, changed once a month at most; nobody bids for it",
        "allocation": "a rung has one kind of node in one zone, so there is nothing to choose among",
    }
    if isinstance(rung, Spot):
        for name, reason in reasons.items():
            if name in rung.model_fields_set and getattr(rung, name) is not None:
                yield Finding(
                    Severity.WARNING,
                    "capacity.ignored-setting",
                    f"{path}.{name}",
                    f"{getattr(rung, name)} has no effect on Google Cloud: {reason}",
                    f"remove {name}",
                )


def _flex_start(rung: FlexStart, path: str, *, last: bool, context: LadderContext) -> Iterable[Finding]:
    if path == f"{LADDER}[0]":
        yield Finding(
            Severity.INFO,
            "capacity.flex-start-once",
            path,
            f"the nodes are asked for once: one that gives itself up is not made anew, and after {rung.max_hours:g} h "
            "all are gone",
            "ask again by `pulumi up --replace` with the URN of the resize request",
        )
    if rung.max_hours < context.max_hours:
        then = "ends with its last checkpoint" if last else "goes on with the next rung"
        yield Finding(
            Severity.WARNING,
            "capacity.flex-start-too-short",
            f"{path}.max_hours",
            f"the nodes are deleted after {rung.max_hours:g} h, and the job may run {context.max_hours:g} h: it {then}",
            f"set gangway:job.max_hours: {rung.max_hours:g}"
            if context.max_hours > 168
            else f"set max_hours: {context.max_hours:g}",
        )
    if path == f"{LADDER}[0]" and context.num_nodes_min != context.num_nodes_max:
        yield Finding(
            Severity.INFO,
            "capacity.flex-start-together",
            path,
            f"all {context.num_nodes_max} nodes come at once or not at all, although the job would go on with "
            f"{context.num_nodes_min}",
            f"set nodes: {{min: {context.num_nodes_min}, max: {context.num_nodes_min}}} to wait for fewer",
        )


def _placed_already(rung: Reservation | OnDemand, path: str) -> Finding:
    return Finding(
        Severity.INFO,
        "capacity.no-placement-policy",
        path,
        f"{rung.kind}: no placement policy of ours, the reserved machines stand together already",
    )
