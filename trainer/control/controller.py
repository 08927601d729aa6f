"""The controller of one session: watches lines, asks a policy, reports each decision. Its errors never end the run."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gangway.trainer.config.values.control import SWITCH_FILE, ControlSettings
from gangway.trainer.control.decide import Outcome, get_policy, next_decision, shorten
from gangway.trainer.control.guardrails import Machine
from gangway.trainer.control.interval import Decision, Interval, Knobs, Value
from gangway.trainer.control.watch import BEGUN, Watch
from gangway.trainer.distributed.world import World
from gangway.trainer.records.stats_log import Line

_MOST_FAILURES = 3  # Errors of the controller itself in a row after which it is disabled


Event = Callable[..., None]
Say = Callable[[str], None]


def report_decision(decision: Decision, images: int, outcome: str, event: Event, say: Say, why: str = "") -> None:
    """Writes and prints a decision's outcome, done, observed or failed; on rank 0."""
    event("decision", images, **decision._asdict(), outcome=outcome, **({"why": why} if why else {}))
    words = {"done": "", "observed": " (observed: not done)", "failed": f" (failed: {why})"}[outcome]
    say(f"controller: {decision.knob} {decision.was} to {decision.value}: {decision.reason}{words}")


class Controller:
    """All workers make the same calls. `history` has the run's intervals on rank 0, which calls `event` and `say`."""

    def __init__(
        self,
        settings: ControlSettings,
        world: World,
        machine: Machine,
        start: Knobs,
        seed: int,
        run_dir: Path,
        history: Sequence[Interval],
        event: Event,
        say: Say,
    ) -> None:
        self._settings, self._world, self._machine, self._start, self._seed = settings, world, machine, start, seed
        self._policy, self._switch = get_policy(settings), run_dir / SWITCH_FILE
        self._history, self._watch = list(history), Watch(settings.interval_sec)
        self._event, self._say = event, say
        self._last_reason, self._failures, self._was_off = "", 0, False
        self._last_kept: Decision | None = None
        self._observed: tuple[object, ...] = ()

    @property
    def choice(self) -> str:
        """Mode and policy in words."""
        return self._settings.choice

    def begin(
        self, requested: Knobs, decided: Mapping[str, Value], now: Knobs, images: int, troubles: Mapping[str, str]
    ) -> None:
        """Reports which requested knobs earlier sessions changed, and why a decided one cannot be set again."""
        if self._world.rank:
            return
        for knob, value in now._asdict().items():
            if value != (was := getattr(requested, knob)):
                self._say(f"controller: {knob} is {value}, as an earlier session decided, not {was}")
        for knob, trouble in troubles.items():
            if getattr(self._history[-1].after, knob) != decided[knob]:
                continue  # reported and counted by an earlier session
            reason = "as an earlier session of the run had it"
            made = Decision(knob, decided[knob], getattr(now, knob), self._settings.policy, reason, 0.0, "")
            self.done(made, images, trouble)

    def after(self, line: Line) -> Decision | None:
        """Takes a line, equal on every worker; returns a decision for all to apply, or None."""
        decision = self._try_decide(line) if self._world.rank == 0 else None
        shared: Decision | None = self._world.gather(decision, Decision | None)[0]
        return shared

    def quality(self, records: Sequence[dict[str, object]]) -> None:
        """Takes records of computed metrics."""
        for record in records:
            self._watch.quality(record)

    def done(self, decision: Decision, images: int, trouble: str = "") -> None:
        """Records on rank 0 that a decision was applied, or why not."""
        if self._world.rank:
            return
        if self._history:  # empty where the log was lost
            self._history[-1] = self._history[-1].ended_by(decision, failed=bool(trouble))
        self._watch.changed()
        report_decision(decision, images, "failed" if trouble else "done", self._event, self._say, trouble)

    def _try_decide(self, line: Line) -> Decision | None:
        if self._failures >= _MOST_FAILURES:
            return None
        try:
            return self._find_decision(line)
        except Exception as error:  # a bug, or a folder that does not answer, must not end the run
            self._failures += 1
            why = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
            self._event("controller-failed", line["images"], why=why, times=self._failures)
            ends = "; the run goes on as it is, without it" if self._failures >= _MOST_FAILURES else ""
            self._say(f"warning: the controller failed ({why}){ends}")
            return None

    def _find_decision(self, line: Line) -> Decision | None:
        found = self._watch.see(line)
        if found is None:
            return None
        self._history = shorten([*self._history, found], self._settings)
        if self._is_off(line["images"]):
            return None
        outcome = next_decision(
            self._history, self._policy, self._settings, self._start, self._machine, seed=self._seed
        )
        self._failures = 0
        self._note(outcome, line["images"])
        if outcome.decision is None:
            return None
        if self._settings.mode == "act":
            self._event(BEGUN, line["images"], **outcome.decision._asdict())
            return outcome.decision
        # Only observed: the policy will decide it again after each interval, so it is reported once.
        if outcome.decision[:2] != self._observed:
            self._observed = outcome.decision[:2]
            report_decision(outcome.decision, line["images"], "observed", self._event, self._say)
        return None

    def _note(self, outcome: Outcome, images: int) -> None:
        verdict = outcome.verdict
        if verdict is not None and verdict.state == "kept" and verdict.decision not in (None, self._last_kept):
            self._last_kept = verdict.decision
            self._event(
                "decision-kept", images, knob=verdict.decision.knob, value=verdict.decision.value, why=verdict.why
            )
            self._say(f"controller: {verdict.decision.knob} {verdict.decision.value} stays: {verdict.why}")
        if outcome.why != self._last_reason and outcome.warning:
            self._event("controller-idle", images, why=outcome.why)
            self._say(f"controller: nothing is changed: {outcome.why}")
        self._last_reason = outcome.why

    def _is_off(self, images: int) -> bool:
        off = self._switch.exists()
        if off != self._was_off:
            why = f"switched off by {self._switch}" if off else "switched on again"
            self._event("controller-idle" if off else "controller-on", images, why=why)
            self._say(f"controller: {why}")
            self._was_off, self._last_reason = off, ""
        return off
