"""The munge key of a stack's Slurm machines: created at the first `up`, a secret of the state."""

import secrets

import pulumi

from gangway.components.core.pinned import pinned_secret

__all__ = ["munge_key", "new_munge_key"]

_BYTES = 64
"""Random bytes; munge takes 32 to 1,024 (munged(8)), and the text has two characters for each."""


def new_munge_key() -> str:
    """A new key as hexadecimal text."""
    return secrets.token_hex(_BYTES)


def munge_key(stack: str, refresh: int = 0, opts: pulumi.ResourceOptions | None = None) -> pulumi.Output[str]:
    """A stack's key, a secret. Another `refresh` makes another key, for machines that boot later."""
    return pinned_secret(f"{stack}-munge-key", "text", new_munge_key(), refresh, opts)
