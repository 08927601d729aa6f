"""The capacity ladder on scale sets, its conflicts with the stack's zones and nodes, and its quotas."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_DOWN, Decimal
from typing import Any, Literal

from gangway.components.catalog.schema import AzureMachineType
from gangway.components.core.capacity import (
    CONTRACT_VERSION,
    LADDER,
    PERIOD_SEC,
    WINDOW,
    AnyRung,
    OnDemand,
    Reservation,
    RungPlan,
    Spot,
    check_kinds,
    named_zones,
    not_sold,
    refuse_machine_types,
    same_reservations,
)
from gangway.components.core.findings import Finding, InputError
from gangway.components.core.limits import QuotaNeed, count_nodes, no_quota

OFFERED = ("reservation", "spot", "on-demand")  # Azure has no capacity blocks and no queue
UP_TO_ON_DEMAND = -1.0  # price cap that means: up to the on-demand price, without evictions for the price
PRICE_STEP_USD = 0.00001  # price caps have five decimals

_GROUP = re.compile(
    r"/subscriptions/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/resourceGroups/[-\w.()]{1,90}"
    r"/providers/Microsoft\.Compute/capacityReservationGroups/[-\w.]{1,80}",
    re.IGNORECASE | re.ASCII,
)
NODES = "gangway:cluster.nodes"


@dataclass(frozen=True)
class ScaleSetFields:
    """Fields of a rung's scale set, in the API's words; spot and a reservation exclude each other. `eviction_policy`:
    Delete: an evicted machine costs nothing and frees its quota; `max_price`: US dollars per machine-hour;
    `single_placement_group`: required by InfiniBand, excluded by a reservation.
    """

    priority: Literal["Regular", "Spot"]
    eviction_policy: Literal["Delete"] | None
    max_price: float | None
    capacity_reservation_group: str | None
    single_placement_group: bool

    def profile(self) -> dict[str, Any]:
        """The fields of the set's virtual machine profile, as Pulumi inputs."""
        fields: dict[str, Any] = {"priority": self.priority}
        if self.eviction_policy is not None:
            fields["eviction_policy"] = self.eviction_policy
        if self.max_price is not None:
            fields["billing_profile"] = {"max_price": self.max_price}
        if self.capacity_reservation_group is not None:
            fields["capacity_reservation"] = {"capacity_reservation_group": {"id": self.capacity_reservation_group}}
        return fields


def plan_scale_set(rung: RungPlan, machine: AzureMachineType) -> ScaleSetFields:
    """The scale set of a checked rung: all spot or none. No "Try & restore": the head refills the sets."""
    single = machine.infiniband is not None
    if rung.interruptible:
        cap = UP_TO_ON_DEMAND if rung.max_usd_per_hour is None else _price(rung.max_usd_per_hour)
        return ScaleSetFields("Spot", "Delete", cap, None, single)
    # A set on a reservation is never in a single placement group. With InfiniBand the findings report an error: Azure
    # does not reserve such sizes.
    return ScaleSetFields("Regular", None, None, rung.reservation_id, single and rung.reservation_id is None)


def _price(cap_usd: float) -> float:
    return float(Decimal(repr(cap_usd)).quantize(Decimal("0.00001"), rounding=ROUND_DOWN))


def check_ladder(rungs: Sequence[AnyRung], place: str = LADDER) -> None:
    """Check the ladder. InputError: unsupported kind, reservation id, several machine types, or a price cap too low."""
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
    problem = "a rung is one scale set, which has one size, and sizes of two scale sets share no InfiniBand"
    refuse_machine_types(rung, here, problem)
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
    """Check the limits of InfiniBand. InputError: a reservation, or more nodes than a single placement group."""
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
    """Check the placement. InputError: a proximity placement group for a size with InfiniBand."""
    if wanted and machine.infiniband is not None:
        raise InputError(
            place,
            f"{machine.name} has InfiniBand, whose single placement group is narrower",
            value=True,
            allowed="false",
            fix="remove proximity",
        )


