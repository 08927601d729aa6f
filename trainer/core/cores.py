"""The number of cores that this process may use."""

import os
from collections.abc import Iterator
from pathlib import Path

from trainer.core.cgroups import CGROUPS, OWN_CGROUPS, control_groups


def usable_cores(own: Path = OWN_CGROUPS, mounted: Path = CGROUPS) -> int:
    """Cores of the affinity mask, capped by the container's CPU quota; at least 1. A quota of 2.5 counts as 2: a third
    thread would be throttled half of the time.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, int(min([cores, *_quotas(own, mounted)])))


def _quotas(own: Path, mounted: Path) -> Iterator[float]:
    for is_second, folder in control_groups("cpu", own, mounted):
        names = ("cpu.max",) if is_second else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        yield from _get_cores(*(folder / name for name in names))


def _get_cores(*files: Path) -> Iterator[float]:
    """Cores of a quota over its period (microseconds each); empty without a limit."""
    try:
        quota, period = " ".join(file.read_text("ascii") for file in files).split()
        if quota not in ("max", "-1"):
            yield int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return
