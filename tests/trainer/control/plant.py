"""A small model of a training machine, and a closed loop with a simple judge, for tests of policies."""

import functools
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from hypothesis import strategies as st

from trainer.config.control import Objective
from trainer.control.interval import Decision, Interval, Knobs, Value, score
from trainer.control.policy import Allowed, Policy, Room

SECONDS = 10.0
PATIENCE = 2
MIN_GAIN = 0.02
BANNED = 20
"""Intervals that an undone value is left out."""
Watched = tuple[Decision, float]
"""A decision that waits to be judged, and the score before it."""


@dataclass(frozen=True)
class Plant:
    """A machine without a GPU. Seconds are of one image and one thread, or of one step (`fixed_sec`)."""

    decode_sec: float = 0.002
    image_sec: float = 0.008
    serial_sec: float = 0.001
    fixed_sec: float = 0.05
    noise_scale: float | None = 2000.0
    cores: int = 4
    neighbour: tuple[int, int, float] = (0, 0, 0.0)
    """From which interval to which one a neighbour takes so many cores."""
    jitter: float = 0.005
    seed: int = 0

    def interval(self, knobs: Knobs, number: int, images: int = 0, jitter: float | None = None) -> Interval:
        """What training with such knobs measures."""
        first, end, taken = self.neighbour
        neighbours = taken if first <= number < end else 0.0
        free = self.cores - neighbours
        crowd = max(0.0, knobs.threads - free) / free
        at_once = min(knobs.threads, free) / (1 + crowd)
        busy = self.fixed_sec + knobs.batch_size * (self.serial_sec + self.image_sec / at_once)
        reading = knobs.batch_size * self.decode_sec / min(knobs.loader_threads, free)
        step = max(busy, reading)
        drawn = np.random.default_rng([self.seed, number]).normal(0.0, self.jitter if jitter is None else jitter)
        per_sec = knobs.batch_size / step * float(np.exp(drawn))
        return Interval(
            images=images + round(per_sec * SECONDS),
            seconds=SECONDS,
            images_per_sec=per_sec,
            knobs=knobs,
            loader_share=1 - busy / step,
            cpu_use=min(1.0, (knobs.threads + neighbours) / self.cores),
            cpu_wait_share=crowd / (1 + crowd),
            neighbour_cores=neighbours,
            cores=self.cores,
            watts=60.0 + 40.0 * busy / step,
            usd_per_hour=0.5 * knobs.nodes,
            g_per_kwh=300.0,
            noise_scale=self.noise_scale,
        )

    def score(self, knobs: Knobs, room: Room, number: int = 0) -> float:
        """Of a setting, without jitter."""
        found = score(self.interval(knobs, number, jitter=0.0), room.objective, room.start.batch_size)
        assert found is not None
        return found


ALLOWED: Mapping[str, Sequence[Value]] = {
    "batch_size": (32, 64, 128, 256, 512),
    "loader_threads": (1, 2, 3, 4),
    "prefetch": (1, 2, 4),
    "threads": (1, 2, 3, 4),
}


def room(start: Knobs, objective: Objective = "time", seed: int = 0, allowed: Allowed = ALLOWED) -> Room:
    """All that a test allows."""
    return Room(allowed, objective, start, seed)


def run(policy: Policy, plant: Plant, intervals: int, room: Room) -> list[Interval]:
    """A run's history: the policy decides, a judge undoes what brings less than 2 %, and such values rest a while."""
    history: list[Interval] = []
    knobs, images, watched = room.start, 0, None
    banned: dict[tuple[str, Value], int] = {}
    since = 0
    for number in range(intervals):
        now = plant.interval(knobs, number, images)
        history.append(now)
        since += 1
        decision: Decision | None = None
        if watched is not None and since >= PATIENCE:
            decision = _undo(watched, history, room)
            if decision is not None:
                banned[decision.knob, decision.was] = number + BANNED
            watched = None
        elif watched is None:
            decision = policy.decide(history, _now(room, knobs, banned, number))
            if decision is not None:
                before = _mean_score(history[-min(PATIENCE, since) :], room)
                watched = (decision, before)
        if decision is not None:
            history[-1] = now._replace(decision=decision)
            knobs, since = history[-1].after, 0
        images = now.images
    return history


def made(plant: Plant, history: Sequence[Interval], room: Room) -> float:
    """What a history made, beside what the start would have made in as many intervals without jitter."""
    scores = [plant.score(each.knobs, room, number) for number, each in enumerate(history)]
    return sum(scores) / sum(plant.score(room.start, room, number) for number in range(len(history)))


def kept(plant: Plant, history: Sequence[Interval], room: Room) -> float:
    """The median score of the last settings, without jitter: one of them may be a trial."""
    last = list(enumerate(history))[-9:]
    return statistics.median(plant.score(each.knobs, room, number) for number, each in last)


