"""The policy `learned`: a bandit with Thompson sampling that limits lost seconds and knows the history alone."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from gangway.trainer.config.values.control import JUDGE
from gangway.trainer.control.interval import Decision, Interval, Room, Value, has_neighbour, score
from gangway.trainer.control.judge import SETTLE

_WATCHED = 2  # Intervals on each side of a change whose means are compared
_NOISE = 0.02  # Standard deviation of one measured reward
_LEAST, _MOST = -0.9, 9.0  # Rewards beyond are taken for these: an interval that stood still is no measure of a change
_HOPE, _HOPE_SD = 0.1, 0.1  # Reward of an arm that its context speaks for, before it was tried
_NO_HOPE, _NO_HOPE_SD = -0.05, 0.03  # Reward of any other arm, before it was tried: most changes do not pay
_STEP_SD = 0.03  # By how much one step of a knob may differ from its others
_DATA_BOUND, _VERY_DATA_BOUND = 0.05, 0.3
_CROWDED_SHARE = 0.1
_IDLE_DEVICE = 0.7
_SMALL_BATCH = 4.0
"""A noise scale so many times the batch leaves room for a larger one; a batch above the noise scale wastes images."""


class Context(NamedTuple):
    """What an interval was like, in few classes."""

    data: int  # 0 where steps did not wait for images, 1 where they did, 2 where they did for long
    crowded: bool  # by other processes, or by threads of its own
    idle: bool | None  # a GPU that waits; None without one, or without a meter
    batch: int | None  # -1 for small beside the noise scale, 1 for large; None where nobody knows


# What of a context a knob's rewards hang on; the rest is not told apart, or every trial would be the first.
_MATTERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    dict.fromkeys(("loader_threads", "prefetch", "threads"), ("data", "crowded"))
    | dict.fromkeys(("batch_size", "nodes"), ("data", "batch"))
    | dict.fromkeys(("batch_gpu", "precision", "power_share", "compile"), ("data", "idle"))
)

Seen = tuple[tuple[str, int | None], ...]  # What matters of a context, by name


class Arm(NamedTuple):
    """One step of one knob in one context."""

    knob: str
    up: bool
    was: Value
    value: Value
    context: Seen

    @property
    def kind(self) -> tuple[str, bool, Seen]:
        """Shared by all steps of a knob in one direction."""
        return self.knob, self.up, self.context


class Trial(NamedTuple):
    """An arm that was tried. `reward` is the objective's relative change, `lost_sec` its cost until it was undone."""

    arm: Arm
    reward: float
    lost_sec: float


class _Belief(NamedTuple):
    """A normal belief about an arm's mean reward, after `trials`."""

    mean: float
    sd: float
    trials: int

    def updated(self, rewards: Sequence[float]) -> "_Belief":
        if not rewards:
            return self
        weight = 1 / self.sd**2 + len(rewards) / _NOISE**2
        mean = (self.mean / self.sd**2 + math.fsum(rewards) / _NOISE**2) / weight
        return _Belief(mean, math.sqrt(1 / weight), self.trials + len(rewards))


class Learned:
    """Draws each arm's mean reward from its belief, and takes the best arm if it exceeds `least`.

    Once failed changes have cost `lost_sec` seconds, only tried arms with a mean above `least` remain. The batch stays
    where the noise scale is unknown: its cost to progress would not be in the reward.
    """

    name = "learned"

    def __init__(self, lost_sec: float = 300.0, least: float = 0.02) -> None:
        self._lost_sec = lost_sec
        self._least = least

    def decide(self, history: Sequence[Interval], room: Room) -> Decision | None:
        """See `Policy`."""
        last = history[-1]
        if last.invalid or score(last, room.objective, room.start.batch_size) is None:
            return None
        trials = get_trials(history, room)
        lost_sec = math.fsum(each.lost_sec for each in trials)
        explores = lost_sec < self._lost_sec
        draw = np.random.default_rng([room.seed, last.images])
        best: tuple[float, Arm, _Belief] | None = None
        for arm in _arms(last, room):
            belief = _belief(arm, trials, on_cpu=room.on_cpu)
            drawn = float(draw.normal(belief.mean, belief.sd))  # Also of what is not taken: draws stay in order.
            if not explores:
                drawn = belief.mean if belief.trials else -math.inf
            if drawn > self._least and (best is None or drawn > best[0]):
                best = drawn, arm, belief
        if best is None:
            return None
        drawn, arm, belief = best
        context = ", ".join(f"{name} {value}" for name, value in arm.context)
        return Decision(
            knob=arm.knob,
            value=arm.value,
            was=arm.was,
            policy=self.name,
            reason=f"drew {drawn:+.1%} for it, of {belief.mean:+.1%} ± {belief.sd:.1%} after {belief.trials} trials of "
            f"such changes ({context}); what did not pay has cost {lost_sec:.0f} s of {self._lost_sec:.0f} s",
            expected_gain=belief.mean,
            undone_if=f"it brings less than {self._least:.0%}",
        )


