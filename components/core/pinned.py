"""Values pinned at the first `up`, such as an image's newest version or a key; which key encrypts a stack's data."""

from collections.abc import Mapping
from typing import Any

import pulumi

from gangway.components.core.findings import InputError

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
