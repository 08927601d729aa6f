"""Elapsed time between commands, by the time since boot: it cannot be set, and counts on while the machine sleeps.
Stamps of another boot or machine do not compare.
"""

import math
import time
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_stamp() -> str:
    """Boot id and seconds now, rounded down so it is never ahead of the clock."""
    return f"{_boot()} {math.floor(time.clock_gettime(_CLOCK) * 1000) / 1000:.3f}"


def sec_since(stamp: str) -> float | None:
    """None for another boot's stamp or an invalid one."""
    boot, _, seconds = stamp.partition(" ")
    try:
        sec = time.clock_gettime(_CLOCK) - float(seconds)
    except ValueError:
        return None
    return sec if boot == _boot() and sec >= 0 else None


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return "-"  # no Linux
