"""Buckets of three clouds on loopback, and archives in exactly the official formats, only smaller."""

import io
import pickle
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.moto_http import Moto, Quiet

Pixels = NDArray[np.uint8]
_BUCKET = "pictures"


@dataclass(frozen=True)
class Bucket:
    """A bucket of one cloud, reachable under its own kind of URL."""

    url: str
    put: Callable[[str, bytes], None]


class _Azure(Quiet):
    """The two requests of Blob Storage that reading needs: list a container, get a blob (or a range of it)."""

    blobs: dict[str, bytes]

    def reply(self) -> tuple[int, dict[str, str], bytes]:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if query.get("comp") == "list":
            return 200, {"Content-Type": "application/xml"}, self._listed(query.get("prefix", "")).encode()
        content = self.blobs.get(unquote(url.path).split("/", 2)[2])
        if content is None:
            return 404, {}, b""
        told = {"ETag": '"1"', "Last-Modified": formatdate(usegmt=True), "content-length": str(len(content))}
        wanted = self.headers.get("Range") or self.headers.get("x-ms-range")
        if wanted is None:
            return 200, told, content
        first, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
        part = content[first : last + 1]
        return 206, {**told, "Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(content)}"}, part

    def _listed(self, prefix: str) -> str:
        """One level, as the delimiter asks for."""
        below = sorted(name for name in self.blobs if name.startswith(prefix))
        folders = sorted(
            {prefix + name[len(prefix) :].split("/")[0] + "/" for name in below if "/" in name[len(prefix) :]}
        )
        entries = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{formatdate(usegmt=True)}</Last-Modified>"
            f"<Etag>1</Etag><Content-Length>{len(self.blobs[name])}</Content-Length>"
            f"<Content-Type>application/octet-stream</Content-Type></Properties></Blob>"
            for name in below
            if "/" not in name[len(prefix) :]
        )
        entries += "".join(f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>" for name in folders)
        head = f'<EnumerationResults ServiceEndpoint="x" ContainerName="{_BUCKET}"><Prefix>{escape(prefix)}</Prefix>'
        return f'<?xml version="1.0" encoding="utf-8"?>{head}<Blobs>{entries}</Blobs><NextMarker/></EnumerationResults>'


@pytest.fixture(params=["s3", "gs", "az"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket of each cloud: moto for S3, and for Google, whose requests are the same; a stand-in for Blob Storage."""
    pytest.importorskip("moto", reason="moto is not installed with the trainer alone")
    fsspec = pytest.importorskip("obstore.fsspec", reason="obstore is not installed here")
    fsspec.FsspecStore.clear_instance_cache()
    scheme: str = request.param
    blobs: dict[str, bytes] = {}
    handler = type("Handler", (_Azure,), {"blobs": blobs}) if scheme == "az" else Moto
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        settings = {
            "s3": {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"},
            "gs": {"GOOGLE_BASE_URL": endpoint, "GOOGLE_SKIP_SIGNATURE": "true"},
            "az": {
                "AZURE_STORAGE_ENDPOINT": endpoint,
                "AZURE_SKIP_SIGNATURE": "true",
                "AZURE_ALLOW_HTTP": "true",
            },
        }
        for name, value in settings[scheme].items():
            monkeypatch.setenv(name, value)
        yield from _filled(scheme, blobs)
        server.shutdown()
    fsspec.FsspecStore.clear_instance_cache()


def _filled(scheme: str, blobs: dict[str, bytes]) -> Iterator[Bucket]:
    if scheme == "az":
        yield Bucket(f"az://account/{_BUCKET}", blobs.__setitem__)
        return
    import boto3
    from moto import mock_aws

    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1", endpoint_url="https://s3.amazonaws.com")
        client.create_bucket(Bucket=_BUCKET)
        yield Bucket(f"{scheme}://{_BUCKET}", lambda name, content: _put(client, name, content))


def _put(client: Any, name: str, content: bytes) -> None:
    client.put_object(Bucket=_BUCKET, Key=name, Body=content)


@pytest.fixture(scope="session")
def picture() -> Callable[..., bytes]:
    """Makes image files: a smooth pattern that a number decides, so that JPEG keeps it."""

    def make(number: int, width: int = 48, height: int = 40, kind: str = "PNG", mode: str = "RGB") -> bytes:
        x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
        waves = [np.sin(6 * x * (number % 5 + 1) + shift) * np.cos(4 * y + number) for shift in (0, 1, 2)]
        image = Image.fromarray(np.uint8(127.5 + 120 * np.stack(waves, axis=-1))).convert(mode)
        content = io.BytesIO()
        image.save(content, kind)
        return content.getvalue()

    return make


_AnyPickler: Any = pickle._Pickler  # the one in Python, of which no types are published


class _Python2Pickler(_AnyPickler):  # type: ignore[misc]  # as above
    """Writes what Python 2 wrote: byte strings for text, and NumPy's old module name."""

    dispatch: ClassVar[dict[type, Callable[..., None]]] = dict(_AnyPickler.dispatch)

    def _string(self, text: str | bytes) -> None:
        content = text.encode("latin1") if isinstance(text, str) else text
        self.write(pickle.BINSTRING + len(content).to_bytes(4, "little") + content)
        self.memoize(text)

    dispatch[str] = dispatch[bytes] = _string

    def save_global(self, obj: Any, name: str | None = None) -> None:
        if getattr(obj, "__name__", "") == "_reconstruct":
            self.write(pickle.GLOBAL + b"numpy.core.multiarray\n_reconstruct\n")
            self.memoize(obj)
        else:
            super().save_global(obj, name)


@dataclass(frozen=True)
class Cifar:
    """An archive of six batches and what is in its five training batches."""

    path: Path
    images: Pixels
    labels: NDArray[np.int64]


@pytest.fixture(scope="session")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Cifar]:
    """Makes archives of CIFAR-10 as published: `python` (pickles of Python 2, protocol 2) or `binary`."""

    def make(version: str, each: int = 4) -> Cifar:
        random = np.random.default_rng(0)
        images = random.integers(0, 256, (6, each, 3072), dtype=np.uint8)
        labels = random.integers(0, 10, (6, each))
        batches = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
        members = {}
        for name, pixels, numbers in zip(batches, images, labels, strict=True):
            if version == "python":
                content = io.BytesIO()
                batch = {"data": pixels, "labels": numbers.tolist(), "batch_label": name, "filenames": ["a.png"] * each}
                _Python2Pickler(content, protocol=2).dump(batch)
                members[f"cifar-10-batches-py/{name}"] = content.getvalue()
            else:
                records = np.concatenate([numbers[:, None].astype(np.uint8), pixels], axis=1)
                members[f"cifar-10-batches-bin/{name}.bin"] = records.tobytes()
        path = tmp_path_factory.mktemp("cifar") / f"cifar-10-{version}.tar.gz"
        write_tar(path, members)
        return Cifar(path, images[:5].reshape(-1, 3, 32, 32), labels[:5].ravel())

    return make


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    """Writes a compressed tar archive."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.fixture(scope="session")
def tar() -> Callable[[Path, dict[str, bytes]], None]:
    """`write_tar`."""
    return write_tar


@pytest.fixture(scope="session")
def celeba_dir(tmp_path_factory: pytest.TempPathFactory, picture: Callable[..., bytes]) -> Path:
    """CelebA as downloaded, of nine faces: Img/img_align_celeba.zip and Eval/list_eval_partition.txt; read only."""
    folder = tmp_path_factory.mktemp("celeba")
    (folder / "Img").mkdir()
    (folder / "Eval").mkdir()
    with zipfile.ZipFile(folder / "Img" / "img_align_celeba.zip", "w") as archive:
        for number in range(1, 10):
            archive.writestr(f"img_align_celeba/{number:06d}.jpg", picture(number, 178, 218, "JPEG"))
    lines = [f"{number:06d}.jpg {0 if number < 6 else 1 if number < 8 else 2}" for number in range(1, 10)]
    (folder / "Eval" / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def film() -> Callable[..., bytes]:
    """Makes .avi films of MPEG-4, as UCF101's; frame n is grey n * 8, with a red left and a blue right third."""
    av = pytest.importorskip("av", reason="PyAV is not installed here")

    def make(frames: int, width: int = 64, height: int = 48) -> bytes:
        content = io.BytesIO()
        with av.open(content, "w", format="avi") as container:
            stream = container.add_stream("mpeg4", rate=25)
            stream.width, stream.height, stream.pix_fmt, stream.bit_rate = width, height, "yuv420p", 4_000_000
            for number in range(frames):
                pixels = np.full((height, width, 3), number * 8 % 256, np.uint8)
                pixels[:, : width // 8] = (255, 0, 0)
                pixels[:, -width // 8 :] = (0, 0, 255)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            container.mux(stream.encode())
        return content.getvalue()

    return make


@pytest.fixture(scope="session")
def ucf101_dir(tmp_path_factory: pytest.TempPathFactory, film: Callable[..., bytes]) -> Path:
    """UCF101 as unpacked, of two classes and six films; read only."""
    folder = tmp_path_factory.mktemp("ucf101")
    lists = folder / "ucfTrainTestlist"
    lists.mkdir()
    (lists / "classInd.txt").write_text("1 ApplyEyeMakeup\n2 Archery\n")
    train: list[str] = []
    test: list[str] = []
    for number, kind in enumerate(("ApplyEyeMakeup", "Archery"), 1):
        (folder / "UCF-101" / kind).mkdir(parents=True)
        for group in range(1, 4):
            name = f"{kind}/v_{kind}_g{group:02d}_c01.avi"
            (folder / "UCF-101" / name).write_bytes(film(10 + group))
            (test if group == 1 else train).append(name if group == 1 else f"{name} {number}")
    (lists / "trainlist01.txt").write_text("\r\n".join(train) + "\r\n")
    (lists / "testlist01.txt").write_text("\n".join(test) + "\n")
    return folder
