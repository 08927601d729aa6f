"""Whether the last change has paid: kept, given time, or undone; a pure function of the history.

A change is compared with the intervals just before it, once a first interval with it has passed (caches, warm-up). It
stays where the objective grew by the asked share and beyond the noise of those intervals. A change of batch or of
precision goes, too, where the guard metric worsens beyond its noise, however late that shows. Fewer images at once,
where memory is short, are no matter of speed: they stay where they free memory at no more than a stated cost.
"""

import itertools
import math
from collections.abc import Sequence
from statistics import mean, median, stdev
from typing import Literal, NamedTuple

from trainer.config.values.control import JUDGE, ControlSettings
from trainer.control.bottleneck import MEMORY_SHARE, Kind, bottleneck, has_neighbour, memory_share
from trainer.control.guardrails import MOST_FAILURES, failures
from trainer.control.interval import Decision, Interval, Knobs, find_noise_scale, score

OF_QUALITY = ("batch_size", "precision")
"""Knobs that what is learnt depends on."""
SETTLE = 1
"""Intervals after a change that do not count."""
BEFORE = 5
"""Intervals before it that it is compared with, at most."""
LONGEST = 3
"""Times its patience, that a change is waited for where meters are broken meanwhile, or others come or go."""
MOST_SLOWER = 0.25
"""Share of images/s that freeing memory may cost: a run that ends for want of it makes none at all."""
_FREED = 0.02
"""Of the memory: less is no step on the way to where there is enough."""
_NOISES = 1.0
"""Standard errors that a gain has to be beyond zero."""
_GUARD_VALUES = 3
"""Of the guard before a change, from which on its noise is known."""
_GUARD_NOISES = 2.0
_FEW_VALUES_SHARE = 0.1
"""How much worse the guard may be where its noise is not known: what two seeds of one run differ by, about."""


class Verdict(NamedTuple):
    """What the history says of the last change.

    Attributes:
        state: nothing to judge, one more interval to wait for, kept, or to be undone.
        decision: the change that is judged; None for nothing.
        gain: share of the objective that it brought; None where it is not known yet, or never will be. Of what is
            undone for want of intervals to compare, what it has cost in the few of them.
        why: in words.
    """

    state: Literal["nothing", "wait", "kept", "undo"]
    decision: Decision | None = None
    gain: float | None = None
    why: str = ""


def judge(history: Sequence[Interval], settings: ControlSettings, start: Knobs) -> Verdict:
    """The verdict on the last change in the history, which may have been judged before. `start` are the knobs that the
    run began with.
    """
    worse = _worse_quality(history)
    if worse is not None and not _is_stuck(worse, history):
        return worse
    place = _last_change(history)
    if place is None:
        return Verdict("nothing")
    decision = _made(history, place)
    if decision.policy == JUDGE:
        return _cut_short(history, place, settings, start)
    if _is_superseded(history, place, decision):
        return Verdict("nothing")
    verdict = worse if worse is not None and worse.decision is decision else None
    verdict = verdict or _compared(history, place, decision, settings, start)
    if verdict.state == "undo" and _is_stuck(verdict, history):
        return verdict._replace(state="kept", why=f"{verdict.why}, and what failed {MOST_FAILURES} times is left alone")
    return verdict


def _is_stuck(verdict: Verdict, history: Sequence[Interval]) -> bool:
    """Whether what is to be undone has a knob that could not be turned too often."""
    return verdict.decision is not None and failures(history, verdict.decision.knob) >= MOST_FAILURES


def _cut_short(history: Sequence[Interval], undone_at: int, settings: ControlSettings, start: Knobs) -> Verdict:
    """What becomes of a change that was not kept yet when the guard had an older one undone: of one that was still
    being watched nobody will know what it brought.
    """
    place = _last_change(history[:undone_at])
    if place is None:
        return Verdict("nothing")
    decision, undone = _made(history, place), _made(history, undone_at)
    if decision.policy == JUDGE or decision.knob == undone.knob or _is_superseded(history, place, decision):
        return Verdict("nothing")
    verdict = _compared(history[: undone_at + 1], place, decision, settings, start)
    if verdict.state == "wait" and not _frees_memory(history[place], decision):
        why = f"nobody knows what it brought: {undone.knob} was undone meanwhile"
        verdict = Verdict("undo", decision, None, why)
    return verdict if verdict.state == "undo" and not _is_stuck(verdict, history) else Verdict("nothing")


