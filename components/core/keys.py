"""A stack's keys, created at the first `up` as secrets of the state.

One signs run records; by the others the nodes of a job, and the machines of a stack's Slurm (munge), authenticate each
other.
"""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pulumi  # queues need no Pulumi

KEY_USES: Mapping[str, str] = {
    "member-key": "By this the nodes of the job know each other",
    "munge-key": "By this the machines of the stack's Slurm know each other",
    "signing-key": "By this the machines of the stack sign run records",
}
"""A stack's keys, and the description that clouds show."""


class SigningKey(NamedTuple):
    """`pem`: the private key, a secret. `public`: the public key, for verifiers."""

    pem: "pulumi.Output[str]"
    public: "pulumi.Output[str]"


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
    import pulumi

    from gangway.components.core.lookup import pinned_secret

    # Only the private key is stored: a public one would differ in every plan, which has no state.
    pem = pinned_secret(f"{stack}-signing-key", "pem", new_signing_key(), 0)
    return SigningKey(pem, pulumi.Output.unsecret(pem.apply(public_half)))


DAYS = 3650
"""Longer than any job; another `refresh` makes another key."""


def new_member_key(job: str) -> str:
    """A private key (P-256) with its anonymous certificate, which both ends present: PEM, below 1,200 characters."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"gangway-{job}"[:64])])
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks differ
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(own, critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (secret + certificate.public_bytes(serialization.Encoding.PEM)).decode()


def member_key(stack: str, refresh: int = 0) -> "pulumi.Output[str]":
    """A stack's key, a secret. Another `refresh` makes another key, which reaches nodes when they start."""
    from gangway.components.core.lookup import pinned_secret

    return pinned_secret(f"{stack}-member-key", "pem", new_member_key(stack), refresh)


def new_munge_key() -> str:
    """A new key as hexadecimal text."""
    return secrets.token_hex(64)  # munge takes 32 to 1,024 bytes (munged(8))


def munge_key(stack: str) -> "pulumi.Output[str]":
    """A stack's key for its Slurm, a secret."""
    from gangway.components.core.lookup import pinned_secret

    return pinned_secret(f"{stack}-munge-key", "text", new_munge_key(), 0)
