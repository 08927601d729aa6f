"""Limits of a policy: the values that it may choose, trust in meters, limits of rate and loss."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from gangway.trainer.config.parts.rules import largest_share
from gangway.trainer.config.values.control import JUDGE, Bounds, ControlSettings
from gangway.trainer.control.interval import Decision, Interval, Knobs, Value, has_neighbour, score
from gangway.trainer.power.limits import LADDER

_MOST_LOADERS = 16  # Of one worker; more threads compete for the interpreter lock
_PREFETCH = (1, 2, 4, 8)
_FROZEN = 10  # Intervals with a bit-identical figure after which its meter counts as broken
# Figures that may be absent, but not disappear.
_MEASURED = ("device_use", "device_memory_share", "host_memory_share", "watts", "neighbour_cores", "cpu_wait_share")
_COOL_DOWN = 20  # Intervals in which an undone value is not retried; doubled each time, up to `_MOST_COOL_DOWN`
_MOST_COOL_DOWN = 1280
LOST_SHARE = 0.01
"""Share of the time so far that failed changes may cost: with the last one, a well-tuned run stays within 2 %."""
MOST_FAILURES = 3  # Failures of one knob, by policy or judge, after which it is not touched again
_HOUR_SEC = 3600.0


class Machine(NamedTuple):
    """What limits the knobs on a run's machines."""

    cores: int  # of one node
    local_workers: int = 1  # of one node; `workers` of all
    workers: int = 1
    group: int = 1  # images; a worker's share is a multiple of it
    on_cpu: bool = True
    # least power limit of the GPUs; None without a limiter. `power_floor` is the least share
    limit_watts: float | None = None
    power_floor: float = 1.0
    fixed: tuple[str, ...] = ()  # knobs that cannot be turned now
    refused: tuple[tuple[str, str], ...] = ()  # unsupported number formats, each with the reason
    fatal: tuple[tuple[str, Value, Value], ...] = ()  # knob, old value and value of each fatal change


def allowed_values(
    settings: ControlSettings, start: Knobs, machine: Machine, history: Sequence[Interval]
) -> dict[str, tuple[Value, ...]]:
    """Returns, by knob, its possible values including the current one; knobs without a choice are omitted."""
    now = history[-1].after
    found: dict[str, tuple[Value, ...]] = {}
    for knob, values in ladders(settings.bounds, start, machine).items():
        here: Value = getattr(now, knob)
        if knob in machine.fixed or failures(history, knob) >= MOST_FAILURES:
            continue
        as_number = _get_ordinal(knob, now, machine.workers, machine.group)
        ended = [(as_number(tried), as_number(was)) for name, was, tried in machine.fatal if name == knob]
        excluded = cooling(history, knob, values, machine.group)
        excluded |= {value for value in values for pair in ended if _is_at_least(as_number(value), *pair)}
        if knob == "batch_gpu":  # nor more images at once than a worker has
            excluded |= {value for value in values if float(value) > float(as_number(0))}
        choices = tuple(
            value for value in _insert_current(values, here, as_number) if value == here or value not in excluded
        )
        if len(choices) > 1:
            found[knob] = choices
    return found


def _insert_current(values: Sequence[Value], here: Value, as_number: Callable[[Value], Value]) -> Sequence[Value]:
    if here in values or isinstance(here, str):
        return values if here in values else (*values, here)
    others = [value for value in values if as_number(value) != as_number(here)]
    return sorted([*others, here], key=lambda value: float(as_number(value)))


def ladders(bounds: Bounds, start: Knobs, machine: Machine) -> dict[str, Sequence[Value]]:
    """Returns every value within the bounds, by knob; unbounded threads go up to the node's cores."""
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
    """Returns values not to retry yet, and those beyond; none where neighbours changed, unless it was undone twice."""
    undone, stayed = dict[tuple[Value, Value], list[int]](), dict[tuple[Value, Value], int]()
    tried = dict[tuple[Value, Value], int]()
    for number, each in enumerate(history):
        made = each.decision
        if made is None or made.knob != knob:
            continue
        value, was = map(_get_ordinal(knob, each.knobs, each.workers, group), (made.value, made.was))
        if made.policy == JUDGE:
            undone.setdefault((value, was), []).append(number)
            stayed.pop((was, value), None)
        else:
            stayed[value, was] = tried[value, was] = number

    def is_as_then(place: int) -> bool:
        then, now = has_neighbour(history[place]), has_neighbour(history[-1])
        return then == now or None in (then, now)  # unknown counts as the same

    cold = [
        pair for pair, places in undone.items()
        if len(history) - places[-1] < min(_COOL_DOWN * 2 ** (len(places) - 1), _MOST_COOL_DOWN)
        and (len(places) > 1 or is_as_then(tried.get(pair[::-1], places[-1])))
    ] + [
        pair for pair, place in stayed.items() if len(history) - place < _COOL_DOWN and is_as_then(place)
    ]  # fmt: skip
    as_number = _get_ordinal(knob, history[-1].after, history[-1].workers, group)
    return {value for value in values for back, beyond in cold if _is_at_least(as_number(value), beyond, back)}


def _get_ordinal(knob: str, knobs: Knobs, workers: int, group: int) -> Callable[[Value], Value]:
    """Maps a knob's values to comparable numbers: `batch_gpu` 0 is a worker's whole share."""
    share = largest_share(knobs.batch_size, workers, group)
    return lambda value: share if knob == "batch_gpu" and value == 0 else value


def _is_at_least(value: Value, tried: Value, back: Value) -> bool:
    if isinstance(value, str) or isinstance(tried, str) or isinstance(back, str):
        return value == tried
    return value == tried or back < tried < value or value < tried < back


