"""How many processors this process may compute on: those that it may run on, and no more than its container's quota."""

import os
from collections.abc import Iterator
from pathlib import Path

_OWN_CGROUPS = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores(own: Path = _OWN_CGROUPS, mounted: Path = _CGROUPS) -> int:
    """The least of both, at least 1. A quota of 2.5 cores is 2: a third thread would be stopped half of the time. `own`
    and `mounted` are where the kernel lists this process's control groups, and shows them.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, int(min([cores, *_quotas(own, mounted)])))


def _quotas(own: Path, mounted: Path) -> Iterator[float]:
    """Cores that each control group of this process, and each one above it, may have; of both versions."""
    try:
        rows = [row.split(":", 2) for row in own.read_text("utf-8").splitlines()]
    except OSError:
        return
    for number, controllers, path in (row for row in rows if len(row) == 3):
        # A container sees its own group as the root, though the path may be the host's.
        group = Path(path.lstrip("/"))
        for each in dict.fromkeys((group, *group.parents)):
            if number == "0":
                yield from _cores_of(mounted / each / "cpu.max")
            elif "cpu" in controllers.split(","):
                folder = mounted / "cpu" / each
                yield from _cores_of(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")


def _cores_of(*files: Path) -> Iterator[float]:
    """Microseconds of processor time out of a period's; nothing where there is no such limit, or no such file."""
    try:
        quota, period = " ".join(file.read_text("ascii") for file in files).split()
        if quota not in ("max", "-1"):
            yield int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return
