"""Whole numbers that a provider takes only in a range or out of a list: refused with the nearest one it takes.

Not for what a stack file may hold whatever the provider; that is said by the type of its field (`components.fields`).
"""

from collections.abc import Iterable

from components.findings import InputError

__all__ = ["STEPS_ALARM_MINUTES", "check_steps_alarm", "check_within", "nearest_number"]

# Below, late metrics would look like a trainer that stands still; above, nobody would call it an alarm.
STEPS_ALARM_MINUTES = range(10, 1441)


def nearest_number(wanted: int | None, values: Iterable[int]) -> int:
    """The value closest to `wanted` (None for 0); of two equally close ones the larger.

    >>> nearest_number(1100, [1000, 1200])
    1200
    """
    return min(values, key=lambda value: (abs(value - (wanted or 0)), -value))


def check_within(value: int, allowed: range, place: str, problem: str, unit: str = "") -> None:
    """Refuses a value outside a range of step 1.

    Raises:
        InputError: at `place`, with the end of the range that is nearer.
    """
    if value not in allowed:
        raise InputError(
            place,
            problem,
            value=value,
            allowed=f"{allowed.start} to {allowed.stop - 1}{unit}",
            fix=f"set {place.rpartition('.')[2]}: {nearest_number(value, (allowed.start, allowed.stop - 1))}",
        )


def check_steps_alarm(minutes: int, place: str = "steps_alarm_minutes") -> None:
    """Refuses a window in which late metrics look like a standstill, or one that is no alarm any more.

    Raises:
        InputError: it is outside STEPS_ALARM_MINUTES.
    """
    check_within(minutes, STEPS_ALARM_MINUTES, place, "not a window in which missing steps can be told", " minutes")
