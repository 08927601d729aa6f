"""Lookups in a cloud, and values pinned at the first `up`, such as an image's newest version or a key."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

import pulumi

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import visible

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


STASH = "pulumi:index:Stash"
"""The engine's own resource for a value in the state."""


def pinned(
    name: str, newest: Mapping[str, pulumi.Input[str]], refresh: int, opts: pulumi.ResourceOptions | None = None
) -> pulumi.Output[dict[str, str]]:
    """`newest` as it was at the first `up` with this `refresh`, which becomes part of the resource's name."""
    keeps = pulumi.ResourceOptions(ignore_changes=["input"])
    stash = pulumi.Stash(f"{name}-{refresh}", input=dict(newest), opts=pulumi.ResourceOptions.merge(opts, keeps))
    value: pulumi.Output[dict[str, str]] = stash.output.apply(dict)
    return value


def kept(
    name: str, made: pulumi.Input[str], decided_by: pulumi.Input[Any], opts: pulumi.ResourceOptions | None = None
) -> pulumi.Output[str]:
    """`made` as it was when `decided_by` last changed, although a later version of the program makes another text."""
    keeps = pulumi.ResourceOptions(ignore_changes=["input"], replacement_trigger=decided_by)
    stash = pulumi.Stash(name, input={"text": made}, opts=pulumi.ResourceOptions.merge(opts, keeps))
    value: pulumi.Output[str] = stash.output.apply(lambda first: str(first["text"]))
    return value


def pinned_secret(
    name: str, field: str, made: str, refresh: int, opts: pulumi.ResourceOptions | None = None
) -> pulumi.Output[str]:
    """A secret created at the first `up` with this `refresh`: `made`, kept in the state under `field`, encrypted."""
    value = pinned(name, {field: pulumi.Output.secret(made)}, refresh, opts)
    return pulumi.Output.secret(value.apply(lambda secret: secret[field]))


def choice_name(stack: str) -> str:
    """The name of the resource that records the choice."""
    return f"{stack}-encryption-0"


def record_choice(stack: str, encryption: str) -> pulumi.Output[str]:
    """Record the `encryption` of the first `up` in the stack's state, and returns the recorded value."""
    choice = pinned(choice_name(stack).removesuffix("-0"), {"encryption": encryption}, 0)
    return choice.apply(lambda first: first["encryption"])


def check_choice(first: str, encryption: str) -> None:
    """InputError if `encryption` differs from `first`: either change loses data."""
    if first == encryption:
        return
    lost = ", and its key would be deleted while the run bucket has records under it"
    raise InputError(
        "gangway:encryption",
        "cannot be changed: file systems, registries and disks keep the key that they were made with"
        f"{lost if first == 'customer-key' else ''}",
        value=encryption,
        allowed=f"{first}, with which this stack was made",
        fix=f"set encryption: {first}; for the other, bring up a stack of another name, copy the records into its run "
        "bucket, and destroy this one",
    )
