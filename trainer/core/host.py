"""This process and its host: software, cores, control groups, memory limit, threads, the command that started it."""

import contextlib
import hashlib
import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

BUSY_VARIABLE = "GANGWAY_BUSY_FILE"
"""A file whose time is kept recent while a worker works without its device, so that its node is not stopped as idle."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CPUINFO = Path("/proc/cpuinfo")


def boot_id() -> str:
    """The kernel's boot id, the same in all containers; empty where there is none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def code_sha256() -> str:
    """SHA-256 over names and contents of the trainer's Python files, sorted by name."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions that results depend on, and the processor's model as `cpu`."""
    packages = ("torch", "numpy", "scikit-learn", "pydantic")
    return {"python": platform.python_version(), "cpu": _cpu(), **{name: version(name) for name in packages}}


def _cpu() -> str:
    lines = _CPUINFO.read_text("utf-8", "replace").splitlines() if _CPUINFO.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


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


WAIT_POLICY: Final = "OMP_WAIT_POLICY"


def wait_passively(environment: MutableMapping[str, str]) -> None:
    """Let OpenMP's waiting threads sleep unless the user sets a policy, in a process that has not loaded torch yet.

    libgomp, part of torch's wheels, lets a waiting thread spin for 300,000 rounds before it sleeps
    (https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html), on the core that the awaited thread may need.
    Beside a busy process on two cores, a run with two threads made 133 and 382 images/s spinning, 534 and 568 with
    PASSIVE, and 560 with one thread (November 2026; `python -m tools.bench --only waiting`). GPU workers get it too:
    the variable must be set before torch is loaded, when the device is unknown.
    """
    environment.setdefault(WAIT_POLICY, "PASSIVE")


MODULE = "python -m gangway.trainer"
COMMANDS: Mapping[str, str] = {
    "train": "train a GAN on this machine, or resume a run",
    "evaluate": "evaluate a run's newest checkpoint and update its run.json",
    "record": "rebuild run.json from stats.jsonl",
    "data": "prepare data sets, or measure how fast they are read",
    "sample": "make a grid or a film of generated images",
    "export": "write a run's generator as ONNX, torch.export or safetensors",
    "presets": "list the presets with their sources and departures from them",
    "memory": "show the memory that a step needs on a worker's device",
    "control": "replay a recorded run with other policies, or switch a controller off",
}
"""Commands that `gangway` passes to the trainer unchanged, with their help."""


def program() -> str:
    """`gangway` if it started this process, with its path if it is not on PATH; else `python -m gangway.trainer`."""
    started = Path(sys.argv[0])
    if started.name != "gangway":
        return MODULE
    found = shutil.which("gangway")
    return "gangway" if found is not None and Path(found).absolute() == started.absolute() else str(started)


_STATM = Path("/proc/self/statm")


@contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """Limit this process to `more_bytes` above its present use (MemoryError or a library's own error). Linux only:
    RLIMIT_DATA counts private writable memory, without the addresses that torch and CUDA reserve.
    """
    used = _data_bytes()
    if used is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    present = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([used + more_bytes, *present]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int | None:
    try:
        return int(_STATM.read_text("ascii").split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None
