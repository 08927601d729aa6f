"""The controller of one session: watches lines, has a policy decide, has it carried out, and says what it did and why.

One worker decides for all. Whatever goes wrong here leaves the run as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainer.config.values.control import SWITCH_FILE, ControlSettings
from trainer.control.decide import Outcome, get_policy, next_decision
from trainer.control.fatal import BEGUN
from trainer.control.guardrails import Machine
from trainer.control.history import remembered
from trainer.control.interval import Decision, Interval, Knobs, Value
from trainer.control.watch import Watch
from trainer.distributed.world import World
from trainer.records.stats_log import Line

_MOST_FAILURES = 3
"""Of the controller itself, in a row, before it is left alone."""


Event = Callable[..., None]


Say = Callable[[str], None]


def tell(decision: Decision, images: int, outcome: str, event: Event, say: Say, why: str = "") -> None:
    """Writes down what came of a decision after so many images, done, observed or failed, and says it; on rank 0."""
    event("decision", images, **decision._asdict(), outcome=outcome, **({"why": why} if why else {}))
    words = {"done": "", "observed": " (observed: not done)", "failed": f" (failed: {why})"}[outcome]
    say(f"controller: {decision.knob} {decision.was} to {decision.value}: {decision.reason}{words}")


class Controller:
    """All workers make the same calls. `history` are the run's intervals so far, on rank 0; `event` and `say` are
    called on rank 0 alone; `without` are knobs that cannot be turned now, each with the reason.
    """

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
        self._told, self._failures, self._was_off = "", 0, False
        self._kept: Decision | None = None
        self._observed: tuple[object, ...] = ()

    @property
    def choice(self) -> str:
        """In words."""
        return self._settings.choice

    def begin(
        self, asked: Knobs, decided: Mapping[str, Value], now: Knobs, images: int, troubles: Mapping[str, str]
    ) -> None:
        """Says what earlier sessions have decided of the knobs that this one was asked to have, and, by knob, why one
        could not be set again; `now` are the knobs that it begins with.
        """
        if self._world.rank:
            return
        for knob, value in now._asdict().items():
            if value != (was := getattr(asked, knob)):
                self._say(f"controller: {knob} is {value}, as an earlier session decided, not {was}")
        for knob, trouble in troubles.items():
            if getattr(self._history[-1].after, knob) != decided[knob]:
                continue  # told, and counted, by the session before
            reason = "as an earlier session of the run had it"
            made = Decision(knob, decided[knob], getattr(now, knob), self._settings.policy, reason, 0.0, "")
            self.done(made, images, trouble)

    def after(self, line: Line) -> Decision | None:
        """Shows it a line, equal on every worker; a decision that all are to carry out, or None."""
        decision = self._decided(line) if self._world.rank == 0 else None
        told: Decision | None = self._world.gather(decision, Decision | None)[0]
        return told

    def quality(self, records: Sequence[dict[str, object]]) -> None:
        """Shows it metrics that were computed, as their records have them."""
        for record in records:
            self._watch.quality(record)

    def done(self, decision: Decision, images: int, trouble: str = "") -> None:
        """Notes on rank 0 that a decision was carried out, or why not."""
        if self._world.rank:
            return
        if self._history:  # or the log has been lost meanwhile
            self._history[-1] = self._history[-1].ended_by(decision, failed=bool(trouble))
        self._watch.changed()
        tell(decision, images, "failed" if trouble else "done", self._event, self._say, trouble)

    def _decided(self, line: Line) -> Decision | None:
        """On rank 0."""
        if self._failures >= _MOST_FAILURES:
            return None
        try:
            return self._find_decision(line)
        except Exception as error:  # a bug, or a folder that does not answer, must cost no run
            self._fail(error, line["images"])
            return None

    def _find_decision(self, line: Line) -> Decision | None:
        found = self._watch.see(line)
        if found is None:
            return None
        self._history = remembered([*self._history, found], self._settings)
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
        # Observed alone: it is as if it had not been decided, and will be again and again; it is told once.
        if outcome.decision[:2] != self._observed:
            self._observed = outcome.decision[:2]
            tell(outcome.decision, line["images"], "observed", self._event, self._say)
        return None

    def _note(self, outcome: Outcome, images: int) -> None:
        """Says why nothing is decided, where that is new, and what a judged change has brought."""
        verdict = outcome.verdict
        if verdict is not None and verdict.state == "kept" and verdict.decision not in (None, self._kept):
            self._kept = verdict.decision
            self._event(
                "decision-kept", images, knob=verdict.decision.knob, value=verdict.decision.value, why=verdict.why
            )
            self._say(f"controller: {verdict.decision.knob} {verdict.decision.value} stays: {verdict.why}")
        if outcome.why != self._told and outcome.warning:
            self._event("controller-idle", images, why=outcome.why)
            self._say(f"controller: nothing is changed: {outcome.why}")
        self._told = outcome.why

    def _fail(self, error: Exception, images: int) -> None:
        self._failures += 1
        why = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
        self._event("controller-failed", images, why=why, times=self._failures)
        ends = "; the run goes on as it is, without it" if self._failures >= _MOST_FAILURES else ""
        self._say(f"warning: the controller failed ({why}){ends}")

    def _is_off(self, images: int) -> bool:
        off = self._switch.exists()
        if off != self._was_off:
            why = f"switched off by {self._switch}" if off else "switched on again"
            self._event("controller-idle" if off else "controller-on", images, why=why)
            self._say(f"controller: {why}")
            self._was_off, self._told = off, ""
        return off
