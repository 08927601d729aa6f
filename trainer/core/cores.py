"""The number of cores that this process may use."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from gangway.trainer.core.cgroups import CGROUPS, OWN_CGROUPS, control_groups


def usable_cores(own: Path = OWN_CGROUPS, mounted: Path = CGROUPS) -> int:
    """Cores of the affinity mask, capped by the container's quota, rounded down to avoid throttling; at least 1."""
    cores = len(os.sched_getaffinity(0))
    return max(1, int(min([cores, *_quotas(own, mounted)])))


def _quotas(own: Path, mounted: Path) -> Iterator[float]:
    for is_second, folder in control_groups("cpu", own, mounted):
        names = ("cpu.max",) if is_second else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = " ".join((folder / name).read_text("ascii") for name in names).split()
            if quota not in ("max", "-1"):
                yield int(quota) / int(period)
