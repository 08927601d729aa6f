"""The life of a job on one node as a state machine, pure: which state an event leads to, and the exit code at the end.

Waiting is no error: only a signal (a notice, the end of the job's hours, Ctrl-C), an end of the workers or a mistake
ends a job. A lost rendezvous store ends nothing: workers that train go on, and meet anew once a store answers again.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from trainer.core.errors import EXIT_INTERRUPTED


class State(StrEnum):
    """Where a job is on this node."""

    WAITING = "waiting for peers"
    TRAINING = "training"
    STOPPING = "stopping"
    ENDED = "ended"


class Event(StrEnum):
    """What happens to it."""

    JOINED = "enough nodes have met"
    TOO_FEW = "too few nodes came"
    NO_STORE = "no rendezvous store to meet at"
    STORE_LOST = "the rendezvous store is gone"
    STORE_BACK = "a rendezvous store answers again"
    HUNG = "the workers hung and were ended"
    SIGNAL = "told to leave"
    ENDED = "the workers have ended"


@dataclass(frozen=True)
class Life:
    """A state; `exit_code` once it is the last one, `rounds` of workers that were started."""

    state: State = State.WAITING
    exit_code: int | None = None
    rounds: int = 0

    def after(self, event: Event, code: int = EXIT_INTERRUPTED) -> "Life":
        """What `event` makes of it; `code` is the workers', and counts for `Event.ENDED` alone.

        >>> Life().after(Event.TOO_FEW).state, Life().after(Event.SIGNAL).exit_code
        (<State.WAITING: 'waiting for peers'>, 75)
        """
        if self.state is State.ENDED:
            return self
        if event is Event.ENDED:
            return replace(self, state=State.ENDED, exit_code=code)
        if self.state is State.STOPPING:
            return self  # whatever happens meanwhile, the workers' end decides
        if event is Event.SIGNAL:
            if self.state is State.WAITING:
                return replace(self, state=State.ENDED, exit_code=EXIT_INTERRUPTED)
            return replace(self, state=State.STOPPING)
        if event is Event.JOINED:
            return replace(self, state=State.TRAINING, rounds=self.rounds + 1)
        if event is Event.STORE_LOST:
            return self
        return replace(self, state=State.WAITING)