def _is_superseded(history: Sequence[Interval], place: int, decision: Decision) -> bool:
    """Whether the knob has another value by now: the run's own plan has turned it since, and counts."""
    return len(history) > place + 1 and getattr(history[-1].after, decision.knob) != decision.value


def _compared(
    history: Sequence[Interval], place: int, decision: Decision, settings: ControlSettings, start: Knobs
) -> Verdict:
    last = history[place]
    measure = _Measure(find_noise_scale(history[: place + 1]), last, settings, start)
    # Of what came after, the intervals that it was promised: later ones may be of another day.
    waited = history[place + 1 + SETTLE :][: LONGEST * settings.patience]
    frees = _frees_memory(last, decision)  # memory is short, whoever uses the cores
    alike = [each for each in waited if frees or has_neighbour(each) == has_neighbour(last)]
    after = [each for each in alike if not each.invalid and measure.of(each) is not None][: settings.patience]
    is_other_now = not frees and _has_turned(last, history[place + 1 :][-settings.patience :], settings.patience)
    if len(after) < settings.patience and not is_other_now and len(waited) < LONGEST * settings.patience:
        return Verdict("wait", decision, why=f"{decision.knob} {decision.value} is being watched")
    if any(each.resolution != last.resolution for each in after):
        return Verdict("kept", decision, None, "the networks have grown meanwhile: nobody can tell what it brought")
    if any(each.conditions != last.conditions for each in after):
        return Verdict("kept", decision, None, "workers or cores are others since: nobody can tell what it brought")
    if any(each.knobs != last.after for each in after):
        return Verdict("kept", decision, None, "the run's plan has changed others meanwhile: nobody can tell of it")
    before = _before(history, place)
    scores_after, scores_before = measure.all_of(after), measure.all_of(before)
    gain = _gain(scores_before, scores_after)
    if gain is None or len(after) < settings.patience:
        why = f"no figure for {settings.objective}"
        if is_other_now or (scores_before and len(alike) < settings.patience):
            why = "others have come or gone meanwhile"
        elif measure.noise_scale is None and decision.knob == "batch_size":
            why = "no estimate of the gradients' noise before it"
        lost = gain if gain is not None and gain < 0 else None
        return Verdict("undo", decision, lost, f"nobody knows what it brought: {why}")
    noise = _relative_error(scores_before)
    if frees:
        return _freed(before, after, decision, gain)
    if gain < settings.min_gain:
        return Verdict("undo", decision, gain, f"it brought {gain:+.1%}, of {settings.min_gain:.0%} that it has to")
    if gain < _NOISES * noise:
        return Verdict("undo", decision, gain, f"it brought {gain:+.1%}, no more than {noise:.1%} of noise before it")
    return Verdict("kept", decision, gain, f"it brought {gain:+.1%}")


def _has_turned(last: Interval, since: Sequence[Interval], patience: int) -> bool:
    """Whether others have come since a change, or gone, for so long that it is another run now: what is to be done
    about that has to wait for the verdict.
    """
    was = has_neighbour(last)
    return len(since) == patience and was is not None and all(has_neighbour(each) is (not was) for each in since)


def _frees_memory(last: Interval, decision: Decision) -> bool:
    """Whether a change was made for memory that is short."""
    fewer = decision.knob == "batch_gpu" and 0 < float(decision.value) < (float(decision.was) or math.inf)
    return fewer and bottleneck(last).kind is Kind.MEMORY


