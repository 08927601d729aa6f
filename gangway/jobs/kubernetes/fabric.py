"""The network between GPUs of a cluster's nodes: a ConfigMap of the namespace defines what pods need to use it. Jobs on
several whole nodes get it; others get a warning, since NCCL silently falls back to TCP.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Annotated

from pydantic import Field, ValidationError

from gangway.components.core.fields import PositiveWhole
from gangway.components.core.findings import Finding, InputError
from gangway.components.kubernetes.spec import EFA, FABRIC, FABRIC_KEY, GPU
from gangway.jobs.kubernetes.kubectl import ForbiddenError, Found, Kubectl, MissingError
from gangway.jobs.kubernetes.queues import Quota, quantity, total_resources
from gangway.stacks.config.job_file import JobFile
from gangway.stacks.config.section import Section
from gangway.trainer.core.validation import first_mistake

_Path = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_.-]+)+$")]
_RDMA = "rdma/"
"""Prefix of most device plugins' resources for such networks, such as `rdma/infiniband`."""
_NET, _TCP = "NCCL_NET", "Socket"
_PAGE = "docs/kubernetes.md"


class Mount(Section):
    """A read-only volume claim of the namespace, and its path in the pods."""

    claim: str
    path: _Path


class Fabric(Section):
    """What a namespace's pods need.

    Attributes:
        gpus: of a whole node; pods with fewer may share a node and get nothing of this.
        needs: other resources that pods must request; without them they get nothing of this.
        env: of the pods; a job file's values take precedence.
        script: sourced by bash before the command, for variables not yet set; None for none.
    """

    gpus: PositiveWhole
    needs: tuple[str, ...] = ()
    annotations: dict[str, str] = Field(default={})
    env: dict[str, str] = Field(default={})
    script: _Path | None = None
    mount: Mount | None = None

    def is_for(self, job: JobFile) -> bool:
        """Whether its pods get this: several whole nodes that request the adapters."""
        has_needs = all(job.resources.get(name, "0") != "0" for name in self.needs)
        return job.nodes.max > 1 and job.resources.get(GPU) == str(self.gpus) and has_needs


def find_fabric(kubectl: Kubectl, job: JobFile) -> Fabric | None:
    """For the job's pods; None without a definition for such a job, or if it may not be read. InputError."""
    if job.nodes.max < 2:
        return None
    try:
        fabric = read_fabric(kubectl)
    except ForbiddenError:
        return None
    return fabric if fabric is not None and fabric.is_for(job) else None


def read_fabric(kubectl: Kubectl) -> Fabric | None:
    """The namespace's definition; None without one. ForbiddenError; InputError: it is invalid."""
    try:
        found = kubectl.get("configmap", FABRIC).get("data", {})
    except MissingError:
        return None
    try:
        return Fabric.model_validate_json(found.get(FABRIC_KEY, ""))
    except ValidationError as error:
        wrong = first_mistake(error)
        raise InputError(
            wrong.within(f"configmap {FABRIC} of {kubectl.namespace}: data.{FABRIC_KEY}"), wrong.summary,
            allowed="what this release of Gangway writes there",
            fix="run `pulumi up` with this release",
        ) from None  # fmt: skip


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
        yield Finding.warning(
            "job.fabric-part", f"resources.{GPU}",
            f"{gpus:f} of a node's {fabric.gpus} GPUs: pods that may share a node do not get the network between GPUs, "
            "so NCCL silently uses TCP between nodes",
            f'{GPU}: "{fabric.gpus}", or {_NET}: {_TCP} in env for TCP',
        )  # fmt: skip
    if not names or any(name in job.resources for name in names):
        return
    nodes: list[Found] = []
    with suppress(ForbiddenError):  # this user may not read them
        nodes = kubectl.get("nodes")
    for name in names:
        count = count_per_node(nodes, name, gpus)
        has = f"a node has {count:f}" if count else f"{_PAGE} says how many"
        yield Finding.warning(
            "job.fabric", f"resources.{name}",
            f"not given, so NCCL silently uses TCP between nodes; the queue has a quota of it, and {has}",
            f'{name}: "{count:f}"' if count else f'{name}: "...", or "0" for TCP',
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
