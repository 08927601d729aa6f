"""How many processors this process may compute on: those that it may run on, and no more than its container's quota."""

import os
from collections.abc import Iterator
from pathlib import Path

from trainer.core.cgroups import CGROUPS, OWN_CGROUPS, control_groups


def usable_cores(own: Path = OWN_CGROUPS, mounted: Path = CGROUPS) -> int:
    """The least of both, at least 1. A quota of 2.5 cores is 2: a third thread would be stopped half of the time. `own`
    and `mounted` are where the kernel lists this process's control groups, and shows them.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, int(min([cores, *_quotas(own, mounted)])))


def _quotas(own: Path, mounted: Path) -> Iterator[float]:
    """Cores that each control group of this process, and each one above it, may have; of both versions."""
    for is_second, folder in control_groups("cpu", own, mounted):
        names = ("cpu.max",) if is_second else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        yield from _get_cores(*(folder / name for name in names))


def _get_cores(*files: Path) -> Iterator[float]:
    """Microseconds of processor time out of a period's; nothing where there is no such limit, or no such file."""
    try:
        quota, period = " ".join(file.read_text("ascii") for file in files).split()
        if quota not in ("max", "-1"):
            yield int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return
