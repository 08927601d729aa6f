"""The life of a job on one node as a pure state machine: the next state for an event, and the exit code.

Waiting is no error: only a signal, the end of the job's hours, of the workers or of the job for all ends it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from gangway.trainer.core.errors import EXIT_HOURS_OVER, EXIT_INTERRUPTED


class State(StrEnum):
    """A job's state on this node."""

    WAITING = "waiting for peers"
    TRAINING = "training"
    STOPPING = "stopping"
    ENDED = "ended"


class Event(StrEnum):
    """An event in a job's life on this node."""

    JOINED = "enough nodes have met"
    MEETING = "the workers have ended, and the nodes meet again"
    TOO_FEW = "too few nodes came"
    NO_STORE = "no rendezvous store to meet at"
    STORE_LOST = "the rendezvous store is gone"
    STORE_BACK = "a rendezvous store answers again"
    HUNG = "the workers hung and were ended"
    PEERS_LOST = "the workers have lost their peers"
    SIGNAL = "told to leave"
    HOURS_OVER = "the job's hours are over"
    OVER = "the job has ended for all"
    ENDED = "the workers have ended"


@dataclass(frozen=True)
class Life:
    """A state; `exit_code` is set in the last one, `rounds` counts starts of workers."""

    state: State = State.WAITING
    exit_code: int | None = None
    rounds: int = 0
    out_of_hours: bool = False

    def after(self, event: Event, code: int = EXIT_INTERRUPTED) -> "Life":
        """The life after `event`; `code` only matters for `Event.ENDED` and `Event.OVER`.

        >>> Life().after(Event.TOO_FEW).state, Life().after(Event.SIGNAL).exit_code
        (<State.WAITING: 'waiting for peers'>, 75)
        """
        if self.state is State.ENDED:
            return self
        if event is Event.ENDED:
            return self._end(code)
        if event is Event.HOURS_OVER:
            return replace(self, out_of_hours=True)._stop()
        if self.state is State.STOPPING:
            return self  # the workers' end decides
        if event is Event.SIGNAL:
            return self._stop()
        if event is Event.OVER:  # a training node ends by its workers
            return self._end(code) if self.state is State.WAITING else self
        if event is Event.JOINED:
            return replace(self, state=State.TRAINING, rounds=self.rounds + 1)
        if event is Event.STORE_LOST:
            return self
        return replace(self, state=State.WAITING)

    def _stop(self) -> "Life":
        if self.state is State.WAITING:
            return self._end(EXIT_INTERRUPTED)
        return replace(self, state=State.STOPPING)

    def _end(self, code: int) -> "Life":
        """A job that completes in its last second still counts as done."""
        return replace(self, state=State.ENDED, exit_code=EXIT_HOURS_OVER if self.out_of_hours and code else code)