def get_trials(history: Sequence[Interval], room: Room) -> list[Trial]:
    """Returns what each change of the history brought, and its reversal's reward. Undos are no trials."""
    changes = [place for place, each in enumerate(history) if each.decision is not None]
    found = []
    for place, end in itertools.pairwise([*changes, len(history) - 1]):
        decision, now, after = history[place].decision, history[place], history[place + 1 : end + 1]
        if decision is None or decision.policy == JUDGE or not after or now.after != after[0].knobs:
            continue
        reward = _reward(history[: place + 1], after[SETTLE:][:_WATCHED], room)
        if reward is None:
            continue
        lost_sec = max(0.0, -reward) * _stood_sec(history[place + 1 :], decision)
        found.append(Trial(_arm(now, decision.knob, decision.was, decision.value), reward, lost_sec))
        back = _arm(after[0], decision.knob, decision.value, decision.was)
        found.append(Trial(back, -reward / (1 + reward), 0.0))
    return found


def _stood_sec(after: Sequence[Interval], decision: Decision) -> float:
    stood = itertools.takewhile(lambda each: getattr(each.knobs, decision.knob) == decision.value, after)
    return math.fsum(each.seconds for each in stood)


def context_of(interval: Interval) -> Context:
    """Classifies an interval's figures."""
    waited, noise, batch = interval.loader_share, interval.noise_scale, interval.knobs.batch_size
    return Context(
        data=(waited >= _DATA_BOUND) + (waited >= _VERY_DATA_BOUND),
        crowded=(interval.cpu_wait_share or 0.0) > _CROWDED_SHARE or bool(has_neighbour(interval)),
        idle=None if interval.device_use is None else interval.device_use < _IDLE_DEVICE,
        batch=None if noise is None else (batch > noise) - (noise > _SMALL_BATCH * batch),
    )


def _reward(before: Sequence[Interval], after: Sequence[Interval], room: Room) -> float | None:
    last = before[-1]
    same = [each for each in before[-_WATCHED:] if each.knobs == last.knobs and _is_alike(each, last)]
    if not all(_is_alike(each, last) for each in after):
        return None
    noise = last.noise_scale

    def mean(intervals: Sequence[Interval]) -> float | None:
        fair = (each._replace(noise_scale=noise) for each in intervals if not each.invalid)
        scores = [score(each, room.objective, room.start.batch_size) for each in fair]
        known = [each for each in scores if each is not None]
        return math.fsum(known) / len(known) if known else None

    was, now = mean(same), mean(after)
    return min(max(now / was - 1, _LEAST), _MOST) if was and now else None


def _is_alike(interval: Interval, other: Interval) -> bool:
    return interval.conditions == other.conditions and has_neighbour(interval) == has_neighbour(other)


def _arms(last: Interval, room: Room) -> Iterator[Arm]:
    for knob, values in room.allowed.items():
        if knob == "batch_size" and last.noise_scale is None:
            continue
        now = getattr(last.after, knob)
        place = list(values).index(now)
        for value in (*values[place + 1 : place + 2], *values[max(0, place - 1) : place]):
            yield _arm(last, knob, now, value)


def _arm(interval: Interval, knob: str, was: Value, value: Value) -> Arm:
    context = context_of(interval)._asdict()
    if isinstance(value, str) or isinstance(was, str):
        up = str(value) > str(was)  # precisions by name: bf16, fp16, fp32
    elif knob == "batch_gpu":
        up = (value or math.inf) > (was or math.inf)  # 0 is all images at once
    else:
        up = value > was
    return Arm(knob, up, was, value, tuple((name, context[name]) for name in _MATTERS[knob]))


def _belief(arm: Arm, trials: Sequence[Trial], *, on_cpu: bool) -> _Belief:
    alike = [each for each in trials if each.arm.kind == arm.kind]
    others = [each.reward for each in alike if each.arm != arm]
    belief = _prior(arm, on_cpu=on_cpu).updated(others)
    return belief._replace(sd=math.hypot(belief.sd, _STEP_SD) if others else belief.sd).updated(
        [each.reward for each in alike if each.arm == arm]
    )


def _prior(arm: Arm, *, on_cpu: bool) -> _Belief:
    context = dict(arm.context)
    data, batch = context["data"], context.get("batch")
    match arm.knob:
        case "loader_threads" | "prefetch":
            hope = arm.up and data != 0
        case "threads":
            hope = arm.up is not context["crowded"] and data == 0
        case "batch_size":
            hope = batch == (-1 if arm.up else 1) and data == 0
        case "precision":
            hope = not arm.up and context["idle"] is False
        case "compile":
            hope = not arm.up and on_cpu and data == 0
        case _:
            hope = arm.knob in ("nodes", "batch_gpu") and arm.up and data == 0
    return _Belief(_HOPE, _HOPE_SD, 0) if hope else _Belief(_NO_HOPE, _NO_HOPE_SD, 0)