def rung_zones(rung: AnyRung | RungPlan, own: str) -> tuple[str, ...]:
    """The zones of a rung's scale set, by default `own`, the cluster's; empty if there are none, or for any."""
    return named_zones(rung) or ((own,) if own else ())


@dataclass(frozen=True)
class LadderContext:
    """The stack's settings that a ladder must match. `region_zones`: empty for a region without; `zone`: the file
    system's; `nodes_zone`: of rungs that name none; `num_nodes_min`: the fewest nodes with which the job continues.
    """

    machine: AzureMachineType
    region: str
    region_zones: tuple[str, ...]
    zone: str
    nodes_zone: str
    num_nodes_min: int
    num_nodes_max: int


def capacity_findings(rungs: Sequence[AnyRung], context: LadderContext) -> list[Finding]:
    """All conflicts, rung by rung, of a ladder that `check_ladder` accepts."""
    found = [
        *same_reservations(rungs),
        *_same_rung(rungs),
        *_group_size(context),
        *_rungs_apart(rungs, context),
        *_own_zone(context),
    ]
    machine, sold = context.machine, context.machine.capacity
    for index, rung in enumerate(rungs):
        path = f"{LADDER}[{index}]"
        found += not_sold(rung, path, machine.name, sold.value, f"{sold.source}, {sold.dated}")
        found += _zones(rung, path, context)
        found += _ignored(rung, path)
    return found


def _same_rung(rungs: Sequence[AnyRung]) -> Iterable[Finding]:
    for index, rung in enumerate(rungs):
        first = rungs.index(rung)
        if first < index and not isinstance(rung, Reservation):
            yield Finding.warning(
                "capacity.same-rung",
                f"{LADDER}[{index}]",
                f"asks for the very machines that rung {first} asks for: where those are not to be had, nor are these",
                "remove this rung, or name other zones or another max_usd_per_hour",
            )


def _group_size(context: LadderContext) -> Iterable[Finding]:
    fabric, nodes = context.machine.infiniband, context.num_nodes_max
    if fabric is None or nodes <= (usual := fabric.largest_group.value):
        return
    most, fewest = fabric.largest_group_on_request.value, context.num_nodes_min
    if nodes > most:
        yield Finding.error(
            "capacity.placement-group-size",
            NODES,
            f"{nodes} nodes: InfiniBand reaches no further than a single placement group, of {most} machines at most",
            f"set nodes: {{min: {min(fewest, most)}, max: {most}}}, or {usual} at most without asking Microsoft",
        )
    else:
        yield Finding.warning(
            "capacity.placement-group-size",
            NODES,
            f"{nodes} nodes: a single placement group holds {usual} machines; Microsoft's support raises that to "
            f"{most} for a subscription that asks",
            f"set nodes: {{min: {min(fewest, usual)}, max: {usual}}}, or ask for the raise before `up`",
        )


