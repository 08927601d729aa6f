"""The digests of third-party images, from images.lock: base images and images that run are named by tag and digest."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

LOCK = Path(__file__).parent / "images.lock"
_LINE = re.compile(
    r"(?P<image>[a-zA-Z0-9][a-zA-Z0-9._/:\[\]-]*:[a-zA-Z0-9_][a-zA-Z0-9._-]*) (?P<digest>sha256:[0-9a-f]{64})"
)
_HOST = re.compile(r"[^/]*[.:\]][^/]*|localhost")
"""Docker's rule for a first part that is a registry's host, not a folder."""


def full_name(image: str) -> str:
    """An image's name with its registry, Docker Hub by default.

    >>> full_name("python:3.12.12-slim-bookworm")
    'docker.io/library/python:3.12.12-slim-bookworm'
    >>> full_name("nvcr.io/nvidia/cuda:13.2.1-base-ubuntu24.04")
    'nvcr.io/nvidia/cuda:13.2.1-base-ubuntu24.04'
    """
    first, slash, _ = image.partition("/")
    if slash and _HOST.fullmatch(first):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


@cache
def locked_digests(lock: Path = LOCK) -> Mapping[str, str]:
    """Digests by full image name. Raises ValueError for a malformed line."""
    found = {}
    for number, line in enumerate(lock.read_text("utf-8").splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        pin = _LINE.fullmatch(line)
        if pin is None:
            raise ValueError(
                f"{lock}:{number}: {line!r}; allowed: <registry>/<repository>:<tag> sha256:<digest>; "
                "fix: make lock-images"
            )
        found[pin["image"]] = pin["digest"]
    return MappingProxyType(found)


def pinned_image(image: str) -> str:
    """The image with its locked digest; unchanged if it has a digest or is not in the lock."""
    digest = "" if "@" in image else locked_digests().get(full_name(image), "")
    return f"{image}@{digest}" if digest else image
