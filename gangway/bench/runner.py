"""The loop over a suite's items: up, wait for the record, copy, destroy. Steps are in the journal beforehand, so that
the same loop finishes or cleans up after a crash.
"""

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gangway.bench.journal import Journal, Progress, State
from gangway.bench.processes import Stop
from gangway.bench.results import FREE, Caps, Rate
from gangway.bench.suite import Item
from gangway.runs.run_store import Failure, RunFailedError, StoreFailedError
from gangway.trainer.records.run_record import RunRecord

STORE_TRIES = 5
"""Consecutive failures of the run bucket that count as permanent."""

Guard = Callable[[], str]
"""Returns why an item should stop; empty to continue."""


class Environment(ABC):
    """Where an item runs. Calls may raise RunFailedError; `facts` come from the item's journal lines."""

    poll_sec: tuple[float, float]
    """The first and the longest pause between polls for a record."""

    def __init__(self) -> None:
        self._doing: dict[str, str] = {}

    @abstractmethod
    def up(self, item: Item, note: Callable[..., None], guard: Guard) -> Mapping[str, Any]:
        """Start the run and return facts; give up once `guard` returns a reason. `note` saves facts at once."""

    def attach(self, item: Item, facts: Mapping[str, Any], note: Callable[..., None]) -> Mapping[str, Any]:
        """Continue what another process started, if the run needs that; return new facts."""
        return {}

    @abstractmethod
    def record(self, item: Item, facts: Mapping[str, Any]) -> RunRecord | None:
        """The record of a finished run, or None. StoreFailedError: unreachable. RunFailedError: it will not finish."""

    def collect(self, item: Item, facts: Mapping[str, Any]) -> None:  # noqa: B027 - some write there themselves
        """Copy the run's files into the suite's folder. Raises StoreFailedError."""

    @abstractmethod
    def destroy(self, item: Item, facts: Mapping[str, Any], note: Callable[..., None]) -> list[str]:
        """End the run and all its resources; return what remains on purpose, in words."""

    def doing(self, item: Item) -> str:
        """The current activity in a few words."""
        return self._doing.get(item.name, "")


