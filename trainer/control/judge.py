"""Judges whether to keep the last change, wait, or undo it; a pure function of the history.

A change stays if the objective grew by the requested share and by more than the noise, after one interval of warm-up.
A change of batch or precision is also undone if the guard metric worsens beyond its noise, however late.
"""

import itertools
import math
from collections.abc import Sequence
from statistics import mean, median, stdev
from typing import Literal, NamedTuple

from gangway.trainer.config.values.control import JUDGE, ControlSettings
from gangway.trainer.control.guardrails import MOST_FAILURES, failures
from gangway.trainer.control.interval import (
    MEMORY_SHARE,
    Decision,
    Interval,
    Kind,
    Knobs,
    bottleneck,
    find_noise_scale,
    has_neighbour,
    memory_share,
    score,
)

QUALITY_KNOBS = ("batch_size", "precision")  # Knobs that affect what is learnt
SETTLE = 1  # Intervals after a change that do not count
BEFORE = 5  # Intervals before it that it is compared with, at most
LONGEST = 3  # Times its patience: the longest wait for a change where meters break, or neighbours come or go
MOST_SLOWER = 0.25  # Share of images/s that freeing memory may cost, as a run out of memory ends
_FREED = 0.02  # Least share of the memory that a useful change frees
_NOISES = 1.0  # Standard errors that a gain must exceed
_GUARD_VALUES = 3  # Values of the guard before a change from which its noise is estimated
_GUARD_NOISES = 2.0
_FEW_VALUES_SHARE = 0.1  # Tolerance of the guard where its noise is unknown: about the difference between two seeds


class Verdict(NamedTuple):
    """The verdict on the last change."""

    state: Literal["nothing", "wait", "kept", "undo"]
    decision: Decision | None = None  # the judged change; None for none
    # share of the objective; None where unknown. For an undo without enough intervals, its cost in those
    gain: float | None = None
    why: str = ""


def judge(history: Sequence[Interval], settings: ControlSettings, start: Knobs) -> Verdict:
    """Returns the verdict on the last change, which may have been judged before. `start`: the run's initial knobs."""
    worse = _worse_quality(history)
    if worse is not None and not _is_stuck(worse, history):
        return worse
    place = _last_change(history)
    if place is None:
        return Verdict("nothing")
    decision = _made(history, place)
    if decision.policy == JUDGE:
        return _judge_interrupted(history, place, settings, start)
    if _is_superseded(history, place, decision):
        return Verdict("nothing")
    verdict = worse if worse is not None and worse.decision is decision else None
    verdict = verdict or _compare(history, place, decision, settings, start)
    if verdict.state == "undo" and _is_stuck(verdict, history):
        return verdict._replace(state="kept", why=f"{verdict.why}, and what failed {MOST_FAILURES} times is left alone")
    return verdict


def _is_stuck(verdict: Verdict, history: Sequence[Interval]) -> bool:
    return verdict.decision is not None and failures(history, verdict.decision.knob) >= MOST_FAILURES


def _judge_interrupted(history: Sequence[Interval], undone_at: int, settings: ControlSettings, start: Knobs) -> Verdict:
    place = _last_change(history[:undone_at])
    if place is None:
        return Verdict("nothing")
    decision, undone = _made(history, place), _made(history, undone_at)
    if decision.policy == JUDGE or decision.knob == undone.knob or _is_superseded(history, place, decision):
        return Verdict("nothing")
    verdict = _compare(history[: undone_at + 1], place, decision, settings, start)
    if verdict.state == "wait" and not _frees_memory(history[place], decision):
        verdict = Verdict("undo", decision, why=f"nobody knows what it brought: {undone.knob} was undone meanwhile")
    return verdict if verdict.state == "undo" and not _is_stuck(verdict, history) else Verdict("nothing")


def _is_superseded(history: Sequence[Interval], place: int, decision: Decision) -> bool:
    return len(history) > place + 1 and getattr(history[-1].after, decision.knob) != decision.value