def _freed(before: Sequence[Interval], after: Sequence[Interval], decision: Decision, gain: float) -> Verdict:
    """By the memory that is in use at most, and by how much slower it made the run, as far as others let that be
    seen.
    """
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
    """How intervals on both sides of a change are scored: with the noise scale, the price and the grid that were known
    before it. What these do meanwhile is no merit of the change's.
    """

    noise_scale: float | None
    last: Interval
    settings: ControlSettings
    start: Knobs

    def of(self, interval: Interval) -> float | None:
        """None without the figures that it takes."""
        was, now = self.last.knobs.batch_size, self.last.after.batch_size
        if self.noise_scale is None and was != now and interval.knobs.batch_size != was:
            return None  # another batch makes another progress by an image, and nobody knows which
        fair = interval._replace(
            noise_scale=self.noise_scale, usd_per_hour=self.last.usd_per_hour, g_per_kwh=self.last.g_per_kwh
        )
        return score(fair, self.settings.objective, self.start.batch_size)

    def all_of(self, intervals: Sequence[Interval]) -> list[float]:
        """Of those that have one."""
        return [found for each in intervals if (found := self.of(each)) is not None]


def _gain(before: Sequence[float], after: Sequence[float]) -> float | None:
    """None where one side is empty."""
    if not before or not after:
        return None
    was = median(before)
    return median(after) / was - 1 if was > 0 else math.inf


def _relative_error(values: Sequence[float]) -> float:
    """Standard error of their mean, as a share of it; 0 where one value says nothing of it."""
    return stdev(values) / math.sqrt(len(values)) / mean(values) if len(values) > 1 and mean(values) > 0 else 0.0


def _before(history: Sequence[Interval], place: int) -> list[Interval]:
    """The intervals before a change that are as the last of them: with its knobs, held up by the same, with neighbours
    or without as it was, of networks of its size, and by as many workers; nearest last, and no broken ones.
    """
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
    """To be undone where the guard has worsened since the last change of what is learnt that still stands, and since
    another one was undone: what it had spoilt is not the older one's fault.
    """
    changes = [number for number, each in enumerate(history) if _changes_quality(each.decision)]
    place = next((number for number in reversed(changes) if _stands(history, number)), None)
    if place is None:
        return None
    decision = _made(history, place)
    since = max([place, *(number for number in changes if _made(history, number).policy == JUDGE)])
    guards = [
        (number, each.guard)
        for number, each in enumerate(history)
        if each.guard is not None and math.isfinite(each.guard)
    ]
    before = [value for number, value in guards if number <= place]
    after = [value for number, value in guards if number > since + SETTLE]
    if not before or not after:
        return None
    limit = _guard_limit(before)
    if since > place and all(value > limit for value in after[:-1]):
        # On its way back from what was undone: no worse than that has left it.
        limit = max(limit, [value for number, value in guards if number <= since + SETTLE][-1])
    if after[-1] <= limit:
        return None
    why = f"the guard metric is {after[-1]:.4g}, above {limit:.4g}, as far as it went before"
    return Verdict("undo", decision, None, why)


def _stands(history: Sequence[Interval], place: int) -> bool:
    """Whether a change is a policy's own, and what the run is trained with now; by no plan of the run's since."""
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
    """Up to which a value is as good as those before: a guard that falls may rise again by its noise."""
    last = list(before[-_GUARD_VALUES - 2 :])
    if len(last) < _GUARD_VALUES:
        return last[-1] * (1 + _FEW_VALUES_SHARE)
    # What is left around a straight line, since the guard falls while a run learns.
    slope = (last[-1] - last[0]) / (len(last) - 1)
    rest = [value - last[0] - slope * number for number, value in enumerate(last)]
    return max(last[-1], mean(last[-2:])) + _GUARD_NOISES * stdev(rest) + 0.01 * abs(last[-1])


def _changes_quality(decision: Decision | None) -> bool:
    return decision is not None and decision.knob in OF_QUALITY


def undoing(verdict: Verdict) -> Decision:
    """The decision that undoes what a verdict is about."""
    made = verdict.decision
    assert made is not None, "there is something to undo"
    return Decision(
        knob=made.knob,
        value=made.was,
        was=made.value,
        policy=JUDGE,
        reason=f"undoes {made.knob} {made.value}: {verdict.why}",
        expected_gain=0.0 if verdict.gain is None else -verdict.gain,
        undone_if="nothing: it is as it was",
    )
