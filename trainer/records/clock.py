"""The time of day that a session's lines carry: taken once, then carried on by the monotonic clock.

A clock that is set while a run goes on (a virtual machine that wakes, NTP's first answer) would make a line earlier
than the one before it, and with it negative times, rates and costs in the record. Not a stopwatch: differences that
need no date use time.monotonic themselves. Between two sessions a clock may still go back; trainer.records.summary
tells.
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
