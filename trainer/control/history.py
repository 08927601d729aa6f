"""What a controller keeps of a long run: the newest intervals, and of the older ones what sums and verdicts rest on."""

from collections.abc import Sequence

from trainer.config.values.control import ControlSettings
from trainer.control.interval import Interval, Value
from trainer.control.judge import BEFORE, LONGEST

MOST_INTERVALS = 2000
"""The newest, of which each is kept: what is older says nothing about the machine as it is now."""


def remembered(history: Sequence[Interval], settings: ControlSettings) -> list[Interval]:
    """The same for every judge and sum: the first interval, the newest, and of those between what was measured by the
    guard, and what is near another setting of knobs or a change that failed. The time of what is left out is that of
    the next one that is kept. Of a history that was shortened before and has grown since it is that of the whole.
    """
    old = len(history) - MOST_INTERVALS
    if old <= 0:
        return list(history)
    near = max(LONGEST * settings.patience + 1, LONGEST * BEFORE)
    kept = {0, *(place for place in range(old) if history[place].guard is not None)}
    for place in range(min(old + near, len(history))):
        if _turns(history, place):
            kept.update(range(place - near, place + near + 1))
    found, left_out_sec = list[Interval](), 0.0
    for place, each in enumerate(history):
        if place < old and place not in kept:
            left_out_sec += each.seconds
            continue
        found.append(each._replace(seconds=left_out_sec + each.seconds) if left_out_sec else each)
        left_out_sec = 0.0
    return found


def _turns(history: Sequence[Interval], place: int) -> bool:
    """Whether knobs are turned at its end or have been before it, or could not be."""
    each = history[place]
    is_other = place > 0 and each.knobs != history[place - 1].knobs
    return is_other or each.decision is not None or each.failed is not None


def standing(history: Sequence[Interval]) -> dict[str, Value]:
    """By knob, what decisions have made of it and nothing has undone: what another session goes on with. All else is as
    whoever starts that session asks for it.
    """
    first, last = dict[str, Value](), dict[str, Value]()
    for made in (each.decision for each in history if each.decision is not None):
        if last.get(made.knob) != made.was:  # somebody else has set it since
            first[made.knob] = made.was
        last[made.knob] = made.value
    return {knob: value for knob, value in last.items() if value != first[knob]}