def _compare(
    history: Sequence[Interval], place: int, decision: Decision, settings: ControlSettings, start: Knobs
) -> Verdict:
    last = history[place]
    measure = _Measure(find_noise_scale(history[: place + 1]), last, settings, start)
    # Only the intervals of its patience count: later conditions may differ.
    waited = history[place + 1 + SETTLE :][: LONGEST * settings.patience]
    frees = _frees_memory(last, decision)  # memory is short, whoever uses the cores
    alike = [each for each in waited if frees or has_neighbour(each) == has_neighbour(last)]
    after = [each for each in alike if not each.invalid and measure.score(each) is not None][: settings.patience]
    was_crowded, since = has_neighbour(last), history[place + 1 :][-settings.patience :]
    is_other_now = (  # neighbours have come or gone for all of its patience
        not frees
        and len(since) == settings.patience
        and was_crowded is not None
        and all(has_neighbour(each) is (not was_crowded) for each in since)
    )
    if len(after) < settings.patience and not is_other_now and len(waited) < LONGEST * settings.patience:
        return Verdict("wait", decision, why=f"{decision.knob} {decision.value} is being watched")
    if any(each.resolution != last.resolution for each in after):
        return Verdict("kept", decision, None, "the networks have grown meanwhile: nobody can tell what it brought")
    if any(each.conditions != last.conditions for each in after):
        return Verdict("kept", decision, None, "workers or cores are others since: nobody can tell what it brought")
    if any(each.knobs != last.after for each in after):
        return Verdict("kept", decision, None, "the run's plan has changed others meanwhile: nobody can tell of it")
    before = _comparable_before(history, place)
    scores_after, scores_before = measure.score_all(after), measure.score_all(before)
    gain = None
    if scores_before and scores_after:
        was = median(scores_before)
        gain = median(scores_after) / was - 1 if was > 0 else math.inf
    if gain is None or len(after) < settings.patience:
        why = f"no figure for {settings.objective}"
        if is_other_now or (scores_before and len(alike) < settings.patience):
            why = "others have come or gone meanwhile"
        elif measure.noise_scale is None and decision.knob == "batch_size":
            why = "no estimate of the gradients' noise before it"
        lost = gain if gain is not None and gain < 0 else None
        return Verdict("undo", decision, lost, f"nobody knows what it brought: {why}")
    if frees:
        return _judge_memory(before, after, decision, gain)
    # The standard error of the mean as a share of it; 0 for a single value.
    middle, number = mean(scores_before), len(scores_before)
    noise = stdev(scores_before) / math.sqrt(number) / middle if number > 1 and middle > 0 else 0.0
    if gain < settings.min_gain:
        return Verdict("undo", decision, gain, f"it brought {gain:+.1%}, of {settings.min_gain:.0%} that it has to")
    if gain < _NOISES * noise:
        return Verdict("undo", decision, gain, f"it brought {gain:+.1%}, no more than {noise:.1%} of noise before it")
    return Verdict("kept", decision, gain, f"it brought {gain:+.1%}")


def _frees_memory(last: Interval, decision: Decision) -> bool:
    fewer = decision.knob == "batch_gpu" and 0 < float(decision.value) < (float(decision.was) or math.inf)
    return fewer and bottleneck(last).kind is Kind.MEMORY


def _judge_memory(before: Sequence[Interval], after: Sequence[Interval], decision: Decision, gain: float) -> Verdict:
    was, now = memory_share(before[-1]), max(map(memory_share, after))
    alike = [each for each in after if has_neighbour(each) == has_neighbour(before[-1])]
    slower = 1 - (_middle_rate(alike) / _middle_rate(before) if alike else 1.0)
    words = f"{now:.0%} of the memory is in use, {was:.0%} before, at {-slower:+.1%} images/s"
    if slower > MOST_SLOWER:
        return Verdict("undo", decision, gain, f"{words}: it may cost {MOST_SLOWER:.0%}")
    if now < MEMORY_SHARE or now <= was - _FREED:
        return Verdict("kept", decision, gain, words)
    return Verdict("undo", decision, gain, f"{words}: it frees none")


