"""The key by which the machines of a stack's Slurm know each other: made at the first `up`, a secret of the state."""

import secrets

import pulumi

from components.core.pinned import pinned_secret

__all__ = ["munge_key", "new_munge_key"]

_BYTES = 64
"""Of chance; munge takes 32 to 1,024 bytes (munged(8)), and the text has two for each."""


def new_munge_key() -> str:
    """As text, which every store keeps as it is."""
    return secrets.token_hex(_BYTES)


def munge_key(stack: str, refresh: int = 0, opts: pulumi.ResourceOptions | None = None) -> pulumi.Output[str]:
    """A stack's key, a secret. `refresh`: another number makes another one, for machines that boot later."""
    return pinned_secret(f"{stack}-munge-key", "text", new_munge_key(), refresh, opts)
