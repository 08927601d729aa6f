"""The loop over a suite's items: up, wait for the record, copy it, destroy. Whatever happens, destroy. Every step is in
the journal before it is taken, so that the same loop finishes or cleans up after a crash.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from gangway.bench.journal import Journal, Progress, State
from gangway.bench.processes import Stop
from gangway.bench.results import FREE, Caps, Rate
from gangway.bench.suite import Item
from gangway.runs.errors import Failure, RunFailedError, StoreFailedError
from trainer.records.run_record import RunRecord

DESTROY_TRIES = 3
STORE_TRIES = 5
"""Failures of the run bucket in a row that are no hiccup any more."""
BACKOFF = 1.5

Guard = Callable[[], str]
"""Why an item should not go on; empty while it may."""


class Environment(Protocol):
    """Where an item runs. Each call may raise RunFailedError; facts are what the item's journal lines have told."""

    poll_sec: tuple[float, float]
    """The first pause between two looks for a record, and the longest."""

    def up(self, item: Item, note: Callable[..., None], guard: Guard) -> Mapping[str, Any]:
        """Starts the run and returns facts; gives up when `guard` says so. `note` keeps facts at once."""
        ...

    def attach(self, item: Item, facts: Mapping[str, Any], note: Callable[..., None]) -> Mapping[str, Any]:
        """Goes on with what another process has started; returns new facts."""
        ...

    def record(self, item: Item, facts: Mapping[str, Any]) -> RunRecord | None:
        """The record of a run that is done; None before. Raises StoreFailedError where it cannot look.

        RunFailedError where the run has ended, and will not be done.
        """
        ...

    def collect(self, item: Item, facts: Mapping[str, Any]) -> None:
        """Brings the run's files into the suite's folder. Raises StoreFailedError."""
        ...

    def destroy(self, item: Item, facts: Mapping[str, Any], note: Callable[..., None]) -> list[str]:
        """Ends the run and all that was made for it; returns what is left on purpose, in words."""
        ...

    def doing(self, item: Item) -> str:
        """A few words on what goes on, for people."""
        ...


