"""Limits of this process's control groups and their parents, cgroup v1 and v2."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

OWN_CGROUPS = Path("/proc/self/cgroup")
"""The kernel's list of this process's control groups."""
CGROUPS = Path("/sys/fs/cgroup")
"""Where their limits are mounted."""
_MEMORY_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
_FILES_ROWS = ("inactive_file ", "total_inactive_file ")
"""In memory.stat, for v1 and v2: droppable file pages of the group and its children."""


class GroupMemory(NamedTuple):
    """Memory of a group with a limit, in bytes; file pages that the kernel can drop are not `used`."""

    used: int
    limit: int


def control_groups(controller: str, own: Path = OWN_CGROUPS, mounted: Path = CGROUPS) -> Iterator[tuple[bool, Path]]:
    """Folders that may hold a controller's limits, each with whether it is cgroup v2."""
    try:
        rows = [row.split(":", 2) for row in own.read_text("utf-8").splitlines()]
    except OSError:
        return
    for number, controllers, path in (row for row in rows if len(row) == 3):
        is_second = number == "0"
        if not is_second and controller not in controllers.split(","):
            continue
        # A container sees its own group as the root, though the path may be the host's.
        group = Path(path.lstrip("/"))
        for each in dict.fromkeys((group, *group.parents)):
            yield is_second, (mounted if is_second else mounted / controller) / each


def memory_of_groups(own: Path = OWN_CGROUPS, mounted: Path = CGROUPS) -> Iterator[GroupMemory]:
    """Memory of each control group with a limit: a container, a Slurm job, a systemd unit."""
    for is_second, folder in control_groups("memory", own, mounted):
        limit_name, used_name = _MEMORY_FILES[not is_second]
        try:
            limit, used = ((folder / name).read_text("ascii").strip() for name in (limit_name, used_name))
            rows = (folder / "memory.stat").read_text("ascii").splitlines()
            if limit != "max":
                files = next((int(row.split()[1]) for row in rows if row.startswith(_FILES_ROWS[not is_second])), 0)
                yield GroupMemory(int(used) - files, int(limit))
        except (OSError, ValueError):
            continue
