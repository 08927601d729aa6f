"""CIFAR-10 (Krizhevsky 2009) from its official archive, the Python version or the binary one.

Pickles are read without executing their code: they may only contain NumPy arrays, which are parsed here.
"""

import io
import pickle
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.regular_files import check_file
from gangway.trainer.data.index import BrokenItemError, Decoded, Recipe, SourceNote
from gangway.trainer.data.sources import check_md5, fetch, files_in, is_remote, md5_of

_PYTHON, _BINARY = "cifar-10-python.tar.gz", "cifar-10-binary.tar.gz"
_CHECKSUMS = MappingProxyType(
    {"c58f30108f718f92721af3b95e74349a": _PYTHON, "c32a1d4ab5d03f1284b67883e8d87530": _BINARY}
)
_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_SPLITS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
)


def cifar10_recipe(source: str, out: Path, *, split: str, allow_other_hash: bool) -> Recipe:
    """Returns the recipe of CIFAR-10 from its archive or folder (TrainerError: missing, damaged or not official)."""
    path = fetch(_get_archive(source, out), out)
    md5 = md5_of(path)
    official = check_md5(path, md5, _CHECKSUMS, allow_other=allow_other_hash)
    members = _read_members(path)
    batches = tuple(_find_member(path, members, batch) for batch in _SPLITS[split])
    return Recipe(
        dataset="cifar10",
        shape=_SHAPE,
        classes=_CLASSES,
        items=batches,
        items_per_shard=1,
        decode=_Batches(path, batches),
        note=SourceNote(
            name="CIFAR-10",
            location=source,
            content=f"md5 {md5}",
            official=official,
            split=split,
            processing="none",
            licence="none stated; cite Krizhevsky 2009",
        ),
    )


def _get_archive(source: str, out: Path) -> str:
    if source.endswith((".tar.gz", ".tgz", ".tar")) or (not is_remote(source) and Path(source).is_file()):
        return source
    names = files_in(source, out).listing().files
    for wanted in (_PYTHON, _BINARY):
        if wanted in names:
            return f"{source.rstrip('/')}/{wanted}"
    raise TrainerError(
        place="--source",
        problem="holds no archive of CIFAR-10",
        value=source,
        allowed=f"{_PYTHON} or {_BINARY}, or a folder that holds one of them",
        fix="fetch one from https://www.cs.toronto.edu/~kriz/cifar.html and do not unpack it",
    )


def _read_members(path: Path) -> list[str]:
    try:
        check_file(path)
        with tarfile.open(path) as archive:
            return archive.getnames()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise TrainerError(
            place=str(path),
            problem=f"is not a readable tar archive: {error}",
            allowed=f"{_PYTHON} or {_BINARY}",
            fix="fetch it again; it may be cut short",
        ) from None


def _find_member(path: Path, members: list[str], batch: str) -> str:
    """The member of a batch: without a suffix in the Python version, .bin in the binary one."""
    for member in members:
        if member.rpartition("/")[2] in (batch, f"{batch}.bin"):
            return member
    raise TrainerError(
        place=str(path),
        problem=f"the archive has no {batch}: it is not CIFAR-10",
        value=", ".join(members[:5]) or "an empty archive",
        allowed=f"{_PYTHON} or {_BINARY}",
        fix="name the CIFAR-10 archive; CIFAR-100 and converted ones are not read",
    )


@dataclass(frozen=True)
class _Batches:
    path: Path
    members: tuple[str, ...]

    def __call__(self, item: int) -> Decoded:
        member = self.members[item]
        try:
            with tarfile.open(self.path) as archive:
                file = archive.extractfile(member)
                content = b"" if file is None else file.read()
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise BrokenItemError(f"the archive is damaged there: {error}") from None
        pixels, labels = _parse_binary(content) if member.endswith(".bin") else _parse_pickle(content)
        if labels.size and not 0 <= labels.min() <= labels.max() < len(_CLASSES):
            raise BrokenItemError(f"a label is not 0..{len(_CLASSES) - 1}")
        return Decoded(pixels.reshape(-1, *_SHAPE), labels)


def _parse_binary(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:  # a byte of label, 3,072 of pixels
    if not content or len(content) % (1 + _PIXELS):
        raise BrokenItemError(f"{len(content)} bytes are not whole records of {1 + _PIXELS}")
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + _PIXELS)
    return records[:, 1:], records[:, 0].astype(np.int64)


def _parse_pickle(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        entries = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        pixels: NDArray[np.uint8] = entries["data"].array()
        labels = np.array([int(label) for label in entries["labels"]], dtype=np.int64)
    except BrokenItemError:
        raise
    except Exception as error:  # a damaged pickle can raise any
        raise BrokenItemError(f"not a batch of CIFAR-10: {type(error).__name__}: {error}") from None
    if pixels.shape != (len(labels), _PIXELS):
        raise BrokenItemError(f"pixels of shape {pixels.shape} for {len(labels)} labels")
    return pixels, labels


class _Array:
    """Replaces numpy.ndarray while a pickle is read, and keeps its state."""

    def __init__(self, *_: object) -> None:
        self._state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._state = state

    def array(self) -> NDArray[np.uint8]:
        _, shape, dtype, is_fortran, content = self._state
        if not isinstance(dtype, _Dtype) or dtype.name not in ("u1", b"u1", "|u1", b"|u1") or is_fortran:
            raise BrokenItemError("its pixels are not bytes in C order")
        return np.frombuffer(content, np.uint8).reshape(shape)


class _Dtype:
    def __init__(self, name: str | bytes, *_: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None: ...


class _Bytes(bytes):
    """Replaces Python 3's function for bytes in the old protocol; `__setstate__` blocks setting attributes."""

    def __new__(cls, text: str, encoding: str) -> Self:
        if encoding not in ("latin1", b"latin1"):
            raise BrokenItemError(f"text in {encoding!r}")
        return super().__new__(cls, text.encode("latin1"))

    def __setstate__(self, state: object) -> None: ...


class _Unpickler(pickle.Unpickler):
    """Knows only parts of NumPy arrays: nothing that a pickle names is ever called."""

    _KNOWN: Mapping[tuple[str, str], object] = MappingProxyType(
        {
            ("numpy.core.multiarray", "_reconstruct"): _Array,
            ("numpy._core.multiarray", "_reconstruct"): _Array,
            ("numpy", "ndarray"): _Array,
            ("numpy", "dtype"): _Dtype,
            ("_codecs", "encode"): _Bytes,
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._KNOWN:
            raise BrokenItemError(f"its pickle asks for {module}.{name}, which is not read: it could run code")
        return self._KNOWN[module, name]
