"""A stack's Service Quotas on AWS: vCPUs by family and market, capacity blocks, network, file system. Pure.

The facts are in `components/catalog/aws/quotas.yaml`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile
from pathlib import Path

import gangway.components.catalog
from gangway.components.aws.capacity import LADDER, rung_machines
from gangway.components.aws.launch import plan_interfaces
from gangway.components.catalog.schema import Fact, Frozen, MachineType
from gangway.components.catalog.tables import read_file, with_facts
from gangway.components.core.capacity import AnyRung, CapacityBlock, Reservation, Spot
from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding
from gangway.components.core.limits import QuotaNeed, count_nodes, no_quota

__all__ = [
    "QuotaContext",
    "helper_quota",
    "ladder_quotas",
    "load_quotas",
    "network_quotas",
    "storage_quota",
]


class ServiceQuota(Frozen):
    """A quota's service and name in Service Quotas."""

    service: str
    name: Fact[str]


class MarketQuotas(Frozen):
    """Codes of the vCPU quotas for machine types that begin with `letters` and a digit."""

    letters: tuple[str, ...]
    on_demand: str
    spot: str


class Quotas(Frozen):
    """The table. `instances`: those that count a machine's vCPUs; `former_spot`: by family such as `p5en`: counted its
    spot machines until AWS merged two quotas; `blocks`: by family: vCPUs of concurrently active capacity blocks;
    `lustre`: by deployment of a file system; `helper_vcpus`: of machine types that run no jobs.
    """

    quotas: Mapping[str, ServiceQuota]
    instances: tuple[MarketQuotas, ...]
    former_spot: Mapping[str, str]
    blocks: Mapping[str, str]
    lustre: Mapping[str, str]
    helper_vcpus: Mapping[str, Fact[int]]

    def market(self, machine_type: str) -> MarketQuotas | None:
        """The vCPU quota codes of a machine type; None for a family outside the table, such as a user's own machine."""
        letters = "".join(takewhile(str.isalpha, machine_type))
        return next((row for row in self.instances if letters in row.letters), None)


@cache
def load_quotas() -> Quotas:
    """The table, read once per process."""
    tables, sources = read_file(Path(gangway.components.catalog.__file__).with_name("aws") / "quotas.yaml")
    helpers = tables.pop("helper_vcpus")
    source = sources[helpers.pop("source")]
    quotas = {code: with_facts(ServiceQuota, row, sources) for code, row in tables.pop("quotas").items()}
    vcpus = {name: {"value": value, **source} for name, value in helpers.items()}
    return Quotas.model_validate({**tables, "quotas": quotas, "helper_vcpus": vcpus})


@dataclass(frozen=True)
class QuotaContext:
    """The region of a stack, and its maximum number of nodes."""

    region: str
    num_nodes: int

    def need(self, path: str, code: str, amount: int, unit: str = "", users: str = "", note: str = "") -> QuotaNeed:
        """A need of one quota."""
        quota = load_quotas().quotas[code]
        name, command = f"{code} ({quota.name.value})", f"aws service-quotas get-service-quota {self._which(code)}"
        return QuotaNeed(path, amount, unit, name, self.region, users, f"{command} --query Quota.Value", note)

    def request(self, code: str, amount: int) -> str:
        """The command that requests a higher limit."""
        return f"aws service-quotas request-service-quota-increase {self._which(code)} --desired-value {amount}"

    def _which(self, code: str) -> str:
        return f"--region {self.region} --service-code {load_quotas().quotas[code].service} --quota-code {code}"


def ladder_quotas(rungs: Sequence[AnyRung], machine: MachineType, context: QuotaContext) -> Iterable[Finding]:
    """Needed vCPUs by quota, at the rung with the largest need (rungs replace each other), or why there are none."""
    found: dict[str, QuotaNeed | Finding] = {}
    for index, rung in enumerate(rungs):
        path = f"{LADDER}[{index}]"
        for need in (_rung_quota(rung, one, path, context) for one in rung_machines(rung, machine, path)):
            if isinstance(need, Finding):
                found[path] = need
            elif not isinstance(other := found.get(need.name), QuotaNeed) or other.amount < need.amount:
                found[need.name] = need
    return (each if isinstance(each, Finding) else each.finding() for each in found.values())


def _rung_quota(rung: AnyRung, machine: MachineType, path: str, context: QuotaContext) -> QuotaNeed | Finding:
    """The quota of one machine type of a rung, or why there is none."""
    table, family = load_quotas(), machine.name.partition(".")[0]
    market, users = table.market(machine.name), count_nodes(context.num_nodes)
    if market is None:
        return no_quota(path, f"the quota of {family} machines is not known here")

    def vcpus(code: str, note: str = "") -> QuotaNeed:
        amount = machine.vcpus.value * context.num_nodes
        fix = f"where it is less: `{context.request(code, amount)}`, and more for what else counts there"
        return replace(context.need(path, code, amount, "vCPUs", users, note), fix=fix)

    match rung:
        case CapacityBlock():
            if (code := table.blocks.get(family)) is None:
                return no_quota(path, f"AWS's list has none for capacity blocks of {family}")
            if rung.purchase:
                return vcpus(code, "accounts of an organization share a second one, per organization")
            name = table.quotas[code].name.value
            return no_quota(path, f"the block took its share of {code} ({name}) when it was bought")
        case Reservation():
            name = table.quotas[market.on_demand].name.value
            return no_quota(path, f"the reservation took its share of {market.on_demand} ({name}) when it was made")
        case Spot():
            former = table.former_spot.get(family)
            note = "" if former is None else f"an account that still lists {former} counts {family} there"
            return vcpus(market.spot, note)
        case _:
            return vcpus(market.on_demand)


def helper_quota(path: str, machine_type: str, number: int, users: str, context: QuotaContext) -> Finding:
    """The quota of on-demand machines that run no jobs."""
    table = load_quotas()
    market, vcpus = table.market(machine_type), table.helper_vcpus.get(machine_type)
    if market is None or vcpus is None:
        return no_quota(path, f"the vCPUs or the quota of {machine_type} are not known here")
    return context.need(path, market.on_demand, vcpus.value * number, "vCPUs", users).finding()


def network_quotas(machine: MachineType, egress: Egress, context: QuotaContext) -> Iterable[Finding]:
    """The quotas of the VPC, its egress, and the interfaces of EFA nodes."""
    yield context.need("gangway:network", "L-F678F1CE", 1).finding()
    if egress is Egress.NAT:
        for code in ("L-FE5A380F", "L-0263D0A3"):
            yield context.need("gangway:network.egress", code, 1).finding()
    if (interfaces := len(plan_interfaces(machine))) > 1:
        users = count_nodes(context.num_nodes)
        yield context.need("gangway:cluster", "L-DF5E4CA3", interfaces * context.num_nodes, users=users).finding()


def storage_quota(deployment: str, capacity_gib: int, context: QuotaContext) -> Finding:
    """The quota of the file system's capacity."""
    code = load_quotas().lustre[deployment]
    return context.need("gangway:storage.capacity_gib", code, capacity_gib, "GiB").finding()
