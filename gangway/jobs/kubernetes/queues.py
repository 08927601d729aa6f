"""A Kueue queue's quota for a job, how much of it is free, and how many of the job's pods fit on its nodes; pure."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from types import MappingProxyType
from typing import Any

from gangway.components.kubernetes.manifest import OURS
from gangway.components.kubernetes.spec import HOST, SIZE, UNCOUNTED
from gangway.jobs.kubernetes.kubectl import Found
from gangway.stacks.config.job_file import JobFile

DEFAULT_RESOURCES: Mapping[str, str] = MappingProxyType({"cpu": "1", "memory": "2Gi"})
_Amounts = Mapping[tuple[str, str], Decimal]
"""By flavor and resource."""
_SUFFIXES: Mapping[str, Decimal] = MappingProxyType(
    {
        **{"m": Decimal("0.001"), "": Decimal(1)},
        **{letter: Decimal(1000) ** power for power, letter in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
        **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate(("K", "M", "G", "T", "P", "E"), 1)},
    }
)


@dataclass(frozen=True)
class Flavor:
    """One kind of nodes, by resource. `most` is None if it may borrow without limit."""

    name: str
    nominal: Mapping[str, Decimal]
    most: Mapping[str, Decimal | None]
    used: Mapping[str, Decimal]

    def holds(self, wanted: Mapping[str, Decimal]) -> bool:
        """Whether its quota could ever hold that much."""
        limits = ((wanted[name], self.most[name]) for name in wanted)
        return all(most is None or number <= most for number, most in limits)

    def lacks(self, wanted: Mapping[str, Decimal]) -> list[str]:
        """What of its nominal quota is not free now, for display."""
        free = {name: self.nominal[name] - self.used.get(name, Decimal(0)) for name in wanted}
        return [
            f"{name}: {free[name]:f} of {self.nominal[name]:f} free, {number:f} wanted"
            for name, number in wanted.items()
            if number > free[name]
        ]


@dataclass(frozen=True)
class Quota:
    """Of a ClusterQueue; in each group a pod uses one flavor. `uncounted`: prefixes that Kueue ignores."""

    groups: Sequence[Sequence[Flavor]]
    in_cohort: bool
    uncounted: tuple[str, ...] = ()
    node: Mapping[str, Decimal] = field(default_factory=dict)

    def wanted(self, job: JobFile) -> list[tuple[Sequence[Flavor], Mapping[str, Decimal]]]:
        """Each group, and what the job takes of it."""
        whole = total_resources(job)
        found = [
            (group, {name: whole[name] for name in whole if name in group[0].nominal}) for group in self.groups if group
        ]
        return [(group, wanted) for group, wanted in found if wanted]


def resources_of(job: JobFile) -> Mapping[str, str]:
    """Requests and limits of each node's pod."""
    return job.resources or DEFAULT_RESOURCES


def quantity(text: str) -> Decimal:
    """Parses a number of Kubernetes.

    >>> quantity("500m"), quantity("2Gi")
    (Decimal('0.500'), Decimal('2147483648'))
    """
    number = text.rstrip("mkKMGTPEi")
    return Decimal(number) * _SUFFIXES[text[len(number) :]]


def total_resources(job: JobFile) -> Mapping[str, Decimal]:
    """For all of its nodes."""
    return {name: number * job.nodes.max for name, number in _node_resources(job).items()}


def _node_resources(job: JobFile) -> Mapping[str, Decimal]:
    return {name: quantity(text) for name, text in resources_of(job).items()}


def cohort_total(members: Iterable[Found]) -> _Amounts:
    """What a cohort and its queues have together."""
    found: dict[tuple[str, str], Decimal] = {}
    flavors = [
        flavor for each in members for group in each["spec"].get("resourceGroups", ()) for flavor in group["flavors"]
    ]
    for flavor in flavors:
        for each in flavor["resources"]:
            key = flavor["name"], each["name"]
            found[key] = found.get(key, Decimal(0)) + quantity(str(each["nominalQuota"]))
    return found


def get_quota(cluster_queue: Found, cohort: _Amounts | None = None) -> Quota:
    """`cohort`: the `cohort_total` of what it borrows from; None if unknown."""
    node, own_cohort = _get_size(cluster_queue)
    spec, status = cluster_queue["spec"], cluster_queue.get("status", {})
    in_cohort = bool(spec.get("cohortName"))
    lends = (cohort or own_cohort) if in_cohort else None
    used = {
        flavor["name"]: {each["name"]: quantity(str(each.get("total", "0"))) for each in flavor["resources"]}
        for flavor in status.get("flavorsReservation", ())
    }
    groups = [
        [_flavor(flavor, used.get(flavor["name"], {}), lends) for flavor in group["flavors"]]
        for group in spec.get("resourceGroups", ())
    ]
    # Members may not read Kueue's configuration; that of a cluster made by Gangway is known.
    labels = cluster_queue.get("metadata", {}).get("labels", {})
    return Quota(groups, in_cohort, UNCOUNTED if labels.items() >= OURS.items() else (), node)


def _get_size(cluster_queue: Found) -> tuple[Mapping[str, Decimal], _Amounts]:
    try:
        size = json.loads(cluster_queue["metadata"]["annotations"][SIZE])
        node, nodes = {name: quantity(text) for name, text in size["node"].items()}, int(size["nodes"])
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return {}, {}  # not made by Gangway, or by an earlier release
    return node, {
        (flavor, name): number * nodes for flavor in flavor_names(cluster_queue) for name, number in node.items()
    }


def flavor_names(cluster_queue: Found) -> list[str]:
    """Of all its groups."""
    groups = cluster_queue["spec"].get("resourceGroups", ())
    return list(dict.fromkeys(flavor["name"] for group in groups for flavor in group["flavors"]))


