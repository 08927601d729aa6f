"""`gangway dockerfile`: the trainer's image for providers where `up` does not build it (hosts and OpenStack).

$ gangway dockerfile cuda > Dockerfile
"""

import os
import shlex
from typing import Annotated

import typer

from gangway.components.core.findings import InputError


def dockerfile(
    flavour: Annotated[str, typer.Argument(help="cpu, cuda, cuda-efa (AWS) or xla (TPUs).")] = "cuda",
    repository: Annotated[str, typer.Option(help="Repository in the proposed commands.")] = "REGISTRY/gangway-trainer",
) -> None:
    """Print the trainer's Dockerfile, and on stderr how to build and push an image for a stack file."""
    from gangway.images.specs import DOCKERFILE_FLAVOURS
    from gangway.stacks.config.paths import ROOT
    from gangway.stacks.estimates.run_context import content_tag, dockerfile_for

    known = next((each for each in DOCKERFILE_FLAVOURS if each == flavour), None)
    if known is None:
        raise InputError.not_among("FLAVOUR", "no such image", flavour, DOCKERFILE_FLAVOURS)
    text = dockerfile_for(known)
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
