"""What checks of existing resources have in common on all clouds."""

from collections.abc import Callable, Iterable

from gangway.components.core.findings import InputError
from gangway.live.preflight.check import Check, NoAnswerError, Result

_MISSING = "404"


def existing_check(path: str, subject: str, source: str, run: Callable[[], Result]) -> Check:
    """A check of the resource that the setting at `path` names: an error if there is none."""

    def answer() -> Result:
        try:
            return run()
        except NoAnswerError as refusal:
            if refusal.code == _MISSING:
                return Result.error("does not exist", f"correct {path}")
            raise

    return Check(subject, source, answer, path)


def judge(problems: Iterable[InputError], good: str) -> Result:
    """An error with all problems, or what is `good`."""
    found = list(problems)
    if not found:
        return Result.ok(good)
    return Result.error("; ".join(one.problem for one in found), "; ".join(one.fix for one in found))