@dataclass(frozen=True)
class Runner:
    """One suite in one run directory. `rates`: by stack name, stacks without one are free; `get_hours`: from `up` to
    the record; `say`: prints an event: the item, a word, and details; `show`: shows ongoing work, repeatedly;
    `log_dir`: for tracebacks of unexpected failures.
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
        """Settle existing stacks, then run unfinished items. `clean_only`: start and wait for nothing."""
        for item in self.items:
            if self._progress(item).is_up:
                self._settle(item, clean_only=clean_only)
        for item in self.items:
            if clean_only or self.stop.asked:
                return
            progress = self._progress(item)
            # A user must first fix what could not be destroyed.
            if not progress.is_finished and not progress.is_up:
                self._begin(item)

    def _progress(self, item: Item) -> Progress:
        return self.journal[item.name]

    def _settle(self, item: Item, *, clean_only: bool) -> None:
        """Another process left this item: its run may be active, and continues."""
        if self._progress(item).state is State.UP and not clean_only:
            self.say(item.name, "attached", "still up from before")

            def resume() -> None:
                note = self._find_note(item)
                if item.is_local:  # it is free, and was stopped in between
                    note(attached=self.journal.now().isoformat())
                note(**self.get_environment(item).attach(item, self._progress(item).facts, note))
                self._wait_for_record(item)

            self._contain_failure(item, resume)
        self._destroy(item)

    def _begin(self, item: Item) -> None:
        if self._progress(item).state is not State.PLANNED:
            self.journal.enter(item.name, State.PLANNED)
        rate = self.rates.get(item.stack.name, FREE)
        accounts = [(other, self._progress(other)) for other in self.items]
        if refused := self.caps.unaffordable_reason(rate, item, accounts, self.journal.now()):
            self._fail(item, refused)
            return
        costs = {"usd_per_hour": rate.usd_per_hour, "usd_at_once": rate.usd_at_once}
        self.journal.enter(item.name, State.UP_BEGUN, **costs)
        self.say(item.name, "up")

        def look() -> str:
            self.show(item.name, self.get_environment(item).doing(item))
            return self._stop_reason(item)

        def start() -> None:
            environment = self.get_environment(item)
            facts = environment.up(item, self._find_note(item), look)
            self.journal.enter(item.name, State.UP, facts=dict(facts))
            self._wait_for_record(item)

        self._contain_failure(item, start)
        self._destroy(item)

    def _find_note(self, item: Item) -> Callable[..., None]:
        return lambda **facts: self.journal.note(item.name, **facts)

    def _contain_failure(self, item: Item, work: Callable[[], None]) -> None:
        """A failure of any kind belongs to this item and must not leave a stack behind."""
        try:
            work()
        except RunFailedError as failure:
            self._fail(item, str(failure))
        except Exception as bug:
            with suppress(OSError), (self.log_dir / "errors.log").open("a", encoding="utf-8") as log:
                log.write(f"{item.name}\n{traceback.format_exc()}\n")
            self._fail(item, f"{type(bug).__name__}: {bug} (details in {self.log_dir / 'errors.log'})")

    def _fail(self, item: Item, reason: str) -> None:
        self.journal.enter(item.name, State.FAILED, reason=reason, stopped=bool(self.stop.asked))
        self.say(item.name, "failed", reason)

    def _stop_reason(self, item: Item) -> str:
        if self.stop.asked:
            return f"stopped by {self.stop.asked}"
        now, hours = self.journal.now(), self.get_hours(item)
        progress = self._progress(item)
        began = progress.attempts[-1].began
        if "attached" in progress.facts:
            began = datetime.fromisoformat(progress.facts["attached"])
        if now > began + timedelta(hours=hours):
            return f"no record within {hours:g} h"
        return self.caps.overspend_reason(item, [(other, self._progress(other)) for other in self.items], now)

    def _wait_for_record(self, item: Item) -> None:
        """Poll for the record at growing intervals until it appears or there is a reason to give up.

        At least once: a run left by another process may be finished. A refusing bucket ends the run; network outages
        and expired logins are reported and waited out until the deadline. RunFailedError: the reason.
        """
        environment, facts = self.get_environment(item), self._progress(item).facts
        wait_sec, longest_sec = environment.poll_sec
        failures, answered, message = 0, "answered" in facts, ""
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
                failures, message = 0, ""
            except StoreFailedError as failure:
                failures, message = failures + 1, str(failure)
                if failure.kind is Failure.ODD:
                    failures, answered = 0, self._warn(item, message)
                passes = failure.kind is Failure.OUTAGE or (failure.kind is Failure.LOGIN and answered)
                if failures >= STORE_TRIES and not passes:
                    raise RunFailedError(message) from None
                if failures == STORE_TRIES:
                    self.say(item.name, "waiting", f"{message}; the run continues until its deadline")
            if why_not := self._stop_reason(item):
                raise RunFailedError(f"{why_not}; {message}" if message else why_not)
            self.show(item.name, f"no answer: {message}" if failures else environment.doing(item))
            self.pause(wait_sec)
            wait_sec = min(wait_sec * 1.5, longest_sec)

    def _warn(self, item: Item, message: str) -> bool:
        """Report an odd bucket once, on screen and in the journal; the bucket has answered."""
        if self._progress(item).facts.get("warned") != message:
            self.journal.note(item.name, answered=True, warned=message)
            self.say(item.name, "warning", f"{message}; the run continues until its deadline")
        return True

    def _destroy(self, item: Item) -> None:
        environment, progress = self.get_environment(item), self._progress(item)
        if not progress.recorded:
            try:
                environment.collect(item, progress.facts)
            except Exception as failure:  # such as a full disk: it must not prevent the destroy
                self.say(item.name, "nothing saved", str(failure))
        for tries_left in reversed(range(3)):
            self.journal.enter(item.name, State.DESTROY_BEGUN)
            self.say(item.name, "destroy")
            try:
                retained = environment.destroy(item, self._progress(item).facts, self._find_note(item))
            except Exception as failure:
                if tries_left:
                    self.say(item.name, "destroy failed", f"{failure}; trying again")
                    self.pause(environment.poll_sec[1])
                else:
                    self._fail(item, f"destroy: {failure}")
                continue
            self.journal.enter(item.name, State.DESTROYED, facts={"left": retained})
            return
        self.say(item.name, "still up")
