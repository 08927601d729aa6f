"""The capacity ladder on EC2, its conflicts with the rest of the stack, and its Service Quotas (`quotas.yaml`)."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import takewhile
from pathlib import Path

import gangway.components.catalog
from gangway.components.aws.launch import count_efa, plan_interfaces
from gangway.components.catalog.loader import load
from gangway.components.catalog.schema import Fact, Frozen, MachineType
from gangway.components.catalog.tables import read_file, with_facts
from gangway.components.core.capacity import (
    LADDER,
    AnyRung,
    CapacityBlock,
    Reservation,
    RungPlan,
    Spot,
    check_kinds,
    named_zones,
    plan_ladder,
    plan_rung,
    same_reservations,
)
from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding, InputError, Severity
from gangway.components.core.limits import QuotaNeed, count_nodes, no_quota

OFFERED = ("capacity-block", "reservation", "spot", "on-demand")  # the kinds of capacity that EC2 sells

BLOCK_END_NOTICE = timedelta(minutes=30)  # before a block ends EC2 starts to end its nodes ("Capacity Blocks for ML")
BLOCK_STOP_LEAD = timedelta(minutes=10)  # before that: five minutes for the last checkpoint, as much again as slack

BEHIND_BLOCK_DELAY = timedelta(hours=1)
"""Lower rungs wait so long for a block that starts: large machines boot slowly; the fill alarm looks back as long."""

_RESERVATION = re.compile(r"cr-[0-9a-f]{8,17}")
_OFFERING = re.compile(r"cbo?-[0-9a-f]{8,17}")


def check_ladder(rungs: Sequence[AnyRung], machine: MachineType, place: str = LADDER) -> None:
    """Check the ladder. InputError: a kind that EC2 does not sell, a malformed id, or an unknown machine type."""
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
    """The machine types a rung may launch, the cluster's first. InputError: an unknown one."""
    known = {name: row for name, row in load().machines.items() if row.provider == "aws"}
    found = {machine.name: machine}
    for index, name in enumerate(getattr(rung, "machine_types", ())):
        if name not in known:
            raise InputError.not_among(f"{place}.machine_types[{index}]", "no such machine type", name, sorted(known))
        found[name] = known[name]
    return tuple(found.values())


def ladder_zones(rungs: Iterable[AnyRung], zone: str) -> tuple[str, ...]:
    """Every zone that needs a subnet: the cluster's first, then the rungs' in order."""
    return tuple(dict.fromkeys([zone, *(name for rung in rungs for name in named_zones(rung))]))


def check_zones(rungs: Sequence[AnyRung | RungPlan], zones: Sequence[str], place: str = LADDER) -> None:
    """Check that all rungs' zones are in `zones`. InputError with the zone's path."""
    for index, rung in enumerate(rungs):
        single = isinstance(rung, CapacityBlock | Reservation)
        for position, name in enumerate(named_zones(rung)):
            if name not in zones:
                raise InputError.not_among(
                    f"{place}[{index}].{'zone' if single else f'zones[{position}]'}", "no such zone here", name, zones
                )


def block_stop_time(ends_at: datetime, lead: timedelta = BLOCK_STOP_LEAD) -> datetime:
    """When a block's group is set to zero, in UTC: `lead` before EC2 starts to end the nodes."""
    return ends_at.astimezone(UTC) - BLOCK_END_NOTICE - lead


def opening_times(rungs: Sequence[RungPlan]) -> tuple[datetime | None, ...]:
    """When each rung may request nodes, in UTC, None for any time; a lower rung opens after those above."""
    times: list[datetime | None] = []
    for rung in rungs:
        above = [time + BEHIND_BLOCK_DELAY for time in times if time is not None]
        waits = [min(above)] if times and len(above) == len(times) else []
        starts = [] if rung.starts_at is None else [rung.starts_at.astimezone(UTC)]
        times.append(max([*waits, *starts], default=None))
    return tuple(times)


