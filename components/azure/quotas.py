"""The quotas of a stack on Azure: on-demand vCPUs by family and region, and all spot vCPUs. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gangway.components.azure.capacity import LADDER
from gangway.components.catalog.schema import AzureMachineType
from gangway.components.core.capacity import AnyRung, Reservation, Spot
from gangway.components.core.findings import Finding
from gangway.components.core.limits import QuotaNeed, count_nodes, no_quota

__all__ = ["HEAD_QUOTAS", "REGIONAL_QUOTA", "SPOT_QUOTA", "QuotaContext", "ladder_quotas"]

SPOT_QUOTA = "Total Regional Low-priority vCPUs"
"""Counts all spot machines of a region, by the name in `az vm list-usage` (in the portal: Total Regional Spot vCPUs).
"""
REGIONAL_QUOTA = "Total Regional vCPUs"
"""Counts all on-demand machines besides their family's quota ("Check vCPU quotas": two tiers)."""
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
"""By head machine type: vCPUs, and the family's quota as in `az vm list-usage`."""


@dataclass(frozen=True)
class QuotaContext:
    """A stack's region, maximum number of nodes, and head machine type; None without a head."""

    region: str
    num_nodes: int
    head_type: str | None

    def finding(self, path: str, vcpus: int, name: str, users: str) -> Finding:
        """A need of one quota, with a query for quotas known only by Azure's name."""
        query = "" if name.endswith("vCPUs") else f" --query \"[?name.value=='{name}']\""
        note = "the portal calls it Total Regional Spot vCPUs" if name == SPOT_QUOTA else ""
        command = f"az vm list-usage --location {self.region}{query}"
        return QuotaNeed(path, vcpus, "vCPUs", repr(name), self.region, users, command, note).finding()


def ladder_quotas(rungs: Sequence[AnyRung], machine: AzureMachineType, context: QuotaContext) -> Iterable[Finding]:
    """The quotas of the nodes, once each, and of the head. The ladder has passed `check_ladder`."""
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
