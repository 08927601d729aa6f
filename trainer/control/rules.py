"""The policy `rules`: a bottleneck seen several times in a row decides the change."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from gangway.trainer.config.values.control import JUDGE
from gangway.trainer.control.interval import (
    Decision,
    Interval,
    Kind,
    Room,
    Value,
    bottleneck,
    efficiency,
    find_noise_scale,
    has_neighbour,
)
from gangway.trainer.control.judge import MOST_SLOWER

_IN_A_ROW = 2  # Intervals that must say the same before anything is done: one may be a hiccup
_FAR = 4.0
"""How far the batch may be from the gradient noise scale, as a factor, before it is changed: near it, half the images
or half the steps are what either way would save (McCandlish et al. 2018), and the scale is an estimate.
"""
_STARVED = 0.5  # Share of the time that steps wait for images, from which on one thread more is too little
_GAIN_OF_16_BITS, _GAIN_OF_POWER, _GAIN_OF_KERNELS = 0.2, 0.05, 0.1
"""Expected of another number format, of a lower power limit and of torch's own kernels: what a try is worth, no
promise.
"""

Rule = Callable[[Sequence[Interval], Room], Decision | None]


class Rules:
    """See the module."""

    name = "rules"

    def decide(self, history: Sequence[Interval], room: Room) -> Decision | None:
        """See `gangway.trainer.control.interval.Policy`."""
        recent = history[-_IN_A_ROW:]
        if any(each.invalid for each in recent):
            return None
        kinds = {bottleneck(each).kind for each in recent}
        if len(recent) < _IN_A_ROW or len(kinds) > 1 or len({each.knobs for each in recent}) > 1:
            return None
        rules = (_BY_KIND.get(kinds.pop()), _neighbour_gone, _batch, _format, _uncompiled, _power)
        return next((found for rule in rules if rule is not None and (found := rule(history, room))), None)


def _loader_threads(history: Sequence[Interval], room: Room) -> Decision | None:
    last = history[-1]
    for knob in ("loader_threads", "prefetch"):
        value = _next(last, room, knob, up=True)
        if value is not None:
            if last.loader_share >= _STARVED:
                twice = [each for each in room.allowed[knob] if float(each) <= 2 * float(getattr(last.after, knob))]
                value = max(value, *twice, key=float)
            gain = min(1.0, last.loader_share / 2)
            return _decision(last, knob, value, f"{bottleneck(last).evidence}", gain, "images/s do not rise")
    return None


def _fewer_threads(history: Sequence[Interval], room: Room) -> Decision | None:
    last = history[-1]
    now, others = last.knobs.threads, last.neighbour_cores or 0.0
    each = max(1, last.workers // max(1, last.knobs.nodes))
    left = now - 1
    if has_neighbour(last):
        left = max(1, min(left, int((last.cores - others) / last.workers + 0.5)))
    fewer = [int(value) for value in room.allowed.get("threads", ()) if int(value) < now]
    if fewer and left < now:
        value = max([value for value in fewer if value <= left] or [fewer[0]])
        reason = f"{bottleneck(last).evidence}: {now} threads of each of {each} worker(s) a node wait for one another"
        return _decision(last, "threads", value, reason, last.cpu_wait_share or 0.0, "images/s do not rise")
    loaders = _next(last, room, "loader_threads", up=False)
    if loaders is not None and not has_neighbour(last) and last.loader_share < 0.01:
        return _decision(last, "loader_threads", loaders, bottleneck(last).evidence, 0.02, "steps wait for images")
    return None


def _neighbour_gone(history: Sequence[Interval], room: Room) -> Decision | None:
    last, before = history[-1], _threads_before_neighbour(history)
    # Nobody knowing is not their absence.
    are_gone = all(has_neighbour(each) is False for each in history[-_IN_A_ROW:])
    if before is None or last.knobs.threads >= before or not are_gone:
        return None
    if before not in room.allowed.get("threads", ()):
        return None
    others = f"others use {last.neighbour_cores or 0.0:.1f} cores now"
    reason = f"{others}, and a worker had {before} threads before they came"
    return _decision(last, "threads", before, reason, 0.1, "images/s do not rise")


def _threads_before_neighbour(history: Sequence[Interval]) -> int | None:
    found, is_undone = None, False
    for each in reversed(history):
        made = each.decision
        if made is None or made.knob != "threads":
            continue
        if made.policy == JUDGE or is_undone:  # What was undone, and its undoing, are as if neither had been.
            is_undone = made.policy == JUDGE
            continue
        if float(made.value) >= float(made.was) or not has_neighbour(each):
            break
        found = int(made.was)
    return found


def _more_threads(history: Sequence[Interval], room: Room) -> Decision | None:
    last = history[-1]
    value = _next(last, room, "threads", up=True)
    if value is None or not room.on_cpu:
        return None
    used = last.cpu_use * last.cores + (last.neighbour_cores or 0.0)
    wanted = (int(value) - last.knobs.threads) * last.workers
    if last.cores - used < 0.8 * wanted:
        return None
    reason = f"{last.cores - used:.1f} of {last.cores} cores are idle, and each worker computes on {last.knobs.threads}"
    return _decision(last, "threads", value, reason, 0.3, "images/s do not rise")


def _less_memory(history: Sequence[Interval], room: Room) -> Decision | None:
    last = history[-1]
    sizes = [int(value) for value in room.allowed.get("batch_gpu", ()) if int(value)]
    share = last.knobs.batch_gpu or last.knobs.batch_size // last.workers
    smaller = [size for size in sizes if size < share]
    if not smaller:
        return None
    reason = f"{bottleneck(last).evidence}, and a worker takes {share} images at once"
    undone_if = f"it frees no memory, or costs more than {MOST_SLOWER:.0%} of the images/s"
    return _decision(last, "batch_gpu", smaller[-1], reason, 0.0, undone_if)


def _batch(history: Sequence[Interval], room: Room) -> Decision | None:
    last = history[-1]
    size = last.knobs.batch_size
    estimates = [each for each in history if each.noise_scale is not None and each.knobs == last.knobs]
    noise = find_noise_scale(estimates)
    if noise is None or len(estimates) < _IN_A_ROW or "batch_size" not in room.allowed:
        return None
    up = noise >= _FAR * size
    value = _next(last, room, "batch_size", up=up) if up or noise * _FAR <= size else None
    if value is None:
        return None
    base = room.start.batch_size
    gain = 0.1 if up else efficiency(noise, int(value), base) / efficiency(noise, size, base) - 1
    more = "more images a step cost little progress" if up else "fewer images a step make more progress by each"
    reason = f"the gradient noise scale is about {noise:,.0f} images, the batch {size:,}: {more}"
    return _decision(last, "batch_size", value, reason, gain, "goodput does not rise, or the guard metric worsens")


def _format(history: Sequence[Interval], room: Room) -> Decision | None:
    last = history[-1]
    if last.knobs.precision != "fp32" or "bf16" not in room.allowed.get("precision", ()):
        return None
    if bottleneck(last).kind is not Kind.DEVICE:
        return None
    reason = f"{bottleneck(last).evidence}, and bf16 is allowed"
    return _decision(last, "precision", "bf16", reason, _GAIN_OF_16_BITS, "images/s do not rise, or the guard worsens")


def _uncompiled(history: Sequence[Interval], room: Room) -> Decision | None:
    last = history[-1]
    if last.after.compile != "on" or "off" not in room.allowed.get("compile", ()) or not room.on_cpu:
        return None
    reason = f"{bottleneck(last).evidence}, and compiled losses are not always the faster ones on a CPU"
    return _decision(last, "compile", "off", reason, _GAIN_OF_KERNELS, "images/s do not rise")


def _power(history: Sequence[Interval], room: Room) -> Decision | None:
    last = history[-1]
    value = _next(last, room, "power_share", up=False)
    if room.objective not in ("energy", "carbon") or value is None or last.watts is None:
        return None
    speed = f"{last.watts:,.0f} W make {last.images_per_sec:,.0f} images/s"
    reason = f"{speed}: fewer watts often cost less than their share"
    return _decision(last, "power_share", value, reason, _GAIN_OF_POWER, "images/J do not rise")


_BY_KIND: Mapping[Kind, Rule] = MappingProxyType(
    {
        Kind.DATA: _loader_threads,
        Kind.HOST: _fewer_threads,
        Kind.MEMORY: _less_memory,
        Kind.DEVICE: _more_threads,
        Kind.WAITING: _more_threads,
    }
)


def _next(last: Interval, room: Room, knob: str, *, up: bool) -> Value | None:
    now = float(getattr(last.after, knob))
    beyond = [value for value in room.allowed.get(knob, ()) if (float(value) > now if up else float(value) < now)]
    return None if not beyond else beyond[0] if up else beyond[-1]


def _decision(last: Interval, knob: str, value: Value, reason: str, gain: float, undone_if: str) -> Decision:
    return Decision(knob, value, getattr(last.after, knob), Rules.name, reason, gain, undone_if)