@dataclass(frozen=True)
class LadderContext:
    """The stack's settings that a ladder must match. `zone`: the file system's; `zone_assumed`: no setting names it;
    `num_nodes_min`: the fewest nodes with which the job continues; `max_hours`: None with a queue.
    """

    machine: MachineType
    zone: str
    zone_assumed: bool
    num_nodes_min: int
    num_nodes_max: int
    max_hours: float | None
    now: datetime


def capacity_findings(rungs: Sequence[AnyRung], context: LadderContext) -> list[Finding]:
    """All conflicts, rung by rung, of a ladder that `check_ladder` accepts."""
    found = list(same_reservations(rungs))
    opens = opening_times(plan_ladder(tuple(rungs)))
    for index, rung in enumerate(rungs):
        path = f"{LADDER}[{index}]"
        found += _placement(rung, path, context)
        found += _zones(rung, path, context)
        found += _machines(rung, path, context)
        if isinstance(rung, CapacityBlock):
            found += _block_size(rungs[:index], path, context)
            found += _block_start(rung, path, context.now)
            found += _block_end(rung, path, last=index == len(rungs) - 1, alone=len(rungs) == 1, context=context)
            found += _block_purchase(rung, path)
            found += _behind_block(list(zip(rungs, opens, strict=True))[index + 1 :], path)
    return found


def _placement(rung: AnyRung, path: str, context: LadderContext) -> Iterable[Finding]:
    if plan_rung(rung).reserved and context.machine.fabric is not None:
        yield Finding.info(
            "capacity.no-placement-group",
            path,
            f"{rung.kind}: no placement group of ours, the reserved machines have their own placement; "
            "a second one ends in insufficient-capacity errors",
        )


def _zones(rung: AnyRung, path: str, context: LadderContext) -> Iterable[Finding]:
    zones = named_zones(rung)
    if isinstance(rung, CapacityBlock | Reservation) and not zones and context.zone_assumed:
        yield _zone_unnamed(rung, path, context.zone)
    if all(zone == context.zone for zone in zones):
        return
    if isinstance(rung, CapacityBlock | Reservation):
        yield Finding.error(
            "capacity.other-zone",
            f"{path}.zone",
            f"the {rung.kind} is in {zones[0]}, the cluster's subnet and file system in {context.zone}",
            f"set gangway:cluster.zone: {zones[0]}",
        )
    elif context.machine.fabric is not None:
        yield Finding.error(
            "capacity.zones-with-fabric",
            f"{path}.zones",
            f"{', '.join(zones)}: EFA and a cluster placement group reach no further than one zone, and the other "
            f"nodes are in {context.zone}",
            f"set zones: [{context.zone}], or leave it out",
        )
    else:
        yield Finding.warning(
            "capacity.several-zones",
            f"{path}.zones",
            f"{', '.join(zones)}: traffic to nodes and file system in {context.zone} crosses zones, "
            "which is slower and billed",
            f"set zones: [{context.zone}] where speed matters more than finding capacity",
        )


def _zone_unnamed(rung: CapacityBlock | Reservation, path: str, assumed: str) -> Finding:
    """Subnet, file system and reserved machines must be in one zone, which only the owner of the reservation knows."""
    bought = isinstance(rung, CapacityBlock) and rung.purchase
    return Finding(
        Severity.ERROR if bought else Severity.WARNING,
        "capacity.zone-unnamed",
        f"{path}.zone",
        f"nobody has named the zone of this {rung.kind}: {assumed} is assumed, and anywhere else no node would start"
        + (" on what has been paid" if bought else ""),
        "look in EC2 where it is, and write that zone",
    )