def _rungs_apart(rungs: Sequence[AnyRung], context: LadderContext) -> Iterable[Finding]:
    if context.machine.infiniband is not None and context.num_nodes_max > 1 and len(rungs) > 1:
        yield Finding.warning(
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
    elif context.nodes_zone and not _published_zones(context):
        yield Finding.info(
            "capacity.zone-unpublished",
            "gangway:cluster.zone",
            f"whether zone {context.nodes_zone} of {context.region} offers {context.machine.name} is not published: "
            f"`az vm list-skus --location {context.region} --size {context.machine.name} --zone` shows it",
        )


def _published_zones(context: LadderContext) -> tuple[str, ...]:
    offered = context.machine.offered
    return () if offered is None else (offered.zones.value or {}).get(context.region, ())


def _no_such_zone(zone: str, path: str, context: LadderContext) -> Finding:
    name = path.rpartition(".")[2]
    if not context.region_zones:
        return Finding.error("capacity.no-such-zone", path, f"{context.region} has no zones", f"remove {name}")
    first, *others = context.region_zones
    or_another = f", or one of {', '.join(others)}" if others else ""
    return Finding.error(
        "capacity.no-such-zone",
        path,
        f"{context.region} has no zone {zone}",
        f"set {name}: {_zone_value(name, first)}{or_another}",
    )


def _zone_value(name: str, zone: str) -> str:
    return f"'{zone}'" if name == "zone" else f"['{zone}']"


def _zones(rung: AnyRung, path: str, context: LadderContext) -> Iterable[Finding]:
    zones = rung_zones(rung, context.nodes_zone)
    name = "zone" if isinstance(rung, Reservation) else "zones"
    named = f"{path}.{name}"
    # The cluster's own zone is checked once for all rungs.
    strange = [zone for zone in zones if zone != context.zone and zone not in context.region_zones]
    if strange:
        yield _no_such_zone(strange[0], named, context)
    elif len(zones) > 1 and context.machine.infiniband is not None:
        yield Finding.error(
            "capacity.zones-with-fabric",
            named,
            f"{', '.join(zones)}: a single placement group, and so InfiniBand, lies in one zone",
            f"set zones: ['{context.zone or zones[0]}'], or write a rung for each",
        )
    elif context.zone and any(zone != context.zone for zone in zones):
        yield Finding.warning(
            "capacity.several-zones",
            named,
            f"{', '.join(zones)}: traffic to the file system and the head in zone {context.zone} crosses zones, which "
            "is slower",
            f"set {name}: {_zone_value(name, context.zone)} where speed matters more than finding capacity",
        )
    if isinstance(rung, Reservation) and rung.zone is None and zones:
        yield Finding.info(
            "capacity.reservation-zone",
            path,
            f"the group must reserve in zone {zones[0]}: one that was made without zones takes no machines of a scale "
            "set that has one",
        )


def _ignored(rung: AnyRung, path: str) -> Iterable[Finding]:
    if isinstance(rung, Spot) and "allocation" in rung.model_fields_set:
        yield Finding.warning(
            "capacity.ignored-setting",
            f"{path}.allocation",
            f"{rung.allocation} has no effect on Azure: a rung has one machine type, nothing to choose among",
            "remove allocation",
        )


SPOT_QUOTA = "Total Regional Low-priority vCPUs"
"""All spot machines of a region, as in `az vm list-usage` (in the portal: Total Regional Spot vCPUs)."""
REGIONAL_QUOTA = "Total Regional vCPUs"  # counts besides the family's ("Check vCPU quotas")
HEAD_QUOTAS: Mapping[str, tuple[int, str]] = {
    "Standard_B2as_v2": (2, "Standard Basv2 Family vCPUs"),
    "Standard_B2ms": (2, "Standard BS Family vCPUs"),
    "Standard_B2s": (2, "Standard BS Family vCPUs"),
    "Standard_D2as_v5": (2, "Standard DASv5 Family vCPUs"),
    "Standard_D2s_v5": (2, "Standard DSv5 Family vCPUs"),
    "Standard_D4s_v5": (4, "Standard DSv5 Family vCPUs"),
}  # by head machine type: vCPUs, and the family's quota as in `az vm list-usage`


@dataclass(frozen=True)
class QuotaContext:
    """A stack's region, maximum number of nodes, and head machine type; None without a head."""

    region: str
    num_nodes: int
    head_type: str | None

    def finding(self, path: str, vcpus: int, name: str, users: str) -> Finding:
        """A need of one quota, with a query for quotas known only by Azure's name."""
        query = "" if name.endswith("vCPUs") else f" --query \"[?name.value=='{name}']\""
        note = "the portal calls it Total Regional Spot vCPUs" if name == SPOT_QUOTA else ""
        command = f"az vm list-usage --location {self.region}{query}"
        return QuotaNeed(path, vcpus, "vCPUs", repr(name), self.region, users, command, note, key=name).finding()


def ladder_quotas(rungs: Sequence[AnyRung], machine: AzureMachineType, context: QuotaContext) -> Iterable[Finding]:
    """The quotas of the nodes, once each, and of the head. The ladder has passed `check_ladder`."""
    nodes, vcpus = count_nodes(context.num_nodes), machine.vcpus.value * context.num_nodes
    reported: set[str] = set()
    for index, rung in enumerate(rungs):
        path, name = f"{LADDER}[{index}]", SPOT_QUOTA if isinstance(rung, Spot) else machine.quota_family.value
        if isinstance(rung, Reservation):
            yield no_quota(path, f"the reservation took its share of {name!r} when it was made")
        elif name not in reported:
            reported.add(name)
            yield context.finding(path, vcpus, name, nodes)
    head, family = HEAD_QUOTAS.get(context.head_type or "", (0, ""))
    if head:
        yield context.finding("gangway:head.machine_type", head, family, "the head node")
    on_demand = vcpus if reported - {SPOT_QUOTA} else 0
    if on_demand or head:
        users = [f"{nodes} on demand"] if on_demand else []
        users += ["the head node"] if head else []
        yield context.finding(LADDER, on_demand + head, REGIONAL_QUOTA, " and ".join(users))


# Configuration of the head node's ladder script, which requests all nodes of all scale sets. A scale set created with
# nodes fails without capacity (spot: 409 SkuNotAvailable at once, seen in terraform-provider-azurerm's tests), and `up`
# with it; and evicted nodes are not replaced ("Azure Spot Virtual Machines for Virtual Machine Scale Sets"). So sets
# start empty, and a timer on the head node fills them by `reconcile` of `gangway.images.node.fill_order`. Scale sets
# never share an InfiniBand partition ("Set up InfiniBand"): there one set at a time is filled to the maximum, and the
# next one if it lacked the minimum for the whole window (`plan_active`), in a cycle. Over Ethernet the first set always
# gets the maximum, the others cover the minimum (`plan_fill`). Minimum and maximum are tags of the sets: in the
# configuration a change would replace the head and its store. A third tag of the first set, from `gangway job --scale`,
# requests a number between the two. Each `period_sec` the script counts running machines per set (`GET
# .../virtualMachineScaleSets/G/virtualMachines?$expand=instanceView`), keeps the last `window` counts and the active
# set, and reads sizes and tags. It resizes by `PATCH` with only `sku`: a `PUT` of the whole model would change later
# nodes. Sets are emptied before one is filled. Refusals for capacity (AllocationFailed and similar) are retried
# silently, others (such as quota) with an event. Machines whose provisioning failed count in the size without running:
# it deletes them (`DELETE .../virtualMachines/ID`). Counts are reset after a change that they decided. Nothing is
# filled for an ended job.

_SETS = "Microsoft.Compute/virtualMachineScaleSets"
HEAD_ACTIONS = (
    f"{_SETS}/read",
    f"{_SETS}/write",
    f"{_SETS}/virtualMachines/read",
    f"{_SETS}/virtualMachines/delete",
)
"""The head's actions for it: none on subnets, identities or keys, which Azure checks against the body (only `sku`)."""


@dataclass(frozen=True)
class FallbackGroup:
    """One scale set. `machine_type`: `sku.name`, which a `PATCH` of the size has to repeat."""

    name: str
    kind: str
    machine_type: str


@dataclass(frozen=True)
class FallbackConfig:
    """The head's configuration, groups in ladder order. `together`: a job may span groups."""

    subscription_id: str
    resource_group_name: str
    together: bool
    groups: tuple[FallbackGroup, ...]
    period_sec: int = PERIOD_SEC
    window: int = WINDOW

    def to_json(self) -> dict[str, Any]:
        """The configuration as plain JSON data, with the version of this contract."""
        return {"version": CONTRACT_VERSION, **asdict(self), "groups": [asdict(group) for group in self.groups]}


def plan_fallback(
    subscription_id: str,
    resource_group_name: str,
    machine_type: str,
    rungs: Sequence[RungPlan],
    names: Sequence[str],
    *,
    together: bool,
) -> FallbackConfig:
    """The configuration of a pool's groups, `names` in the order of `rungs`."""
    groups = tuple(FallbackGroup(name, rung.kind, machine_type) for rung, name in zip(rungs, names, strict=True))
    return FallbackConfig(subscription_id, resource_group_name, together, groups)
