"""Resolves the tags of images to digests, and writes images.lock.

    python -m gangway.images.lock_images

Uses the OCI distribution API without an account; the digest is the SHA-256 of a manifest's bytes. Tests set
GANGWAY_REGISTRY_URL, which replaces https:// before each registry's host.
"""

import hashlib
import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from gangway.images.specs import (
    DOCKERFILE_FLAVOURS,
    EXPORTER_IMAGES,
    LOCK,
    PROMETHEUS_IMAGE,
    full_name,
    locked_digests,
)

TIMEOUT_SEC = 30
_MAX_BYTES = 4_000_000
# Indexes for all architectures first: nodes and builders pick their own from them, by its digest.
_MEDIA_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_HOSTS = {"docker.io": "registry-1.docker.io"}
_CHALLENGE = re.compile(r'(?P<name>\w+)="(?P<value>[^"]*)"')
_HEAD = """\
# The digest of each image's tag. Base images and images that run are named by tag and digest.
# To update: make lock-images
"""


class RegistryError(Exception):
    """A tag could not be resolved."""


def images_in_use() -> list[str]:
    """The full name of every third-party image that is built on or run."""
    bases = {spec.base_image for spec in DOCKERFILE_FLAVOURS.values()}
    return sorted(
        full_name(image) for image in {*bases, PROMETHEUS_IMAGE, *EXPORTER_IMAGES.values()} if "@" not in image
    )


def fetch_digest(image: str) -> str:
    """The current digest of an image's tag. Raises RegistryError."""
    name, _, tag = image.rpartition(":")
    host, _, repository = name.partition("/")
    root = f"{_test_registry()}/" if _test_registry() else "https://"
    url = f"{root}{_HOSTS.get(host, host)}/v2/{repository}/manifests/{tag}"
    headers = {"Accept": ", ".join(_MEDIA_TYPES)}
    try:
        try:
            content = _get(url, headers)
        except urllib.error.HTTPError as refused:
            if refused.code != 401:
                raise
            token = _fetch_token(refused.headers.get("WWW-Authenticate", ""), repository)
            content = _get(url, {**headers, "Authorization": f"Bearer {token}"})
    except (OSError, ValueError) as error:
        raise RegistryError(f"{image}: {error}") from None
    kind = json.loads(content).get("mediaType", _MEDIA_TYPES[0]) if content.startswith(b"{") else ""
    if kind not in _MEDIA_TYPES:
        raise RegistryError(f"{image}: the registry returned {kind or 'no JSON'}, not a manifest")
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _test_registry() -> str:
    return os.environ.get("GANGWAY_REGISTRY_URL", "")


def _get(url: str, headers: Mapping[str, str]) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers)), timeout=TIMEOUT_SEC) as answer:
        content: bytes = answer.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"{url} returned more than {_MAX_BYTES:,} bytes")
    return content


def _fetch_token(challenge: str, repository: str) -> str:
    fields = {found["name"]: found["value"] for found in _CHALLENGE.finditer(challenge)}
    realm = fields.get("realm", "")
    is_safe = urlsplit(realm).scheme == "https" or realm.startswith(_test_registry() or "https:")
    if not challenge.lower().startswith("bearer ") or not is_safe:
        raise ValueError(f"unsupported WWW-Authenticate: {challenge!r}; allowed: Bearer with an https realm")
    query = urlencode({"service": fields.get("service", ""), "scope": f"repository:{repository}:pull"})
    answer = json.loads(_get(f"{realm}?{query}", {}))
    return str(answer.get("token") or answer["access_token"])


def write_lock(digests: Mapping[str, str], lock: Path) -> None:
    """Replaces the lock, sorted."""
    partial = lock.with_name(f".partial-{lock.name}")
    partial.write_text(_HEAD + "".join(f"{image} {digest}\n" for image, digest in sorted(digests.items())), "utf-8")
    partial.replace(lock)
    locked_digests.cache_clear()


def main(images: Iterable[str] = (), lock: Path = LOCK) -> int:
    """Writes the lock if every tag was resolved. Exit code 0: written; 1: not written."""
    before, now = locked_digests(lock) if lock.exists() else {}, {}
    for image in images or images_in_use():
        try:
            now[image] = fetch_digest(image)
        except RegistryError as error:
            print(f"error: {error}; {lock.name} is unchanged", file=sys.stderr)
            return 1
        old = before.get(image)
        change = "new" if old is None else "unchanged" if old == now[image] else f"moved, from {old}"
        print(f"{image} {now[image]}: {change}")
    write_lock(now, lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