def _behind_block(below: Sequence[tuple[AnyRung, datetime | None]], path: str) -> Iterable[Finding]:
    """Which rung is billed if the block has no nodes. `below`: each rung with the time from which it may be filled."""
    unreserved = [(rung.kind, opens) for rung, opens in below if not plan_rung(rung).reserved]
    if not unreserved:
        return
    kind, opens = unreserved[0]
    begin = "before and after" if opens is None else f"from {opens.isoformat()} on and after its end"
    close = ["write starts_at, or run `up` once the block has started"] if opens is None else []
    yield Finding.info(
        "capacity.behind-block",
        path,
        f"a block has nodes between its start and its end; {begin}, the next rung ({kind}) makes up for those that are "
        "missing, and is paid",
        "; or ".join([*close, "without the rungs behind it the job waits for the next block"]),
    )


def _machines(rung: AnyRung, path: str, context: LadderContext) -> Iterable[Finding]:
    """A job has one worker count per node, one image and one fabric check: its machine types must agree on them."""
    own = context.machine
    others = rung_machines(rung, own, path)[1:]
    for machine in others:
        differing = [
            f"{what} {theirs} and {ours}"
            for what, theirs, ours in (
                ("accelerator", machine.accelerator, own.accelerator),
                ("accelerators", machine.num_accelerators.value, own.num_accelerators.value),
                ("architecture", machine.architecture, own.architecture),
                ("EFA interfaces", count_efa(machine), count_efa(own)),
            )
            if theirs != ours
        ]
        if differing:
            yield Finding.error(
                "capacity.mixed-machines",
                f"{path}.machine_types",
                f"{machine.name} and {own.name} differ: {', '.join(differing)}",
                f"remove {machine.name}",
            )
    if isinstance(rung, Spot) and not others and "allocation" in rung.model_fields_set:
        yield Finding.warning(
            "capacity.allocation-unused",
            f"{path}.allocation",
            f"{rung.allocation} chooses among machine types, and this rung has only {own.name}",
            "remove allocation, or add machine_types",
        )


def _block_size(above: Sequence[AnyRung], path: str, context: LadderContext) -> Iterable[Finding]:
    fewest, most = context.num_nodes_min, context.num_nodes_max
    if fewest != most:
        yield Finding.error(
            "capacity.block-size",
            "gangway:cluster.nodes",
            f"{path} is a block of a fixed number of nodes, all of them paid, and the job takes {fewest} to {most}",
            f"set nodes: {{min: {most}, max: {most}}} where the block has {most}",
        )
    if not all(plan_rung(rung).reserved for rung in above):
        yield Finding.warning(
            "capacity.block-waits",
            path,
            f"rung {len(above)} is a block, paid whether used or not, and nodes that cost extra are tried before it",
            "move it above the spot and on-demand rungs",
        )


def _block_start(rung: CapacityBlock, path: str, now: datetime) -> Iterable[Finding]:
    if rung.starts_at is None:
        yield Finding.info(
            "capacity.block-start",
            f"{path}.starts_at",
            f"{rung.id}: nodes are asked for at once, and before the block's start in vain; after a day of that Auto "
            "Scaling suspends the group",
            "write starts_at as EC2 shows it for the block, unless it has begun",
        )
    elif rung.starts_at > now:
        yield Finding.info(
            "capacity.block-start",
            f"{path}.starts_at",
            f"no node before {rung.starts_at.isoformat()}: a scheduled action asks for them then, also where nobody "
            "runs `up`",
        )


