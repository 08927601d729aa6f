"""A machine that trains, in a few formulas, and a controller on it: what tests of decisions run on."""

import functools
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

from gangway.trainer.config.values.control import ControlSettings, Objective
from gangway.trainer.control.decide import Outcome, get_policy, next_decision
from gangway.trainer.control.guardrails import Machine
from gangway.trainer.control.interval import Interval, Knobs, Policy, Value, efficiency, score

SECONDS = 10.0


@dataclass(frozen=True)
class Plant:
    """A node of so many cores, with one worker."""

    cores: int = 4  # of the node
    read_sec: float = 0.0002  # of a core, to read and decode an image
    # of a core, to compute one; so much that can be shared by threads, `serial` of it cannot
    compute_sec: float = 0.004
    serial: float = 0.1
    step_sec: float = 0.002  # of any step, whatever its batch
    noise_scale: float | None = None  # of gradients
    # cores that others use, by the share of the run that has passed
    neighbour: Callable[[float], float] = lambda passed: 0.0
    # relative deviation of what a meter shows from what is; `noise_spread` that of the noise scale
    spread: float = 0.005
    noise_spread: float = 0.1
    device: bool = False  # whether a GPU computes, which needs no core and shows how busy it is

    def interval(self, images: int, knobs: Knobs, passed: float, seconds: float, draw: random.Random) -> Interval:
        others = self.neighbour(passed)
        free = max(0.5, self.cores - others)
        batch = knobs.batch_size
        threads = 1 if self.device else knobs.threads
        # Threads that meet at barriers wait for the one without a core.
        fair = min(1.0, free / threads) ** 2
        compute_sec = self.compute_sec * batch * (self.serial + (1 - self.serial) / threads) / fair + self.step_sec
        readers = max(0.25, min(knobs.loader_threads, free))
        read_sec = self.read_sec * batch / readers
        step_sec = max(compute_sec, read_sec)
        wanted = threads + knobs.loader_threads * min(1.0, read_sec / step_sec)
        noise = self.noise_scale
        rate = batch / step_sec * (1 + draw.gauss(0, self.spread))
        return Interval(
            images=images + round(rate * seconds),
            seconds=seconds,
            images_per_sec=rate,
            knobs=knobs,
            loader_share=max(0.0, 1 - compute_sec / step_sec),
            cpu_use=min(1.0, wanted / self.cores) * (1 + draw.gauss(0, self.spread)),
            cpu_wait_share=max(0.0, 1 - free / threads) if threads > free else 0.01,
            neighbour_cores=others,
            cores=self.cores,
            on_cpu=not self.device,
            device_use=min(1.0, compute_sec / step_sec) if self.device else None,
            noise_scale=None if noise is None else noise * (1 + draw.gauss(0, self.noise_spread)),
            watts=(60.0 + 40.0 * compute_sec / step_sec) * (1 + draw.gauss(0, self.spread)),
            usd_per_hour=0.5 * knobs.nodes,
            g_per_kwh=300.0,
        )

    def still(self, knobs: Knobs, passed: float = 0.0) -> Interval:
        """Of `SECONDS`, as it is, whatever meters show."""
        return replace(self, spread=0.0, noise_spread=0.0).interval(0, knobs, passed, SECONDS, random.Random(0))

    def score(self, knobs: Knobs, objective: Objective, base: int, passed: float = 0.0) -> float:
        """Of the objective, likewise; `base` is the run's first batch."""
        found = score(self.still(knobs, passed), objective, base)
        assert found is not None
        return found


def turned(knobs: Knobs, values: Mapping[str, Value]) -> Knobs:
    return functools.reduce(lambda now, each: now.with_value(*each), values.items(), knobs)


class Run(NamedTuple):
    """What came of it: goodput over all of it, and how it went."""

    goodput: float
    history: Sequence[Interval]
    outcomes: Sequence[Outcome]


@dataclass
class Loop:
    """A controller on a plant, for so many intervals."""

    plant: Plant
    start: Knobs
    settings: ControlSettings = field(default_factory=ControlSettings)
    intervals: int = 60
    policy: Policy | None = None
    seed: int = 0
    broken: Callable[[Interval, int], Interval] = lambda interval, number: interval
    limit_watts: float | None = None
    power_floor: float = 1.0

    def run(self) -> Run:
        draw, history, outcomes = random.Random(self.seed), list[Interval](), list[Outcome]()
        policy = self.policy or get_policy(self.settings)
        machine = Machine(
            self.plant.cores,
            on_cpu=not self.plant.device,
            limit_watts=self.limit_watts,
            power_floor=self.power_floor,
        )
        knobs, images = self.start, 0
        for number in range(self.intervals):
            seen = self.plant.interval(images, knobs, number / self.intervals, self.settings.interval_sec, draw)
            images = seen.images
            history.append(self.broken(seen, number))
            outcome = next_decision(history, policy, self.settings, self.start, machine, seed=self.seed)
            outcomes.append(outcome)
            history[-1] = history[-1]._replace(decision=outcome.decision)
            knobs = history[-1].after
        return Run(self._goodput(history), history, outcomes)

    def _goodput(self, history: Sequence[Interval]) -> float:
        made = [
            each.images_per_sec * efficiency(self.plant.noise_scale, each.knobs.batch_size, self.start.batch_size)
            for each in history
        ]
        return math.fsum(made) / len(made)

    def at(self, **knobs: int) -> float:
        """Goodput of the whole run with these knobs and no controller."""
        start = Knobs(**{**self.start._asdict(), **knobs})
        still = Loop(self.plant, start, ControlSettings(policy="fixed"), self.intervals, seed=self.seed)
        still.settings = still.settings.model_copy(update={"interval_sec": self.settings.interval_sec})
        history = still.run().history
        return self._goodput(history)

    def made(self, history: Sequence[Interval]) -> float:
        moments = [number / self.intervals for number in range(len(history))]
        scores = [self._score(each.knobs, passed) for each, passed in zip(history, moments, strict=True)]
        return math.fsum(scores) / math.fsum(self._score(self.start, passed) for passed in moments)

    def kept(self, history: Sequence[Interval]) -> float:
        """The median score of the last settings: one of them may be a trial."""
        return median(self._score(each.knobs, 1.0) for each in history[-9:])

    def best(self, allowed: Mapping[str, Sequence[Value]]) -> float:
        settings = itertools.product(*allowed.values())
        asked = (turned(self.start, dict(zip(allowed, values, strict=True))) for values in settings)
        return max(self._score(knobs, 1.0) for knobs in asked)

    def _score(self, knobs: Knobs, passed: float) -> float:
        return self.plant.score(knobs, self.settings.objective, self.start.batch_size, passed)
