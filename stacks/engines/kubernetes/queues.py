"""What one of Kueue's queues has for a job: its quota, what of it is free, and who waits; pure but for the asking."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from stacks.config.job_file import JobFile
from stacks.engines.kubernetes.manifests import resources_of

_SUFFIXES: Mapping[str, Decimal] = MappingProxyType(
    {
        **{"m": Decimal("0.001"), "": Decimal(1)},
        **{letter: Decimal(1000) ** power for power, letter in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
        **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate(("K", "M", "G", "T", "P", "E"), 1)},
    }
)


@dataclass(frozen=True)
class Quota:
    """Of a ClusterQueue, by resource. `most` is None where it may borrow without a limit of its own."""

    nominal: Mapping[str, Decimal]
    most: Mapping[str, Decimal | None]
    used: Mapping[str, Decimal]


def quantity(text: str) -> Decimal:
    """A number of Kubernetes'.

    >>> quantity("500m"), quantity("2Gi")
    (Decimal('0.500'), Decimal('2147483648'))
    """
    number = text.rstrip("mkKMGTPEi")
    return Decimal(number) * _SUFFIXES[text[len(number) :]]


def needed(job: JobFile) -> Mapping[str, Decimal]:
    """By all of its nodes."""
    return {name: quantity(text) * job.nodes.max for name, text in resources_of(job).items()}


def quota_of(cluster_queue: Mapping[str, Any]) -> Quota:
    """All flavors together: a job's pods have one of them, so that less than this may fit."""
    nominal, most = dict[str, Decimal](), dict[str, Decimal | None]()
    in_cohort = bool(cluster_queue["spec"].get("cohortName"))
    for group in cluster_queue["spec"].get("resourceGroups", ()):
        for each in (each for flavor in group["flavors"] for each in flavor["resources"]):
            name, own = each["name"], quantity(str(each["nominalQuota"]))
            nominal[name] = nominal.get(name, Decimal(0)) + own
            before = most.get(name, Decimal(0))
            limit = each.get("borrowingLimit")
            if (in_cohort and limit is None) or before is None:
                most[name] = None
            else:
                most[name] = before + own + (quantity(str(limit)) if in_cohort else 0)
    return Quota(nominal, most, _summed(cluster_queue.get("status", {}).get("flavorsReservation", ())))


def _summed(flavors: Iterable[Mapping[str, Any]]) -> Mapping[str, Decimal]:
    found = dict[str, Decimal]()
    for each in (each for flavor in flavors for each in flavor["resources"]):
        found[each["name"]] = found.get(each["name"], Decimal(0)) + quantity(str(each.get("total", "0")))
    return found


def beyond(job: JobFile, quota: Quota) -> list[tuple[str, str]]:
    """Resource and why, of what the queue never has for it."""
    found = list[tuple[str, str]]()
    for name, wanted in needed(job).items():
        if name not in quota.nominal:
            found.append((name, "the queue has no quota of it"))
        elif (most := quota.most[name]) is not None and wanted > most:
            found.append((name, f"{wanted:f} on {job.nodes.max} nodes, and the queue's quota is {most:f}"))
    return found


def lacking(job: JobFile, quota: Quota) -> list[str]:
    """In words, what of its own quota is not free now."""
    found = list[str]()
    for name, wanted in needed(job).items():
        free = quota.nominal.get(name, Decimal(0)) - quota.used.get(name, Decimal(0))
        if wanted > free:
            found.append(f"{name}: {free:f} of {quota.nominal.get(name, Decimal(0)):f} free, {wanted:f} wanted")
    return found