def narrowest_block(topologies: Sequence[Found | None]) -> str | None:
    """The label of the smallest multi-node blocks of all flavors, since Kueue skips a flavor without it; else None."""
    found = [[] if each is None else [level["nodeLabel"] for level in each["spec"]["levels"]] for each in topologies]
    shared = [label for label in found[0] if all(label in each for each in found)] if found else []
    return next((label for label in reversed(shared) if label != HOST), None)


def _flavor(found: Found, used: Mapping[str, Decimal], cohort: _Amounts | None) -> Flavor:
    """`cohort`: the most it may borrow from, empty if unknown; None if it may not borrow."""
    nominal, most = dict[str, Decimal](), dict[str, Decimal | None]()
    for each in found["resources"]:
        own, limit = quantity(str(each["nominalQuota"])), each.get("borrowingLimit")
        nominal[each["name"]] = own
        if cohort is None:
            most[each["name"]] = own
            continue
        limits = [cohort.get((found["name"], each["name"])), None if limit is None else own + quantity(str(limit))]
        most[each["name"]] = min((bound for bound in limits if bound is not None), default=None)
    return Flavor(found["name"], nominal, most, used)


def over_quota(job: JobFile, quota: Quota) -> list[tuple[str, str]]:
    """Resources of which the job exceeds the quota, and why."""
    known = {name for group in quota.groups for flavor in group for name in flavor.nominal}
    asked = [name for name in total_resources(job) if not name.startswith(quota.uncounted)]
    found = [(name, "the queue has no quota for it") for name in asked if name not in known]
    for name, number in _node_resources(job).items():
        if number > quota.node.get(name, number):
            found.append((name, f"{number:f} on one node, but a node has only {quota.node[name]:f} for a job's pods"))
    for group, wanted in quota.wanted(job):
        if any(flavor.holds(wanted) for flavor in group):
            continue
        alone = [name for name in wanted if not any(flavor.holds({name: wanted[name]}) for flavor in group)]
        for name in alone or list(wanted)[:1]:
            most = ", ".join(f"{flavor.name} {flavor.most[name] or Decimal(0):f}" for flavor in group)
            why = f"{wanted[name]:f} on {job.nodes.max} nodes, but the queue's quota by flavor is {most}"
            found.append((name, why if alone else f"{why}: no flavor holds the whole job"))
    return found


def missing_quota(job: JobFile, quota: Quota) -> list[str]:
    """What of the nominal quota is not free now, for display: per group, for the flavor that lacks least."""
    least = (min((flavor.lacks(wanted) for flavor in group), key=len) for group, wanted in quota.wanted(job))
    return [each for some in least for each in some]


@dataclass(frozen=True)
class _Kind:
    """The nodes that a combination of flavors selects. `most`: pods that the quota allows there; None if unlimited."""

    labels: Sequence[tuple[str, str]]
    tolerations: Sequence[Mapping[str, Any]]
    most: int | None

    def has(self, node: Found) -> bool:
        labels, spec = node["metadata"].get("labels", {}), node.get("spec", {})
        taints = [each for each in spec.get("taints", ()) if each["effect"] in ("NoSchedule", "NoExecute")]
        return (
            not spec.get("unschedulable")
            and all(labels.get(key) == value for key, value in self.labels)
            and all(any(_tolerates(each, taint) for each in self.tolerations) for taint in taints)
        )


def count_places(
    job: JobFile, quota: Quota, flavors: Mapping[str, Found], nodes: Iterable[Found], excluded: Collection[str]
) -> int | None:
    """How many of the job's pods all but the excluded nodes hold; None if an autoscaler may add nodes."""
    known, most = list(nodes), 0
    for kind in _kinds(job, quota, flavors):
        held = {each["metadata"]["name"]: _pods_on(each, job) for each in known if kind.has(each)}
        if kind.most is None or kind.most > sum(held.values()):
            return None
        most = max(most, sum(pods for name, pods in held.items() if name not in excluded))
    return most


def _kinds(job: JobFile, quota: Quota, flavors: Mapping[str, Found]) -> Iterable[_Kind]:
    """All choices of one flavor per group whose quota holds the job."""
    wanted = quota.wanted(job)
    for chosen in product(*(group for group, _ in wanted)):
        if not all(flavor.holds(needs) for flavor, (_, needs) in zip(chosen, wanted, strict=True)):
            continue
        specs = [flavors[flavor.name].get("spec", {}) for flavor in chosen]
        limits = [_most(flavor, needs, job) for flavor, (_, needs) in zip(chosen, wanted, strict=True)]
        yield _Kind(
            [pair for spec in specs for pair in spec.get("nodeLabels", {}).items()],
            [each for spec in specs for each in spec.get("tolerations", ())],
            min((limit for limit in limits if limit is not None), default=None),
        )


def _most(flavor: Flavor, wanted: Mapping[str, Decimal], job: JobFile) -> int | None:
    """Pods that its quota allows; `wanted`: for all pods."""
    limits = [(flavor.most[name], number / job.nodes.max) for name, number in wanted.items()]
    return min((int(most // each) for most, each in limits if most is not None and each), default=None)


def _pods_on(node: Found, job: JobFile) -> int:
    has = node.get("status", {}).get("allocatable", {})
    return min(int(quantity(str(has.get(name, "0"))) // each) for name, each in _node_resources(job).items() if each)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect", taint["effect"]) not in ("", taint["effect"]):
        return False
    key = toleration.get("key", "")
    if toleration.get("operator", "Equal") == "Exists":
        return key in ("", taint["key"])
    return bool(key == taint["key"] and toleration.get("value", "") == taint.get("value", ""))
