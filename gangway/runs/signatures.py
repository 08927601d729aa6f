"""Signatures of run records: `run.json.sig` next to `run.json`, written by a stack's machine or by `gangway sign`.

Each line has a public key and its signature of the record's bytes (Ed25519), both base64. A second line signs the
previous record, so that one line fits for a reader who fetches both files during an update.
"""

import base64
import binascii
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import write_whole
from gangway.trainer.core.host import program
from gangway.trainer.core.regular_files import read_file, read_regular

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SUFFIX = ".sig"
_PEM = "an Ed25519 key in PEM, such as the stack's output signing_public_key"
_MAX_BYTES = 4096


class ForgedError(InputError):
    """A record that differs from what was signed, or has another signer. Commands refuse it."""


class Signature(NamedTuple):
    """`key`: the signer's public key, base64, empty if unsigned; `trusted`: whether it is the one the reader named."""

    key: str = ""
    trusted: bool = False

    @property
    def state(self) -> str:
        """One word for tables: unsigned, signed (by an unverified key) or valid."""
        return "unsigned" if not self.key else "valid" if self.trusted else "signed"

    def to_json(self) -> dict[str, str | None]:
        """Return plain JSON data."""
        return {"state": self.state, "key": self.key or None}

    def require(self, record: Path, flag: str) -> None:
        """InputError: the record is unsigned. `flag`: what allows that."""
        if not self.key:
            raise InputError(
                str(record),
                "is unsigned, but --key requires a signature",
                value=f"no {record.name}{SUFFIX} next to it",
                allowed="a record signed by the key",
                fix=f"fetch {record.name}{SUFFIX} as well, or add {flag}",
            )

    @property
    def sentence(self) -> str:
        """The state in words, with the key."""
        if not self.key:
            return "unsigned: there is no run.json.sig"
        if self.trusted:
            return f"valid: signed by {self.key}"
        return f"signed by {self.key}, not verified: pass the stack's key with --key FILE"


UNSIGNED = Signature()


def get_signature(record: Path, content: bytes, trusted: str | None) -> Signature:
    """`trusted`: the required public key, base64; None accepts any. ForgedError: content or signer differ."""
    path = record.with_name(record.name + SUFFIX)
    lines = _read_lines(path)
    signers = [key for key, signature in lines if _is_valid(key, signature, content)]
    if signers and (trusted is None or trusted in signers):
        return Signature(trusted or signers[0], trusted=trusted is not None)
    if signers and trusted is not None:
        raise ForgedError(
            str(path),
            "is signed by another key",
            value=signers[0],
            allowed=trusted,
            fix="fetch the record from its stack's bucket, or pass the key of its stack",
        )
    if lines:
        sign_again = f"{program()} sign {shlex.quote(str(record.parent))} --key FILE"
        raise ForgedError(
            str(record),
            "was changed after it was signed, or is another record",
            value=f"content that matches no signature in {path.name}",
            allowed=f"the content that {lines[0][0]} signed",
            fix=f"fetch both files again; for your own run: {sign_again}",
        )
    return UNSIGNED


def sign(record: Path, key: "Ed25519PrivateKey") -> str:
    """Write the signature next to a record and return the public key."""
    public = _base64(key.public_key().public_bytes_raw())
    line = f"{public} {_base64(key.sign(read_regular(record.parent, record.name)))}\n"
    write_whole(record.with_name(record.name + SUFFIX), line.encode())
    return public


def read_private_key(path: Path, flag: str) -> "Ed25519PrivateKey":
    """Read a private key from PEM. InputError: unreadable, or not such a key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = _read_key(path, flag)
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(flag, "is not a private key", value=str(path), allowed=_PEM, fix="name the private key")
    return key


def read_public_key(path: Path, flag: str) -> str:
    """Read the public key of a file with either half, as base64. InputError: see `read_private_key`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    key = _read_key(path, flag)
    if isinstance(key, Ed25519PrivateKey):
        key = key.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(flag, "is another type of key", value=str(path), allowed=_PEM, fix="name another file")
    return _base64(key.public_bytes_raw())


def _read_key(path: Path, flag: str) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    try:
        pem = read_file(path)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise InputError(flag, problem, value=str(path), allowed=_PEM, fix="name an existing file") from None
    try:
        if b"PRIVATE KEY" in pem:
            return serialization.load_pem_private_key(pem, None)
        return serialization.load_pem_public_key(pem)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        raise InputError(flag, "contains no key", value=str(path), allowed=_PEM, fix="name another file") from None


def _read_lines(path: Path) -> list[tuple[str, str]]:
    """Key and signature of each line; nodes without a key leave no file or an empty one."""
    try:
        text = read_regular(path.parent, path.name).decode("ascii", errors="replace")[:_MAX_BYTES]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", fix="fetch it again") from None
    words = [line.split() for line in text.splitlines() if line.strip()]
    if not all(len(line) == 2 for line in words):
        raise ForgedError(
            str(path),
            "is not a signature",
            allowed="a public key and a signature in each line",
            fix="fetch it again with its run.json",
        )
    return [(key, signature) for key, signature in words]


def _is_valid(key: str, signature: str, content: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True))
        public.verify(base64.b64decode(signature, validate=True), content)
    except (binascii.Error, InvalidSignature, ValueError):
        return False
    return True


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def signature_lines(signatures: Iterable[tuple[str, Signature]], *, with_unsigned: bool) -> Iterator[str]:
    """A line for each signed run by its id, and if `with_unsigned` a warning for each unsigned one."""
    for run_id, signature in signatures:
        if signature.key or with_unsigned:
            yield f"{'' if signature.key else 'warning: '}{run_id}: {signature.sentence}"
