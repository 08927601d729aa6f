"""Configuration of the head node's ladder script, which fills groups with what those above them lack. No Google service
fills a second group if the first lacks capacity, so a timer on the head node does, by `plan_fill` of
`gangway.images.node.fill_order`. Each `period_sec` it counts each group's RUNNING instances
(instanceGroupManagers.listManagedInstances), keeps the last `window` counts, and sets the groups below the first by
`resize` or `resize-request` (undone by cancelling requests, then by resize). After a change it resets its counts; with
fewer than `window` it does nothing. Its rights: `gangway.components.gcp.identity`, GROUP_PERMISSIONS; Google's agent
creates the instances.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gangway.components.core.capacity import CONTRACT_VERSION, PERIOD_SEC, WINDOW, RungPlan


@dataclass(frozen=True)
class FallbackGroup:
    """A managed instance group. `kind`: the rung's, for messages; `run_duration_sec`: of resize requests, else None."""

    name: str
    zone: str
    kind: str
    fill: Literal["resize", "resize-request"]
    run_duration_sec: int | None


@dataclass(frozen=True)
class FallbackConfig:
    """The head's configuration, with the groups in ladder order."""

    project: str
    num_nodes_min: int
    groups: tuple[FallbackGroup, ...]
    period_sec: int = PERIOD_SEC
    window: int = WINDOW

    def to_json(self) -> dict[str, Any]:
        """The configuration as plain JSON data, with the version of this contract."""
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
