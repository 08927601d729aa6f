"""A job's key: a PEM file with a private key and its self-signed certificate, which nodes show each other."""

import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.regular_files import open_file

FLAG = "--member-key"
_ALLOWED = "a PEM file with one private key, without a passphrase, and the one certificate that belongs to it"
_MAKE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=job "
    "-keyout job.pem -out cert.pem && cat cert.pem >> job.pem"
)
_MAX_BYTES = 1 << 16
_PRIVATE_KEY = re.compile("-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----")
_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name."""


@dataclass(frozen=True)
class MemberKey:
    """TLS contexts for both ends, TLS 1.3 only; `certificate` is DER."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    certificate: bytes

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a key (TrainerError: missing or not a job's key)."""
        text = _read_text(path)
        certificates = _CERTIFICATE.findall(text)
        for what, found in (("private key", _PRIVATE_KEY.findall(text)), ("certificate", certificates)):
            if len(found) != 1:
                raise _key_error(path, f"holds {len(found) or 'no'} {what}{'s' * (len(found) > 1)}")
        try:
            return cls(
                _make_context(path, ssl.PROTOCOL_TLS_SERVER),
                _make_context(path, ssl.PROTOCOL_TLS_CLIENT),
                ssl.PEM_cert_to_DER_cert(certificates[0]),
            )
        except ssl.SSLError as error:
            is_mismatch = error.reason == "KEY_VALUES_MISMATCH"
            problem = "key and certificate do not belong together" if is_mismatch else f"cannot be read: {error}"
        except ValueError as error:
            problem = f"cannot be read: {error}"
        raise _key_error(path, problem)

    def check(self, peer: bytes | None) -> None:
        """Raise PermissionError if the peer's certificate (DER) is not the job's."""
        if peer != self.certificate:
            raise PermissionError("another certificate than the job's")


def _read_text(path: Path) -> str:
    try:
        with open_file(path) as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise _key_error(path, error.strerror or str(error)) from None
    if len(content) > _MAX_BYTES:
        raise _key_error(path, "is too long for a key")
    return content.decode("ascii", "replace").replace("\r\n", "\n")


def _make_context(path: Path, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the key identifies the peer, not its address
    context.verify_mode = ssl.CERT_REQUIRED
    # Node clocks may be hours off, and the key is valid for as long as the job lasts.
    context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_CHECK_TIME)
    context.load_cert_chain(path, password="")  # otherwise OpenSSL asks for one on the terminal
    context.load_verify_locations(path)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # every connection shows its certificate
    return context


def _key_error(path: Path, problem: str) -> TrainerError:
    return TrainerError(place=FLAG, problem=problem, value=str(path), allowed=_ALLOWED, fix=f"make one: {_MAKE}")