def failures(history: Sequence[Interval], knob: str) -> int:
    """Counts how often a knob could not be turned."""
    return sum(each.failed is not None and each.failed.knob == knob for each in history)


def distrust_reason(history: Sequence[Interval], settings: ControlSettings, start: Knobs) -> str:
    """Returns why the last interval's figures cannot be trusted; empty where they can."""
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
            had = [value for value in had if value]  # older logs wrote 0 where the kernel did not count
        if getattr(last, name) is None and any(value is not None for value in had):
            return f"{name} was measured, and is no more"
    if score(last, settings.objective, start.batch_size) is None:
        return f"there is no figure for {settings.objective}"
    return ""


def is_too_often(history: Sequence[Interval], settings: ControlSettings) -> bool:
    """Whether another change exceeds the rate: 2.5 an hour means 3 in 1.2 hours. The judge's changes do not count."""
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
    """Returns the seconds that undone changes cost: their time times their slowdown."""
    lost = 0.0
    for place, each in enumerate(history):
        if each.decision is not None and each.decision.policy == JUDGE:
            since = next((number for number in reversed(range(place)) if history[number].decision is not None), 0)
            tried_sec = sum(tried.seconds for tried in history[since + 1 : place + 1])
            lost += tried_sec * max(0.0, each.decision.expected_gain)
    return lost


def loss_reason(history: Sequence[Interval], settings: ControlSettings) -> str:
    """Returns why no more changes may be tried; empty where they may."""
    lost, past = lost_sec(history), math.fsum(each.seconds for each in history)
    limits = (settings.lost_sec, "all that may be"), (LOST_SHARE * past, f"{LOST_SHARE:.0%} of the time")
    for limit, of_what in limits:
        if lost > limit:
            return f"{lost:.0f} s were lost by what was tried, more than {of_what}: {limit:.0f} s"
    return ""


def refusal_reason(decision: Decision, values: dict[str, tuple[Value, ...]], now: Knobs) -> str:
    """Returns why a policy's decision is not allowed; empty where it is."""
    if decision.value not in values.get(decision.knob, ()):
        return f"{decision.policy} wants {decision.knob} {decision.value}, which is out of bounds"
    if decision.value == getattr(now, decision.knob) or decision.was != getattr(now, decision.knob):
        return f"{decision.policy} wants {decision.knob} from {decision.was} to {decision.value}, which is no change"
    return ""


_CLUSTER_BOUNDS: Mapping[str, str] = MappingProxyType({"nodes": "", "usd_per_hour": ", and keeps to it"})


def idle_bounds(bounds: Bounds, start: Knobs, machine: Machine) -> Iterator[tuple[str, str]]:
    """Yields each field of the bounds that a session with these knobs cannot fully use, and why."""
    found = ladders(bounds, start, machine)
    for name in sorted(bounds.model_fields_set):
        if not getattr(bounds, name):
            continue
        knob = "power_share" if name == "watts" else name
        if name in _CLUSTER_BOUNDS:
            more = _CLUSTER_BOUNDS[name]
            yield (
                name,
                f"ignored: a run starts and stops no nodes, and asks for none; job.autoscale of a stack does{more}",
            )
        elif knob in machine.fixed:
            yield name, "ignored: it cannot be changed in this session"
        elif knob not in found:
            nobody = "nobody limits the power of its devices here"
            yield name, f"ignored: {nobody if name == 'watts' else 'operators run on the device, and not on a CPU'}"
        elif name == "watts":
            yield from _watts(bounds, machine, found[knob])
        elif name == "precision":
            left_out = [f"{each} is left out: {why}" for each, why in machine.refused if each in bounds.precision]
            if left_out:
                yield name, "; ".join(left_out)
            elif set(found[knob]) <= {start.precision}:
                yield name, f"ignored: there is no format in it but {start.precision} itself"
        elif name != "compile":
            yield from _numbers(name, bounds, start, machine, found[knob])


def _watts(bounds: Bounds, machine: Machine, shares: Sequence[Value]) -> Iterator[tuple[str, str]]:
    assert bounds.watts is not None and machine.limit_watts is not None, "else there were no shares"  # noqa: PT018
    (least, most), limit = bounds.watts, machine.limit_watts
    can = f"from {machine.power_floor * limit:.0f} to {limit:.0f} W, in tenths of {limit:.0f}"
    if not shares:
        yield "watts", f"ignored: no limit from {least:g} to {most:g} W is one that every GPU can have, {can}"
    elif most > limit or least < machine.power_floor * limit:
        yield "watts", f"what the GPUs cannot have of it is ignored: they can have {can}"


def _numbers(
    name: str, bounds: Bounds, start: Knobs, machine: Machine, values: Sequence[Value]
) -> Iterator[tuple[str, str]]:
    least, most = getattr(bounds, name)
    now = getattr(start, name)
    if name == "batch_gpu":
        share = largest_share(start.batch_size, machine.workers, machine.group)
        now = now or share
        if bounds.batch_size is None and most > share:
            yield name, f"what is above a worker's share of the batch, {share} images, is ignored"
    # A single value is useful for a knob that would vary without bounds: it fixes it.
    if all(value == now for value in values) and (least < most or "batch" in name):
        groups = f", and whole groups of {machine.group} images" if machine.group > 1 and "batch" in name else ""
        steps = f"powers of two times or parts of {now}{groups}" if "batch" in name else "its steps"
        yield name, f"ignored: there is no value from {least} to {most} but {now} itself: {steps} are tried"
    elif not least <= now <= most:
        yield name, f"the run begins with {now}, outside of {least} to {most}: there is no way back to that"
