"""Runs cosign on this machine to fetch image signatures and verify keyless ones. Needs the network: not for plans."""

import json
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig

TIMEOUT_SEC = 240
"""Above cosign's own timeout of three minutes."""


class SignedPayload(NamedTuple):
    """A signed payload and its signature, both base64."""

    payload: str
    signature: str


def get_signatures(image: str) -> list[SignedPayload]:
    """The registry's signatures of an image. InputError: none that machines can verify."""
    lines = [line for line in _cosign("IMAGE", ["download", "signature", image]).splitlines() if line.strip()]
    found = [signed for line in lines if (signed := _parse_signature(line)) is not None]
    if not found:
        raise InputError(
            "IMAGE",
            "has no signature in the format that machines verify; cosign 3 writes bundles by default",
            value=image,
            allowed="a payload of simple signing",
            fix="sign it with `cosign sign --key FILE IMAGE`; with cosign 3 add --new-bundle-format=false "
            "--use-signing-config=false",
        )
    return found


def check_keyless(config: StackConfig) -> None:
    """Has cosign verify a keyless signature, its identity and issuer. InputError: cosign refuses it."""
    signed, image = config.image.signature, config.ready_image
    if signed is None or signed.identity is None or image is None:
        return
    who = [f"--certificate-identity={signed.identity}", f"--certificate-oidc-issuer={signed.issuer}"]
    _cosign("gangway:image.signature", ["verify", *who, image])


def _parse_signature(line: str) -> SignedPayload | None:
    try:
        found = json.loads(line)
        payload, signature = found["Payload"], found["Base64Signature"]
    except (ValueError, TypeError, KeyError):
        return None
    return SignedPayload(payload, signature) if isinstance(payload, str) and isinstance(signature, str) else None


def _cosign(place: str, arguments: Sequence[str]) -> str:
    command = f"cosign {arguments[0]}"
    try:
        done = subprocess.run(
            ["cosign", *arguments], capture_output=True, text=True, timeout=TIMEOUT_SEC, check=False, errors="replace"
        )
    except FileNotFoundError:
        raise InputError(
            place,
            "cosign is not installed on this machine, which asks the registry for signatures",
            allowed="the command cosign, version 2 or 3",
            fix="install it (docs.sigstore.dev/cosign), or run this on a machine that has it",
        ) from None
    except subprocess.TimeoutExpired:
        problem = f"{command} did not end within {TIMEOUT_SEC} s"
        raise InputError(place, problem, value=arguments[-1], fix="check whether the registry responds") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
        raise InputError(
            place,
            f"{command} failed: {lines[-1].removeprefix('error during command execution: ')}",
            value=arguments[-1],
            allowed="an image with a signature, in a registry that this machine is logged in to",
            fix=f"run `{command} ... {arguments[-1]}` yourself with --verbose for details",
        )
    return done.stdout
