"""Which machine this is, as one boot of it. Not its name, which many machines may share, and not its devices."""

from pathlib import Path

__all__ = ["boot_id"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's own name of this boot, the same in all containers; empty where it has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