def best_score(plant: Plant, room: Room, number: int = 0) -> float:
    """The most that any allowed setting scores."""
    settings = itertools.product(*room.allowed.values())
    asked = (_turned(room.start, dict(zip(room.allowed, values, strict=True))) for values in settings)
    return max(plant.score(knobs, room, number) for knobs in asked)


def _turned(knobs: Knobs, values: Mapping[str, Value]) -> Knobs:
    return functools.reduce(lambda now, each: now.turned(*each), values.items(), knobs)


def _undo(watched: Watched, history: Sequence[Interval], room: Room) -> Decision | None:
    decision, before = watched
    gain = _mean_score(history[-PATIENCE:], room) / before - 1
    if gain >= MIN_GAIN:
        return None
    return Decision(decision.knob, decision.was, decision.value, "judge", f"it brought {gain:+.1%}", -gain, "nothing")


def _mean_score(history: Sequence[Interval], room: Room) -> float:
    found = [score(each, room.objective, room.start.batch_size) for each in history]
    return sum(each for each in found if each is not None) / len(found)


def _now(room: Room, knobs: Knobs, banned: Mapping[tuple[str, Value], int], number: int) -> Room:
    allowed = {
        knob: tuple(
            each for each in values if each == getattr(knobs, knob) or banned.get((knob, each), number) <= number
        )
        for knob, values in room.allowed.items()
    }
    return room._replace(allowed=allowed)


DATA_BOUND = Plant(decode_sec=0.01), Knobs(batch_size=128, loader_threads=1, threads=4)
BATCH_TOO_SMALL = Plant(noise_scale=2000.0), Knobs(batch_size=32, loader_threads=2, threads=4)
BATCH_TOO_LARGE = Plant(noise_scale=60.0), Knobs(batch_size=512, loader_threads=2, threads=4)
RIGHT = Plant(noise_scale=1000.0), Knobs(batch_size=128, loader_threads=2, threads=4)

EVERY_KNOB: Mapping[str, Sequence[Value]] = {
    "batch_size": (32, 64, 128),
    "batch_gpu": (0, 16, 32),
    "precision": ("bf16", "fp16", "fp32"),
    "loader_threads": (1, 2, 3),
    "prefetch": (1, 2, 4),
    "threads": (1, 2),
    "power_share": (0.6, 0.8, 1.0),
    "nodes": (1, 2, 3),
}


Shown = tuple[list[Interval], Room]


def _share() -> st.SearchStrategy[float]:
    return st.floats(0.0, 1.0)


@st.composite
def _intervals(draw: st.DrawFn, knobs: Knobs, number: int) -> Interval:
    maybe = st.none() | st.floats(0.1, 1e4)
    return Interval(
        images=1000 * (number + 1),
        seconds=draw(st.floats(1.0, 100.0)),
        images_per_sec=draw(st.just(0.0) | st.floats(1e-3, 1e5)),
        knobs=knobs,
        workers=knobs.nodes,
        loader_share=draw(_share()),
        device_use=draw(st.none() | _share()),
        cpu_wait_share=draw(_share()),
        neighbour_cores=draw(st.none() | st.floats(0.0, 8.0)),
        cores=4 * knobs.nodes,
        watts=draw(maybe),
        noise_scale=draw(maybe),
        usd_per_hour=draw(maybe),
        g_per_kwh=draw(maybe),
        told=draw(st.sampled_from([(), (), (), ("a meter is frozen",)])),
    )


@st.composite
def shown(draw: st.DrawFn) -> Shown:
    """Any history, with changes that somebody made, and a room that leaves some of the values out."""
    knobs = start = _turned(Knobs(64), {name: draw(st.sampled_from(values)) for name, values in EVERY_KNOB.items()})
    history: list[Interval] = []
    for number in range(draw(st.integers(1, 12))):
        now = draw(_intervals(knobs, number))
        knob = draw(st.none() | st.sampled_from(sorted(EVERY_KNOB)))
        if knob is not None:
            value, by = draw(st.sampled_from(EVERY_KNOB[knob])), draw(st.sampled_from(["learned", "judge"]))
            now = now._replace(decision=Decision(knob, value, getattr(knobs, knob), by, "a test", 0.1, "nothing"))
        history.append(now)
        knobs = now.after
    history[-1] = history[-1]._replace(decision=None)
    knobs = history[-1].knobs
    allowed = {
        name: tuple(each for each in values if each == getattr(knobs, name) or draw(st.booleans()))
        for name, values in EVERY_KNOB.items()
        if draw(st.booleans())
    }
    objective = draw(st.sampled_from(get_args(Objective)))
    return history, Room(allowed, objective, start, draw(st.integers(0, 9)))
