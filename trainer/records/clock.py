"""The time of day that a session's lines carry: taken once, then carried on by the monotonic clock.

A clock that is set in a run (a waking virtual machine, NTP's first answer) would give negative times, rates and costs.
Between two sessions a clock may still go back; trainer.records.summary tells.
"""

import time

__all__ = ["SessionClock"]


class SessionClock:
    """The time of day when it was made, and from then on as much later as time has really passed."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since 1970; never less than at an earlier call."""
        return self._offset + time.monotonic()
