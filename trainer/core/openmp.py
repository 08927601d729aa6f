"""Let OpenMP's waiting threads sleep unless the user sets a policy.

libgomp, part of torch's wheels, lets a waiting thread spin for 300,000 rounds before it sleeps
(https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html), on the core that the awaited thread may need. Beside a
busy process on two cores, a run with two threads made 133 and 382 images/s spinning, 534 and 568 with PASSIVE, and 560
with one thread (November 2026; `python -m tools.bench --only waiting`). GPU workers get it too: the variable must be
set before torch is loaded, when the device is unknown.
"""

from collections.abc import MutableMapping
from typing import Final

WAIT_POLICY: Final = "OMP_WAIT_POLICY"


def wait_passively(environment: MutableMapping[str, str]) -> None:
    """Set the wait policy unless it is set, for a process that has not loaded torch yet."""
    environment.setdefault(WAIT_POLICY, "PASSIVE")
