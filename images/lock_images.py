"""Asks the registries what the tags of images stand for, and writes images.lock.

    python -m images.lock_images

Speaks the OCI distribution API without an account: a manifest's bytes are fetched, and their own SHA-256 is the digest.
GANGWAY_REGISTRY_URL, for tests, stands before every registry's host in the place of https://.
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

from images.pins import LOCK, full_name, locked_digests
from images.specs import DOCKERFILE_FLAVOURS, PROMETHEUS_IMAGE

TIMEOUT_SEC = 30
_MOST_BYTES = 4_000_000
# One for all architectures first: nodes and builders take their own from it, and check it by the digests in it.
_KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_HOSTS = {"docker.io": "registry-1.docker.io"}
_CHALLENGE = re.compile(r'(?P<name>\w+)="(?P<value>[^"]*)"')
_HEAD = """\
# Which bytes a tag of an image stood for: what is built on and run is named by the digest beside its tag.
# `make lock-images` asks the registries anew.
"""


class RegistryError(Exception):
    """A registry that did not say what a tag stands for, and why."""


def images_in_use() -> list[str]:
    """Every image of others' that is built on or run, by its full name."""
    bases = {spec.base_image for spec in DOCKERFILE_FLAVOURS.values()}
    return sorted(full_name(image) for image in {*bases, PROMETHEUS_IMAGE} if "@" not in image)


def digest_now(image: str) -> str:
    """What an image's tag stands for today. Raises RegistryError."""
    name, _, tag = image.rpartition(":")
    host, _, repository = name.partition("/")
    url = f"{_base(_HOSTS.get(host, host))}/v2/{repository}/manifests/{tag}"
    headers = {"Accept": ", ".join(_KINDS)}
    try:
        try:
            content = _get(url, headers)
        except urllib.error.HTTPError as refused:
            if refused.code != 401:
                raise
            token = _token(refused.headers.get("WWW-Authenticate", ""), repository)
            content = _get(url, {**headers, "Authorization": f"Bearer {token}"})
    except (OSError, ValueError) as error:
        raise RegistryError(f"{image}: {error}") from None
    kind = json.loads(content).get("mediaType", _KINDS[0]) if content.startswith(b"{") else ""
    if kind not in _KINDS:
        raise RegistryError(f"{image}: the registry answers with {kind or 'no manifest'}")
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _stand_in() -> str:
    return os.environ.get("GANGWAY_REGISTRY_URL", "")


def _base(host: str) -> str:
    return f"{_stand_in()}/{host}" if _stand_in() else f"https://{host}"


def _get(url: str, headers: Mapping[str, str]) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers)), timeout=TIMEOUT_SEC) as answer:
        content: bytes = answer.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"more than {_MOST_BYTES:,} bytes from {url}")
    return content


def _token(challenge: str, repository: str) -> str:
    """Of nobody's, for pulling from one repository, from where the registry says."""
    asked = {found["name"]: found["value"] for found in _CHALLENGE.finditer(challenge)}
    realm = asked.get("realm", "")
    safe = urlsplit(realm).scheme == "https" or realm.startswith(_stand_in() or "https:")
    if not challenge.lower().startswith("bearer ") or not safe:
        raise ValueError(f"the registry wants {challenge!r}, which is no token")
    query = urlencode({"service": asked.get("service", ""), "scope": f"repository:{repository}:pull"})
    answer = json.loads(_get(f"{realm}?{query}", {}))
    return str(answer.get("token") or answer["access_token"])


def write_lock(digests: Mapping[str, str], lock: Path) -> None:
    """In one step, sorted."""
    partial = lock.with_name(f".partial-{lock.name}")
    partial.write_text(_HEAD + "".join(f"{image} {digest}\n" for image, digest in sorted(digests.items())), "utf-8")
    partial.replace(lock)
    locked_digests.cache_clear()


def main(images: Iterable[str] = (), lock: Path = LOCK) -> int:
    """Writes the lock only when every registry has answered. Exit code 0: written; 1: one did not answer."""
    before, now = locked_digests(lock) if lock.exists() else {}, {}
    for image in images or images_in_use():
        try:
            now[image] = digest_now(image)
        except RegistryError as error:
            print(f"error: {error}; nothing is written", file=sys.stderr)
            return 1
        old = before.get(image)
        told = "new" if old is None else "as it was" if old == now[image] else f"moved, from {old}"
        print(f"{image} {now[image]}: {told}")
    write_lock(now, lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
