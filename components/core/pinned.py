"""What the first `up` found stays: an image's newest version is looked up at each `up`, and used at the first alone."""

from collections.abc import Mapping

import pulumi

__all__ = ["STASH", "pinned", "pinned_secret"]

STASH = "pulumi:index:Stash"
"""The engine's own resource that keeps a value in the state."""


def pinned(
    name: str, newest: Mapping[str, pulumi.Input[str]], refresh: int, opts: pulumi.ResourceOptions | None = None
) -> pulumi.Output[dict[str, str]]:
    """`newest` as it was at the first `up` with this `refresh`; another `refresh` takes what is newest then.

    Args:
        name: of the resource, to which `refresh` is added: another number is another resource, with a first `up`.
        newest: what is newest now, by any names.
        refresh: counted up by whoever wants newer ones.
        opts: parent of the resource.
    """
    keeps = pulumi.ResourceOptions(ignore_changes=["input"])
    stash = pulumi.Stash(f"{name}-{refresh}", input=dict(newest), opts=pulumi.ResourceOptions.merge(opts, keeps))
    kept: pulumi.Output[dict[str, str]] = stash.output.apply(dict)
    return kept


def pinned_secret(
    name: str, field: str, made: str, refresh: int, opts: pulumi.ResourceOptions | None = None
) -> pulumi.Output[str]:
    """A secret as it was made for the first `up` with this `refresh`: `made`, kept in the state under `field`, in the
    clear nowhere.
    """
    kept = pinned(name, {field: pulumi.Output.secret(made)}, refresh, opts)
    return pulumi.Output.secret(kept.apply(lambda secret: secret[field]))
