"""The ladder's order, kept by the head node: it asks Azure for the nodes of every group, the first one's too.

A scale set created with nodes fails where there are none (spot: 409 SkuNotAvailable at once, seen in
terraform-provider-azurerm's tests), and with it the whole `up`; and what is evicted is not replaced ("Azure Spot
Virtual Machines for Virtual Machine Scale Sets": new ones come by increasing the instance count). So groups are made
empty, and a timer on the head node fills them. Here is what it has to know (`FallbackConfig`, JSON, in the head's
configuration); what it decides is `reconcile` of `images.node.fill_order`. Not a scheduler.

Nodes of two scale sets never share an InfiniBand partition ("Set up InfiniBand"): there one group at a time is filled,
to the most, and the next one in its place when it did not hold the minimum for the whole window (`plan_active`); after
the last comes the first again. Over Ethernet the first group is always asked for the most, the others make up for what
the minimum lacks (`plan_fill`). The job's least and most nodes are in tags of the scale sets: in the configuration
another number would be another head, and its store would go from under the workers. A third one of the first set, which
`gangway job --scale` writes, asks for another number between the two.

Each `period_sec` the script counts each group's machines whose power state is running (`GET
.../virtualMachineScaleSets/G/virtualMachines?$expand=instanceView`), keeps the last `window` counts and the active
group, reads sizes and tags (`sku.capacity` of the scale set), and has `reconcile` say the new ones. It sets one by
`PATCH` with `sku` alone: a `PUT` of the whole model would change what the next nodes are. Groups are emptied before one
is filled. A refusal for want of capacity (AllocationFailed and its like) is no error: the next look asks again, as it
does after any other, a quota's say, which is told as one. Machines whose provisioning failed count in the size and
never run: it deletes them (`DELETE .../virtualMachines/ID`), which makes the size smaller. Counts are forgotten after a
change that they decided: not when a group is asked for again. Nothing is filled for a job that has ended.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from components.core.capacity import CONTRACT_VERSION, PERIOD_SEC, WINDOW, RungPlan

__all__ = [
    "HEAD_ACTIONS",
    "FallbackConfig",
    "FallbackGroup",
    "plan_fallback",
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
