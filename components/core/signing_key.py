"""The key that signs run records of a stack's machines: created at the first `up`, a secret of the state."""

from collections.abc import Mapping
from typing import NamedTuple

import pulumi

from gangway.components.core.pinned import pinned_secret

KEY_USES: Mapping[str, str] = {
    "member-key": "By this the nodes of the job know each other",
    "munge-key": "By this the machines of the stack's Slurm know each other",
    "signing-key": "By this the machines of the stack sign run records",
}
"""A stack's keys, and the description that clouds show."""


class SigningKey(NamedTuple):
    """`pem`: the private key, a secret. `public`: the public key, for verifiers."""

    pem: pulumi.Output[str]
    public: pulumi.Output[str]


def new_signing_key() -> str:
    """A new private key (Ed25519, PKCS #8) as PEM text."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    own = serialization.PrivateFormat.PKCS8
    key = Ed25519PrivateKey.generate()
    return key.private_bytes(serialization.Encoding.PEM, own, serialization.NoEncryption()).decode()


def public_half(pem: str) -> str:
    """The public key of a private one, both as PEM text."""
    from cryptography.hazmat.primitives import serialization

    public = serialization.load_pem_private_key(pem.encode(), None).public_key()
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


def signing_key(stack: str) -> SigningKey:
    """A stack's key."""
    # Only the private key is stored: a public one would differ in every plan, which has no state.
    pem = pinned_secret(f"{stack}-signing-key", "pem", new_signing_key(), 0)
    return SigningKey(pem, pulumi.Output.unsecret(pem.apply(public_half)))
