"""The policy `model`: fits a step's time, and makes the change of most goodput (Pollux, Qiao et al. 2021)."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangway.trainer.config.values.control import UNITS
from gangway.trainer.control.interval import Decision, Interval, Knobs, Room, Value, find_noise_scale, score

Vector = NDArray[np.float64]

_NUM_FITTED = 200  # Intervals that are fitted
_HALF_LIFE = 30.0  # Intervals after which one counts half: machines and networks change
_BUSY_PRIOR = (0.2, 0.05, 0.25, 0.5, 0.3)
"""Shares of a step's work before anything but the present setting was seen; see `_work`. They are what makes a first
try of a knob look worth it or not, and count as much as a few intervals.
"""
_DATA_PRIOR = (0.95, 0.05)  # Shares of reading images that loader threads divide, and that they do not
_WATTS_PRIOR = (0.4, 0.6)  # Shares of power that an idle device takes, and that grow with its work
_PRIOR_WEIGHT = 0.3
_DATA_BOUND = 0.03  # Share of time waited for images from which a step lasts as long as reading does
_UNREAD = 0.5  # Share of a step that reading is taken to last where no step has waited for it
_HALF_PRECISION = 0.6
"""Time of an image in 16 bits on a GPU, in that of 32, before it was tried; on a CPU nothing is expected of it."""
_POWER = -1 / 3  # Dynamic power grows with the cube of a clock, so that time grows with this power of the limit


class Forecast(NamedTuple):
    """A setting's forecast on the current machine."""

    step_sec: float
    busy_sec: float


class StepModel:
    """Seconds of a step: the longer of reading and work.

        reading = images * (divided / loader threads + undivided)
        work = passes * fixed + sync + images * (serial + parallel / cores in use + crowding * threads without a core)

    with images, threads and cores of one worker. Both sums are fitted apart: a step that waited for images tells
    how long both took. What the same setting really took corrects the fit. `on_cpu`: workers compute there.
    """

    def __init__(self, history: Sequence[Interval], *, on_cpu: bool) -> None:
        self._last, self._on_cpu = history[-1], on_cpu
        weights = 0.5 ** (np.arange(len(history))[::-1] / _HALF_LIFE)
        steps = np.array([each.knobs.batch_size / each.images_per_sec for each in history])
        waits = np.array([min(each.loader_share, 0.99) for each in history])
        work = np.array([_work(each.knobs, each, on_cpu=on_cpu) for each in history])
        reading = np.array([_reading(each.knobs, each) for each in history])

        unseen = (1.0, 1.0, 1.0, 1.0, _local(self._last.knobs, self._last)[1])  # Crowding is of images, sync of steps.
        self._work = _fitted(work, steps * (1 - waits), weights, _BUSY_PRIOR, unseen=unseen)
        waited = waits > _DATA_BOUND
        total = 1.0 if waited[-1] else _UNREAD
        self._reading = _fitted(reading, steps, weights * waited, _DATA_PRIOR, total)
        # Steps that did not wait say only that reading took no longer: they count where the fit says otherwise.
        waited |= reading @ self._reading > steps
        self._reading = _fitted(reading, steps, weights * waited, _DATA_PRIOR, total)

        fitted = np.maximum(work @ self._work, reading @ self._reading)
        self._errors: dict[Knobs, tuple[float, float]] = {}
        for each, weight, error in zip(history, weights, np.log(steps / fitted), strict=True):
            count, total = self._errors.get(each.knobs, (0.0, 0.0))
            self._errors[each.knobs] = (count + float(weight), total + float(weight * error))

    def forecast(self, knobs: Knobs) -> Forecast:
        """Returns a setting's step and busy seconds with the last interval's workers, cores and neighbours."""
        busy = float(_work(knobs, self._last, on_cpu=self._on_cpu) @ self._work)
        reading = float(_reading(knobs, self._last) @ self._reading)
        count, total = self._errors.get(knobs, (0.0, 0.0))
        factor = math.exp(total / (count + _PRIOR_WEIGHT))
        return Forecast(max(busy, reading) * factor, min(busy, max(busy, reading)) * factor)


class Model:
    """Makes the change that a `StepModel` values most, if above `threshold`, a share of the objective.

    Values count once a neighbouring one was seen. The batch changes only where the noise scale is known; prefetch
    never, as means do not show its effect.
    """

    name = "model"

    def __init__(self, threshold: float = 0.03) -> None:
        self._threshold = threshold

    def decide(self, history: Sequence[Interval], room: Room) -> Decision | None:
        """See `Policy`."""
        if history[-1].invalid:
            return None
        # Networks that have grown take another time for everything.
        alike = (each for each in history if each.resolution == history[-1].resolution)
        known = [each for each in alike if not each.invalid][-_NUM_FITTED:]
        last, noise = known[-1], find_noise_scale(known)
        present = last.after
        model, watts = StepModel(known, on_cpu=room.on_cpu), _Watts(known)

        def expected(knobs: Knobs) -> float | None:
            forecast = model.forecast(knobs)
            nodes = knobs.nodes / last.knobs.nodes
            made = last._replace(
                knobs=knobs,
                images_per_sec=knobs.batch_size / forecast.step_sec,
                noise_scale=noise,
                watts=watts.of(knobs, forecast),
                usd_per_hour=None if last.usd_per_hour is None else last.usd_per_hour * nodes,
            )
            return score(made, room.objective, room.start.batch_size)

        now = expected(present)
        if not now:
            return None
        best: tuple[float, str, Value] | None = None
        for knob, value in _choices(known, room, present, noise is not None):
            then = expected(present.with_value(knob, value))
            if then is not None and (best is None or then > best[0]):
                best = then, knob, value
        if best is None or best[0] < now * (1 + self._threshold):
            return None
        return self._decision(best, now, known, room)

    def _decision(self, best: tuple[float, str, Value], now: float, known: Sequence[Interval], room: Room) -> Decision:
        then, knob, value = best
        gain, unit = then / now - 1, UNITS[room.objective]
        tried = any(getattr(each.knobs, knob) == value for each in known)
        return Decision(
            knob=knob,
            value=value,
            was=getattr(known[-1].after, knob),
            policy=self.name,
            reason=f"the fitted model expects {then:.4g} {unit} of the first batch's worth, now {now:.4g} "
            f"({gain:+.0%}); {knob} {value} {'was tried before' if tried else 'is new to it'}; "
            f"steps wait {known[-1].loader_share:.0%} for images",
            expected_gain=gain,
            undone_if=f"less than {then:.4g} {unit} by so much that it does not pay",
        )


