"""How OpenMP's threads wait for each other: asleep, unless the user says otherwise.

libgomp, which torch's wheels bring, lets a waiting thread spin for 300,000 rounds before it sleeps
(https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html). While another process has one of the cores, a spinning
thread holds the core that the thread it waits for needs. Beside a busy process on two cores, two measurements of a run
with two threads found 133 and 382 images/s that way, 534 and 568 with PASSIVE, and 560 with one thread (November 2026).
`python -m tools.bench --only waiting` measures it.

A GPU's worker gets it too: the variable counts only before torch is loaded, when the device is not known yet, and
OpenMP computes next to nothing there.
"""

from collections.abc import MutableMapping
from typing import Final

WAIT_POLICY: Final = "OMP_WAIT_POLICY"


def wait_passively(environment: MutableMapping[str, str]) -> None:
    """Lets waiting threads sleep in a process that has not loaded torch yet. A value that is set stays."""
    environment.setdefault(WAIT_POLICY, "PASSIVE")
