"""The capacity ladder: where nodes come from, in the order the user wants them tried.

A rung is data; `plan_rung` compiles it to launch fields that never contradict each other, which is where hand-written
templates go wrong (a spot price beside a reservation, a placement group of ours on reserved capacity). Pure: the
provider packages turn the fields into their own resources.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["CapacityBlock", "OnDemand", "Reservation", "Rung", "RungPlan", "Spot", "plan_ladder", "plan_rung"]


class _Rung(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CapacityBlock(_Rung):
    """Capacity bought for a fixed time window (AWS Capacity Blocks for ML)."""

    kind: Literal["capacity-block"]
    id: str = Field(pattern=r"^cr-[0-9a-f]{8,17}$")


class Reservation(_Rung):
    """A targeted on-demand capacity reservation."""

    kind: Literal["reservation"]
    id: str = Field(pattern=r"^cr-[0-9a-f]{8,17}$")


class Spot(_Rung):
    """Spare capacity that may be taken back. `max_usd_per_hour` caps the price of one node."""

    kind: Literal["spot"]
    max_usd_per_hour: float | None = Field(default=None, gt=0)


class OnDemand(_Rung):
    """Capacity at list price, as far as the provider has any."""

    kind: Literal["on-demand"]


Rung = Annotated[CapacityBlock | Reservation | Spot | OnDemand, Field(discriminator="kind")]


@dataclass(frozen=True)
class RungPlan:
    """Launch fields of one rung; at most one of market type and targeted reservation kinds is in force.

    Attributes:
        kind: the rung's kind.
        market_type: `spot`, `capacity-block` or None (on-demand market).
        max_usd_per_hour: price cap, spot only.
        reservation_id: the reservation or block that is targeted.
        placement_group: whether we may add a cluster placement group of our own. Never on reserved capacity: it has
            its own placement, and a second one ends in insufficient-capacity errors.
        interruptible: whether the provider may take nodes back.
    """

    kind: str
    market_type: str | None
    max_usd_per_hour: float | None
    reservation_id: str | None
    placement_group: bool
    interruptible: bool


def plan_rung(rung: CapacityBlock | Reservation | Spot | OnDemand) -> RungPlan:
    """Compiles one rung."""
    match rung:
        case Spot():
            return RungPlan("spot", "spot", rung.max_usd_per_hour, None, placement_group=True, interruptible=True)
        case CapacityBlock():
            return RungPlan(
                "capacity-block", "capacity-block", None, rung.id, placement_group=False, interruptible=False
            )
        case Reservation():
            return RungPlan("reservation", None, None, rung.id, placement_group=False, interruptible=False)
        case OnDemand():
            return RungPlan("on-demand", None, None, None, placement_group=True, interruptible=False)


def plan_ladder(rungs: tuple[CapacityBlock | Reservation | Spot | OnDemand, ...]) -> tuple[RungPlan, ...]:
    """Compiles every rung, first choice first."""
    return tuple(plan_rung(rung) for rung in rungs)
