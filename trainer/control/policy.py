"""The seam between those who decide and the run: a policy looks at a history and wants one change, or none.

A policy is a pure function of the history: a recorded run can be shown to it again, and a resumed one goes on with
what it has learnt. It neither judges nor bounds itself: trainer.control.judge and guardrails do that for all.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from trainer.config.values.control import Objective
from trainer.control.interval import Decision, Interval, Knobs, Value

Allowed = Mapping[str, Sequence[Value]]
"""By knob, the values that it may have now, its present one among them, in rising order; one that is missing stays."""


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
    """Who decides."""

    @property
    def name(self) -> str:
        """As the stack file and the record call it."""
        ...

    def decide(self, history: Sequence[Interval], room: Room) -> Decision | None:
        """The next change, or None for none. `history` has at least one interval, the last one has just ended, and no
        earlier decision waits to be judged.
        """
        ...


class Fixed:
    """Changes nothing: the control arm of an experiment."""

    name = "fixed"

    def decide(self, history: Sequence[Interval], room: Room) -> Decision | None:
        """See `Policy`."""
        del history, room
        return None
