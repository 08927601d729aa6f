"""Machine and code that computed a run: boot id, code hash, versions."""

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path

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
