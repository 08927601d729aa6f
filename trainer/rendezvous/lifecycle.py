"""The life of a job on one node as a state machine, pure: which state an event leads to, and the exit code at the end.

Waiting is no error: only a signal (a notice, Ctrl-C), the end of the job's hours, of the workers, or of the job for all
ends it. A lost rendezvous store ends nothing: workers that train go on, and meet anew once a store answers again. What
an end of the workers means for this node and for the others is `trainer.launch.failures`'.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from trainer.core.errors import EXIT_HOURS_OVER, EXIT_INTERRUPTED


class State(StrEnum):
    """Where a job is on this node."""

    WAITING = "waiting for peers"
    TRAINING = "training"
    STOPPING = "stopping"
    ENDED = "ended"


class Event(StrEnum):
    """What happens to it."""

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
    """A state; `exit_code` once it is the last one, `rounds` of workers that were started; `out_of_hours`: that is why
    it stops.
    """

    state: State = State.WAITING
    exit_code: int | None = None
    rounds: int = 0
    out_of_hours: bool = False

    def after(self, event: Event, code: int = EXIT_INTERRUPTED) -> "Life":
        """What `event` makes of it; `code` counts for `Event.ENDED` and `Event.OVER` alone.

        >>> Life().after(Event.TOO_FEW).state, Life().after(Event.SIGNAL).exit_code
        (<State.WAITING: 'waiting for peers'>, 75)
        """
        if self.state is State.ENDED:
            return self
        if event is Event.ENDED:
            return self._ended(code)
        if event is Event.HOURS_OVER:
            return replace(self, out_of_hours=True)._told()
        if self.state is State.STOPPING:
            return self  # whatever happens meanwhile, the workers' end decides
        if event is Event.SIGNAL:
            return self._told()
        if event is Event.OVER:  # who trains knows better
            return self._ended(code) if self.state is State.WAITING else self
        if event is Event.JOINED:
            return replace(self, state=State.TRAINING, rounds=self.rounds + 1)
        if event is Event.STORE_LOST:
            return self
        return replace(self, state=State.WAITING)

    def _told(self) -> "Life":
        if self.state is State.WAITING:
            return self._ended(EXIT_INTERRUPTED)
        return replace(self, state=State.STOPPING)

    def _ended(self, code: int) -> "Life":
        """A job that is done is done, in its last second too."""
        return replace(self, state=State.ENDED, exit_code=EXIT_HOURS_OVER if self.out_of_hours and code else code)
