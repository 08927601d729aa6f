"""What the trainer's image is built from: its Dockerfile, its build context, and a tag that follows the content.

The build itself is `components.image.TrainerImage`; what is in the Dockerfile is `images`; where it is pushed to, and
who may, is the provider's.
"""

import hashlib
from pathlib import Path

import pulumi

from components.image import CONTENT_PREFIX, RegistryLogin, TrainerImage
from images import DOCKERFILE_FLAVOURS, Flavour, render_dockerfile

__all__ = ["CONTEXT", "build_image", "content_tag", "dockerfile_for"]

# Relative to the program's folder, so that the stack's state is the same on everybody's machine.
CONTEXT = ".."
_ROOT = Path(__file__).resolve().parents[2]


def dockerfile_for(flavour: Flavour) -> str:
    """The Dockerfile of a flavour."""
    return render_dockerfile(DOCKERFILE_FLAVOURS[flavour])


def content_tag(dockerfile: str, root: Path = _ROOT) -> str:
    """The image's tag: `content-` and 16 hexadecimal digits over all that goes in. Equal content is built once.

    All that goes in is the Dockerfile, what it copies, and .dockerignore, which decides what of that the builder sees.
    """
    digest = hashlib.sha256(dockerfile.encode())
    copied = sorted([*(root / "trainer").rglob("*"), *(root / "images" / "locks").glob("*.lock")])
    for path in [root / ".dockerignore", *copied]:
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return CONTENT_PREFIX + digest.hexdigest()[:16]


def build_image(
    name: str,
    flavour: Flavour,
    repository_url: pulumi.Input[str],
    registry: RegistryLogin,
    opts: pulumi.ResourceOptions,
) -> TrainerImage:
    """Has `up` build the image of a flavour, push it to `repository_url` and know it by its digest from then on."""
    dockerfile = dockerfile_for(flavour)
    return TrainerImage(
        name,
        {
            "repository_url": repository_url,
            "registry": registry,
            "dockerfile": dockerfile,
            "context": CONTEXT,
            "platform": "linux/amd64",
            "tag": content_tag(dockerfile),
        },
        opts,
    )
