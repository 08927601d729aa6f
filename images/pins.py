"""The digests of images that others publish: images.lock, by their tags. What is built on, or run, is named by both."""

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
"""The first part of a name that is a registry's host, as Docker tells it from a folder."""


def full_name(image: str) -> str:
    """An image's name with the registry that Docker takes where none is named.

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
    """Digests by the full names of images. Raises ValueError for a line that is neither a comment nor a pin."""
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
    """The image with the digest that the lock has for its tag; as it is where it has one, or the lock has none."""
    digest = "" if "@" in image else locked_digests().get(full_name(image), "")
    return f"{image}@{digest}" if digest else image