@dataclass(frozen=True)
class Runner:
    """One suite in one run directory.

    Attributes:
        items: in their order.
        journal: of the run directory.
        get_environment: where an item runs.
        rates: by stack's name; one that costs nothing where it is missing.
        caps: of the suite.
        get_hours: from `up` to the record.
        stop: whether somebody has asked to.
        pause: sleeps so many seconds, or less when somebody asks to stop.
        say: tells a person what happened: the item, a word, and more words.
        show: tells a person what goes on with an item, again and again.
        log_dir: where the traceback of an unforeseen failure goes.
    """

    items: Sequence[Item]
    journal: Journal
    get_environment: Callable[[Item], Environment]
    rates: Mapping[str, Rate]
    caps: Caps
    get_hours: Callable[[Item], float]
    stop: Stop
    pause: Callable[[float], None]
    say: Callable[..., None]
    show: Callable[[str, str], None]
    log_dir: Path

    def run(self, *, clean_only: bool = False) -> None:
        """Settles what stands, then runs what is not over. With `clean_only` nothing is begun or waited for."""
        for item in self.items:
            if self._progress(item).standing:
                self._settle(item, clean_only=clean_only)
        for item in self.items:
            if clean_only or self.stop.asked:
                return
            progress = self._progress(item)
            # What could not be destroyed just now is somebody's to mend first.
            if not progress.over and not progress.standing:
                self._begin(item)

    def _progress(self, item: Item) -> Progress:
        return self.journal[item.name]

    def _settle(self, item: Item, *, clean_only: bool) -> None:
        """An item that another process has left: its run may still be going on, and is not thrown away."""
        if self._progress(item).state is State.UP and not clean_only:
            self.say(item.name, "attached", "still up from before")

            def go_on() -> None:
                note = self._find_note(item)
                if item.is_local:  # it costs nothing, and was not going on all the while
                    note(attached=self.journal.now().isoformat())
                note(**self.get_environment(item).attach(item, self._progress(item).facts, note))
                self._until_recorded(item)

            self._guarded(item, go_on)
        self._destroy(item)

    def _begin(self, item: Item) -> None:
        if self._progress(item).state is not State.PLANNED:
            self.journal.enter(item.name, State.PLANNED)
        rate = self.rates.get(item.stack.name, FREE)
        accounts = [(other, self._progress(other)) for other in self.items]
        if refused := self.caps.too_dear(rate, item, accounts, self.journal.now()):
            self._failed(item, refused)
            return
        costs = {"usd_per_hour": rate.usd_per_hour, "usd_at_once": rate.usd_at_once}
        self.journal.enter(item.name, State.UP_BEGUN, **costs)
        self.say(item.name, "up")

        def look() -> str:
            self.show(item.name, self.get_environment(item).doing(item))
            return self._why_not(item)

        def start() -> None:
            environment = self.get_environment(item)
            facts = environment.up(item, self._find_note(item), look)
            self.journal.enter(item.name, State.UP, facts=dict(facts))
            self._until_recorded(item)

        self._guarded(item, start)
        self._destroy(item)

    def _find_note(self, item: Item) -> Callable[..., None]:
        return lambda **facts: self.journal.note(item.name, **facts)

    def _guarded(self, item: Item, work: Callable[[], None]) -> None:
        """Does the work; a failure of any kind is this item's, and is no reason to leave something standing."""
        try:
            work()
        except RunFailedError as failure:
            self._failed(item, str(failure))
        except Exception as bug:
            with suppress(OSError), (self.log_dir / "errors.log").open("a", encoding="utf-8") as log:
                log.write(f"{item.name}\n{traceback.format_exc()}\n")
            self._failed(item, f"{type(bug).__name__}: {bug} (all of it is in {self.log_dir / 'errors.log'})")

    def _failed(self, item: Item, reason: str) -> None:
        self.journal.enter(item.name, State.FAILED, reason=reason, stopped=bool(self.stop.asked))
        self.say(item.name, "failed", reason)

    def _why_not(self, item: Item) -> str:
        """Why an item that stands should not go on: somebody's wish, its deadline, or money."""
        if self.stop.asked:
            return f"stopped by {self.stop.asked}"
        now, hours = self.journal.now(), self.get_hours(item)
        progress = self._progress(item)
        began = progress.attempts[-1].began
        if "attached" in progress.facts:
            began = datetime.fromisoformat(progress.facts["attached"])
        if now > began + timedelta(hours=hours):
            return f"no record within its {hours:g} h"
        return self.caps.exceeded(item, [(other, self._progress(other)) for other in self.items], now)

    def _until_recorded(self, item: Item) -> None:
        """Looks for the record, less and less often, until it is there or there is a reason to give up.

        At least once: what was left by another process may be done long since. A bucket that refuses ends the run; an
        outage of the network, or a login that has ended, is told and waited for until the deadline. RunFailedError:
        that reason.
        """
        environment, facts = self.get_environment(item), self._progress(item).facts
        wait_sec, longest_sec = environment.poll_sec
        failures, answered, said = 0, "answered" in facts, ""
        while True:
            try:
                found = environment.record(item, facts)
                if not answered:
                    self.journal.note(item.name, answered=True)
                    answered = True
                if found is not None:
                    environment.collect(item, facts)
                    self.journal.enter(item.name, State.RECORDED)
                    self.say(item.name, "recorded")
                    return
                failures, said = 0, ""
            except StoreFailedError as failure:
                failures, said = failures + 1, str(failure)
                if failure.kind is Failure.ODD:
                    failures, answered = 0, self._warned(item, said)
                passes = failure.kind is Failure.OUTAGE or (failure.kind is Failure.LOGIN and answered)
                if failures >= STORE_TRIES and not passes:
                    raise RunFailedError(said) from None
                if failures == STORE_TRIES:
                    self.say(item.name, "waiting", f"{said}; the run is left going until its deadline")
            if why_not := self._why_not(item):
                raise RunFailedError(f"{why_not}; {said}" if said else why_not)
            self.show(item.name, f"no answer: {said}" if failures else environment.doing(item))
            self.pause(wait_sec)
            wait_sec = min(wait_sec * BACKOFF, longest_sec)

    def _warned(self, item: Item, said: str) -> bool:
        """Tells once, on screen and in the journal, of what is odd in a bucket, which has answered."""
        if self._progress(item).facts.get("warned") != said:
            self.journal.note(item.name, answered=True, warned=said)
            self.say(item.name, "warning", f"{said}; the run is left going until its deadline")
        return True

    def _destroy(self, item: Item) -> None:
        """Ends what stands, in several tries; what the run has left behind until then is saved first."""
        environment, progress = self.get_environment(item), self._progress(item)
        if not progress.recorded:
            try:
                environment.collect(item, progress.facts)
            except Exception as failure:  # a full disk, say: that must not keep anything standing
                self.say(item.name, "nothing saved", str(failure))
        for left in reversed(range(DESTROY_TRIES)):
            self.journal.enter(item.name, State.DESTROY_BEGUN)
            self.say(item.name, "destroy")
            try:
                kept = environment.destroy(item, self._progress(item).facts, self._find_note(item))
            except Exception as failure:
                if left:
                    self.say(item.name, "destroy failed", f"{failure}; once more")
                    self.pause(environment.poll_sec[1])
                else:
                    self._failed(item, f"destroy: {failure}")
                continue
            self.journal.enter(item.name, State.DESTROYED, facts={"left": kept})
            return
        self.say(item.name, "still standing")
