"""The ladder's order, kept by the head node: it asks Azure for the nodes of every group, the first one's too.

A scale set created with nodes fails where there are none (spot: 409 SkuNotAvailable at once, seen in
terraform-provider-azurerm's tests), and with it the whole `up`; and what is evicted is not replaced ("Azure Spot
Virtual Machines for Virtual Machine Scale Sets"). So groups are made empty, and a timer on the head node fills them.
Here is what it has to know (`FallbackConfig`, JSON, in the head's configuration) and decide (`plan_look`).

Nodes of two scale sets never share an InfiniBand partition ("Set up InfiniBand"): there one group at a time is filled,
to the most, and the next one in its place when it did not hold the minimum for the whole window (`plan_active`); after
the last comes the first again. Over Ethernet the first group is always asked for the most, the others make up for what
the minimum lacks (`plan_fill`). The job's least and most nodes are in tags of the scale sets: in the configuration
another number would be another head, and its store would go from under the workers.

Each `period_sec` the script counts each group's machines whose power state is running (`GET
.../virtualMachineScaleSets/G/virtualMachines?$expand=instanceView`), keeps the last `window` counts and the active
group, reads sizes and tags, has `plan_look` say the new sizes, and sets one by `PATCH` with `sku` alone (a `PUT` of the
whole model would change what the next nodes are); groups are emptied before one is filled. A refusal for want of
capacity (AllocationFailed and its like) is no error: the next look asks again, as after any other, such as a quota's,
which is told as one. Machines whose provisioning failed count in the size and never run: it deletes them (`DELETE
.../virtualMachines/ID`). Counts are forgotten after a change that they decided, not when a group is asked for again.
Nothing is filled for a job that has ended.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from components.core.capacity import CONTRACT_VERSION, PERIOD_SEC, WINDOW, RungPlan, plan_fill

__all__ = [
    "HEAD_ACTIONS",
    "FallbackConfig",
    "FallbackGroup",
    "Look",
    "plan_active",
    "plan_fallback",
    "plan_fill",
    "plan_look",
]

_SETS = "Microsoft.Compute/virtualMachineScaleSets"
HEAD_ACTIONS = (
    f"{_SETS}/read",
    f"{_SETS}/write",
    f"{_SETS}/virtualMachines/read",
    f"{_SETS}/virtualMachines/delete",
)
"""What the head's identity needs for it, on the stack's resource group.

Nothing on subnets, identities or keys: Azure checks those against what a request's body names, which is `sku` alone.
"""


@dataclass(frozen=True)
class FallbackGroup:
    """One scale set. `machine_type`: `sku.name`, which a `PATCH` of the size has to repeat."""

    name: str
    kind: str
    machine_type: str


@dataclass(frozen=True)
class FallbackConfig:
    """What the head needs, groups in the ladder's order. `together`: one job may have nodes of several groups."""

    subscription_id: str
    resource_group_name: str
    together: bool
    groups: tuple[FallbackGroup, ...]
    period_sec: int = PERIOD_SEC
    window: int = WINDOW

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data, with the version of this contract."""
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


@dataclass(frozen=True)
class Look:
    """What one look of the head decides. `sizes`: of each group, to be set; `active`: the group that is filled, where
    only one may be; to be kept for the next look; `forget`: whether the counts so far say nothing of what comes.
    """

    sizes: tuple[int, ...]
    active: int
    forget: bool


def plan_active(num_nodes_min: int, window: int, history: Sequence[Sequence[int]], active: int) -> int:
    """The group to be filled: the one that is, unless it held fewer than the minimum in each of `window` counts. Free
    of imports, so that its source can run on the head as it is. `num_nodes_min`: below which a group is of no use
    to the job; `window`: counts that have to agree; `history`: counts of running nodes, each in the ladder's order,
    since `active` became what it is; `active`: the group that is filled now.

    >>> plan_active(2, 3, [[0, 0], [1, 0], [1, 0]], 0)
    1
    """
    if len(history) < window or any(count[active] >= num_nodes_min for count in history[-window:]):
        return active
    return (active + 1) % len(history[-1])


def plan_look(
    config: FallbackConfig,
    num_nodes: tuple[int, int],
    history: Sequence[Sequence[int]],
    sizes: Sequence[int],
    active: int = 0,
) -> Look:
    """What to do after a count. `config`: the ladder; `num_nodes`: of the job, least and most; `history`: counts of
    running nodes, each in the ladder's order, as many as are kept; `sizes`: what each group is set to, in the same
    order; `active`: what the last look said; after a start, the fullest group.

    >>> groups = (FallbackGroup("a", "spot", "m"), FallbackGroup("b", "on-demand", "m"))
    >>> plan_look(FallbackConfig("s", "g", False, groups), (2, 4), [[1, 0]] * 10, [4, 0])
    Look(sizes=(0, 4), active=1, forget=True)
    >>> plan_look(FallbackConfig("s", "g", True, groups), (2, 4), [[1, 0]] * 10, [1, 0])
    Look(sizes=(4, 1), active=0, forget=True)
    """
    least, most = num_nodes
    if config.together:
        enough = len(history) >= config.window
        others = plan_fill(least, history[-config.window :], sizes)[1:] if enough else tuple(sizes[1:])
        return Look((most, *others), 0, others != tuple(sizes[1:]))
    chosen = plan_active(least, config.window, history, active)
    planned = tuple(most if group == chosen else 0 for group in range(len(sizes)))
    return Look(planned, chosen, chosen != active)
