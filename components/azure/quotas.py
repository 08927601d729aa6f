"""The quotas that a stack on Azure counts against: vCPUs by family on demand, all of a region, and all spot. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from components.azure.capacity import LADDER
from components.catalog.schema import AzureMachineType
from components.core.capacity import AnyRung, Reservation, Spot
from components.core.findings import Finding
from components.core.quotas import QuotaNeed, count_nodes, no_quota

__all__ = ["HEAD_QUOTAS", "REGIONAL_QUOTA", "SPOT_QUOTA", "QuotaContext", "ladder_quotas"]

SPOT_QUOTA = "Total Regional Low-priority vCPUs"
"""What all spot machines of a region count against, whatever their family, as `az vm list-usage` calls it.

The portal says Total Regional Spot vCPUs.
"""
REGIONAL_QUOTA = "Total Regional vCPUs"
"""What all machines on demand count against beside their family's ("Check vCPU quotas": two tiers)."""
HEAD_QUOTAS: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "Standard_B2as_v2": (2, "Standard Basv2 Family vCPUs"),
        "Standard_B2ms": (2, "Standard BS Family vCPUs"),
        "Standard_B2s": (2, "Standard BS Family vCPUs"),
        "Standard_D2as_v5": (2, "Standard DASv5 Family vCPUs"),
        "Standard_D2s_v5": (2, "Standard DSv5 Family vCPUs"),
        "Standard_D4s_v5": (4, "Standard DSv5 Family vCPUs"),
    }
)
"""By the head's machine type: its vCPUs, and the quota of its family as `az vm list-usage` calls it."""


@dataclass(frozen=True)
class QuotaContext:
    """A stack's region, its number of nodes at most, and its head's machine type; None without a head."""

    region: str
    num_nodes: int
    head_type: str | None

    def finding(self, path: str, vcpus: int, name: str, users: str) -> Finding:
        """A need of one quota. One that is known by Azure's own word alone is looked for by it."""
        query = "" if name.endswith("vCPUs") else f" --query \"[?name.value=='{name}']\""
        note = "the portal calls it Total Regional Spot vCPUs" if name == SPOT_QUOTA else ""
        command = f"az vm list-usage --location {self.region}{query}"
        return QuotaNeed(path, vcpus, "vCPUs", repr(name), self.region, users, command, note).finding()


def ladder_quotas(rungs: Sequence[AnyRung], machine: AzureMachineType, context: QuotaContext) -> Iterable[Finding]:
    """Of the nodes, each quota once, and of the head. The ladder has passed `check_ladder`."""
    nodes, vcpus = count_nodes(context.num_nodes), machine.vcpus.value * context.num_nodes
    reported: set[str] = set()
    for index, rung in enumerate(rungs):
        path, name = f"{LADDER}[{index}]", SPOT_QUOTA if isinstance(rung, Spot) else machine.quota_family.value
        if isinstance(rung, Reservation):
            yield no_quota(path, f"the reservation took its share of {name!r} when it was made")
        elif name not in reported:
            reported.add(name)
            yield context.finding(path, vcpus, name, nodes)
    head, family = HEAD_QUOTAS.get(context.head_type or "", (0, ""))
    if head:
        yield context.finding("gangway:head.machine_type", head, family, "the head node")
    on_demand = vcpus if reported - {SPOT_QUOTA} else 0
    if on_demand or head:
        users = [f"{nodes} on demand"] if on_demand else []
        users += ["the head node"] if head else []
        yield context.finding(LADDER, on_demand + head, REGIONAL_QUOTA, " and ".join(users))
