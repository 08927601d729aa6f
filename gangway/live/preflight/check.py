"""A check of a stack in its cloud, its result, and the runner: threads, so that one slow API delays no other."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self

from gangway.components.core.findings import GangwayError
from gangway.components.core.safe_text import one_line

WORKERS = 12
_MOST_NAMED = 5
PATIENCE_SEC = 40.0
"""Without any answer for so long, the remaining checks are unknown. Adapters use shorter timeouts."""

ROLE_FIX = "ask for what `gangway permissions STACK` prints"
OFFERS_FIX = "gangway quote lists other offers"


class State(StrEnum):
    """What a check found, the worst first; `unknown` has a reason, such as a missing permission."""

    ERROR = "error"
    WARNING = "warning"
    UNKNOWN = "unknown"
    OK = "ok"


@dataclass(frozen=True)
class Result:
    """The outcome of a check. `answer`: with the values found; `fix`: empty if nothing needs fixing."""

    state: State
    answer: str
    fix: str = ""

    @classmethod
    def ok(cls, answer: str) -> Self:
        """`up` can go on."""
        return cls(State.OK, answer)

    @classmethod
    def warning(cls, answer: str, fix: str) -> Self:
        """`up` may fail, or work differently than expected."""
        return cls(State.WARNING, answer, fix)

    @classmethod
    def error(cls, answer: str, fix: str) -> Self:
        """`up` would fail, or start no nodes."""
        return cls(State.ERROR, answer, fix)

    @classmethod
    def unknown(cls, reason: str, fix: str = "") -> Self:
        """There is no answer."""
        return cls(State.UNKNOWN, reason, fix)


class NoAnswerError(GangwayError):
    """A call that was refused or failed. `code`: the API's own error code or HTTP status."""

    def __init__(self, reason: str, fix: str = "", code: str = "") -> None:
        self.reason, self.fix, self.code = reason, fix, code
        super().__init__(reason)


@dataclass(frozen=True)
class Check:
    """One question to a cloud. `source`: the API call; `path`: of the setting in the stack file; empty for none."""

    subject: str
    source: str
    run: Callable[[], Result]
    path: str = ""


@dataclass(frozen=True)
class Answer:
    """A check with its result."""

    check: Check
    result: Result

    def to_json(self) -> dict[str, str]:
        """The answer as plain JSON data."""
        fields = {
            "path": self.check.path,
            "subject": self.check.subject,
            "answer": self.result.answer,
            "source": self.check.source,
            "fix": self.result.fix,
        }
        return {"state": self.result.state.value, **{name: one_line(text) for name, text in fields.items()}}


def run_checks(
    checks: Sequence[Check], progress: Callable[[int], None] = lambda _: None, patience_sec: float = PATIENCE_SEC
) -> list[Answer]:
    """Run all checks at once, in their order. `progress`: called with the number of answers so far."""
    waiting: SimpleQueue[int] = SimpleQueue()
    answers: SimpleQueue[tuple[int, Result]] = SimpleQueue()
    for index in range(len(checks)):
        waiting.put(index)
    for _ in range(min(WORKERS, len(checks))):
        # Daemons: a call that hangs does not keep the process from ending.
        Thread(target=_work, args=(checks, waiting, answers), daemon=True).start()
    results: dict[int, Result] = {}
    while len(results) < len(checks):
        try:
            index, result = answers.get(timeout=patience_sec)
        except Empty:
            break
        results[index] = result
        progress(len(results))
    late = Result.unknown(f"no answer within {patience_sec:g} s", "run it again; look for a proxy or firewall")
    return [Answer(check, results.get(index, late)) for index, check in enumerate(checks)]


def _work(checks: Sequence[Check], waiting: SimpleQueue[int], answers: SimpleQueue[tuple[int, Result]]) -> None:
    while True:
        try:
            index = waiting.get_nowait()
        except Empty:
            return
        answers.put((index, _result(checks[index])))


def _result(check: Check) -> Result:
    try:
        return check.run()
    except NoAnswerError as refusal:
        return Result.unknown(refusal.reason, refusal.fix)
    except Exception as error:
        return Result.unknown(f"{type(error).__name__}: {error}")


def in_order(answers: Sequence[Answer]) -> list[Answer]:
    """The worst first."""
    states = list(State)
    return sorted(answers, key=lambda answer: states.index(answer.result.state))


def counts(answers: Sequence[Answer]) -> Mapping[str, int]:
    """The number of answers by state; all states."""
    found = Counter(answer.result.state.value for answer in answers)
    return {state.value: found[state.value] for state in State}


def plain_number(value: float) -> str:
    """A limit without a needless fraction.

    >>> plain_number(768.0), plain_number(1.5)
    ('768', '1.5')
    """
    return f"{value:,.10g}"


def compare_quota(amount: float, limit: float, used: float | None, unit: str, fix: str) -> Result:
    """Whether a limit is enough. `used`: by others than this stack; None if unknown."""
    unit = f" {unit}" if unit else ""
    answer = f"{plain_number(amount)}{unit} needed, limit {plain_number(limit)}"
    if used is None:
        answer += ", what is in use is unknown"
    elif used:
        answer += f", {plain_number(used)} in use"
    if amount > limit:
        return Result.error(answer, fix)
    if amount + (used or 0) > limit:
        return Result.warning(answer, f"free some of it, or {fix}")
    return Result.ok(answer)


def conflicts(names: Sequence[str], why: str, stack_name: str) -> Result:
    """A warning if resources with the stack's identity exist, at most five of which are named."""
    if not names:
        return Result.ok("none")
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    fix = f"if that is another stack, set gangway:identity; `gangway audit {stack_name}` lists them"
    return Result.warning(f"{', '.join(sorted(names)[:_MOST_NAMED])}{more}: {why}", fix)


def same_time(one: datetime, other: datetime, tolerance_sec: float = 60.0) -> bool:
    """Whether two times are the same minute."""
    return abs((one - other).total_seconds()) < tolerance_sec


def first(rows: Any) -> Mapping[str, Any] | None:
    """The first row of an answer, if any."""
    return next(iter(rows or ()), None)