def _middle_rate(intervals: Sequence[Interval]) -> float:
    return median(each.images_per_sec for each in intervals)


class _Measure(NamedTuple):
    noise_scale: float | None
    last: Interval
    settings: ControlSettings
    start: Knobs

    def score(self, interval: Interval) -> float | None:
        was, now = self.last.knobs.batch_size, self.last.after.batch_size
        if self.noise_scale is None and was != now and interval.knobs.batch_size != was:
            return None  # another batch changes an image's progress by an unknown factor
        fair = interval._replace(
            noise_scale=self.noise_scale, usd_per_hour=self.last.usd_per_hour, g_per_kwh=self.last.g_per_kwh
        )
        return score(fair, self.settings.objective, self.start.batch_size)

    def score_all(self, intervals: Sequence[Interval]) -> list[float]:
        return [found for each in intervals if (found := self.score(each)) is not None]


def _comparable_before(history: Sequence[Interval], place: int) -> list[Interval]:
    last, found = history[place], list[Interval]()
    kind = bottleneck(last).kind
    for each in reversed(history[: place + 1][-LONGEST * BEFORE :]):
        if (each.knobs, each.conditions) != (last.knobs, last.conditions) or len(found) == BEFORE:
            break
        if each.invalid:
            continue
        if bottleneck(each).kind != kind or has_neighbour(each) != has_neighbour(last):
            break
        found.insert(0, each)
    return found


def _last_change(history: Sequence[Interval]) -> int | None:
    return next((number for number in reversed(range(len(history))) if history[number].decision is not None), None)


def _worse_quality(history: Sequence[Interval]) -> Verdict | None:
    """Returns an undo where the guard worsened since the last standing quality change, and since another was undone."""
    changes = [number for number, each in enumerate(history) if each.decision and each.decision.knob in QUALITY_KNOBS]
    place = next((number for number in reversed(changes) if _is_standing(history, number)), None)
    if place is None:
        return None
    decision = _made(history, place)
    since = max([place, *(number for number in changes if _made(history, number).policy == JUDGE)])
    values = ((number, each.guard) for number, each in enumerate(history))
    guards = [(number, value) for number, value in values if value is not None and math.isfinite(value)]
    before = [value for number, value in guards if number <= place]
    after = [value for number, value in guards if number > since + SETTLE]
    if not before or not after:
        return None
    limit = _guard_limit(before)
    if since > place and all(value > limit for value in after[:-1]):
        # Recovering from the undone change: no worse than that left it.
        limit = max(limit, [value for number, value in guards if number <= since + SETTLE][-1])
    if after[-1] <= limit:
        return None
    why = f"the guard metric is {after[-1]:.4g}, above {limit:.4g}, as far as it went before"
    return Verdict("undo", decision, None, why)


def _is_standing(history: Sequence[Interval], place: int) -> bool:
    decision = _made(history, place)
    if decision.policy == JUDGE or _is_superseded(history, place, decision):
        return False
    turns = itertools.pairwise(history[place:])
    return all(getattr(each.after, decision.knob) == getattr(then.knobs, decision.knob) for each, then in turns)


def _made(history: Sequence[Interval], place: int) -> Decision:
    decision = history[place].decision
    assert decision is not None, "where a change was made"
    return decision


def _guard_limit(before: Sequence[float]) -> float:
    last = list(before[-_GUARD_VALUES - 2 :])
    if len(last) < _GUARD_VALUES:
        return last[-1] * (1 + _FEW_VALUES_SHARE)
    # Residuals of a straight line, since the guard falls while a run learns.
    slope = (last[-1] - last[0]) / (len(last) - 1)
    rest = [value - last[0] - slope * number for number, value in enumerate(last)]
    return max(last[-1], mean(last[-2:])) + _GUARD_NOISES * stdev(rest) + 0.01 * abs(last[-1])


def undo_change(verdict: Verdict) -> Decision:
    """Returns the decision that undoes a verdict's change."""
    assert verdict.decision is not None, "there is something to undo"
    return verdict.decision.undoing(verdict.why, 0.0 if verdict.gain is None else -verdict.gain)