def _block_end(rung: CapacityBlock, path: str, *, last: bool, alone: bool, context: LadderContext) -> Iterable[Finding]:
    if rung.ends_at is None:
        yield Finding.warning(
            "capacity.block-end",
            f"{path}.ends_at",
            f"{rung.id}: without the block's end nothing can stop its nodes in time, and EC2 ends them",
            "write ends_at as EC2 shows it for the block",
        )
        return
    stop = block_stop_time(rung.ends_at)
    begin = context.now if rung.starts_at is None else max(context.now, rung.starts_at)
    if stop <= begin:
        yield Finding.error(
            "capacity.block-ended",
            f"{path}.ends_at",
            f"{rung.ends_at.isoformat()} leaves no time: its nodes stop at {stop.isoformat()}",
            "name a later block" if alone else "remove this rung, or name a later block",
        )
    elif context.max_hours is not None and stop < begin + timedelta(hours=context.max_hours):
        hours = math.floor((stop - begin) / timedelta(hours=0.1)) / 10
        since = "now" if begin == context.now else "its start"
        then = "ends with its last checkpoint" if last else "goes on with the next rung"
        yield Finding.warning(
            "capacity.block-too-short",
            f"{path}.ends_at",
            f"the nodes stop at {stop.isoformat()}, {hours:.1f} h from {since}, and the job may run "
            f"{context.max_hours:g} h: it {then}",
            f"set gangway:job.max_hours: {hours:.1f}, or name a longer block" if hours else "name a longer block",
        )


def _block_purchase(rung: CapacityBlock, path: str) -> Iterable[Finding]:
    plan = plan_rung(rung).purchase
    if plan is not None:
        yield Finding.warning(
            "capacity.block-purchase",
            path,
            f"`up` buys {plan.offering_id} for {plan.upfront_usd:,.2f} USD at once; `destroy` gives nothing back and "
            "leaves the block to its end, and another offering_id here buys another block",
            "look the offering and its price up again just before `up`",
        )


class ServiceQuota(Frozen):
    """A quota's service and name in Service Quotas."""

    service: str
    name: Fact[str]


class MarketQuotas(Frozen):
    """Codes of the vCPU quotas for machine types that begin with `letters` and a digit."""

    letters: tuple[str, ...]
    on_demand: str
    spot: str


class Quotas(Frozen):
    """The table. `instances`: those that count a machine's vCPUs; `former_spot`: by family such as `p5en`: counted its
    spot machines until AWS merged two quotas; `blocks`: by family: vCPUs of concurrently active capacity blocks;
    `lustre`: by deployment of a file system; `helper_vcpus`: of machine types that run no jobs.
    """

    quotas: Mapping[str, ServiceQuota]
    instances: tuple[MarketQuotas, ...]
    former_spot: Mapping[str, str]
    blocks: Mapping[str, str]
    lustre: Mapping[str, str]
    helper_vcpus: Mapping[str, Fact[int]]

    def market(self, machine_type: str) -> MarketQuotas | None:
        """The vCPU quota codes of a machine type; None for a family outside the table, such as a user's own machine."""
        letters = "".join(takewhile(str.isalpha, machine_type))
        return next((row for row in self.instances if letters in row.letters), None)


@cache
def load_quotas() -> Quotas:
    """The table, read once per process."""
    tables, sources = read_file(Path(gangway.components.catalog.__file__).with_name("aws") / "quotas.yaml")
    helpers = tables.pop("helper_vcpus")
    source = sources[helpers.pop("source")]
    quotas = {code: with_facts(ServiceQuota, row, sources) for code, row in tables.pop("quotas").items()}
    vcpus = {name: {"value": value, **source} for name, value in helpers.items()}
    return Quotas.model_validate({**tables, "quotas": quotas, "helper_vcpus": vcpus})


@dataclass(frozen=True)
class QuotaContext:
    """The region of a stack, and its maximum number of nodes."""

    region: str
    num_nodes: int

    def need(self, path: str, code: str, amount: int, unit: str = "", users: str = "", note: str = "") -> QuotaNeed:
        """A need of one quota."""
        quota = load_quotas().quotas[code]
        name, command = f"{code} ({quota.name.value})", f"aws service-quotas get-service-quota {self._which(code)}"
        command = f"{command} --query Quota.Value"
        return QuotaNeed(path, amount, unit, name, self.region, users, command, note, key=f"{quota.service}/{code}")

    def request(self, code: str, amount: int) -> str:
        """The command that requests a higher limit."""
        return f"aws service-quotas request-service-quota-increase {self._which(code)} --desired-value {amount}"

    def _which(self, code: str) -> str:
        return f"--region {self.region} --service-code {load_quotas().quotas[code].service} --quota-code {code}"


