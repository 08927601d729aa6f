"""A container registry that holds one image, of busybox alone, by its digest: the distribution API as far as a pull."""

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def _layer(busybox: Path) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as tar:
        for folder in ("bin", "tmp", "proc", "sys", "dev", "etc", "usr", "usr/bin"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        tar.add(busybox, "bin/busybox")
        programs = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
        for name in sorted({*programs} - {"busybox"}):
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
        only_here = tarfile.TarInfo("etc/only-in-the-image")
        tar.addfile(only_here)
    return found.getvalue()


def _blobs(busybox: Path) -> tuple[str, dict[str, bytes]]:
    """The digest of the manifest, and everything by digest."""
    found = dict[str, bytes]()

    def put(data: bytes) -> dict[str, object]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        found[digest] = data
        return {"digest": digest, "size": len(data)}

    layer = _layer(busybox)
    config = {
        "architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin:/usr/bin"], "Entrypoint": ["/bin/false"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }  # fmt: skip
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            **put(json.dumps(config).encode()),
        },
        "layers": [
            {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **put(gzip.compress(layer, mtime=0))},
        ],
    }
    return str(put(json.dumps(manifest).encode())["digest"]), found


@contextmanager
def registry(busybox: Path) -> Iterator[str]:
    """The image's reference, while it is served over plain HTTP."""
    digest, blobs = _blobs(busybox)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            wanted = self.path.rpartition("/")[2]
            data = b"{}" if self.path == "/v2/" else blobs.get(wanted)
            kind = MANIFEST if "/manifests/" in self.path else "application/octet-stream"
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Type", kind)
            self.send_header("Docker-Content-Digest", wanted)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data or b"")

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}/mine@{digest}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
