"""Signatures of images in cosign's form, made by OpenSSL's command: what cosign 2.6.5 and 3.1.3 wrote with a key pair
of theirs into a registry here was of these very bytes (`test_image_reference.py` has one of them).
"""

import base64
import subprocess
from pathlib import Path

from gangway.components.core.image_reference import payload_text


def key_pair(folder: Path, name: str = "own", curve: str = "prime256v1") -> tuple[Path, str]:
    """The file of a new private key, and the public half as PEM."""
    private = folder / f"{name}.key"
    _openssl("ecparam", "-name", curve, "-genkey", "-noout", "-out", str(private))
    return private, _openssl("pkey", "-in", str(private), "-pubout").decode()


def signed_payload(private: Path, name: str, digest: str, optional: str = "null") -> tuple[str, str]:
    """Payload and signature, both base64."""
    return signed_text(private, payload_text(name, digest, optional))


def signed_text(private: Path, text: str) -> tuple[str, str]:
    """The same of any text."""
    signature = _openssl("dgst", "-sha256", "-sign", str(private), content=text.encode())
    return base64.b64encode(text.encode()).decode(), base64.b64encode(signature).decode()


def _openssl(*arguments: str, content: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *arguments], input=content, capture_output=True, check=True).stdout
