"""Whose key data is under is decided by the first `up`: another choice later is refused before anything changes."""

import pulumi

from components.core.findings import InputError
from components.core.pinned import pinned

__all__ = ["check_choice", "keep_choice"]


def keep_choice(stack: str, region: str, encryption: str) -> pulumi.Output[str]:
    """`region`, known once `encryption` is what the first `up` made the stack with. Every resource waits for a provider
    that has it. RunError, in a preview too: it is another.
    """
    kept = pinned(f"{stack}-encryption", {"encryption": encryption}, 0)

    def check(first: dict[str, str]) -> str:
        try:
            check_choice(first["encryption"], encryption)
        except InputError as mistake:
            # The engine shows any other exception with pages of traceback.
            raise pulumi.RunError(str(mistake)) from None
        return region

    return kept.apply(check)


def check_choice(first: str, encryption: str) -> None:
    """InputError where `encryption` is not the `first`. Both ways some of a stack would be lost: from a key of its own,
    the key, while runs in the bucket need it; to one, file systems and registries, which are encrypted at creation.
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
