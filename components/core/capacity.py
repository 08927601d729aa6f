"""Capacity: the ladder of ways to have nodes (reserved, block, spot, on-demand), in the order they are tried."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, model_validator

from components.core.fields import Number, PositiveNumber
from components.core.findings import Finding, InputError

__all__ = [
    "CONTRACT_VERSION",
    "PERIOD_SEC",
    "WINDOW",
    "AnyRung",
    "BlockPurchase",
    "CapacityBlock",
    "FlexStart",
    "OnDemand",
    "Reservation",
    "Rung",
    "RungPlan",
    "Spot",
    "SpotAllocation",
    "check_kinds",
    "not_sold",
    "plan_ladder",
    "plan_rung",
]


SpotAllocation = Literal["price-capacity-optimized", "capacity-optimized", "lowest-price"]
# What comes nearest where a provider does not have a kind.
_NEAREST_KIND: Mapping[str, str] = MappingProxyType({"capacity-block": "flex-start", "flex-start": "capacity-block"})
CONTRACT_VERSION = 1
"""Of the JSON that the head reads."""
PERIOD_SEC = 60
WINDOW = 10
"""Counts that have to agree, one a period. A group that had no capacity for ten minutes has none for now.

Spot nodes that one minute takes away are mostly back by then, and a node that boots counts from its start.
"""


def _moment(value: Any) -> datetime:
    """A time that means the same everywhere. YAML reads most spellings itself; JSON and other programs bring text."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    fix = "write it like 2026-07-01T11:30:00Z"
    if isinstance(value, datetime) and value.tzinfo is None and 2000 <= value.year < 3000:
        fix = f"write {value.replace(microsecond=0).isoformat()}Z, with the hour and the zone that are meant"
    # A bare date is no time, and a number of seconds is nothing that a person writes. Near the ends of what Python
    # can count, no hour can be taken away or added.
    if not isinstance(value, datetime) or value.tzinfo is None or not 2000 <= value.year < 3000:
        raise ValueError(f"a date from 2000 to 2999 and a time with its zone; {fix}")
    return value


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"each name once; remove the second {twice}")
    return names


Moment = Annotated[datetime, BeforeValidator(_moment)]
Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], AfterValidator(_each_once)]


