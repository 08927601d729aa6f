"""What a stack file asks of the queue of TPUs: the slice, the rung, the reservation. Pure.

What is the same for GPU machines is `plan`; what a person should know is `tpu_findings`.
"""

import re
from collections.abc import Sequence

from components.capacity import AnyRung, OnDemand, Reservation, Spot
from components.catalog import load_tpus
from components.findings import InputError
from components.gcp.capacity import LADDER, check_reservation_project
from components.gcp.slices import SlicePlan, plan_slice
from stacks.settings.config import StackConfig

__all__ = ["TPU_TIERS", "check_tpu_rungs", "reservation_name", "slice_of", "tpu_types"]

TPU_TIERS = {"reservation": "guaranteed", "spot": "spot", "on-demand": "on-demand"}
"""The rungs that the queue of TPUs has, with its own words for them."""
_TPU_TYPE = re.compile(r"v[0-9]+[a-z]*-[0-9]+|tpu[0-9]+x-[0-9]+")
# As the TPU API writes it; in a stack file the zone stands beside it.
_FULL_RESERVATION = re.compile(r"projects/([^/]+)/locations/([^/]+)/reservations/([^/]+)")
_SHARED_RESERVATION = re.compile(r"projects/([^/]+)/reservations/([^/]+)")


def slice_of(config: StackConfig) -> SlicePlan | None:
    """The slice that the accelerator names; None where it names GPUs.

    Raises:
        InputError: no such slice, one that the TPU API does not make, or a topology of something else.
    """
    accelerator = config.cluster.accelerator
    _check_spelling(accelerator)
    prefixes = tuple(f"{tpu.prefix}-" for tpu in load_tpus().generations.values())
    if accelerator is None or not (accelerator.startswith(prefixes) or _TPU_TYPE.fullmatch(accelerator)):
        if config.cluster.topology is not None:
            raise InputError(
                "gangway:cluster.topology",
                f"{accelerator} is no TPU, and only TPU slices have a topology",
                value=config.cluster.topology,
                fix="leave topology out",
            )
        return None
    found = plan_slice(accelerator_type=accelerator, topology=config.cluster.topology)
    if found.api_type is None or found.runtime_version is None:
        raise InputError(
            "gangway:cluster.accelerator",
            f"the Cloud TPU API makes no slices of {found.generation}",
            value=accelerator,
            allowed=tpu_types(),
            fix="write v6e-64 or another of those",
        )
    return found


def tpu_types() -> str:
    """The accelerator types that the TPU API makes, for people."""
    makes = [tpu.prefix for tpu in load_tpus().generations.values() if tpu.api_type.value is not None]
    return ", ".join(f"{prefix}-NUMBER" for prefix in makes)


def _check_spelling(accelerator: str | None) -> None:
    """Refuses V6E-8: a slice by its look, which no list of GPUs would help with."""
    if accelerator is not None and accelerator != accelerator.lower() and _TPU_TYPE.fullmatch(accelerator.lower()):
        raise InputError(
            "gangway:cluster.accelerator",
            "accelerator types of TPUs are written small",
            value=accelerator,
            allowed=tpu_types(),
            fix=f"write {accelerator.lower()}",
        )


def check_tpu_rungs(rungs: Sequence[AnyRung]) -> None:
    """Refuses what the queue does not have. A wrong rung is told before a superfluous one.

    Raises:
        InputError: a kind, a choice of zones or machine types, a form of reservation, or a second rung.
    """
    for index, rung in enumerate(rungs):
        _check_rung(rung, f"{LADDER}[{index}]")
    if len(rungs) > 1:
        raise InputError(
            LADDER,
            "slices are asked of one queue, which knows no second choice",
            value=", ".join(rung.kind for rung in rungs),
            allowed="one rung with TPUs",
            fix="keep one of them",
        )


def _check_rung(rung: AnyRung, here: str) -> None:
    if rung.kind not in TPU_TIERS:
        raise InputError(
            f"{here}.kind",
            "the queue of TPUs has no such capacity",
            value=rung.kind,
            allowed=", ".join(TPU_TIERS),
            fix=f"write {{kind: {_nearest_kind(rung.kind)}}}",
        )
    if isinstance(rung, Spot | OnDemand) and (rung.zones or rung.machine_types):
        raise InputError(
            here,
            "slices are asked for in one zone, all of one accelerator type",
            value=", ".join((*rung.zones, *rung.machine_types)),
            allowed="no zones and no machine_types",
            fix="remove them; gangway:cluster.zone names the zone",
        )
    if isinstance(rung, Reservation):
        check_reservation_project(rung.id, f"{here}.id")
    if isinstance(rung, Reservation) and "/" in rung.id and not _SHARED_RESERVATION.fullmatch(rung.id):
        full = _FULL_RESERVATION.fullmatch(rung.id)
        raise InputError(
            f"{here}.id",
            "not a reservation as it is written for slices",
            value=rung.id,
            allowed="NAME, or projects/PROJECT/reservations/NAME; the zone beside it, and no block of it",
            fix=f"write id: projects/{full[1]}/reservations/{full[3]}, zone: {full[2]}"
            if full
            else f"write id: {rung.id.partition('/reservationBlocks/')[0]}",
        )


def _nearest_kind(kind: str) -> str:
    """The rung of the queue that comes nearest: waiting for capacity is what it does anyway."""
    return "on-demand" if kind == "flex-start" else "reservation, id: NAME"


def reservation_name(rung: AnyRung, project: str, zone: str) -> str | None:
    """The full name of the reservation that slices come from, with the zone that the API wants in it; None without."""
    if not isinstance(rung, Reservation):
        return None
    shared = _SHARED_RESERVATION.fullmatch(rung.id)
    owner, name = (shared[1], shared[2]) if shared else (project, rung.id)
    return f"projects/{owner}/locations/{zone}/reservations/{name}"
