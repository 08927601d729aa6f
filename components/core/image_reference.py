"""Container images: patterns of their names, and cosign's signatures, verified without cosign and without a network.

The names follow the grammar of registries and engines (github.com/distribution/reference), which has no spaces, quotes,
line breaks or other characters special to shells, unit files or YAML. cosign signs a "simple signing" payload, the same
bytes for the same name and digest (github.com/sigstore/sigstore, pkg/signature/payload, cosign 2). We build it from the
digest that will run, so no payload has to be trusted.
"""

import base64
import binascii
import json
import re
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey


_COMPONENT = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_COMPONENT}(?:\.{_COMPONENT})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?"
_FOLDER = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
REPOSITORY = rf"{_FOLDER}(?:/{_FOLDER})*"
"""The part after the registry's host."""
NAME = rf"(?:{_DOMAIN}/)?{REPOSITORY}"
DIGEST = r"sha256:[0-9a-f]{64}"
TAG = r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}"
BY_DIGEST = rf"{NAME}@{DIGEST}"
"""An immutable reference."""
ONE_VERSION = rf"{NAME}(?::{TAG}(?:@{DIGEST})?|@{DIGEST})"
"""A tag, a digest, or both."""
LETTERS = frozenset(ascii_letters + digits + "._-/:@[]")
"""All characters of a reference."""
_MAX_NAME = 255


def is_reference(text: str, pattern: str) -> bool:
    """Whether the whole text is a reference of this form (BY_DIGEST, ONE_VERSION) with a name that engines accept."""
    name = text.partition("@")[0]
    return re.fullmatch(pattern, text) is not None and len(name) <= _MAX_NAME


_TYPE = "cosign container image signature"
_MOST_BYTES = 4096


class ImageSignature(BaseModel):
    """What a machine needs to verify the signature of its image. `key`: the public key, ECDSA on P-256, as base64 of
    its DER form (SubjectPublicKeyInfo); `signature`: base64 of its DER form, over SHA-256 of the payload; `name`:
    registry and repository as signed; `optional`: the payload's last value as JSON: null, or the signer's annotations.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    key: str
    signature: str
    name: str
    optional: str = "null"


def payload_text(name: str, digest: str, optional: str) -> str:
    """The payload that cosign signs for an image; `verify-image.sh` builds the same."""
    return (
        f'{{"critical":{{"identity":{{"docker-reference":"{name}"}},"image":{{"docker-manifest-digest":"{digest}"}},'
        f'"type":"{_TYPE}"}},"optional":{optional}}}'
    )


def signed_name(image: str) -> str:
    """An image's registry and repository as cosign writes it: Docker Hub's with the host of its index.

    >>> signed_name("docker.io/library/python@sha256:" + "0" * 64)
    'index.docker.io/library/python'
    """
    name = image.partition("@")[0]
    return f"index.{name}" if name.startswith("docker.io/") else name


def checked_signature(image: str, public_key: str, payload: str, signature: str, name: str) -> ImageSignature:
    """Verify a signature and return what machines need to repeat it. `public_key` is PEM; `payload` (as of `cosign
    download signature`) and `signature` are base64; `name`: the payload's, `signed_name` or another if the image was
    copied since. InputError, at public_key, payload or signature: invalid, or of a form that machines cannot verify.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA

    key = _p256(public_key)
    content, own = _bytes(payload, "payload"), _bytes(signature, "signature")
    optional = _optional(content, name, image.partition("@")[2])
    try:
        key.verify(own, content, ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise InputError(
            "signature",
            "does not fit the payload by this key: another key signed, or a part of it was changed",
            allowed="what the key's owner signed of this very image",
            fix=_OBTAIN,
        ) from None
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return ImageSignature(
        key=base64.b64encode(der).decode(),
        signature=base64.b64encode(own).decode(),
        name=name,
        optional=optional,
    )


_OBTAIN = "`gangway signature IMAGE --key FILE` prints the signature that there is"
_FORM = "cosign's payload (simple signing), as `cosign sign --key` of version 2 writes it"


def _p256(pem: str) -> "EllipticCurvePublicKey":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    allowed = "one public key in PEM, ECDSA on P-256: what `cosign generate-key-pair` writes to cosign.pub"
    try:
        key = load_pem_public_key(pem.encode())
    except (TypeError, ValueError, UnsupportedAlgorithm):
        fix = "put the text of cosign.pub there"
        raise InputError("public_key", "holds no public key", allowed=allowed, fix=fix) from None
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
        fix = "sign by a key of that kind"
        raise InputError("public_key", "is a key of another kind", allowed=allowed, fix=fix)
    return key


def _bytes(text: str, part: str) -> bytes:
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if not content or len(content) > _MOST_BYTES:
        raise InputError(part, "is no base64", allowed=f"1 to {_MOST_BYTES} bytes as base64", fix=_OBTAIN)
    return content


def _payload_error(problem: str, allowed: str) -> InputError:
    return InputError("payload", problem, allowed=allowed, fix=_OBTAIN)


def _optional(content: bytes, name: str, digest: str) -> str:
    """The payload's last value. InputError: the payload is about another name or digest, or ambiguous."""
    found = _parsed(content)
    try:
        signed, of = found["critical"]["identity"]["docker-reference"], found["critical"]["image"]
        has = of["docker-manifest-digest"]
        optional = found["optional"]
    except (KeyError, TypeError):
        raise _payload_error("is of a form that nobody here knows", _FORM) from None
    if has != digest:
        raise _payload_error(f"is of another image, {str(has)[:80]!r}", digest)
    if signed != name:
        fix = "sign the image where it is, or write signed_as where it was copied from there"
        raise InputError("payload", f"names the image {str(signed)[:255]!r}", allowed=name, fix=fix)
    whole = payload_text(name, digest, "")
    text = content.decode()
    tail = text[len(whole) - 1 : -1]
    remarks = optional or {}
    is_flat = isinstance(remarks, dict) and all(isinstance(value, str | int | float) for value in remarks.values())
    if len(found) != 2 or not is_flat or text != payload_text(name, digest, tail) or not tail.isprintable():
        raise _payload_error("is written in another way than cosign's", _FORM)
    return tail


def _parsed(content: bytes) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise _payload_error("has a key twice", "each key once")
        return found

    try:
        return json.loads(content.decode(), object_pairs_hook=once, parse_constant=int)  # refuses NaN
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise _payload_error("is no JSON", _FORM) from None
