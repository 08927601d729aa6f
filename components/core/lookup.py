"""Lookups in a cloud. Every provider function is called through `look_up`, which turns a failure into a user error."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, ParamSpec, TypeVar

import pulumi

from gangway.components.core.findings import InputError
from gangway.components.core.visible import visible

P = ParamSpec("P")
T = TypeVar("T")
ANSWER_LIMIT = 600
"""Characters of the cloud's answer in a message: AWS encodes a refused request in thousands of characters."""


@dataclass(frozen=True)
class Lookup:
    """A lookup, as its error message describes it. `subject`: what is looked up and how, such as `the nodes' newest
    image (SSM parameter /aws/...)`; `where`: region, project or subscription; `place`: its setting, such as
    `gangway:cluster.image_id`; `fix`: what to check, and what to set in the stack file.
    """

    subject: str
    where: str
    place: str
    fix: str

    def failed(self, answer: object) -> "LookupFailedError":
        """The error to raise. `answer`: the cloud's answer, any text."""
        return LookupFailedError(self, " ".join(visible(str(answer)).split()))


class LookupFailedError(InputError):
    """A cloud refused a lookup, or did not answer it."""

    def __init__(self, lookup: Lookup, answer: str) -> None:
        self.answer = answer
        shown = answer if len(answer) <= ANSWER_LIMIT else f"{answer[:ANSWER_LIMIT]}..."
        super().__init__(
            lookup.place, f"cannot look up {lookup.subject} in {lookup.where}; the cloud says: {shown}", fix=lookup.fix
        )


def look_up(lookup: Lookup, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a provider function. Pass the plain form, not `..._output`: it blocks, so it fails before the first
    resource. Wrap secrets in `pulumi.Output.secret`: they come unmarked. LookupFailedError: no answer.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:
        # The SDK raises plain Exception for the cloud's errors; a subclass is a bug of ours.
        if type(error) is not Exception:
            raise
        raise lookup.failed(error) from None


def look_up_later(ask: Callable[[], T]) -> T:
    """`ask()` inside an output's `apply`. pulumi.RunError instead of an InputError, which prints a traceback."""
    try:
        return ask()
    except LookupFailedError as failed:
        raise pulumi.RunError(str(failed)) from None


@dataclass(frozen=True)
class Postponed(Generic[T]):
    """A lookup made before the first resource, and repeated later if it depends on a resource of this stack. `ask`:
    calls `look_up`; `answer`: None if it has to be repeated.
    """

    ask: Callable[[], T]
    answer: T | None

    @classmethod
    def now(cls, ask: Callable[[], T], not_yet: Callable[[str], bool]) -> "Postponed[T]":
        """Looks up now. `not_yet`: whether the cloud's error means that a resource has to be created first."""
        try:
            return cls(ask, ask())
        except LookupFailedError as failed:
            if not not_yet(failed.answer):
                raise
            return cls(ask, None)

    def after(self, made: pulumi.Output[str]) -> pulumi.Output[T]:
        """The answer; if it has to be repeated, once `made` is known."""
        if self.answer is not None:
            return pulumi.Output.from_input(self.answer)
        return made.apply(lambda _: look_up_later(self.ask))
