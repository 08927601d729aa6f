"""Capacity: the ladder of ways to get nodes (reserved, block, spot, on-demand), in the order they are tried."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    TypeAdapter,
    model_validator,
)

from gangway.components.core.fields import Number, PositiveNumber
from gangway.components.core.findings import Finding, InputError

LADDER = "gangway:cluster.capacity"
"""Where a stack file has it."""
SpotAllocation = Literal["price-capacity-optimized", "capacity-optimized", "lowest-price"]
# The nearest kind if a provider does not have the requested one.
_NEAREST_KIND: Mapping[str, str] = MappingProxyType({"capacity-block": "flex-start", "flex-start": "capacity-block"})
CONTRACT_VERSION = 1
"""Version of the JSON that the head reads."""
PERIOD_SEC = 60
WINDOW = 10
"""Counts, one a period, that must agree: a group without capacity for ten minutes has none for now.

Interrupted spot nodes are mostly back within a minute, and a node counts from the start of its boot.
"""


def _moment(value: Any) -> datetime:
    """A time with its zone. YAML parses most spellings itself; JSON and other programs bring text."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    fix = "write it like 2026-07-01T11:30:00Z"
    if isinstance(value, datetime) and value.tzinfo is None and 2000 <= value.year < 3000:
        fix = f"write {value.replace(microsecond=0).isoformat()}Z, with the hour and the zone that are meant"
    # Rejects bare dates and numbers of seconds. Near the ends of Python's range, hours cannot be added or subtracted.
    if not isinstance(value, datetime) or value.tzinfo is None or not 2000 <= value.year < 3000:
        raise ValueError(f"a date from 2000 to 2999 and a time with its zone; {fix}")
    return value


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise ValueError(f"each name once; remove the second {duplicate}")
    return names


Moment = Annotated[datetime, BeforeValidator(_moment)]
Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], AfterValidator(_each_once)]


