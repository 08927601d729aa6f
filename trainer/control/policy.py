"""The interface of policies: a policy reads a history and returns one change, or none.

It is a pure function of the history, so that recorded runs can be replayed and resumed ones continue with what it
learnt. gangway.trainer.control.judge and guardrails judge and limit all policies.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from gangway.trainer.config.values.control import Objective
from gangway.trainer.control.interval import Decision, Interval, Knobs, Value

Allowed = Mapping[str, Sequence[Value]]
"""By knob, its possible values including the current one, in rising order; missing knobs stay."""


class Room(NamedTuple):
    """What a policy may choose from.

    Attributes:
        allowed: see `Allowed`; what has just been undone is left out for a while.
        objective: what there should be more of.
        start: the knobs that the run began with.
        on_cpu: whether workers compute there: a GPU may be without a meter, and is none the less one.
        seed: of the run; for policies that draw.
    """

    allowed: Allowed
    objective: Objective
    start: Knobs
    on_cpu: bool
    seed: int = 0


class Policy(Protocol):
    """Decides about changes."""

    @property
    def name(self) -> str:
        """Its name in the stack file and the record."""
        ...

    def decide(self, history: Sequence[Interval], room: Room) -> Decision | None:
        """Returns the next change, or None. `history` is not empty, and no decision waits to be judged."""
        ...


class Fixed:
    """Changes nothing: the control arm of an experiment."""

    name = "fixed"

    def decide(self, history: Sequence[Interval], room: Room) -> Decision | None:
        """See `Policy`."""
        del history, room
        return None
