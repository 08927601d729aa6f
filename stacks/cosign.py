"""cosign's own command on this machine: it fetches signatures of images, and looks at keyless ones, which need the
network. Nothing here is asked by a plan.
"""

import json
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from components.core.findings import InputError
from stacks.config.stack_config import StackConfig

TIMEOUT_SEC = 240
"""Above cosign's own, which is three minutes."""


class SignedPayload(NamedTuple):
    """What somebody signed of an image, and the signature: both base64."""

    payload: str
    signature: str


def get_signatures(image: str) -> list[SignedPayload]:
    """The signatures that the registry has of an image. InputError: there is none that machines could look at."""
    lines = [line for line in _cosign("IMAGE", ["download", "signature", image]).splitlines() if line.strip()]
    found = [signed for line in lines if (signed := _signed(line)) is not None]
    if not found:
        raise InputError(
            "IMAGE",
            "has no signature of the form that machines look at; cosign 3 writes another one, its bundle",
            value=image,
            allowed="a payload of simple signing",
            fix="sign it by `cosign sign --key FILE IMAGE`, with cosign 3 and --new-bundle-format=false "
            "--use-signing-config=false besides",
        )
    return found


def check_keyless(config: StackConfig) -> None:
    """Has cosign look at the image's signature where the stack file names who must have signed it keyless: the
    certificate's chain, its identity and issuer, the entry in the log. InputError: cosign is not satisfied.
    """
    signed, image = config.image.signature, config.ready_image
    if signed is None or signed.identity is None or image is None:
        return
    who = [f"--certificate-identity={signed.identity}", f"--certificate-oidc-issuer={signed.issuer}"]
    _cosign("gangway:image.signature", ["verify", *who, image])


def _signed(line: str) -> SignedPayload | None:
    try:
        found = json.loads(line)
        payload, signature = found["Payload"], found["Base64Signature"]
    except (ValueError, TypeError, KeyError):
        return None
    return SignedPayload(payload, signature) if isinstance(payload, str) and isinstance(signature, str) else None


def _cosign(place: str, arguments: Sequence[str]) -> str:
    """What it prints. InputError: it is not there, or fails."""
    command = f"cosign {arguments[0]}"
    try:
        done = subprocess.run(
            ["cosign", *arguments], capture_output=True, text=True, timeout=TIMEOUT_SEC, check=False, errors="replace"
        )
    except FileNotFoundError:
        raise InputError(
            place,
            "cosign is not on this machine, which asks the registry for signatures",
            allowed="the command cosign, of version 2 or 3",
            fix="install it (docs.sigstore.dev/cosign), or run this where it is",
        ) from None
    except subprocess.TimeoutExpired:
        problem = f"{command} has not ended after {TIMEOUT_SEC} s"
        raise InputError(place, problem, value=arguments[-1], fix="look whether the registry answers") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
        raise InputError(
            place,
            f"{command} says: {said[-1].removeprefix('error during command execution: ')}",
            value=arguments[-1],
            allowed="an image with a signature, in a registry that this machine is logged in to",
            fix=f"run `{command} ... {arguments[-1]}` by hand; it says more with --verbose",
        )
    return done.stdout
