"""What keeps a policy within bounds: values that it may choose, meters to be believed, limits of rate and loss."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from trainer.config.replicas import largest_share
from trainer.config.values.control import JUDGE, Bounds, ControlSettings
from trainer.control.bottleneck import has_neighbour
from trainer.control.interval import Decision, Interval, Knobs, Value, score
from trainer.power.search import LADDER

_MOST_LOADERS = 16
"""Of one worker; beyond them threads take the interpreter's time from each other."""
_PREFETCH = (1, 2, 4, 8)
_FROZEN = 10
"""Intervals in a row with the same figure to the last bit, of a figure that is a quotient of measured times."""
_MEASURED = (
    *("device_use", "device_memory_share", "host_memory_share", "watts"),
    *("neighbour_cores", "cpu_wait_share"),
)
"""Figures that may be absent, but not all of a sudden."""
_COOL_DOWN = 20
"""Intervals that what was undone is left alone for; each further time twice as many, up to `_MOST_COOL_DOWN`."""
_MOST_COOL_DOWN = 1280
LOST_SHARE = 0.01
"""Of the time so far that trying may cost: with the try that goes beyond it, a run that was right stays within 2 %."""
MOST_FAILURES = 3
"""Of one knob, be it a policy's change or the judge's; after them it is left alone."""
_HOUR_SEC = 3600.0


class Machine(NamedTuple):
    """What the knobs of a run can be on its machines.

    Attributes:
        cores: of one node.
        local_workers: of one node; `workers` of all.
        group: images that a worker's share consists of.
        on_cpu: whether workers compute there.
        limit_watts: least power limit of the GPUs; None where nobody limits it. `power_floor` is the least share.
        fixed: knobs that cannot be turned now.
        refused: formats that its devices do not compute in, or the run cannot have, each with the reason.
        fatal: knob, value before and value of each change that a session of the run did not outlive.
    """

    cores: int
    local_workers: int = 1
    workers: int = 1
    group: int = 1
    on_cpu: bool = True
    limit_watts: float | None = None
    power_floor: float = 1.0
    fixed: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    fatal: tuple[tuple[str, Value, Value], ...] = ()


def allowed(
    settings: ControlSettings, start: Knobs, machine: Machine, history: Sequence[Interval]
) -> dict[str, tuple[Value, ...]]:
    """By knob, what it may be now, its present value among it; knobs without a choice are left out."""
    now = history[-1].after
    found: dict[str, tuple[Value, ...]] = {}
    for knob, values in ladders(settings.bounds, start, machine).items():
        here: Value = getattr(now, knob)
        if knob in machine.fixed or failures(history, knob) >= MOST_FAILURES:
            continue
        left = cooling(history, knob, values, machine.group) | _never(machine, knob, values, now)
        at_once = _at_once(knob, now, machine.workers, machine.group)
        if knob == "batch_gpu":  # nor more images at once than a worker has
            left |= {value for value in values if float(value) > float(at_once(0))}
        kept = tuple(value for value in _with(values, here, at_once) if value == here or value not in left)
        if len(kept) > 1:
            found[knob] = kept
    return found


def _with(values: Sequence[Value], here: Value, at_once: Callable[[Value], Value]) -> Sequence[Value]:
    """In their order, with the present one, which may be out of bounds, and none beside it that is the same."""
    if here in values or isinstance(here, str):
        return values if here in values else (*values, here)
    others = [value for value in values if at_once(value) != at_once(here)]
    return sorted([*others, here], key=lambda value: float(at_once(value)))


