"""How long ago something was, for commands that come one after another: by the time since the machine's boot, which
nobody sets and which counts on while the machine sleeps. Another boot, or another machine, has another count.
"""

import math
import time
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_stamp() -> str:
    """Of now: a boot's name, and a number of seconds, rounded down so that it is never ahead of the clock."""
    return f"{_boot()} {math.floor(time.clock_gettime(_CLOCK) * 1000) / 1000:.3f}"


def sec_since(stamp: str) -> float | None:
    """None where it is of another boot, or none."""
    boot, _, said = stamp.partition(" ")
    try:
        sec = time.clock_gettime(_CLOCK) - float(said)
    except ValueError:
        return None
    return sec if boot == _boot() and sec >= 0 else None


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return "-"  # no Linux
