"""The build context as one archive: the files that the Dockerfile copies, with equal bytes for equal content."""

import gzip
import hashlib
import io
import tarfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gangway.images.specs import Flavour
from gangway.stacks.config.paths import ROOT
from gangway.stacks.estimates.run_context import content_tag, context_files, dockerfile_for

DOCKERFILE = "Dockerfile"
PLATFORM = "linux/amd64"


@dataclass(frozen=True)
class BuildContext:
    """What a builder gets. `repository`: registry and name; `tag`: by content; `archive`: the context as .tar.gz."""

    repository: str
    tag: str
    archive: bytes

    @property
    def image(self) -> str:
        """The reference to push."""
        return f"{self.repository}:{self.tag}"

    @cached_property
    def sha256(self) -> str:
        """The hash of the archive."""
        return hashlib.sha256(self.archive).hexdigest()

    @property
    def files(self) -> list[str]:
        """The names in the archive."""
        with tarfile.open(fileobj=io.BytesIO(self.archive)) as tar:
            return tar.getnames()

    @property
    def object_name(self) -> str:
        """The archive's name in a bucket: an equal context is the same object."""
        return f"contexts/{self.sha256}.tar.gz"


def pack_context(flavour: Flavour, repository: str, root: Path = ROOT) -> BuildContext:
    """Packs the context and the Dockerfile of a flavour."""
    dockerfile = dockerfile_for(flavour)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file, tarfile.open(fileobj=file, mode="w") as tar:
        _add(tar, DOCKERFILE, dockerfile.encode())
        for path in context_files(root):
            _add(tar, path.relative_to(root).as_posix(), path.read_bytes())
    return BuildContext(repository, content_tag(dockerfile, root), packed.getvalue())


def unpack_context(context: BuildContext, folder: Path) -> None:
    """Unpacks the archive, so that a local build sees the bytes that a remote one does."""
    with tarfile.open(fileobj=io.BytesIO(context.archive)) as tar:
        tar.extractall(folder, filter="data")


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)  # neither owner nor time of this machine
    entry.size, entry.mode = len(content), 0o644
    tar.addfile(entry, io.BytesIO(content))
