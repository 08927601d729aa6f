"""Values pinned at the first `up`, such as an image's newest version, and kept at each later one."""

from collections.abc import Mapping

import pulumi

__all__ = ["STASH", "pinned", "pinned_secret"]

STASH = "pulumi:index:Stash"
"""The engine's own resource for a value in the state."""


def pinned(
    name: str, newest: Mapping[str, pulumi.Input[str]], refresh: int, opts: pulumi.ResourceOptions | None = None
) -> pulumi.Output[dict[str, str]]:
    """`newest` as it was at the first `up` with this `refresh`.

    Args:
        name: of the resource, with `refresh` appended, so that another number creates another resource.
        newest: the current values, by any names.
        refresh: increased to pin newer values.
        opts: parent of the resource.
    """
    keeps = pulumi.ResourceOptions(ignore_changes=["input"])
    stash = pulumi.Stash(f"{name}-{refresh}", input=dict(newest), opts=pulumi.ResourceOptions.merge(opts, keeps))
    value: pulumi.Output[dict[str, str]] = stash.output.apply(dict)
    return value


def pinned_secret(
    name: str, field: str, made: str, refresh: int, opts: pulumi.ResourceOptions | None = None
) -> pulumi.Output[str]:
    """A secret created at the first `up` with this `refresh`: `made`, kept in the state under `field`, encrypted."""
    value = pinned(name, {field: pulumi.Output.secret(made)}, refresh, opts)
    return pulumi.Output.secret(value.apply(lambda secret: secret[field]))
