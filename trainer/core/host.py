"""Which machine (one boot of it) and which code a run's numbers were computed with: boot id, code hash, versions."""

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CPUINFO = Path("/proc/cpuinfo")


def boot_id() -> str:
    """The kernel's own name of this boot, the same in all containers; empty where it has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def code_sha256() -> str:
    """SHA-256 over the trainer's own Python files, names and contents, in order of their names."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on, and the processor's model as `cpu`."""
    packages = ("torch", "numpy", "scikit-learn", "pydantic")
    return {"python": platform.python_version(), "cpu": _cpu(), **{name: version(name) for name in packages}}


def _cpu() -> str:
    """The processor's model; on Linux alone it is told, and not on every architecture."""
    lines = _CPUINFO.read_text("utf-8", "replace").splitlines() if _CPUINFO.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()
