"""`gangway signature`: the signature of an image, as a stack file has it, so that machines look at it by themselves.

    $ gangway signature REGISTRY/REPOSITORY@sha256:DIGEST --key cosign.pub

Heavy imports stand inside the command: `gangway --help` imports this module.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.core.findings import InputError

if TYPE_CHECKING:
    from stacks.cosign import SignedPayload


def signature(
    image: Annotated[str, typer.Argument(help="<registry>/<repository>@sha256:<digest>.")],
    key: Annotated[Path, typer.Option(help="PEM file of the public key: cosign.pub.")],
    signed_as: Annotated[str | None, typer.Option(help="Name under which it was signed, if it was copied.")] = None,
) -> None:
    """Print gangway:image with the cosign signature of an image.

    Exit code 0: the signature is valid for the key. 2: none is, or cosign fails.
    """
    from components.core.image_reference import BY_DIGEST, is_reference
    from components.core.image_signature import signed_name
    from stacks.cosign import get_signatures

    if not is_reference(image, BY_DIGEST):
        allowed = "<registry>/<repository>@sha256:<digest>"
        raise InputError("IMAGE", "not an image by its digest", value=image, allowed=allowed, fix="name its digest")
    pem = _read(key)
    held = _that_holds(image, pem, get_signatures(image), signed_as or signed_name(image))
    lines = [
        "gangway:image:",
        f"  prebuilt: {image}",
        "  signature:",
        "    public_key: |",
        *(f"      {line}" for line in pem.split("\n")),
        f"    payload: {held.payload}",
        f"    signature: {held.signature}",
        *([f"    signed_as: {signed_as}"] if signed_as else []),
    ]
    typer.echo("\n".join(lines))


def _that_holds(image: str, pem: str, found: "list[SignedPayload]", name: str) -> "SignedPayload":
    """The first that holds. InputError: none does, with what is wrong with the last."""
    from components.core.image_signature import SignatureError, checked_signature

    problem: SignatureError | None = None
    for signed in found:
        try:
            checked_signature(image, pem, signed.payload, signed.signature, name)
        except SignatureError as error:
            problem = error
        else:
            return signed
    assert problem is not None, "get_signatures has found one"
    where = "--key" if problem.part == "public_key" else f"the {problem.part} of {image}"
    raise InputError(where, problem.problem, allowed=problem.allowed, fix=problem.fix)


def _read(path: Path) -> str:
    from trainer.core.regular_files import read_text_file

    try:
        return read_text_file(path, encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        problem = f"cannot be read: {getattr(error, 'strerror', None) or 'no text'}"
        raise InputError("--key", problem, value=str(path), allowed="a file like cosign.pub", fix="name one") from None
