"""The capacity ladder of machines that are there already: one rung, on demand. Pure."""

from collections.abc import Sequence

from components.capacity import AnyRung, OnDemand
from components.findings import InputError

__all__ = ["LADDER", "check_ladder"]

LADDER = "gangway:cluster.capacity"


def check_ladder(rungs: Sequence[AnyRung]) -> None:
    """Refuses every way to get machines but having them.

    Raises:
        InputError: another kind of rung, a second one, or one that names other machines.
    """
    for index, rung in enumerate(rungs):
        if not isinstance(rung, OnDemand):
            raise InputError(
                f"{LADDER}[{index}].kind",
                "the machines are there: nobody lends them, reserves them or takes them back",
                value=rung.kind,
                allowed="on-demand",
                fix="write capacity: [{kind: on-demand}]",
            )
        if rung.machine_types or rung.zones:
            raise InputError(
                f"{LADDER}[{index}]",
                "the machines are those of gangway:hosts.machines, wherever they stand",
                value=", ".join((*rung.machine_types, *rung.zones)),
                allowed="no machine_types and no zones",
                fix="remove them",
            )
    if len(rungs) > 1:
        raise InputError(
            LADDER,
            "there are no other machines to turn to",
            value=", ".join(rung.kind for rung in rungs),
            allowed="one rung",
            fix="write capacity: [{kind: on-demand}]",
        )
