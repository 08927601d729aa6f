"""A controller's memory of a long run: the newest intervals, and the older ones that sums and verdicts need."""

from collections.abc import Sequence

from gangway.trainer.config.values.control import ControlSettings
from gangway.trainer.control.interval import Interval, Value
from gangway.trainer.control.judge import BEFORE, LONGEST

MOST_INTERVALS = 2000
"""Newest intervals, all of which are kept; older ones do not describe the machine as it is now."""


def shorten(history: Sequence[Interval], settings: ControlSettings) -> list[Interval]:
    """Returns a shorter history with the same verdicts and sums; may be applied again to its own result.

    It keeps the first interval, the newest, those with a guard value and those near a change of knobs or a failed one.
    The next kept interval takes over the time of omitted ones.
    """
    old = len(history) - MOST_INTERVALS
    if old <= 0:
        return list(history)
    near = max(LONGEST * settings.patience + 1, LONGEST * BEFORE)
    kept_places = {0, *(place for place in range(old) if history[place].guard is not None)}
    for place in range(min(old + near, len(history))):
        if _is_change(history, place):
            kept_places.update(range(place - near, place + near + 1))
    found, left_out_sec = list[Interval](), 0.0
    for place, each in enumerate(history):
        if place < old and place not in kept_places:
            left_out_sec += each.seconds
            continue
        found.append(each._replace(seconds=left_out_sec + each.seconds) if left_out_sec else each)
        left_out_sec = 0.0
    return found


def _is_change(history: Sequence[Interval], place: int) -> bool:
    each = history[place]
    is_other = place > 0 and each.knobs != history[place - 1].knobs
    return is_other or each.decision is not None or each.failed is not None


def standing_decisions(history: Sequence[Interval]) -> dict[str, Value]:
    """Returns, by knob, the decided value that still holds, with which the next session continues."""
    first, last = dict[str, Value](), dict[str, Value]()
    for made in (each.decision for each in history if each.decision is not None):
        if last.get(made.knob) != made.was:  # the user has set it since
            first[made.knob] = made.was
        last[made.knob] = made.value
    return {knob: value for knob, value in last.items() if value != first[knob]}