class _Rung(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class CapacityBlock(_Rung):
    """Capacity for a fixed time window: an owned block, or one that `up` buys.

    Attributes:
        kind: kind of capacity.
        id: id of an owned block.
        purchase: buy `offering_id`. Destroying the stack does not refund it.
        offering_id: valid for minutes, so look it up just before `up`.
        upfront_usd: price of the offering in US dollars, shown in the plan.
        paid_usd_per_hour: paid per node-hour of an owned block; if omitted, the plan reports the cost as missing.
        starts_at: when nodes are requested; if omitted, at once, which fails before the block's start.
        ends_at: nodes are signalled to stop before it; if omitted, they get no warning.
        zone: of the block; the cluster's zone if omitted.
    """

    kind: Literal["capacity-block"]
    id: str | None = Field(default=None, min_length=1, examples=["cr-0123456789abcdef0"])
    purchase: StrictBool = False
    offering_id: str | None = Field(default=None, min_length=1, examples=["cbo-0123456789abcdef0"])
    upfront_usd: PositiveNumber | None = Field(default=None, examples=[16000])
    paid_usd_per_hour: PositiveNumber | None = Field(default=None, examples=[31.5])
    starts_at: Moment | None = Field(default=None, examples=["2026-06-30T11:30:00Z"])
    ends_at: Moment | None = Field(default=None, examples=["2026-07-01T11:30:00Z"])
    zone: str | None = Field(default=None, min_length=1, examples=["us-east-2a"])

    @model_validator(mode="after")
    def _owned_or_bought(self) -> Self:
        buying = {"offering_id": self.offering_id, "upfront_usd": self.upfront_usd}
        if not self.purchase:
            if self.id is None:
                raise ValueError("id of an owned block, or purchase: true; add id")
            if unused := [name for name, value in buying.items() if value is not None]:
                raise ValueError(f"{unused[0]} beside purchase: true only; remove {' and '.join(unused)}")
            return self
        if self.id is not None:
            raise ValueError("either id (an owned block) or purchase: true (a new one); remove one of them")
        if self.paid_usd_per_hour is not None:
            raise ValueError("paid_usd_per_hour beside id only; remove paid_usd_per_hour")
        needed = {**buying, "starts_at": self.starts_at, "ends_at": self.ends_at}
        if missing := [name for name, value in needed.items() if value is None]:
            raise ValueError(
                f"offering_id, upfront_usd, starts_at and ends_at beside purchase: true; add {' and '.join(missing)}"
            )
        return self

    @model_validator(mode="after")
    def _starts_before_it_ends(self) -> Self:
        if self.starts_at is not None and self.ends_at is not None and self.starts_at >= self.ends_at:
            raise ValueError("starts_at before ends_at; set both to what the provider shows for the block")
        return self


class Reservation(_Rung):
    """A targeted on-demand capacity reservation.

    Attributes:
        kind: kind of capacity.
        id: id of the reservation.
        zone: zone of the reservation; the cluster's zone if omitted.
    """

    kind: Literal["reservation"]
    id: str = Field(min_length=1, examples=["cr-0123456789abcdef0"])
    zone: str | None = Field(default=None, min_length=1, examples=["us-east-2a"])


class FlexStart(_Rung):
    """Capacity for a limited time, all nodes at once, as soon as the provider has it, without interruptions.

    Attributes:
        kind: kind of capacity.
        max_hours: the nodes are deleted after this; the provider allows up to a week.
    """

    kind: Literal["flex-start"]
    max_hours: Number = Field(ge=1, le=168, examples=[24])


class _Market(_Rung):
    """Base of spot and on-demand.

    Attributes:
        kind: kind of capacity.
        machine_types: further machine types besides the cluster's.
        zones: zones instead of the cluster's.
    """

    machine_types: Names = Field(default=(), examples=[["p4de.24xlarge"]])
    zones: Names = Field(default=(), examples=[["us-east-2a"]])


class Spot(_Market):
    """Interruptible spare capacity.

    Attributes:
        max_usd_per_hour: price cap per node of any type; the on-demand price if omitted.
        allocation: how the provider chooses among machine types and zones.
    """

    kind: Literal["spot"]
    max_usd_per_hour: PositiveNumber | None = Field(default=None, examples=[25])
    allocation: SpotAllocation = "price-capacity-optimized"


class OnDemand(_Market):
    """Capacity at list price, subject to availability. Machine types are tried in order."""

    kind: Literal["on-demand"]


AnyRung = CapacityBlock | Reservation | FlexStart | Spot | OnDemand
Rung = Annotated[AnyRung, Field(discriminator="kind")]


@dataclass(frozen=True)
class BlockPurchase:
    """A capacity block to buy: the offering and its upfront price in US dollars."""

    offering_id: str
    upfront_usd: float


@dataclass(frozen=True)
class RungPlan:
    """Launch fields of one rung; at most one market type or targeted reservation applies.

    Attributes:
        placement_group: whether we may add a cluster placement group. Never on reserved capacity, which has its own: a
            second one ends in insufficient-capacity errors. Nor over several zones: such a group lies in one.
        starts_at: None if the capacity is there already or the time is unknown.
    """

    kind: str
    market_type: str | None = None
    max_usd_per_hour: float | None = None
    reservation_id: str | None = None
    placement_group: bool = False
    interruptible: bool = False
    purchase: BlockPurchase | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    allocation: SpotAllocation | None = None
    machine_types: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    max_hours: float | None = None

    @property
    def reserved(self) -> bool:
        """Whether the nodes come from capacity reserved for us, owned or to be bought."""
        return self.reservation_id is not None or self.purchase is not None


def plan_rung(rung: AnyRung) -> RungPlan:
    """Compile one rung."""
    match rung:
        case Reservation():
            return RungPlan(rung.kind, reservation_id=rung.id, zones=() if rung.zone is None else (rung.zone,))
        case CapacityBlock(offering_id=offering, upfront_usd=usd):
            return RungPlan(
                rung.kind,
                market_type=rung.kind,
                reservation_id=rung.id,
                purchase=None if offering is None or usd is None else BlockPurchase(offering, usd),
                starts_at=rung.starts_at,
                ends_at=rung.ends_at,
                zones=() if rung.zone is None else (rung.zone,),
            )
        case FlexStart():
            # The provider places such nodes together.
            return RungPlan(rung.kind, market_type=rung.kind, max_hours=rung.max_hours)
        case OnDemand(machine_types=types, zones=zones):
            return RungPlan(rung.kind, placement_group=len(zones) <= 1, machine_types=types, zones=zones)
        case Spot(machine_types=types, zones=zones):
            return RungPlan(
                rung.kind,
                market_type="spot",
                max_usd_per_hour=rung.max_usd_per_hour,
                placement_group=len(zones) <= 1,
                interruptible=True,
                allocation=rung.allocation,
                machine_types=types,
                zones=zones,
            )


def plan_ladder(rungs: tuple[AnyRung, ...]) -> tuple[RungPlan, ...]:
    """Compile every rung, first choice first."""
    return tuple(plan_rung(rung) for rung in rungs)


def check_kinds(rungs: Sequence[AnyRung], offered: Collection[str], provider: str, place: str) -> None:
    """Check that the provider offers every rung's kind, listed in the order of `offered`. InputError: it lacks one."""
    for index, rung in enumerate(rungs):
        if rung.kind not in offered:
            nearest = _NEAREST_KIND.get(rung.kind, "")
            raise InputError(
                f"{place}[{index}].kind",
                f"{provider} has no such capacity",
                value=rung.kind,
                allowed=", ".join(offered),
                fix=f"set {place}[{index}]: {{kind: on-demand}}{f', or write {nearest}' if nearest in offered else ''}",
            )


def not_sold(rung: AnyRung, path: str, machine_type: str, sold: Sequence[str], source: str) -> Iterable[Finding]:
    """Report a rung whose kind is not `sold` for the machine type. `source`: of that list, with its date."""
    if rung.kind not in sold:
        # The other kinds need an id or hours, so they cannot be a fix.
        plain = [kind for kind in ("on-demand", "spot") if kind in sold]
        others = ", ".join(kind for kind in sold if kind not in plain[:1])
        in_words = f"{', or ' if plain else ''}one of: {others}" if others else ""
        yield Finding.error(
            "capacity.not-sold",
            f"{path}.kind",
            f"{machine_type} cannot be had as {rung.kind} ({source})",
            f"{f'set {path}: {{kind: {plain[0]}}}' if plain else ''}{in_words}",
        )


def refuse_machine_types(rung: Spot | OnDemand, here: str, problem: str) -> None:
    """InputError: further machine types, which this provider's rungs do not have."""
    if rung.machine_types:
        raise InputError(
            f"{here}.machine_types",
            problem,
            value=", ".join(rung.machine_types),
            allowed="no further machine types",
            fix="remove machine_types",
        )


def same_reservations(rungs: Sequence[AnyRung]) -> Iterable[Finding]:
    """Report rungs with a reservation or block of an earlier one, by id in any case."""
    first: dict[str, int] = {}
    for index, rung in enumerate(rungs):
        id_ = rung.id if isinstance(rung, CapacityBlock | Reservation) else None
        if id_ is not None and first.setdefault(id_.lower(), index) != index:
            yield Finding.error(
                "capacity.same-reservation",
                f"{LADDER}[{index}].id",
                f"{id_} is already what rung {first[id_.lower()]} uses",
                "remove this rung",
            )


def named_zones(rung: AnyRung | RungPlan) -> tuple[str, ...]:
    """The zones a rung names; empty for the cluster's own."""
    zones: tuple[str, ...] = getattr(rung, "zones", ())
    zone: str | None = getattr(rung, "zone", None)
    return zones if zone is None else (zone,)


def rung_from_args(rung: Mapping[str, Any]) -> AnyRung:
    """Parse a component's rung argument. Raises pydantic's ValidationError."""
    adapter: TypeAdapter[AnyRung] = TypeAdapter(Rung)
    return adapter.validate_python(dict(rung))


def preferred_zone(rungs: Iterable[AnyRung]) -> tuple[str, str] | None:
    """The zone that the ladder implies if none is set, with the reason; None for any zone."""
    for index, rung in enumerate(rungs):
        if isinstance(rung, CapacityBlock | Reservation) and rung.zone is not None:
            return rung.zone, f"{LADDER}[{index}], a {rung.kind}, is there"
    return None
