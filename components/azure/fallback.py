"""Configuration of the head node's ladder script, which requests all nodes of all scale sets. A scale set created with
nodes fails without capacity (spot: 409 SkuNotAvailable at once, seen in terraform-provider-azurerm's tests), and `up`
with it; and evicted nodes are not replaced ("Azure Spot Virtual Machines for Virtual Machine Scale Sets"). So sets
start empty, and a timer on the head node fills them by `reconcile` of `gangway.images.node.fill_order`. Scale sets
never share an InfiniBand partition ("Set up InfiniBand"): there one set at a time is filled to the maximum, and the
next one if it lacked the minimum for the whole window (`plan_active`), in a cycle. Over Ethernet the first set always
gets the maximum, the others cover the minimum (`plan_fill`). Minimum and maximum are tags of the sets: in the
configuration a change would replace the head and its store. A third tag of the first set, from `gangway job --scale`,
requests a number between the two. Each `period_sec` the script counts running machines per set (`GET
.../virtualMachineScaleSets/G/virtualMachines?$expand=instanceView`), keeps the last `window` counts and the active set,
and reads sizes and tags. It resizes by `PATCH` with only `sku`: a `PUT` of the whole model would change later nodes.
Sets are emptied before one is filled. Refusals for capacity (AllocationFailed and similar) are retried silently, others
(such as quota) with an event. Machines whose provisioning failed count in the size without running: it deletes them
(`DELETE .../virtualMachines/ID`). Counts are reset after a change that they decided. Nothing is filled for an ended
job.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gangway.components.core.capacity import CONTRACT_VERSION, PERIOD_SEC, WINDOW, RungPlan

_SETS = "Microsoft.Compute/virtualMachineScaleSets"
HEAD_ACTIONS = (
    f"{_SETS}/read",
    f"{_SETS}/write",
    f"{_SETS}/virtualMachines/read",
    f"{_SETS}/virtualMachines/delete",
)
"""The head's actions for it: none on subnets, identities or keys, which Azure checks against the body (only `sku`)."""


@dataclass(frozen=True)
class FallbackGroup:
    """One scale set. `machine_type`: `sku.name`, which a `PATCH` of the size has to repeat."""

    name: str
    kind: str
    machine_type: str


@dataclass(frozen=True)
class FallbackConfig:
    """The head's configuration, groups in ladder order. `together`: a job may span groups."""

    subscription_id: str
    resource_group_name: str
    together: bool
    groups: tuple[FallbackGroup, ...]
    period_sec: int = PERIOD_SEC
    window: int = WINDOW

    def to_json(self) -> dict[str, Any]:
        """The configuration as plain JSON data, with the version of this contract."""
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
