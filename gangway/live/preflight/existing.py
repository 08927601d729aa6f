"""What checks of existing resources have in common on all clouds."""

from collections.abc import Callable, Iterable, Sequence

from gangway.components.core.findings import InputError
from gangway.live.preflight.check import Check, NoAnswerError, Result
from gangway.stacks.config.stack_config import StackConfig

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


def judge_rules(config: StackConfig, missing: Sequence[str], good: str) -> Result:
    """An error with the connections that no rule allows, or what is `good`."""
    if not missing:
        return Result.ok(good)
    listed = f"gangway plan {config.stack_name} --explain existing.network-owner"
    return Result.error(f"no rule allows {', '.join(missing)}", f"have rules made for these; `{listed}` describes them")


def judge(problems: Iterable[InputError], good: str) -> Result:
    """An error with all problems, or what is `good`."""
    found = list(problems)
    if not found:
        return Result.ok(good)
    return Result.error("; ".join(one.problem for one in found), "; ".join(one.fix for one in found))
