"""Changes that a session did not outlive: a log says that one was about to be made, and neither an interval with it nor
an orderly end of its session. Such a change is made once: whoever goes on with the run reads that here. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trainer.config.control import JUDGE
from trainer.control.interval import Decision, Knobs, Value
from trainer.control.watch import decision_of, training_sec
from trainer.records.stats_log import Line

BEGUN = "decision-begun"
"""The event that stands in the log before a decision is carried out: what is after it may never come."""
FATAL = "decision-fatal"
"""The event by which a session that goes on says what the one before did not outlive."""
_ORDERLY = ("interrupt", "done")
_KILLED = "it says nothing more, as when it is killed"


class Fatal(NamedTuple):
    """One change.

    Attributes:
        session: that it ended, after so many `images` in all when it was made.
        why: that session's last words.
    """

    session: int
    images: int
    decision: Decision
    why: str

    @property
    def limit(self) -> tuple[str, Value, Value]:
        """Its knob, what it was and what it never becomes again, nor anything beyond."""
        return self.decision.knob, self.decision.was, self.decision.value

    @property
    def reason(self) -> str:
        """In words."""
        return f"the session in which it was tried ended before an interval of it did: {self.why}"


def fatal_changes(lines: Iterable[Line], interval_sec: float) -> list[Fatal]:
    """Those of a log, in order. A session that was killed for another reason just then is not told apart from one that
    its change has killed: the change is left alone, which costs less than a run that never goes on. What the judge
    turns back to has been trained with before, and is none.
    """
    found, begun, since, last, session = list[Fatal](), None, None, None, None
    for line in lines:
        if line["session"] != session:
            found += [] if begun is None else [begun]
            session, begun, last = line["session"], None, None
        match line.get("event"):
            case "decision-begun":
                made = decision_of(line)
                begun = None if made.policy == JUDGE else Fatal(line["session"], line["images"], made, _KILLED)
                since = last
            case "failed" if begun is not None:
                begun = begun._replace(why=line["why"])
            case "decision" if line["outcome"] == "failed":
                begun = None
            case None if "knobs" in line:
                last = line
                if begun is not None and since is not None and training_sec(since, line) >= interval_sec:
                    begun = None
            case event if event in _ORDERLY:
                begun = None
            case _:
                pass
    return found


def to_undo(fatal: Sequence[Fatal], now: Knobs, knobs: Sequence[str]) -> list[Decision]:
    """What a session has to begin with, where a checkpoint has kept such a change of one of these knobs, which are as
    they are `now`.
    """
    found = dict[str, Decision]()
    for each in fatal:
        made = each.decision
        if made.knob in knobs and getattr(now, made.knob) == made.value:
            reason = f"undoes {made.knob} {made.value}: {each.reason}"
            found[made.knob] = Decision(made.knob, made.was, made.value, JUDGE, reason, 0.0, "nothing: it is as it was")
    return list(found.values())