class _Watts:
    """Power of all devices: idle + moving * share of time at work * power limit, on each node."""

    def __init__(self, history: Sequence[Interval]) -> None:
        known = [(each, each.watts) for each in history if each.watts]
        self._fit: Vector | None = None
        if known:
            work = np.array([_moving(each.knobs, 1 - min(each.loader_share, 0.99)) for each, _ in known])
            per_node = np.array([watts / each.knobs.nodes for each, watts in known])
            weights = 0.5 ** (np.arange(len(known))[::-1] / _HALF_LIFE)
            self._fit = _fitted(work, per_node, weights, _WATTS_PRIOR)

    def of(self, knobs: Knobs, forecast: Forecast) -> float | None:
        if self._fit is None:
            return None
        return float(_moving(knobs, forecast.busy_sec / forecast.step_sec) @ self._fit) * knobs.nodes


def _moving(knobs: Knobs, busy: float) -> Vector:
    return np.array([1.0, busy * knobs.power_share])


def _local(knobs: Knobs, seen: Interval) -> tuple[float, float]:
    workers = seen.workers * knobs.nodes / seen.knobs.nodes
    return workers, knobs.batch_size / workers


def _work(knobs: Knobs, seen: Interval, *, on_cpu: bool) -> Vector:
    workers, images = _local(knobs, seen)
    passes = math.ceil(images / knobs.batch_gpu) if knobs.batch_gpu else 1
    if not on_cpu:  # A GPU's work does not hang on the host's threads.
        images *= knobs.power_share**_POWER * (1.0 if knobs.precision == "fp32" else _HALF_PRECISION)
        return np.array([passes, workers > 1, images, images, 0.0], dtype=np.float64)
    free = max(0.5, (seen.cores - (seen.neighbour_cores or 0.0)) / seen.workers)
    crowding = max(0.0, knobs.threads - free) / free
    return np.array([passes, workers > 1, images, images / min(knobs.threads, free), images * crowding])


def _reading(knobs: Knobs, seen: Interval) -> Vector:
    _, images = _local(knobs, seen)
    return np.array([images / knobs.loader_threads, images])


def _fitted(
    parts: Vector,
    seconds: Vector,
    weights: Vector,
    prior: Sequence[float],
    total: float = 1.0,
    unseen: Sequence[float] = (1.0,),
) -> Vector:
    """Fits each part's cost, at least 0, by least squared relative error.

    `prior` are the parts' shares of the last row's seconds, `total` in all: a few intervals outweigh them. A part
    missing in the last row costs its share when done `unseen` times.
    """
    reference = np.where(parts[-1] > 0, parts[-1], unseen)
    units = seconds[-1] / reference
    means = np.array(prior)
    means[parts[-1] > 0] *= total / means[parts[-1] > 0].sum()
    rows = parts * units / seconds[:, None]
    inner = rows.T @ (weights[:, None] * rows) + _PRIOR_WEIGHT**2 * np.eye(len(prior))
    target = rows.T @ weights + _PRIOR_WEIGHT**2 * means
    found = means.copy()
    for _ in range(200):  # Coordinate descent: the sum is strictly convex, thanks to the prior.
        for part in range(len(prior)):
            rest = target[part] - inner[part] @ found + inner[part, part] * found[part]
            found[part] = max(0.0, rest / inner[part, part])
    return np.asarray(found * units, dtype=np.float64)


def _choices(history: Sequence[Interval], room: Room, present: Knobs, knows_noise: bool) -> Iterator[tuple[str, Value]]:
    """Yields allowed values, at most one step from one that was seen."""
    # Of reading that no step waits for it is known that it is short enough, and no more.
    reads = [each.loader_share for each in history if each.knobs == present]
    is_read_soon = bool(reads) and max(reads) <= _DATA_BOUND
    for knob, values in room.allowed.items():
        if knob == "prefetch" or {"batch_size": not knows_noise, "loader_threads": is_read_soon}.get(knob):
            continue
        now = getattr(present, knob)
        seen = {getattr(each.knobs, knob) for each in history} | {now}
        for place, value in enumerate(values):
            if value != now and seen.intersection(values[max(0, place - 1) : place + 2]):
                yield knob, value
