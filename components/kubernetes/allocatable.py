"""What a managed Kubernetes leaves to jobs' pods: CPU, memory and disk, by provider; pure.

A system sees less memory than is sold, by a share that was measured where stated.
"""

import math
from typing import NamedTuple

__all__ = ["Allocatable", "aks_allocatable", "eks_allocatable", "gke_allocatable"]

_MIB, _MB_IN_GIB = 1 / 1024, 1e6 / 2**30
_EVICTION_GIB = 100 * _MIB
"""kubelet's memory.available, at all three providers."""
_EVICTION_SHARE = 0.1
"""nodefs.available, at all three providers."""
_SYSTEM_PODS_GIB, _SYSTEM_PODS_CPUS = 1.0, 0.5
"""Reserve for DaemonSets (network, plugins, metrics). Assumed; they request less than half of it."""


class Allocatable(NamedTuple):
    """Whole units, rounded down: a job that requests all of it fits."""

    cpus: int
    memory_gib: int
    disk_gib: int


def gke_allocatable(vcpus: int, memory_gib: float, boot_gib: float, local_ssds: int = 0) -> Allocatable:
    """GKE documentation, "About GKE node sizing" (November 2026). Measured: of 64 vCPUs and 512 GiB, 503.9 GiB are
    visible and 486.9 left to pods; of 100 GiB of disk 94.2 and 43.8 (2i2c-org/infrastructure#2121). Pods write to the
    `local_ssds` of 375 GB, or else to the boot disk.
    """
    seen_gib = 0.983 * memory_gib
    steps = ((4, 0.25), (4, 0.2), (8, 0.1), (112, 0.06), (math.inf, 0.02))
    if local_ssds:
        disk_gib, kept_gib = local_ssds * 375e9 / 2**30, {1: 50.0, 2: 75.0}.get(local_ssds, 100.0)
    else:
        disk_gib, kept_gib = 0.942 * boot_gib, min(0.5 * boot_gib, 6 + 0.35 * boot_gib, 100.0)
    return _subtract(vcpus, _reserved_cpus(vcpus), seen_gib, _stepped(seen_gib, steps), disk_gib, kept_gib)


def eks_allocatable(vcpus: int, memory_gib: float, disk_gib: float) -> Allocatable:
    """Amazon EKS AMI, nodeadm's kubelet defaults (November 2026): 255 MiB, 11 MiB per possible pod, and 1 GiB of disk.
    Measured: 1,093 of 1,152 GiB are left on p4de.24xlarge, 1,957 of 2,048 on p5.48xlarge. `disk_gib`: of the local
    disks, or else the root volume.
    """
    # EKS's list of pods by type, which follows the number of addresses: 58 up to 2xlarge, 234 up to 12xlarge.
    pods = 58 if vcpus <= 8 else 234 if vcpus <= 48 else 737
    kept_gib = (255 + 11 * pods) * _MIB
    return _subtract(vcpus, _reserved_cpus(vcpus), 0.9559 * memory_gib, kept_gib, 0.98 * disk_gib, 1.0)


def aks_allocatable(vcpus: int, memory_gib: float, disk_gib: float, max_pods: int) -> Allocatable:
    """AKS documentation, "Node resource reservations", 1.29 and later (November 2026). Beyond its table's 64 cores we
    assume 10 millicores each. Visible memory and disk are of Standard_D4s_v3: 15.6 of 16 GiB, 123.9 of 128 (assumed for
    others).
    """
    kept_gib = min((20 * max_pods + 50) * _MB_IN_GIB, 0.25 * memory_gib)
    kept_cpus = _between(vcpus, ((1, 0.06), (2, 0.1), (4, 0.14), (8, 0.18), (16, 0.26), (32, 0.42), (64, 0.74)))
    return _subtract(vcpus, kept_cpus, 0.977 * memory_gib, kept_gib, 0.968 * disk_gib, 0.0)


def _subtract(
    vcpus: int, kept_cpus: float, memory_gib: float, kept_gib: float, disk_gib: float, kept_disk_gib: float
) -> Allocatable:
    return Allocatable(
        math.floor(vcpus - kept_cpus - _SYSTEM_PODS_CPUS),
        math.floor(memory_gib - kept_gib - _EVICTION_GIB - _SYSTEM_PODS_GIB),
        max(0, math.floor(disk_gib * (1 - _EVICTION_SHARE) - kept_disk_gib)),
    )


def _reserved_cpus(vcpus: int) -> float:
    """GKE's and nodeadm's rule: 6 % of the first core, 1 % of the second, 0.5 % of two more, 0.25 % of the others."""
    return _stepped(vcpus, ((1, 0.06), (1, 0.01), (2, 0.005), (math.inf, 0.0025)))


def _stepped(amount: float, steps: tuple[tuple[float, float], ...]) -> float:
    """The sum of a share of each step's width."""
    kept, rest = 0.0, amount
    for width, share in steps:
        kept += share * min(width, rest)
        rest = max(0.0, rest - width)
    return kept


def _between(amount: int, points: tuple[tuple[int, float], ...]) -> float:
    """Linear interpolation; beyond the last point the last line continues."""
    index = next((number for number, (at, _) in enumerate(points) if amount <= at), len(points) - 1)
    (low, low_value), (high, high_value) = points[max(0, index - 1)], points[max(1, index)]
    return low_value + (amount - low) * (high_value - low_value) / (high - low)