class _Rung(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class CapacityBlock(_Rung):
    """Capacity bought for a fixed time window: one that is owned already, or one that `up` buys.

    Attributes:
        id: the owned block.
        purchase: buy `offering_id`. Destroying the stack gives no money back.
        offering_id: what the provider offers; offerings are valid for minutes, so look one up just before `up`.
        upfront_usd: what that offering costs, in US dollars, so that it stands in the plan.
        paid_usd_per_hour: what the owner of the block paid for an hour of one node; without it the plan leaves that
            cost out, and says so.
        starts_at: the block's start. Nodes are asked for then; without it at once, and in vain before it.
        ends_at: the block's end. Nodes are told to stop before it; without it they cannot be.
        zone: where the block is; the cluster's own zone when left out.
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
    """A targeted on-demand capacity reservation, in `zone` or else in the cluster's own."""

    kind: Literal["reservation"]
    id: str = Field(min_length=1, examples=["cr-0123456789abcdef0"])
    zone: str | None = Field(default=None, min_length=1, examples=["us-east-2a"])


class FlexStart(_Rung):
    """Capacity for a while, all nodes at once, whenever the provider has it: asked for, waited for, then uninterrupted.
    `max_hours`: the nodes are deleted after so long, done or not; the provider takes up to a week.
    """

    kind: Literal["flex-start"]
    max_hours: Number = Field(ge=1, le=168, examples=[24])


class _Market(_Rung):
    """What spot and on-demand have in common: further machine types beside the cluster's, and further zones."""

    machine_types: Names = Field(default=(), examples=[["p4de.24xlarge"]])
    zones: Names = Field(default=(), examples=[["us-east-2a"]])


class Spot(_Market):
    """Spare capacity that may be taken back. `max_usd_per_hour`: caps the price of one node, whatever its type; the
    on-demand price when left out; `allocation`: how the provider chooses among several machine types and zones.
    """

    kind: Literal["spot"]
    max_usd_per_hour: PositiveNumber | None = Field(default=None, examples=[25])
    allocation: SpotAllocation = "price-capacity-optimized"


class OnDemand(_Market):
    """Capacity at list price, as far as the provider has any. Several machine types are tried in their order."""

    kind: Literal["on-demand"]


AnyRung = CapacityBlock | Reservation | FlexStart | Spot | OnDemand
Rung = Annotated[AnyRung, Field(discriminator="kind")]


@dataclass(frozen=True)
class BlockPurchase:
    """A capacity block to buy: the offering and what it costs in US dollars, paid at once."""

    offering_id: str
    upfront_usd: float


@dataclass(frozen=True)
class RungPlan:
    """Launch fields of one rung; at most one of market type and targeted reservation kinds is in force.

    Attributes:
        kind: the rung's kind.
        market_type: `spot`, `capacity-block`, `flex-start` or None (on-demand market).
        max_usd_per_hour: price cap, spot only.
        reservation_id: the reservation or owned block that is targeted.
        placement_group: whether we may add a cluster placement group of our own. Never on reserved capacity: it has
            its own placement, and a second one ends in insufficient-capacity errors. Nor over several zones: such a
            group lies in one.
        interruptible: whether the provider may take nodes back.
        purchase: the block to buy, whose id is then targeted.
        starts_at: when the capacity begins; None where it is there already, or nobody has said.
        ends_at: when the capacity ends for good.
        allocation: how to choose among spot pools, spot only.
        machine_types: types beside the cluster's.
        zones: the zones to use; empty for the cluster's own.
        max_hours: how long the nodes live at most, flex-start only.
    """

    kind: str
    market_type: str | None
    max_usd_per_hour: float | None
    reservation_id: str | None
    placement_group: bool
    interruptible: bool
    purchase: BlockPurchase | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    allocation: SpotAllocation | None = None
    machine_types: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    max_hours: float | None = None

    @property
    def reserved(self) -> bool:
        """Whether the nodes come from capacity set aside for us, owned or about to be bought."""
        return self.reservation_id is not None or self.purchase is not None


def plan_rung(rung: AnyRung) -> RungPlan:
    """Compiles one rung."""
    match rung:
        case CapacityBlock() | Reservation():
            return _plan_reserved(rung)
        case FlexStart():
            # Nodes that come together are placed together by the provider.
            return RungPlan(rung.kind, rung.kind, None, None, False, False, max_hours=rung.max_hours)
        case Spot() | OnDemand():
            spot = isinstance(rung, Spot)
            return RungPlan(
                kind=rung.kind,
                market_type="spot" if spot else None,
                max_usd_per_hour=rung.max_usd_per_hour if isinstance(rung, Spot) else None,
                reservation_id=None,
                placement_group=len(rung.zones) <= 1,
                interruptible=spot,
                allocation=rung.allocation if isinstance(rung, Spot) else None,
                machine_types=rung.machine_types,
                zones=rung.zones,
            )


def _plan_reserved(rung: CapacityBlock | Reservation) -> RungPlan:
    purchase, starts_at, ends_at = None, None, None
    if isinstance(rung, CapacityBlock):
        starts_at, ends_at = rung.starts_at, rung.ends_at
        if rung.offering_id is not None and rung.upfront_usd is not None:
            purchase = BlockPurchase(rung.offering_id, rung.upfront_usd)
    return RungPlan(
        kind=rung.kind,
        market_type="capacity-block" if isinstance(rung, CapacityBlock) else None,
        max_usd_per_hour=None,
        reservation_id=rung.id,
        placement_group=False,
        interruptible=False,
        purchase=purchase,
        starts_at=starts_at,
        ends_at=ends_at,
        zones=() if rung.zone is None else (rung.zone,),
    )


def plan_ladder(rungs: tuple[AnyRung, ...]) -> tuple[RungPlan, ...]:
    """Compiles every rung, first choice first."""
    return tuple(plan_rung(rung) for rung in rungs)


def check_kinds(rungs: Sequence[AnyRung], offered: Collection[str], provider: str, place: str) -> None:
    """Refuses a rung of a kind that a provider does not have.

    Args:
        rungs: the ladder, first choice first.
        offered: the kinds the provider has, in the order to name them.
        provider: its name, as people write it.
        place: config path of the ladder.

    InputError: naming the first such rung.
    """
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
    """Not every machine type is sold in every way.

    Args:
        rung: of the ladder.
        path: config path of the rung.
        machine_type: of the nodes.
        sold: the kinds of rungs it can be had as.
        source: who says so, and when.
    """
    if rung.kind not in sold:
        # Nothing else has to be said of these; the others have an id, or hours.
        plain = [kind for kind in ("on-demand", "spot") if kind in sold]
        others = ", ".join(kind for kind in sold if kind not in plain[:1])
        in_words = f"{', or ' if plain else ''}one of: {others}" if others else ""
        yield Finding.error(
            "capacity.not-sold",
            f"{path}.kind",
            f"{machine_type} cannot be had as {rung.kind} ({source})",
            f"{f'set {path}: {{kind: {plain[0]}}}' if plain else ''}{in_words}",
        )
