"""Signatures of run records: `run.json.sig` beside `run.json`, made by a machine of a stack or by `gangway sign`.

A line of it is the signer's public key and his signature over the record's bytes (Ed25519), both base64. A second line
is of the record that stood there before: whoever fetches both files while they are put has one that fits.
"""

import base64
import binascii
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from components.core.findings import InputError
from components.core.whole_files import write_whole
from trainer.core.program import program
from trainer.core.regular_files import read_file, read_regular

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SUFFIX = ".sig"
_PEM = "an Ed25519 key in PEM, such as the stack's output signing_public_key"
_MOST_BYTES = 4096


class ForgedError(InputError):
    """A record that is not what was signed, or that another signed: nothing is made of it."""


class Signature(NamedTuple):
    """What stands beside a record that is as it was signed. `key`: the signer's public key, base64; empty where nobody
    signed. `trusted`: it is the key that the reader named.
    """

    key: str = ""
    trusted: bool = False

    @property
    def state(self) -> str:
        """In one word, for tables: unsigned, signed (by a key that nobody compared) or valid."""
        return "unsigned" if not self.key else "valid" if self.trusted else "signed"

    def to_json(self) -> dict[str, str | None]:
        """For programs."""
        return {"state": self.state, "key": self.key or None}

    def require(self, record: Path, flag: str) -> None:
        """InputError: nobody signed the record, and nobody said by `flag` that it may be so."""
        if not self.key:
            raise InputError(
                str(record),
                "is unsigned, and --key asks for whose it is",
                value=f"no {record.name}{SUFFIX} beside it",
                allowed="a record that the key has signed",
                fix=f"fetch {record.name}{SUFFIX} from where the record is from, too, or say {flag}",
            )

    @property
    def sentence(self) -> str:
        """The same for people, with the key."""
        if not self.key:
            return "unsigned: no run.json.sig beside it says who made it"
        if self.trusted:
            return f"valid: signed by {self.key}"
        return f"signed by {self.key}, which nobody compared: --key FILE names the stack's"


UNSIGNED = Signature()


def get_signature(record: Path, content: bytes, trusted: str | None) -> Signature:
    """Of a record with that content, beside which the signature lies. `trusted`: the public key that must have made it,
    base64; None believes any. ForgedError: the content is not what was signed, or somebody else signed it.
    """
    path = record.with_name(record.name + SUFFIX)
    lines = _lines(path)
    signers = [key for key, signature in lines if _fits(key, signature, content)]
    if signers and (trusted is None or trusted in signers):
        return Signature(trusted or signers[0], trusted=trusted is not None)
    if signers and trusted is not None:
        raise ForgedError(
            str(path),
            "is the signature of another key",
            value=signers[0],
            allowed=trusted,
            fix="fetch the record from its stack's bucket, or name its own stack's key",
        )
    if lines:
        again = f"{program()} sign {shlex.quote(str(record.parent))} --key FILE"
        raise ForgedError(
            str(record),
            "was changed after it was signed, or is another record than the one that was",
            value=f"content that no signature in {path.name} fits",
            allowed=f"what {lines[0][0]} signed",
            fix=f"fetch both files anew; of a run of your own: {again}",
        )
    return UNSIGNED


def sign(record: Path, key: "Ed25519PrivateKey") -> str:
    """Writes the signature beside a record; returns the public key."""
    public = _base64(key.public_key().public_bytes_raw())
    line = f"{public} {_base64(key.sign(read_regular(record.parent, record.name)))}\n"
    write_whole(record.with_name(record.name + SUFFIX), line.encode())
    return public


def read_private_key(path: Path, flag: str) -> "Ed25519PrivateKey":
    """InputError: the file cannot be read, or holds no such key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = _read_key(path, flag)
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(flag, "is no private key", value=str(path), allowed=_PEM, fix="name the private half")
    return key


def read_public_key(path: Path, flag: str) -> str:
    """Of a file with either half, as base64. InputError: as `read_private_key`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    key = _read_key(path, flag)
    if isinstance(key, Ed25519PrivateKey):
        key = key.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(flag, "is a key of another kind", value=str(path), allowed=_PEM, fix="name another file")
    return _base64(key.public_bytes_raw())


def _read_key(path: Path, flag: str) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    try:
        pem = read_file(path)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise InputError(flag, problem, value=str(path), allowed=_PEM, fix="name a file that is there") from None
    try:
        if b"PRIVATE KEY" in pem:
            return serialization.load_pem_private_key(pem, None)
        return serialization.load_pem_public_key(pem)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        raise InputError(flag, "holds no key", value=str(path), allowed=_PEM, fix="name another file") from None


def _lines(path: Path) -> list[tuple[str, str]]:
    """Key and signature of each line; none where there is no file, or an empty one: nothing could sign."""
    try:
        text = read_regular(path.parent, path.name).decode("ascii", errors="replace")[:_MOST_BYTES]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", fix="fetch it anew") from None
    words = [line.split() for line in text.splitlines() if line.strip()]
    if not all(len(line) == 2 for line in words):
        raise ForgedError(
            str(path),
            "is no signature",
            allowed="a public key and a signature in each line",
            fix="fetch it anew with its run.json",
        )
    return [(key, signature) for key, signature in words]


def _fits(key: str, signature: str, content: bytes) -> bool:
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


def get_declared_usage(signatures: Iterable[tuple[str, Signature]], *, asked: bool) -> Iterator[str]:
    """A line on each run, by its id, that is signed; also on those that are not, where somebody named a key."""
    for run_id, signature in signatures:
        if signature.key or asked:
            yield f"{'' if signature.key else 'warning: '}{run_id}: {signature.sentence}"