def ladders(bounds: Bounds, start: Knobs, machine: Machine) -> dict[str, Sequence[Value]]:
    """Every value within the bounds, knob by knob. Without bounds of their own, threads go up to the node's cores."""
    cores = max(1, machine.cores // machine.local_workers)
    least, most = bounds.loader_threads or (1, max(start.loader_threads, min(cores, _MOST_LOADERS)))
    found: dict[str, Sequence[Value]] = {"loader_threads": range(least, most + 1)}
    least, most = bounds.prefetch or (1, max(start.prefetch, *_PREFETCH))
    found["prefetch"] = sorted(each for each in {start.prefetch, *_PREFETCH} if least <= each <= most)
    if machine.on_cpu:
        least, most = bounds.threads or (1, max(start.threads, cores))
        found["threads"] = range(least, most + 1)
    if bounds.batch_size is not None:
        found["batch_size"] = [
            size for size in doubled(start.batch_size, *bounds.batch_size)
            if size % machine.group == 0 and size >= machine.workers * machine.group
        ]  # fmt: skip
    if bounds.batch_gpu is not None:
        first = start.batch_gpu or max(machine.group, start.batch_size // machine.workers)
        largest = max(start.batch_size, (bounds.batch_size or (0, 0))[1])
        share = largest_share(largest, machine.workers, machine.group)
        found["batch_gpu"] = [
            size for size in doubled(first, *bounds.batch_gpu) if size % machine.group == 0 and size <= share
        ]  # fmt: skip
    if bounds.precision:
        refused = dict(machine.refused)
        found["precision"] = [each for each in bounds.precision if each not in refused]
    if bounds.compile:
        found["compile"] = ("off", "on")
    if bounds.watts is not None and machine.limit_watts is not None:
        least_watts, most_watts = bounds.watts
        found["power_share"] = [
            share for share in sorted(LADDER)
            if share >= machine.power_floor and least_watts <= share * machine.limit_watts <= most_watts
        ]  # fmt: skip
    return found


def doubled(first: int, least: int, most: int) -> list[int]:
    """`first` times powers of two, whole numbers from least to most."""
    found, size = [first], first
    while size % 2 == 0 and size // 2 >= least:
        size //= 2
        found.insert(0, size)
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return [each for each in found if least <= each <= most]


def cooling(history: Sequence[Interval], knob: str, values: Sequence[Value], group: int) -> set[Value]:
    """Those of a knob's values that are left alone, and those beyond them: what was undone lately, the more often, the
    longer; and what a change that stayed has just left. Neither, where neighbours are there now and were not when it
    was made, or the other way round; but what was undone twice is left alone whoever is there.
    """
    undone, stayed = dict[tuple[Value, Value], list[int]](), dict[tuple[Value, Value], int]()
    tried = dict[tuple[Value, Value], int]()
    for number, each in enumerate(history):
        made = each.decision
        if made is None or made.knob != knob:
            continue
        value, was = map(_at_once(knob, each.knobs, each.workers, group), (made.value, made.was))
        if made.policy == JUDGE:
            undone.setdefault((value, was), []).append(number)
            stayed.pop((was, value), None)
        else:
            stayed[value, was] = tried[value, was] = number

    def is_as_then(place: int) -> bool:
        then, now = has_neighbour(history[place]), has_neighbour(history[-1])
        return then == now or None in (then, now)  # nobody knowing gives no leave

    cold = [
        pair for pair, places in undone.items()
        if len(history) - places[-1] < min(_COOL_DOWN * 2 ** (len(places) - 1), _MOST_COOL_DOWN)
        and (len(places) > 1 or is_as_then(tried.get(pair[::-1], places[-1])))
    ] + [
        pair for pair, place in stayed.items() if len(history) - place < _COOL_DOWN and is_as_then(place)
    ]  # fmt: skip
    at_once = _at_once(knob, history[-1].after, history[-1].workers, group)
    return {value for value in values for back, beyond in cold if _is_as_far(at_once(value), beyond, back)}


def _never(machine: Machine, knob: str, values: Sequence[Value], now: Knobs) -> set[Value]:
    """What ended a session once, and what is beyond it."""
    ended = [(was, tried) for name, was, tried in machine.fatal if name == knob]
    at_once = _at_once(knob, now, machine.workers, machine.group)
    return {value for value in values for was, tried in ended if _is_as_far(*map(at_once, (value, tried, was)))}


def _at_once(knob: str, knobs: Knobs, workers: int, group: int) -> Callable[[Value], Value]:
    """A knob's value as a number that others are compared with: `batch_gpu` 0 is a worker's whole share."""
    share = largest_share(knobs.batch_size, workers, group)
    return lambda value: share if knob == "batch_gpu" and value == 0 else value


def _is_as_far(value: Value, tried: Value, back: Value) -> bool:
    """Whether it is what was tried, or a number that is further from `back`, on the same side."""
    if isinstance(value, str) or isinstance(tried, str) or isinstance(back, str):
        return value == tried
    return value == tried or back < tried < value or value < tried < back


def failures(history: Sequence[Interval], knob: str) -> int:
    """How often an actuator has failed to turn a knob."""
    return sum(each.failed is not None and each.failed.knob == knob for each in history)


def mistrusted(history: Sequence[Interval], settings: ControlSettings, start: Knobs) -> str:
    """Why the last interval's figures are nothing to decide by; empty where they can be believed."""
    last = history[-1]
    if last.invalid:
        return "; ".join(last.invalid)
    for name in ("images_per_sec", "cpu_use", "watts"):
        values = [getattr(each, name) for each in history[-_FROZEN:]]
        if len(values) == _FROZEN and values[0] and len(set(values)) == 1:
            return f"{name} has been {values[0]:g} to the last bit for {_FROZEN} intervals: its meter stands still"
    for name in _MEASURED:
        had = [getattr(each, name) for each in history[-_FROZEN:]]
        if name == "cpu_wait_share":
            had = [value for value in had if value]  # 0 of a log from when nobody counting was written as 0
        if getattr(last, name) is None and any(value is not None for value in had):
            return f"{name} was measured, and is no more"
    if score(last, settings.objective, start.batch_size) is None:
        return f"there is no figure for {settings.objective}"
    return ""


def is_too_often(history: Sequence[Interval], settings: ControlSettings) -> bool:
    """Whether one change more would be too many. What may be made in an hour is 2.5 changes, say: so it is 3 in 1.2
    hours of training, and half a one is one in two hours. What was undone is not counted.
    """
    most = math.ceil(settings.decisions_per_hour)
    window_sec = _HOUR_SEC * most / settings.decisions_per_hour
    found, seconds = 0, 0.0
    for each in reversed(history):
        if seconds > window_sec:
            break
        found += each.decision is not None and each.decision.policy != JUDGE
        seconds += each.seconds
    return found >= most


def lost_sec(history: Sequence[Interval]) -> float:
    """Seconds that undone changes have cost: of what was trained with them, by how much it was slower."""
    lost = 0.0
    for place, each in enumerate(history):
        if each.decision is not None and each.decision.policy == JUDGE:
            since = next((number for number in reversed(range(place)) if history[number].decision is not None), 0)
            lost += sum(tried.seconds for tried in history[since + 1 : place + 1]) * max(
                0.0, each.decision.expected_gain
            )
    return lost


def lost_too_much(history: Sequence[Interval], settings: ControlSettings) -> str:
    """Why nothing may be tried any more, for now or for good; empty where it may."""
    lost, past = lost_sec(history), math.fsum(each.seconds for each in history)
    for limit, of_what in (
        (settings.lost_sec, "all that may be"),
        (LOST_SHARE * past, f"{LOST_SHARE:.0%} of the time"),
    ):
        if lost > limit:
            return f"{lost:.0f} s were lost by what was tried, more than {of_what}: {limit:.0f} s"
    return ""


def within(decision: Decision, values: dict[str, tuple[Value, ...]], now: Knobs) -> str:
    """Why a decision is none that a policy may make; empty where it is one."""
    if decision.value not in values.get(decision.knob, ()):
        return f"{decision.policy} wants {decision.knob} {decision.value}, which is out of bounds"
    if decision.value == getattr(now, decision.knob) or decision.was != getattr(now, decision.knob):
        return f"{decision.policy} wants {decision.knob} from {decision.was} to {decision.value}, which is no change"
    return ""
