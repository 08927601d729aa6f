"""`gangway dockerfile` and `gangway signature`: the trainer's image where `up` does not build it, and its signature."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import choose
from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from gangway.stacks.cosign import SignedPayload


def dockerfile(
    flavour: Annotated[str, typer.Argument(help="cpu, cuda, cuda-efa (AWS) or xla (TPUs).")] = "cuda",
    repository: Annotated[str, typer.Option(help="Repository in the proposed commands.")] = "REGISTRY/gangway-trainer",
) -> None:
    """Print the trainer's Dockerfile, and on stderr how to build and push an image for a stack file."""
    from gangway.images.specs import DOCKERFILE_FLAVOURS
    from gangway.stacks.config.paths import ROOT
    from gangway.stacks.estimates.run_context import content_tag, dockerfile_for

    text = dockerfile_for(choose("FLAVOUR", "no such image", flavour, DOCKERFILE_FLAVOURS))
    typer.echo(text, nl=False)
    image = f"{repository}:{content_tag(text)}"
    typer.echo(
        "build and push it on a machine with Docker buildx (a few minutes):\n"
        f"  docker buildx build --platform linux/amd64 --file Dockerfile --tag {shlex.quote(image)} --push "
        f"{shlex.quote(os.path.relpath(ROOT))}\n"
        "get its digest:\n"
        f"  docker buildx imagetools inspect {shlex.quote(image)}\n"
        "write the digest into the stack file:\n"
        f"  gangway:image: {{prebuilt: {repository}@sha256:...}}",
        err=True,
    )


def signature(
    image: Annotated[str, typer.Argument(help="<registry>/<repository>@sha256:<digest>.")],
    key: Annotated[Path, typer.Option(help="PEM file of the public key: cosign.pub.")],
    signed_as: Annotated[str | None, typer.Option(help="Name under which it was signed, if it was copied.")] = None,
) -> None:
    """Print gangway:image with the cosign signature of an image.

    Exit code 0: the signature is valid for the key. 2: none is, or cosign fails.
    """
    from gangway.components.core.image_reference import BY_DIGEST, is_reference, signed_name
    from gangway.stacks.cosign import get_signatures

    if not is_reference(image, BY_DIGEST):
        allowed = "<registry>/<repository>@sha256:<digest>"
        raise InputError("IMAGE", "has no digest", value=image, allowed=allowed, fix="add the image's digest")
    pem = _read_key(key)
    valid = _find_valid(image, pem, get_signatures(image), signed_as or signed_name(image))
    lines = [
        "gangway:image:",
        f"  prebuilt: {image}",
        "  signature:",
        "    public_key: |",
        *(f"      {line}" for line in pem.split("\n")),
        f"    payload: {valid.payload}",
        f"    signature: {valid.signature}",
        *([f"    signed_as: {signed_as}"] if signed_as else []),
    ]
    typer.echo("\n".join(lines))


def _find_valid(image: str, pem: str, found: "list[SignedPayload]", name: str) -> "SignedPayload":
    from gangway.components.core.image_reference import checked_signature

    problem: InputError | None = None
    for signed in found:
        try:
            checked_signature(image, pem, signed.payload, signed.signature, name)
        except InputError as error:
            problem = error
        else:
            return signed
    assert problem is not None, "get_signatures returns at least one"
    where = "--key" if problem.place == "public_key" else f"the {problem.place} of {image}"
    raise InputError(where, problem.problem, allowed=problem.allowed, fix=problem.fix)


def _read_key(path: Path) -> str:
    from gangway.trainer.core.regular_files import read_text_file

    try:
        return read_text_file(path, encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        problem = f"cannot be read: {getattr(error, 'strerror', None) or 'not text'}"
        allowed = "a PEM file such as cosign.pub"
        raise InputError("--key", problem, value=str(path), allowed=allowed, fix="name the public key") from None
