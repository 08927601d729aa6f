"""The ladder's order, kept by the head node: which groups to fill with what the groups above them lack.

No service of Google's fills a second group for a first one that finds no capacity, so a timer on the head node does.
Here is what it has to know (`FallbackConfig`, JSON, in the head's configuration); what it decides is `plan_fill` of
`images.node.fill_order`. Each `period_sec` the head's script counts each group's RUNNING instances
(instanceGroupManagers.listManagedInstances), keeps the last `window` counts, and sets the groups below the first to
`plan_fill`: by `resize`, or by a `resize-request` for the nodes it lacks, undone by cancelling requests, then by
resize. After each change it forgets its counts; with fewer than `window`, as after a restart, it does nothing. Its
account's rights: `components.gcp.identity`, GROUP_PERMISSIONS; Google's own agent makes the instances.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from components.core.capacity import CONTRACT_VERSION, PERIOD_SEC, WINDOW, RungPlan

__all__ = ["FallbackConfig", "FallbackGroup", "plan_fallback"]


@dataclass(frozen=True)
class FallbackGroup:
    """One managed instance group.

    Attributes:
        name: of the group.
        zone: where it is.
        kind: the rung's kind, for messages.
        fill: how it gets nodes.
        run_duration_sec: of a resize request; None elsewhere.
    """

    name: str
    zone: str
    kind: str
    fill: Literal["resize", "resize-request"]
    run_duration_sec: int | None


@dataclass(frozen=True)
class FallbackConfig:
    """Everything the head needs, with the groups in the ladder's order."""

    project: str
    num_nodes_min: int
    groups: tuple[FallbackGroup, ...]
    period_sec: int = PERIOD_SEC
    window: int = WINDOW

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data, with the version of this contract."""
        return {"version": CONTRACT_VERSION, **asdict(self), "groups": [asdict(group) for group in self.groups]}


def plan_fallback(
    project: str, zone: str, num_nodes_min: int, rungs: Sequence[RungPlan], names: Sequence[str]
) -> FallbackConfig:
    """The configuration of a pool's groups, `names` in the order of `rungs`."""
    groups = (
        FallbackGroup(
            name=name,
            zone=rung.zones[0] if rung.zones else zone,
            kind=rung.kind,
            fill="resize" if rung.max_hours is None else "resize-request",
            run_duration_sec=None if rung.max_hours is None else round(rung.max_hours * 3600),
        )
        for rung, name in zip(rungs, names, strict=True)
    )
    return FallbackConfig(project, num_nodes_min, tuple(groups))
