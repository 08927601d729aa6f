"""Questions to a cloud. `look_up` calls every function of a provider's SDK, so that a failure is a user's error."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, ParamSpec, TypeVar

import pulumi

from components.core.findings import InputError
from components.core.visible import visible

__all__ = ["Lookup", "LookupFailedError", "Postponed", "look_up", "look_up_later"]

P = ParamSpec("P")
T = TypeVar("T")
ANSWER_LIMIT = 600
"""Characters of the cloud's answer in a message: AWS encodes a refused request in thousands of them."""


@dataclass(frozen=True)
class Lookup:
    """What a lookup is for, in the words of its error.

    Attributes:
        subject: what is looked up, with its parameter, such as `the nodes' newest image (SSM parameter /aws/...)`.
        where: the region, project or subscription that is asked.
        place: the setting that the lookup belongs to, such as `gangway:cluster.image_id`.
        fix: what to check, and what to set in the stack file.
    """

    subject: str
    where: str
    place: str
    fix: str

    def failed(self, answer: object) -> "LookupFailedError":
        """The error. `answer`: what the cloud said; any text."""
        return LookupFailedError(self, " ".join(visible(str(answer)).split()))


class LookupFailedError(InputError):
    """A cloud refused or could not answer.

    Args:
        lookup: what was looked up.
        answer: what the cloud said, in one line.
    """

    def __init__(self, lookup: Lookup, answer: str) -> None:
        self.answer = answer
        shown = answer if len(answer) <= ANSWER_LIMIT else f"{answer[:ANSWER_LIMIT]}..."
        super().__init__(
            lookup.place, f"cannot look up {lookup.subject} in {lookup.where}; the cloud says: {shown}", fix=lookup.fix
        )


def look_up(lookup: Lookup, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What a function of a provider's SDK returns: the plain form, which waits, so that it fails before the first
    resource. Secrets come unmarked: wrap them in `pulumi.Output.secret`. LookupFailedError: the cloud does not answer.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:
        # The SDK raises no subclass for what the cloud says; any other is a bug of ours.
        if type(error) is not Exception:
            raise
        raise lookup.failed(error) from None


def look_up_later(ask: Callable[[], T]) -> T:
    """`ask()`, inside an output's `apply`. pulumi.RunError: its lookup failed; nobody catches an InputError there, and
    the engine would print a traceback.
    """
    try:
        return ask()
    except LookupFailedError as failed:
        raise pulumi.RunError(str(failed)) from None


@dataclass(frozen=True)
class Postponed(Generic[T]):
    """A lookup made before the first resource or, where the cloud cannot answer yet, after what it waits for.

    Attributes:
        ask: calls `look_up`.
        answer: None where it has to be asked again.
    """

    ask: Callable[[], T]
    answer: T | None

    @classmethod
    def now(cls, ask: Callable[[], T], not_yet: Callable[[str], bool]) -> "Postponed[T]":
        """Asks now. `not_yet`: whether an answer only means that something has to be made first."""
        try:
            return cls(ask, ask())
        except LookupFailedError as failed:
            if not not_yet(failed.answer):
                raise
            return cls(ask, None)

    def after(self, made: pulumi.Output[str]) -> pulumi.Output[T]:
        """The answer, once `made` is known where it was not there at first."""
        if self.answer is not None:
            return pulumi.Output.from_input(self.answer)
        return made.apply(lambda _: look_up_later(self.ask))