def ladder_quotas(rungs: Sequence[AnyRung], machine: MachineType, context: QuotaContext) -> Iterable[Finding]:
    """Needed vCPUs by quota, at the rung with the largest need (rungs replace each other), or why there are none."""
    found: dict[str, QuotaNeed | Finding] = {}
    for index, rung in enumerate(rungs):
        path = f"{LADDER}[{index}]"
        for need in (_rung_quota(rung, one, path, context) for one in rung_machines(rung, machine, path)):
            if isinstance(need, Finding):
                found[path] = need
            elif not isinstance(other := found.get(need.name), QuotaNeed) or other.amount < need.amount:
                found[need.name] = need
    return (each if isinstance(each, Finding) else each.finding() for each in found.values())


def _rung_quota(rung: AnyRung, machine: MachineType, path: str, context: QuotaContext) -> QuotaNeed | Finding:
    table, family = load_quotas(), machine.name.partition(".")[0]
    market, users = table.market(machine.name), count_nodes(context.num_nodes)
    if market is None:
        return no_quota(path, f"the quota of {family} machines is not known here")

    def vcpus(code: str, note: str = "") -> QuotaNeed:
        amount = machine.vcpus.value * context.num_nodes
        fix = f"where it is less: `{context.request(code, amount)}`, and more for what else counts there"
        return replace(context.need(path, code, amount, "vCPUs", users, note), fix=fix)

    match rung:
        case CapacityBlock():
            if (code := table.blocks.get(family)) is None:
                return no_quota(path, f"AWS's list has none for capacity blocks of {family}")
            if rung.purchase:
                return vcpus(code, "accounts of an organization share a second one, per organization")
            name = table.quotas[code].name.value
            return no_quota(path, f"the block took its share of {code} ({name}) when it was bought")
        case Reservation():
            name = table.quotas[market.on_demand].name.value
            return no_quota(path, f"the reservation took its share of {market.on_demand} ({name}) when it was made")
        case Spot():
            former = table.former_spot.get(family)
            note = "" if former is None else f"an account that still lists {former} counts {family} there"
            return vcpus(market.spot, note)
        case _:
            return vcpus(market.on_demand)


def helper_quota(path: str, machine_type: str, number: int, users: str, context: QuotaContext) -> Finding:
    """The quota of on-demand machines that run no jobs."""
    table = load_quotas()
    market, vcpus = table.market(machine_type), table.helper_vcpus.get(machine_type)
    if market is None or vcpus is None:
        return no_quota(path, f"the vCPUs or the quota of {machine_type} are not known here")
    return context.need(path, market.on_demand, vcpus.value * number, "vCPUs", users).finding()


def network_quotas(machine: MachineType, egress: Egress, context: QuotaContext) -> Iterable[Finding]:
    """The quotas of the VPC, its egress, and the interfaces of EFA nodes."""
    yield context.need("gangway:network", "L-F678F1CE", 1).finding()
    if egress is Egress.NAT:
        for code in ("L-FE5A380F", "L-0263D0A3"):
            yield context.need("gangway:network.egress", code, 1).finding()
    if (interfaces := len(plan_interfaces(machine))) > 1:
        users = count_nodes(context.num_nodes)
        yield context.need("gangway:cluster", "L-DF5E4CA3", interfaces * context.num_nodes, users=users).finding()


def storage_quota(deployment: str, capacity_gib: int, context: QuotaContext) -> Finding:
    """The quota of the file system's capacity."""
    code = load_quotas().lustre[deployment]
    return context.need("gangway:storage.capacity_gib", code, capacity_gib, "GiB").finding()
