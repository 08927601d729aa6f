"""How many of a job's pods fit on its queue's nodes, without unfit ones; pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any

from gangway.jobs.kubernetes.manifests import resources_of
from gangway.jobs.kubernetes.objects import Found
from gangway.jobs.kubernetes.queues import Flavor, Quota, quantity
from gangway.stacks.config.job_file import JobFile

_KEEP_AWAY = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class _Kind:
    """The nodes that a combination of flavors selects.

    Attributes:
        most: pods that the quota allows there; None if unlimited.
    """

    labels: Sequence[tuple[str, str]]
    tolerations: Sequence[Mapping[str, Any]]
    most: int | None

    def has(self, node: Found) -> bool:
        """Whether a pod of this kind may go to the node now."""
        labels, spec = node["metadata"].get("labels", {}), node.get("spec", {})
        taints = [each for each in spec.get("taints", ()) if each["effect"] in _KEEP_AWAY]
        return (
            not spec.get("unschedulable")
            and all(labels.get(key) == value for key, value in self.labels)
            and all(any(_tolerates(each, taint) for each in self.tolerations) for taint in taints)
        )


def places(
    job: JobFile, quota: Quota, flavors: Mapping[str, Found], nodes: Iterable[Found], excluded: Collection[str]
) -> int | None:
    """How many of the job's pods the nodes hold, without the excluded ones and regardless of other pods. None if
    unknown: the quota exceeds the present nodes, so an autoscaler may add some. `flavors`: Kueue's, by name.
    """
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
    """For an empty node of this size."""
    has = node.get("status", {}).get("allocatable", {})
    asked = {name: quantity(text) for name, text in resources_of(job).items()}
    return min(int(quantity(str(has.get(name, "0"))) // each) for name, each in asked.items() if each)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect", taint["effect"]) not in ("", taint["effect"]):
        return False
    key = toleration.get("key", "")
    if toleration.get("operator", "Equal") == "Exists":
        return key in ("", taint["key"])
    return bool(key == taint["key"] and toleration.get("value", "") == taint.get("value", ""))
