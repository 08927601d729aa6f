"""Warns of multi-node GPU jobs without their network, for which NCCL silently falls back to TCP."""

from collections.abc import Iterable, Iterator
from decimal import Decimal

from gangway.components.core.findings import Finding
from gangway.components.kubernetes.spec import EFA, FABRIC, GPU
from gangway.jobs.kubernetes.fabric import Fabric, read_fabric
from gangway.jobs.kubernetes.kubectl import ForbiddenError, Kubectl
from gangway.jobs.kubernetes.objects import Found
from gangway.jobs.kubernetes.queues import Quota, quantity, total_resources
from gangway.stacks.config.job_file import JobFile

_RDMA = "rdma/"
"""Prefix of most device plugins' resources for such networks, such as `rdma/infiniband`."""
_NET, _TCP = "NCCL_NET", "Socket"
_PAGE = "docs/kubernetes.md"


def fabric_findings(kubectl: Kubectl, job: JobFile, quota: Quota | None) -> Iterator[Finding]:
    """`quota`: of the queue; None if this user may not read it. InputError: as `read_fabric`."""
    gpus = quantity(job.resources.get(GPU, "0"))
    if job.nodes.max < 2 or not gpus:
        return
    try:
        fabric = read_fabric(kubectl)
    except ForbiddenError:
        fabric = None
        yield Finding.warning(
            "job.fabric-hidden", "--on",
            f"unknown whether the job's pods get the network between GPUs: you may not read the ConfigMap {FABRIC} of "
            f"{kubectl.namespace}. Without it they use TCP",
            f"ask for permission to get configmaps there: {_PAGE}",
        )  # fmt: skip
    if fabric is not None and fabric.is_for(job):
        return
    names = [] if quota is None else offered_networks(job, quota)
    if fabric is not None and not names and job.env.get(_NET) != _TCP:
        yield _part_of_a_node(fabric, gpus)
    if not names or any(name in job.resources for name in names):
        return
    nodes = _nodes(kubectl)
    for name in names:
        count = count_per_node(nodes, name, gpus)
        has = f"a node has {count:f}" if count else f"{_PAGE} says how many"
        yield Finding.warning(
            "job.fabric", f"resources.{name}",
            f"not given, so NCCL silently uses TCP between nodes; the queue has a quota of it, and {has}",
            f'{name}: "{count:f}"' if count else f'{name}: "...", or "0" for TCP',
        )  # fmt: skip


def _part_of_a_node(fabric: Fabric, gpus: Decimal) -> Finding:
    return Finding.warning(
        "job.fabric-part", f"resources.{GPU}",
        f"{gpus:f} of a node's {fabric.gpus} GPUs: pods that may share a node do not get the network between GPUs, so "
        "NCCL silently uses TCP between nodes",
        f'{GPU}: "{fabric.gpus}", or {_NET}: {_TCP} in env for TCP',
    )  # fmt: skip


def offered_networks(job: JobFile, quota: Quota) -> list[str]:
    """Resources of such a network in the quota of flavors that could hold the job."""
    whole, found = total_resources(job), dict[str, None]()
    for flavor in (each for group in quota.groups for each in group):
        if flavor.holds({name: number for name, number in whole.items() if name in flavor.nominal}):
            found |= dict.fromkeys(
                name for name, most in flavor.most.items() if most != 0 and (name == EFA or name.startswith(_RDMA))
            )
    return list(found)


def count_per_node(nodes: Iterable[Found], name: str, gpus: Decimal) -> Decimal | None:
    """The smallest number of this resource on nodes with that many GPUs; None if unknown."""
    rooms = [each.get("status", {}).get("allocatable", {}) for each in nodes]
    counts = [quantity(room[name]) for room in rooms if name in room and quantity(room.get(GPU, "0")) >= gpus]
    return min(filter(None, counts), default=None)


def _nodes(kubectl: Kubectl) -> list[Found]:
    """Empty if this user may not read them."""
    try:
        found: list[Found] = kubectl.get("nodes")
    except ForbiddenError:
        return []
    return found
