"""Blobs of Azure Storage: put from files and looked for, by the token of the machine's own identity.

Addresses are `https://ACCOUNT.blob.core.windows.net/CONTAINER/NAME`. One request puts a file whole, up to the 5000 MiB
that Put Blob takes at once ("Put Blob", from version 2019-12-12 on): a checkpoint is smaller.
"""

from pathlib import Path
from urllib.parse import quote, urlsplit

from images.on_node.azure import STORAGE, Azure
from images.on_node.web import RefusedError

__all__ = ["exists", "put", "put_folder"]

VERSION = {"x-ms-version": "2021-12-02"}
PUT = {**VERSION, "x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}


def put(azure: Azure, file: Path, url: str) -> None:
    """Copies a file into a container."""
    # From the disk as it goes: a checkpoint need not fit into memory beside the trainer.
    with file.open("rb") as content:
        azure.open("PUT", _quoted(url), STORAGE, content, PUT).close()


def put_folder(azure: Azure, folder: Path, url: str) -> None:
    """Copies all files of a folder into a container, below `url`."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            put(azure, file, f"{url.rstrip('/')}/{file.relative_to(folder).as_posix()}")


def exists(azure: Azure, url: str) -> bool:
    """Whether there is such a blob. Raises RefusedError where that may not be known."""
    try:
        azure.open("HEAD", _quoted(url), STORAGE, headers=VERSION).close()
    except RefusedError as error:
        if error.status == 404:
            return False
        raise
    return True


def _quoted(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{quote(url.partition(parts.netloc)[2], safe='/')}"
