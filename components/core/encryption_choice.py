"""The first `up` fixes which key encrypts a stack's data. Later changes are refused before anything is sent."""

import pulumi

from gangway.components.core.findings import InputError
from gangway.components.core.pinned import pinned

__all__ = ["check_choice", "choice_name", "record_choice"]


def choice_name(stack: str) -> str:
    """The name of the resource that records the choice."""
    return f"{stack}-encryption-0"


def record_choice(stack: str, encryption: str) -> pulumi.Output[str]:
    """Record the `encryption` of the first `up` in the stack's state, and returns the recorded value."""
    choice = pinned(choice_name(stack).removesuffix("-0"), {"encryption": encryption}, 0)
    return choice.apply(lambda first: first["encryption"])


def check_choice(first: str, encryption: str) -> None:
    """InputError if `encryption` differs from `first`. Both changes lose data: to the provider's key deletes the
    stack's key, which encrypts the run bucket; to a stack's key replaces file systems and registries.
    """
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
