#!/usr/bin/env bash
# A Gangway host of a TPU slice. Rendered by images.gcp; Cloud TPU's images run this at each boot.
set -euo pipefail
install -D -m 0600 /dev/stdin /etc/gangway/job.json <<'GANGWAY_END_OF_FILE'
{
 "name": "dcgan-celeba64",
 "image": "us-central1-docker.pkg.dev/acme-ml/gangway/trainer@sha256:abababababababababababababababababababababababababababababababab",
 "backend": "xla",
 "num_nodes_min": 2,
 "num_nodes_max": 4,
 "processes_per_node": 4,
 "rendezvous": {
  "host": "head.gangway.internal",
  "port": 29400,
  "standalone": false
 },
 "volumes": [
  {
   "source": "/var/lib/gangway",
   "target": "/var/lib/gangway",
   "read_only": false
  }
 ],
 "env": {
  "GANGWAY_NOTE": "it's \"50 %\" of $HOME\n\u00fc\u00f1\u00ed",
  "NCCL_SOCKET_IFNAME": "enp0s12",
  "GLOO_SOCKET_IFNAME": "enp0s12",
  "LD_LIBRARY_PATH": "/var/lib/tcpxo/lib64",
  "NCCL_NET": "Plugin"
 },
 "module": "trainer",
 "argv": [
  "train",
  "--backend",
  "xla",
  "--run-dir",
  "/var/lib/gangway/runs/demo"
 ],
 "run_id": "",
 "max_restarts": 3,
 "shutdown_timeout_sec": 25
}
GANGWAY_END_OF_FILE
install -D -m 0600 /dev/stdin /etc/gangway/job.env <<'GANGWAY_END_OF_FILE'
DOCKER_ARGV=(
    run
    --rm
    --init
    --name
    gangway-trainer
    --network
    host
    --ipc
    host
    --ulimit
    memlock=-1
    --ulimit
    nofile=131072
    --privileged
    --pids-limit
    32768
    --env
    HOME=/tmp
    --user
    0:0
    --env
    PJRT_DEVICE=TPU
    --env
    $'GANGWAY_NOTE=it\'s "50 %" of $HOME\012\303\274\303\261\303\255'
    --env
    GLOO_SOCKET_IFNAME=enp0s12
    --env
    LD_LIBRARY_PATH=/var/lib/tcpxo/lib64
    --env
    NCCL_NET=Plugin
    --env
    NCCL_SOCKET_IFNAME=enp0s12
    --mount
    type=bind,source=/var/lib/gangway,target=/var/lib/gangway
    --label
    team=ml-platform
    --log-driver
    none
    --mount
    type=bind,source=/run/gangway-notices,target=/run/gangway-notices,readonly
    --mount
    type=bind,source=/run/gangway-member.pem,target=/run/gangway-member.pem,readonly
    us-central1-docker.pkg.dev/acme-ml/gangway/trainer@sha256:abababababababababababababababababababababababababababababababab
    --watch
    /run/gangway-notices/held
    --member-key
    /run/gangway-member.pem
    --job-dir
    /var/lib/gangway/runs/demo/.launch/2e621a0a855b
    --max-hours
    8
    --
    --nproc-per-node=4
    --max-restarts=3
    -m
    trainer
    train
    --backend
    xla
    --run-dir
    /var/lib/gangway/runs/demo
)
RUN=(
    /opt/gangway/bin/run-tpu.sh
)
GANGWAY_END_OF_FILE
install -D -m 0600 /dev/stdin /etc/gangway/node.env <<'GANGWAY_END_OF_FILE'
BUCKET_URI=gs://gangway-records/demo
CONTAINER_NAME=gangway-trainer
DATA_BY=''
DATA_DIR=''
DATA_SOURCE=''
ENDED_OBJECT=dcgan-celeba64/ended-1c7fd9e8bf85
GPUS_PLANNED=0
GVNICS_PLANNED=0
HEALTH_CHECKS=''
IMAGE=us-central1-docker.pkg.dev/acme-ml/gangway/trainer@sha256:abababababababababababababababababababababababababababababababab
IMAGE_REGISTRY=us-central1-docker.pkg.dev
IN_GROUP=''
JOB_KEY=2e621a0a855b
JOB_NAME=dcgan-celeba64
LOG_GROUP=gangway-demo
MAX_SEC=28800
MEMBER_KEY=projects/acme-ml/secrets/demo-member-key
MOUNT_POINT=/var/lib/gangway/runs
MOUNT_SOURCE=gangway-records/demo/shared
NUM_SLICES=2
PROJECT=acme-ml
QUEUED_RESOURCE=projects/acme-ml/locations/us-central1-a/queuedResources/demo
RDMA_NICS_PLANNED=0
REGION=us-central1
RESULTS_AT_END=''
RESULTS_SEC=''
ROLE=worker
RUN_DIR=/var/lib/gangway/runs/demo
RUN_ID=''
SCRATCH_MOUNT_POINT=''
STACK=demo
TERMINATE_WHEN_DONE=yes
TRAINER_UID=0
TRIES_AGAIN=yes
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /opt/gangway/lib/images/__init__.py <<'GANGWAY_END_OF_FILE'
# The part of the package that this machine runs.
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /opt/gangway/lib/images/node/__init__.py <<'GANGWAY_END_OF_FILE'
"""Python that machines of ours run beside their scripts: the standard library alone, Python 3.10 on.

The files are copied onto the machine as they are. Not for this repository's own programs to call, but for its tests.
"""
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /opt/gangway/lib/images/node/web.py <<'GANGWAY_END_OF_FILE'
"""HTTP as a machine's own Python uses it: an answer that is an error has its status, and no proxy stands in between.

Shared by what machines of several clouds run. Not a client of any API: those are in modules of their own.
"""

import urllib.error
import urllib.request
from typing import Any

# Logs take little more in one value; a reason is cut long before.
MAX_VALUE_CHARS = 4000


class RefusedError(OSError):
    """An API's answer that is an error. `status`: of HTTP, or the code of a long operation that failed."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(f"{status}: {what}")
        self.status = status


def open_url(request: urllib.request.Request, timeout_sec: float) -> Any:
    """The answer, to be read and closed. Raises RefusedError, or OSError where nobody answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return opener.open(request, timeout=timeout_sec)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode(errors="replace")[:MAX_VALUE_CHARS]
        raise RefusedError(error.code, f"{request.get_method()} {request.full_url}: {text}") from None
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /opt/gangway/lib/images/node/below.py <<'GANGWAY_END_OF_FILE'
"""Files below a folder that others write, too, under names that others chose: no name and no link leads out of it."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

# A link in place of a folder is refused by the kernel in the very call that would follow it: no race between a look
# and a use.
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeNameError(OSError):
    """A name that leads out of its folder, or to nothing that a file could be."""


def leads_out(name: str) -> bool:
    """Whether a name relative to a folder is none of a file below it."""
    return "\0" in name or any(part in ("", ".", "..") for part in name.split("/"))


def get_parts(name: str) -> list[str]:
    """The folders and the file of a name relative to a folder. UnsafeNameError: it leads elsewhere."""
    if leads_out(name):
        raise UnsafeNameError(f"{name!r} is no name of a file below a folder: rename the object, or leave it out")
    return name.split("/")


@contextmanager
def get_folder(root: Path, name: str) -> Iterator[tuple[int, str]]:
    """The opened folder in which a file below `root` lies, and its name there; folders that are missing are made.

    OSError: a link or a file stands where a folder is meant. Of `root` itself, links are followed: it is ours.
    """
    *folders, last = get_parts(name)
    root.mkdir(parents=True, exist_ok=True)
    at = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    try:
        for folder in folders:
            with suppress(FileExistsError):
                os.mkdir(folder, dir_fd=at)
            inner = os.open(folder, _FOLDER, dir_fd=at)
            os.close(at)
            at = inner
        yield at, last
    finally:
        os.close(at)


def find_size(at: int, name: str) -> int | None:
    """Bytes of a regular file in an opened folder; None where there is none, or something else."""
    try:
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


@contextmanager
def new_file(at: int, name: str) -> Iterator[BinaryIO]:
    """A file of an opened folder that appears whole or not at all, in place of whatever has its name: a link is
    replaced, never followed. OSError: another process writes it just now, or there is a folder of its name.
    """
    part = f".{name}.part"
    with suppress(FileNotFoundError):
        os.unlink(part, dir_fd=at)  # of a try that was cut off
    with os.fdopen(os.open(part, _NEW_FILE, 0o644, dir_fd=at), "wb") as file:
        yield file
    os.replace(part, name, src_dir_fd=at, dst_dir_fd=at)
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /opt/gangway/lib/images/node/gcp/api.py <<'GANGWAY_END_OF_FILE'
"""What a machine on Google Cloud asks of Google's APIs, with the token of its own service account.

    python3 -m images.node.gcp.api event PROJECT LOG job-ended exit_status 0 reason done
    python3 -m images.node.gcp.api replace | leave | zone | token
    python3 -m images.node.gcp.api release projects/P/locations/ZONE/queuedResources/NAME
    python3 -m images.node.gcp.api put FILE gs://BUCKET/KEY, or: put-folder FOLDER gs://BUCKET/PREFIX
    python3 -m images.node.gcp.api exists gs://BUCKET/KEY, or: list gs://BUCKET/PREFIX
    python3 -m images.node.gcp.api import FILE, with a request to Managed Lustre in it
    python3 -m images.node.gcp.api copy gs://BUCKET/PREFIX FOLDER

Exit code 0; else one line says why, and it is 1; 2 where another try would end the same: not found, or an object whose
name leads out of the folder that it is copied to; or 3: not allowed, which is as final where rights have had the time
to be known everywhere.
REST and no `gcloud`: Ubuntu's images do not all bring it.
"""

import base64
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode

from images.node.below import UnsafeNameError, find_size, get_folder, new_file
from images.node.web import MAX_VALUE_CHARS, RefusedError, open_url

METADATA_URL = "http://metadata.google.internal"
TIMEOUT_SEC = 30
CHUNK_BYTES = 1 << 24
# Answers that another try does not change, of HTTP and of a long operation (google.rpc.Code), and what is exited with.
EXIT_CODES = {404: 2, 5: 2, 403: 3, 7: 3}


class GoogleApi:
    """Google's APIs as this machine may use them.

    Args:
        metadata_url: of the metadata server.
        api_url: stands before every API's host in tests; empty for the real ones.
    """

    def __init__(self, metadata_url: str = METADATA_URL, api_url: str = "") -> None:
        self._metadata_url, self._api_url = metadata_url, api_url
        self._token, self._token_until = "", 0.0

    @classmethod
    def from_environment(cls) -> "GoogleApi":
        """As the machine's scripts are told."""
        return cls(os.environ.get("GANGWAY_METADATA_URL", METADATA_URL), os.environ.get("GANGWAY_API_URL", ""))

    def metadata(self, item: str) -> str:
        """One item of metadata. Raises RefusedError with status 404 where there is none."""
        request = urllib.request.Request(
            f"{self._metadata_url}/computeMetadata/v1/{item}", headers={"Metadata-Flavor": "Google"}
        )
        return self._read(request).decode().strip()

    def name(self) -> str:
        """The instance's name."""
        return self.metadata("instance/name")

    def token(self) -> str:
        """An access token of the machine's service account; kept while it is good for another minute."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)  # also of a machine that has slept
        if now > self._token_until - 60:
            answer = json.loads(self.metadata("instance/service-accounts/default/token"))
            self._token, self._token_until = answer["access_token"], now + answer["expires_in"]
        return self._token

    def call(self, method: str, url: str, body: Any = None) -> dict[str, Any]:
        """One call of an API, with JSON in both directions. Raises RefusedError."""
        data = None if body is None else json.dumps(body).encode()
        with self.open(method, url, data) as answer:
            text = answer.read()
        result: dict[str, Any] = json.loads(text) if text else {}
        return result

    def pages(self, method: str, url: str, key: str) -> Iterator[dict[str, Any]]:
        """The items of all pages of a list."""
        token = ""
        while True:
            separator = "&" if "?" in url else "?"
            page = self.call(method, f"{url}{separator}{urlencode({'pageToken': token})}" if token else url)
            yield from page.get(key, [])
            token = page.get("nextPageToken", "")
            if not token:
                return

    def open(self, method: str, url: str, data: bytes | BinaryIO | None = None, kind: str = "application/json") -> Any:
        """An API's answer as it comes; `data` may be an open file. Raises RefusedError."""
        headers = {"Authorization": f"Bearer {self.token()}", "Content-Type": kind}
        if data is not None and not isinstance(data, bytes):
            headers["Content-Length"] = str(os.fstat(data.fileno()).st_size)
        if data is None and method == "POST":
            data = b""
        address = url.replace("https://", f"{self._api_url}/", 1) if self._api_url else url
        return open_url(urllib.request.Request(address, data, headers, method=method), TIMEOUT_SEC)

    def _read(self, request: urllib.request.Request) -> bytes:
        with open_url(request, TIMEOUT_SEC) as answer:
            content: bytes = answer.read()
        return content

    def group(self) -> tuple[str, str]:
        """The URL of the managed instance group that made this machine, and of the machine; as Compute Engine's API.
        RefusedError: with status 404, where no group made it.
        """
        group = self.metadata("instance/attributes/created-by")
        zone = group.partition("/instanceGroupManagers/")[0]
        return f"https://compute.googleapis.com/compute/v1/{group}", f"{zone}/instances/{self.name()}"

    def tell_group(self, verb: str) -> None:
        """Has the group delete this machine and become smaller (deleteInstances), or make it anew."""
        group, instance = self.group()
        self.call("POST", f"{group}/{verb}", {"instances": [instance]})

    def release_slices(self, queued_resource: str) -> None:
        """Gives a request of the queue of TPUs up, with all of its nodes. One that is gone already is no error."""
        url = f"https://tpu.googleapis.com/v2/{queued_resource}?force=true"
        try:
            self.call("DELETE", url)
        except RefusedError as error:
            if error.status != 404:
                raise

    def write_log(self, project: str, entries: Sequence[dict[str, Any]]) -> None:
        """Sends entries to Cloud Logging, of this machine."""
        resource = {
            "type": "gce_instance",
            "labels": {
                "project_id": project,
                "instance_id": self.metadata("instance/id"),
                "zone": self.metadata("instance/zone").rpartition("/")[2],
            },
        }
        body = {"resource": resource, "partialSuccess": True, "entries": list(entries)}
        self.call("POST", "https://logging.googleapis.com/v2/entries:write", body)

    def put(self, file: Path, uri: str) -> None:
        """Copies a file into a bucket."""
        bucket, key = _object(uri)
        url = f"https://storage.googleapis.com/upload/storage/v1/b/{bucket}/o?uploadType=media&name={key}"
        # From the disk as it goes: a checkpoint need not fit into memory beside the trainer.
        with file.open("rb") as content:
            self.open("POST", url, content, "application/octet-stream").close()

    def put_folder(self, folder: Path, uri: str) -> None:
        """Copies all files of a folder into a bucket, below `uri`."""
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.put(file, f"{uri.rstrip('/')}/{file.relative_to(folder)}")

    def secret(self, name: str) -> str:
        """What Secret Manager has under `projects/P/secrets/NAME`, its newest version."""
        answer = self.call("GET", f"https://secretmanager.googleapis.com/v1/{name}/versions/latest:access")
        return base64.b64decode(answer["payload"]["data"]).decode()

    def exists(self, uri: str) -> bool:
        """Whether there is such an object.

        By a list of names: who may not list a bucket's objects is told 403 of one that is missing, as of one that may
        not be read (github.com/googleapis/google-api-php-client, issue 1791).
        """
        return uri.removeprefix("gs://").partition("/")[2] in self.names(uri)

    def names(self, uri: str) -> list[str]:
        """The names of all objects that begin so."""
        bucket, key = _object(uri)
        found = self.pages("GET", f"https://storage.googleapis.com/storage/v1/b/{bucket}/o?prefix={key}", "items")
        return [item["name"] for item in found]

    def get(self, uri: str) -> bytes | None:
        """An object's content; None where there is no such object."""
        bucket, key = _object(uri)
        try:
            with self.open("GET", f"https://storage.googleapis.com/storage/v1/b/{bucket}/o/{key}?alt=media") as answer:
                content: bytes = answer.read()
        except RefusedError as error:
            if error.status == 404 or (error.status == 403 and not self.exists(uri)):
                return None
            raise
        return content

    def copy(self, uri: str, folder: Path) -> int:
        """Copies all objects below `uri` into a folder, each whole or not at all; what is there already is left.
        Whoever may write the bucket writes below the folder and nowhere else (UnsafeNameError).

        Returns:
            The number of objects.
        """
        bucket, _, prefix = uri.removeprefix("gs://").rstrip("/").partition("/")
        prefix = f"{prefix}/" if prefix else ""
        listing = f"https://storage.googleapis.com/storage/v1/b/{bucket}/o?prefix={quote(prefix, safe='')}"
        number = 0
        for item in self.pages("GET", listing, "items"):
            name = item["name"].removeprefix(prefix)
            if name and not name.endswith("/"):
                self._copy_one(bucket, item, folder, name)
                number += 1
        return number

    def _copy_one(self, bucket: str, item: dict[str, Any], folder: Path, name: str) -> None:
        wanted = int(item["size"])
        url = f"https://storage.googleapis.com/storage/v1/b/{bucket}/o/{quote(item['name'], safe='')}?alt=media"
        with get_folder(folder, name) as (at, last):
            if find_size(at, last) == wanted:
                return
            with self.open("GET", url) as answer, new_file(at, last) as file:
                while chunk := answer.read(CHUNK_BYTES):
                    file.write(chunk)
                # A connection that ends too early looks like the end of the object.
                if (size := file.tell()) != wanted:
                    raise OSError(f"{item['name']}: {size} bytes came, of {wanted}")

    def import_data(self, url: str, body: dict[str, Any], poll_sec: float) -> None:
        """Has Managed Lustre import from a bucket, and waits until it has. Raises RefusedError."""
        operation = self.call("POST", url, body)
        root = url.partition("/projects/")[0]
        while not operation.get("done"):
            time.sleep(poll_sec)
            operation = self.call("GET", f"{root}/{operation['name']}")
        if error := operation.get("error"):
            raise RefusedError(error.get("code", 0), error.get("message", ""))


def _object(uri: str) -> tuple[str, str]:
    """Bucket and name of an object, quoted for a URL."""
    bucket, _, key = uri.removeprefix("gs://").partition("/")
    return bucket, quote(key, safe="")


def log_entry(project: str, log: str, payload: dict[str, Any]) -> dict[str, Any]:
    """An entry of the stack's log, of now."""
    now = datetime.now(timezone.utc).isoformat()  # noqa: UP017 - Python 3.10
    return {"logName": f"projects/{project}/logs/{quote(log, safe='')}", "timestamp": now, "jsonPayload": payload}


def _event(google: GoogleApi, project: str, log: str, event: str, *pairs: str) -> None:
    """`pairs`: names and values, one after the other; exit_status is a number."""
    values = [os.fsencode(word).decode(errors="replace")[:MAX_VALUE_CHARS] for word in pairs]
    line: dict[str, Any] = {"event": event, "instance_id": google.name()}
    for name, value in zip(values[::2], values[1::2], strict=True):
        line[name] = int(value) if name == "exit_status" else value
    google.write_log(project, [log_entry(project, log, line)])


def _exists(google: GoogleApi, uri: str) -> None:
    if not google.exists(uri):
        raise RefusedError(404, f"there is no {uri}")


def _import(google: GoogleApi, file: str) -> None:
    request = json.loads(Path(file).read_text("utf-8"))
    google.import_data(request["url"], request["body"], float(os.environ.get("GANGWAY_POLL_SEC", "10")))


def _copy(google: GoogleApi, uri: str, folder: str) -> None:
    number = google.copy(uri, Path(folder))
    if not number:
        raise RefusedError(404, f"nothing below {uri.rstrip('/')}/")
    print(f"{number} objects of {uri}", flush=True)


COMMANDS: dict[str, Callable[..., None]] = {
    "copy": _copy,
    "event": _event,
    "exists": _exists,
    "import": _import,
    "leave": lambda google: google.tell_group("deleteInstances"),
    "list": lambda google, uri: print(*google.names(uri), sep="\n"),
    "put": lambda google, file, uri: google.put(Path(file), uri),
    "put-folder": lambda google, folder, uri: google.put_folder(Path(folder), uri),
    "release": lambda google, queued_resource: google.release_slices(queued_resource),
    "replace": lambda google: google.tell_group("recreateInstances"),
    "secret": lambda google, name: print(google.secret(name), end=""),
    "token": lambda google: print(google.token()),
}


def main(argv: Sequence[str]) -> int:
    """Runs one command."""
    try:
        COMMANDS[argv[0]](GoogleApi.from_environment(), *argv[1:])
    except OSError as error:
        print(f"gangway: {argv[0]}: {error}", file=sys.stderr, flush=True)
        if isinstance(error, UnsafeNameError):
            return EXIT_CODES[404]
        return EXIT_CODES.get(error.status, 1) if isinstance(error, RefusedError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /opt/gangway/lib/images/node/log_shipper.py <<'GANGWAY_END_OF_FILE'
"""Lines of the journal on their way to a cloud's log: collected, sent every few seconds, and tried again.

What an entry of that log looks like and who takes it is the caller's (`gcp.logs` and `azure.logs` beside it).
The last cursor that was sent is on disk, so a restart goes on where it was; on tmpfs, so a reboot begins with its own
journal. Ends when journalctl does.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from images.node.web import RefusedError

FLUSH_SEC = 5.0
# Units whose JSON is this node's own word. The job prints what it likes in all others, an event of a node among it.
OWN_UNITS = ("gangway-fill",)
_MOST_DEPTH = 32
"""Of a line's JSON. Python's own limit depends on who asks, and the clouds have theirs."""
# Bad content, or too much of it: one entry may be at fault, and the others are not to go with it.
_BAD_CONTENT = (400, 413)

Entry = dict[str, Any]


def get_unit(line: dict[str, Any]) -> str:
    """Which unit said a record of `journalctl --output json`, without its ending."""
    return str(line.get("_SYSTEMD_UNIT", "")).removesuffix(".service")


def journal_fields(line: dict[str, Any]) -> dict[str, Any]:
    """What a record of `journalctl --output json` says: JSON as `printed`, of OWN_UNITS as it is; or text as `message`.

    Metrics and alarms go by `event` of nodes, which therefore nothing that a job prints can become.
    """
    message = line.get("MESSAGE") or ""
    # journald gives what is no text as a list of bytes.
    text = bytes(message).decode(errors="replace") if isinstance(message, list) else str(message)
    parsed = _plain_object(text)
    if parsed is None:
        return {"message": text}
    return parsed if get_unit(line) in OWN_UNITS else {"printed": parsed}


def _plain_object(text: str) -> Entry | None:
    """The JSON object in a line; None for no JSON, and for what Python alone takes for it: NaN, or without an end."""
    try:
        parsed = json.loads(text)
        json.dumps(parsed, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) and not _is_deep(parsed) else None


def _is_deep(value: Entry) -> bool:
    level: list[Any] = [value]
    for _ in range(_MOST_DEPTH):
        lists = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list)))
        level = [child for children in lists for child in children]
    return bool(level)


class LogShipper:
    """Collects entries and sends them every few seconds, from a thread of its own.

    Args:
        send: takes some entries. Raises OSError, of which RefusedError may say that it will never take them.
        cursor_file: where the last cursor that was sent is kept.
        most: entries, and bytes of their JSON, that it takes at once; a longer entry goes alone.
        flush_sec: between two sendings.
    """

    def __init__(
        self,
        send: Callable[[list[Entry]], None],
        cursor_file: Path,
        most: tuple[int, int],
        flush_sec: float = FLUSH_SEC,
    ) -> None:
        self._send, self._file, self._flush_sec = send, cursor_file, flush_sec
        self._most_entries, self._most_bytes = most
        self._waiting: list[tuple[str, Entry]] = []
        # Reading waits when this many lines could not be sent: memory has an end, and journald has a file.
        self._room = threading.Semaphore(20 * self._most_entries)
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="gangway-ship", daemon=True)

    def ship(self, lines: Iterable[str], entry_of: Callable[[dict[str, Any]], Entry]) -> None:
        """Sends every line of journalctl's, until there are no more."""
        self._thread.start()
        for text in lines:
            try:
                line = json.loads(text)
                waits = (line["__CURSOR"], entry_of(line))
            except (ValueError, RecursionError) as error:
                # The cursor of the line after it is beyond this one.
                print(f"gangway: a line that cannot be read is left out: {error}", file=sys.stderr, flush=True)
                continue
            self._room.acquire()
            with self._lock:
                self._waiting.append(waits)
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._flush_sec):
            self._flush()
        self._flush()

    def _batch(self, most: int) -> list[tuple[str, Entry]]:
        """The next entries that fit together, `most` of them at most."""
        with self._lock:
            first = self._waiting[:most]
        left = self._most_bytes
        for count, (_, entry) in enumerate(first):
            left -= len(json.dumps(entry)) + 1
            if left < 0:
                return first[: max(count, 1)]
        return first

    def _flush(self) -> None:
        """Sends what waits; what cannot be sent now is tried again at the next time. Of entries that are refused
        together fewer are tried, until the one that is at fault goes alone, and is left out.
        """
        most = self._most_entries
        while batch := self._batch(most):
            try:
                self._send([entry for _, entry in batch])
                most = min(2 * most, self._most_entries)
            except RefusedError as error:
                # To the journal of this unit, which is not shipped.
                print(f"gangway: could not send {len(batch)} lines: {error}", file=sys.stderr, flush=True)
                if error.status >= 500 or error.status in (401, 403, 429):
                    return
                if error.status in _BAD_CONTENT and len(batch) > 1:
                    most = len(batch) // 2
                    continue
                # The same lines would be refused for ever.
            except OSError as error:
                print(f"gangway: could not send {len(batch)} lines: {error}", file=sys.stderr, flush=True)
                return
            self._done(batch)

    def _done(self, batch: list[tuple[str, Entry]]) -> None:
        """Goes on after these entries, at the next start too."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(batch[-1][0])
        with self._lock:
            del self._waiting[: len(batch)]
        self._room.release(len(batch))


def follow_journal(units: Sequence[str], cursor_file: Path, ship: Callable[[Iterable[str]], None]) -> None:
    """Hands the units' lines over as journalctl writes them, until it ends."""
    since = [f"--after-cursor={cursor_file.read_text()}"] if cursor_file.exists() else ["--boot"]
    command = ["journalctl", "--follow", "--no-tail", "--output=json", *since, *(f"--unit={unit}" for unit in units)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as journal:
        assert journal.stdout is not None, "it was asked for"
        ship(journal.stdout)
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /opt/gangway/lib/images/node/gcp/logs.py <<'GANGWAY_END_OF_FILE'
"""Sends the lines of our units from the journal to Cloud Logging, each line of JSON as fields of its entry.

    python3 -m images.node.gcp.logs PROJECT LOG UNIT...

Docker's own driver for Cloud Logging would put a line into one text field, where no metric can read its numbers, and
Google's agent would be one more package to install at boot. Each entry carries the journal's cursor as its id, so what
is sent twice is kept once. How lines are collected and sent is `images.node.log_shipper`.
"""

import os
import signal
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from images.node.gcp.api import GoogleApi, log_entry
from images.node.log_shipper import FLUSH_SEC, LogShipper, follow_journal, get_unit, journal_fields

# Cloud Logging takes 1000 entries and 10 MB at once.
MAX_BATCH = (500, 9_000_000)


def entry_of(project: str, log: str, line: dict[str, Any]) -> dict[str, Any]:
    """The entry of one record of `journalctl --output json`."""
    moment = datetime.fromtimestamp(int(line["__REALTIME_TIMESTAMP"]) / 1e6, timezone.utc)  # noqa: UP017 - Python 3.10
    return {
        **log_entry(project, log, journal_fields(line)),
        "timestamp": moment.isoformat(),
        "insertId": _insert_id(line["__CURSOR"]),
        "labels": {"unit": get_unit(line)},
    }


def _insert_id(cursor: str) -> str:
    """Boot and position in it, which are unique on a machine; a whole cursor may be too long for an id."""
    fields = dict(field.partition("=")[::2] for field in cursor.split(";"))
    return f"{fields.get('b', '')}-{fields.get('i', cursor)}"


def make_shipper(google: GoogleApi, project: str, cursor_file: Path, flush_sec: float = FLUSH_SEC) -> LogShipper:
    """What sends entries to a project's logs."""
    return LogShipper(lambda entries: google.write_log(project, entries), cursor_file, MAX_BATCH, flush_sec)


def main(argv: Sequence[str]) -> int:
    """Follows the journal."""
    project, log, *units = argv
    cursor_file = Path(os.environ.get("GANGWAY_STATE_DIR", "/run/gangway"), "cursor")
    sending = make_shipper(GoogleApi.from_environment(), project, cursor_file)
    follow_journal(units, cursor_file, lambda lines: sending.ship(lines, lambda line: entry_of(project, log, line)))
    # The unit starts again, where this ended.
    return 1


if __name__ == "__main__":
    # systemd stops journalctl as well, which ends: what it has said is sent before this ends too.
    signal.signal(signal.SIGTERM, lambda *_: None)
    sys.exit(main(sys.argv[1:]))
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /etc/apt/apt.conf.d/99gangway <<'GANGWAY_END_OF_FILE'
APT::Periodic::Unattended-Upgrade "0";
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /opt/gangway/lib/images/node/notices.py <<'GANGWAY_END_OF_FILE'
"""Keeps in a file what a cloud says now of this machine's end. The job reads it there: of a machine's users root alone
may ask the metadata service (close-metadata.sh). With Python 3.9 alone.

A line is a kind of `trainer.preemption.notices` and, where the cloud names one, a time in its own words. The file is
written whole after each answer, so its age says when the cloud was last heard.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

METADATA_URL = "http://169.254.169.254"
TIMEOUT_SEC = 2.0

Poll = Callable[[], Iterable[tuple[str, str]]]
"""Asks once: the kind and the time, or an empty text, of each notice that holds now. OSError: no answer."""


class Keeper:
    """Writes `file` after each answer. A cloud that does not answer is told once, not every few seconds."""

    def __init__(self, file: Path, poll: Poll) -> None:
        self._file, self._poll, self._trouble = file, poll, ""

    def look(self) -> None:
        """Asks once; without an answer the file stays as it is, and grows old."""
        try:
            held = "".join(f"{kind} {moment}".rstrip() + "\n" for kind, moment in self._poll())
        except Exception as error:  # an answer of any form: without this loop nobody hears of an end
            said = f"cannot ask for notices, trying on: {type(error).__name__}: {error}"
            if said != self._trouble:
                print("gangway:", said, file=sys.stderr, flush=True)
            self._trouble = said
            return
        self._trouble = ""
        new = self._file.with_name(f"{self._file.name}.new")
        new.write_text(held, encoding="utf-8")
        new.replace(self._file)


def keep(file: str, poll: Poll, poll_sec: float) -> None:
    """Never returns. `poll_sec`: between two questions, unless GANGWAY_POLL_SEC says otherwise."""
    keeper, rest_sec = Keeper(Path(file), poll), float(os.environ.get("GANGWAY_POLL_SEC", poll_sec))
    while True:
        keeper.look()
        time.sleep(rest_sec)
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /opt/gangway/lib/images/node/gcp/notices.py <<'GANGWAY_END_OF_FILE'
"""What Compute Engine says of this machine's end, kept in FILE: `python3 -m images.node.gcp.notices FILE`."""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator

from images.node.notices import METADATA_URL, TIMEOUT_SEC, keep
from images.node.web import RefusedError, open_url

# Google gives 30 s in all, so it is asked all the time: each question waits for its answer.
POLL_SEC = 0.5
WAIT_SEC = 4
# A network tag of this machine's own: whoever scales the job in asks it to leave by it (`gangway job --scale`). The
# scripts' cloud.sh looks for it too.
LEAVE_TAG = "gangway-leave"


class GcpNotices:
    """By the metadata server. `wait_sec`: for how long it may hold back its answer until there is a preemption."""

    def __init__(self, url: str = METADATA_URL, wait_sec: int = WAIT_SEC) -> None:
        self._url, self._wait_sec, self._etag = url, wait_sec, ""

    def poll(self) -> Iterator[tuple[str, str]]:
        """The notices that hold now, after a wait for a preemption, without times."""
        # MIGRATE_ON_HOST_MAINTENANCE needs nothing, and machines with GPUs or TPUs never migrate.
        if self._get("instance/maintenance-event") == "TERMINATE_ON_HOST_MAINTENANCE":
            yield "host-maintenance", ""
        if LEAVE_TAG in json.loads(self._get("instance/tags") or "[]"):
            yield "lifecycle-terminate", ""
        if self._get("instance/preempted", waits=True) == "TRUE":
            yield "spot-interruption", ""

    def _get(self, item: str, *, waits: bool = False) -> str:
        """One item of metadata; empty where there is none, as on a machine that is no spot one (OSError: neither that
        nor 404).

        With `waits` the server answers when the item is another than at the last such call, or after `wait_sec`.
        """
        query = ""
        if waits and self._etag:
            query = f"?wait_for_change=true&timeout_sec={self._wait_sec}&last_etag={self._etag}"
        url = f"{self._url}/computeMetadata/v1/{item}{query}"
        request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
        try:
            with open_url(request, TIMEOUT_SEC + self._wait_sec) as answer:
                text, etag = answer.read().decode(), answer.headers.get("ETag", "")
        except RefusedError as error:
            if error.status == 404:
                return ""
            raise
        if waits:
            self._etag = etag
        return str(text).strip()


if __name__ == "__main__":
    keep(sys.argv[1], GcpNotices(os.environ.get("GANGWAY_METADATA_URL", METADATA_URL)).poll, POLL_SEC)
GANGWAY_END_OF_FILE
install -D -m 0755 /dev/stdin /opt/gangway/bin/common.sh <<'GANGWAY_END_OF_FILE'
. "${GANGWAY_NODE_ENV:-/etc/gangway/node.env}"
POLL_SEC=${GANGWAY_POLL_SEC:-5}
END_SEC=${GANGWAY_END_SEC:-15}
KEEP_SEC=${GANGWAY_KEEP_SEC:-3600}
STATE_DIR=${GANGWAY_STATE_DIR:-/run/gangway}/$JOB_KEY
. "$(dirname "${BASH_SOURCE[0]}")/cloud.sh"

log() { printf 'gangway: %s\n' "$*" >&2; }

up_sec() {
    local up
    read -r up _ <"${1:-${GANGWAY_UPTIME:-/proc/uptime}}"
    echo "${up%%.*}"
}

retry() {
    local deadline=$(($(up_sec /proc/uptime) + $1))
    shift
    until "$@"; do
        [ "$(up_sec /proc/uptime)" -lt "$deadline" ] || return 1
        sleep "$POLL_SEC"
    done
}

STARTED_SEC=$(up_sec /proc/uptime)
seconds_left() {
    local left=$((STARTED_SEC + DEADLINE_SEC - $(up_sec /proc/uptime)))
    echo $((left > 0 ? left : 1))
}

prepare_folder() {
    [ "$(stat -c %u "$1" 2>/dev/null)" = "$TRAINER_UID" ] ||
        { mkdir -p "$1" && chown --no-dereference "$TRAINER_UID:$TRAINER_UID" "$1"; }
}

apt_key() {
    local key found
    key=$(mktemp)
    curl -fsS --max-time 60 "$2" >"$key" || return
    found=$(gpg --batch --show-keys --with-colons "$key" | sed -n '/^pub/,/^fpr/s/^fpr:*\(.*\):$/\1/p') || return
    [ "$found" = "${3:-$found}" ] || give_up "$2 is the key $found, not $3"
    gpg --batch --dearmor --yes --output "${ROOT:-}/usr/share/keyrings/$1.gpg" <"$key" && rm "$key"
}

event() {
    [ -n "$LOG_GROUP" ] || return 0
    send_event "$@" || log "could not send to $LOG_GROUP: $*"
}

give_up() {
    if [ "$ROLE" = head ]; then
        log "not ready: $1"
        event head-not-ready reason "$1"
        exit 1
    fi
    log "giving this node up: $1"
    event node-given-up reason "$1"
    local go=replace_node
    if too_many_given_up "$1"; then
        go=hold_launches
        log "too many nodes gave themselves up: nothing is launched any more, until gangway breaker reset $STACK"
        event launches-held reason "$1"
    fi
    "$go" || log "could not have this node replaced: delete it by hand, it costs money and does nothing"
    exit 1
}

rest() {
    [ "$(up_sec)" -lt $(($(last_rest) + 21600)) ] || rm -f "$STATE_DIR/rests"
    up_sec >>"$STATE_DIR/rests"
    touch "$STATE_DIR/unfit"
}

last_rest() { tail -n 1 "$STATE_DIR/rests" 2>/dev/null || echo 0; }

rested() {
    local pauses=(0 0 60 180 420 900 1740) count
    [ -e "$STATE_DIR/rests" ] || return 0
    count=$(wc -l <"$STATE_DIR/rests")
    [ "$count" -lt "${#pauses[@]}" ] || count=$((${#pauses[@]} - 1))
    [ "$(up_sec)" -ge $(($(last_rest) + pauses[count])) ]
}

too_many_given_up() {
    local mine names held=$STATE_DIR/held.json
    [ -n "${BREAKER_LIMIT:-}" ] || return 1
    mine=$(date +%s)-$HOSTNAME
    mkdir -p "$STATE_DIR"
    echo "$1" >"$STATE_DIR/given-up"
    put_object "$STATE_DIR/given-up" "$JOB_NAME/breaker/$mine" || log "could not put $JOB_NAME/breaker/$mine"
    if ! names=$(list_objects "$JOB_NAME/breaker/"); then
        log "could not count the nodes that gave themselves up: this one is replaced"
        return 1
    fi
    python3 "$(dirname "${BASH_SOURCE[0]}")/../lib/images/node/breaker.py" "$BREAKER_LIMIT" "$BREAKER_SEC" \
        "$STACK" "$RUN_ID" "$mine" "$1" <<<"$names" >"$held" || return 1
    [ ! -s "$held" ] || put_object "$held" "$JOB_NAME/breaker/held.json" || log "could not put $JOB_NAME/breaker/held.json"
}

put_end() {
    local code reason file=$STATE_DIR/ended.json
    read -r code reason <"$STATE_DIR/ended"
    if [ "$code" = 0 ] || [ -e "$STATE_DIR/end-put" ]; then
        return 0
    fi
    printf '{"version": 1, "run_id": "%s", "stack": "%s", "node": "%s", "code": %s, "reason": "%s", "time": "%s"}\n' \
        "$RUN_ID" "$STACK" "$HOSTNAME" "$code" "$reason" "$(date -u +%FT%TZ)" >"$file"
    if retry "$END_SEC" put_object "$file" "$JOB_NAME/ended.json"; then
        touch "$STATE_DIR/end-put"
    else
        log "could not put $JOB_NAME/ended.json: who waits for the record waits until the deadline"
    fi
}

kept_long_enough() { [ "$(up_sec)" -ge $(($(cat "$STATE_DIR/ended-at" 2>/dev/null || echo 0) + KEEP_SEC)) ]; }

record_kept() {
    if retry "$END_SEC" timeout $((${RESULTS_SEC:-0} + 60)) bash "$(dirname "${BASH_SOURCE[0]}")/upload-record.sh"; then
        return 0
    fi
    if ! kept_long_enough; then
        log "the record cannot be put: this node stays, and watch-node.sh tries again, for $KEEP_SEC s from the job's end"
        return 1
    fi
    log "the record could not be put for $KEEP_SEC s: this node goes without"
}

tell() {
    put_end
    if [ ! -e "$STATE_DIR/told" ] && ! tell_ended; then
        kept_long_enough || return
        log "nobody could be told for $KEEP_SEC s that the job has ended: this node leaves"
        event end-not-told reason "tried for $KEEP_SEC s: mend the bucket, or destroy the stack, before others come"
    fi
    touch "$STATE_DIR/told"
}

depart() {
    [ -e "$STATE_DIR/kept" ] || { record_kept && touch "$STATE_DIR/kept"; } || return
    [ -z "$TERMINATE_WHEN_DONE" ] || leave_group
}

end_job() {
    mkdir -p "$STATE_DIR"
    up_sec >"$STATE_DIR/ended-at"
    echo "$1 $2" >"$STATE_DIR/ended"
    log "the job has ended: $2, exit status $1"
    event job-ended exit_status "$1" reason "$2"
    { tell && { [ -n "$RESULTS_AT_END" ] || depart; }; } ||
        log "cannot leave yet: watch-node.sh tries again"
}
GANGWAY_END_OF_FILE
install -D -m 0755 /dev/stdin /opt/gangway/bin/cloud.sh <<'GANGWAY_END_OF_FILE'
METADATA_URL=${GANGWAY_METADATA_URL:-http://169.254.169.254}
export GANGWAY_METADATA_URL=$METADATA_URL
LIB_DIR=$(dirname "${BASH_SOURCE[0]}")/../lib
ROOT=${GANGWAY_ROOT:-}
export SCRATCH_DISKS='google-local-nvme-ssd-*' IMAGE_SCRATCH=

export METADATA_IPV4='169.254.169.254' METADATA_IPV6='fd20:ce::254'

metadata() { curl -fs --max-time 2 -H 'Metadata-Flavor: Google' "$METADATA_URL/computeMetadata/v1/$1"; }

gce() { PYTHONPATH=$LIB_DIR python3 -m images.node.gcp.api "$@"; }

leaving() {
    [ "$(metadata instance/preempted)" = TRUE ] || [ "$(systemctl is-system-running)" = stopping ] || asked_to_leave
}

asked_to_leave() { [ -n "$IN_GROUP" ] && [[ "$(metadata instance/tags)" == *'"gangway-leave"'* ]]; }

own_capacity() {
    case $(metadata instance/scheduling/preemptible) in
        TRUE) echo spot ;;
        FALSE) echo on-demand ;;
    esac
}

made_for_job() { [ "$ROLE" = worker ]; }
group_waits() { asked_to_leave; }
let_go() { leave_group; }

send_event() { gce event "$PROJECT" "$LOG_GROUP" "$@"; }

replace_node() {
    if [ -z "$IN_GROUP" ]; then
        log "nobody replaces a single host of a slice: it is looked at again within half an hour"
    elif gce replace; then
        log "this node's group makes it anew"
    else
        log "this node stops: its group makes it anew, but a flex-start group replaces no node, and has one less from now on"
        systemctl poweroff
    fi
}

hold_launches() {
    leave_group || { log "this node stops, but its group makes it anew: set the group's size to 0" && systemctl poweroff; }
}

tell_ended() { gce put "$STATE_DIR/ended" "$BUCKET_URI/$ENDED_OBJECT"; }

leave_group() {
    if [ -n "$IN_GROUP" ]; then
        log "this node leaves its group"
        gce leave
    elif first_host; then
        log "the slices leave: $QUEUED_RESOURCE is deleted"
        gce release "$QUEUED_RESOURCE"
    else
        log "the first host has the slices leave, and this host with them"
    fi
}

tpu_env() { sed -n "s/^$1: *'\{0,1\}\([^']*\)'\{0,1\} *\$/\1/p" <<<"$TPU_ENV"; }

first_host() {
    TPU_ENV=${TPU_ENV:-$(metadata instance/attributes/tpu-env)} && [ "$(tpu_env WORKER_ID)" = 0 ] &&
        { [ "$NUM_SLICES" = 1 ] || [ "$(tpu_env MEGASCALE_SLICE_ID)" = 0 ]; }
}

put_object() { gce put "$1" "$BUCKET_URI/$2"; }
list_objects() { gce list "$BUCKET_URI/$1"; }
put_folder() {
    PYTHONPATH=$LIB_DIR timeout "$RESULTS_SEC" python3 -m images.node.gcp.api put-folder "$1" "$BUCKET_URI/$2"
}

member_key() { gce secret "$MEMBER_KEY"; }
signing_key() { gce secret "$SIGNING_KEY"; }

login_at() { gce token | docker login --username oauth2accesstoken --password-stdin "https://$1"; }

registry_login() { login_at "$IMAGE_REGISTRY"; }

apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 "$@"; }

apt_source() {
    apt_key "$1" "$2" "${5:-}" &&
        echo "deb [signed-by=$ROOT/usr/share/keyrings/$1.gpg${4:+ $4}] $3" >"$ROOT/etc/apt/sources.list.d/$1.list"
}

apt_source_of_google() {
    apt_source artifact-registry https://packages.cloud.google.com/apt/doc/apt-key.gpg \
        "https://packages.cloud.google.com/apt apt-transport-artifact-registry-stable main" &&
        apt_get update && apt_get install apt-transport-artifact-registry &&
        apt_source "$1" https://us-apt.pkg.dev/doc/repo-signing-key.gpg "ar+https://us-apt.pkg.dev/projects/$2" "${3:-}"
}

codename() {
    (. "$ROOT/etc/os-release" && echo "$VERSION_CODENAME")
}
GANGWAY_END_OF_FILE
install -D -m 0755 /dev/stdin /opt/gangway/bin/install-docker.sh <<'GANGWAY_END_OF_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_DOCKER_DEADLINE_SEC:-900}
HOLD_SEC=${GANGWAY_HOLD_SEC:-120}

install_docker() {
    command -v docker >/dev/null || { apt_get update && apt_get install docker.io; }
}

install_toolkit() {
    command -v nvidia-ctk >/dev/null && return
    apt_source nvidia-container-toolkit https://nvidia.github.io/libnvidia-container/gpgkey \
        "https://nvidia.github.io/libnvidia-container/stable/deb/$(dpkg --print-architecture) /" "" \
        C95B321B61E88C1809C4F759DDCAE044F796ECB0 &&
        apt_get update && apt_get install nvidia-container-toolkit
}

hold() {
    local packages
    mapfile -t packages < <(
        dpkg-query --show --showformat '${db:Status-Abbrev}${binary:Package}\n' \
            'linux-*' '*nvidia*' docker.io containerd runc 2>/dev/null | sed -n 's/^[hi]i *//p'
    )
    [ "${#packages[@]}" = 0 ] || apt-mark hold "${packages[@]}" >/dev/null
}

configure_toolkit() { nvidia-ctk runtime configure --runtime=docker && systemctl restart docker.service; }

retry "$DEADLINE_SEC" install_docker || give_up "cannot install docker within $DEADLINE_SEC s"
if [ "$GPUS_PLANNED" -gt 0 ]; then
    retry "$DEADLINE_SEC" install_toolkit || give_up "cannot install NVIDIA's container toolkit within $DEADLINE_SEC s"
    configure_toolkit || give_up "docker does not take NVIDIA's runtime"
fi
systemctl start docker.service || give_up "docker does not start"
retry "$HOLD_SEC" hold || log "packages are not held: an upgrade may break a running job"
GANGWAY_END_OF_FILE
install -D -m 0755 /dev/stdin /opt/gangway/bin/mount-bucket.sh <<'GANGWAY_END_OF_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_BUCKET_DEADLINE_SEC:-600}

install_client() {
    command -v gcsfuse >/dev/null && return
    apt_source gcsfuse https://packages.cloud.google.com/apt/doc/apt-key.gpg \
        "https://packages.cloud.google.com/apt gcsfuse-$(codename) main" &&
        apt_get update && apt_get install gcsfuse
}

mount_once() {
    timeout --kill-after=5 60 gcsfuse --only-dir "${MOUNT_SOURCE#*/}" --implicit-dirs -o allow_other \
        --uid "$TRAINER_UID" --gid "$TRAINER_UID" --file-mode 644 --dir-mode 755 \
        --metadata-cache-ttl-secs 0 "${MOUNT_SOURCE%%/*}" "$MOUNT_POINT"
}

mkdir -p "$MOUNT_POINT"
if mountpoint -q "$MOUNT_POINT"; then
    exit 0
fi
retry "$DEADLINE_SEC" install_client || give_up "cannot install Cloud Storage FUSE within $DEADLINE_SEC s"
retry "$DEADLINE_SEC" mount_once || give_up "cannot mount gs://$MOUNT_SOURCE at $MOUNT_POINT within $DEADLINE_SEC s"
mkdir -p "$RUN_DIR"
log "bucket: gs://$MOUNT_SOURCE is at $MOUNT_POINT"
GANGWAY_END_OF_FILE
install -D -m 0755 /dev/stdin /opt/gangway/bin/fetch-key.sh <<'GANGWAY_END_OF_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_KEY_DEADLINE_SEC:-900}
FILE=${GANGWAY_MEMBER_FILE:-/run/gangway-member.pem}

fetched() { member_key >"$FILE.new" && grep -q 'PRIVATE KEY' "$FILE.new" && grep -q CERTIFICATE "$FILE.new"; }

umask 077
retry "$DEADLINE_SEC" fetched ||
    give_up "cannot read $MEMBER_KEY, by which nodes know each other: no right to it, no way to it, or not there"
chown "$TRAINER_UID:$TRAINER_UID" "$FILE.new"
chmod 0400 "$FILE.new"
mv "$FILE.new" "$FILE"
GANGWAY_END_OF_FILE
install -D -m 0755 /dev/stdin /opt/gangway/bin/pull-image.sh <<'GANGWAY_END_OF_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_PULL_DEADLINE_SEC:-900}

pull() { registry_login && docker pull --quiet "$IMAGE"; }

retry "$DEADLINE_SEC" pull || give_up "cannot pull $IMAGE within $DEADLINE_SEC s"
GANGWAY_END_OF_FILE
install -D -m 0755 /dev/stdin /opt/gangway/bin/close-metadata.sh <<'GANGWAY_END_OF_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
CHAIN=GANGWAY-METADATA
user=${SLURM_JOB_UID:-${TRAINER_UID:-0}}
[ "$user" != 0 ] || user=65533

refuse() {
    for address in $addresses; do
        printf -- "-A $CHAIN -d $address -p %s -j $1\n" \
            "tcp -m tcp ! --dport 53" "udp -m multiport ! --dports 53,67,123,547"
    done
    echo COMMIT
}

rules() {
    printf '*filter\n:%s -\n' "$CHAIN"
    for name in root ${METADATA_USERS:-}; do
        uid=$(id -u "$name" 2>/dev/null) && echo "-A $CHAIN -m owner --uid-owner $uid -j RETURN"
    done
    refuse REJECT
    printf '*mangle\n:%s -\n' "$CHAIN"
    refuse DROP
}

hook() {
    local at=(--wait 10 --table "$1") rule=("$2" --jump "$CHAIN")
    if [ "$act" = remove ]; then
        for rule in "--delete $2 --jump" --flush --delete-chain; do
            "$tables" "${at[@]}" $rule "$CHAIN" 2>/dev/null || true
        done
    else
        "$tables" "${at[@]}" --check "${rule[@]}" 2>/dev/null || "$tables" "${at[@]}" --insert "${rule[@]}"
    fi
}

refused() {
    local code=0 connected
    connected=$(setpriv --reuid "$user" --regid "$user" --clear-groups curl --silent --globoff --noproxy '*' \
        --connect-timeout 2 --max-time 5 --output /dev/null --write-out '%{time_connect}' "http://$1/") || code=$?
    [ "$code" = 7 ] || { [ "$code" = 28 ] && [[ $connected =~ ^0[.,]?0*$ ]]; }
}

act=${1:-}
for tables in iptables ip6tables; do
    addresses=$METADATA_IPV4
    if [ "$tables" = ip6tables ]; then
        [ -e "${GANGWAY_IPV6:-/proc/net/if_inet6}" ] || continue
        addresses=$METADATA_IPV6
    fi
    if ! command -v "$tables" >/dev/null; then
        log "no $tables here: no user is kept from $addresses"
    elif ! { [ "$act" = remove ] || "$tables-restore" --noflush --wait 10 <<<"$(rules)"; } ||
        ! hook filter OUTPUT || ! hook mangle FORWARD; then
        log "cannot keep users from $addresses"
        exit 1
    fi
    [ -z "$act" ] || continue
    for address in $addresses; do
        [ "$tables" = iptables ] || address=[$address]
        refused "$address" || {
            log "user $user still reaches $address"
            exit 1
        }
    done
done
GANGWAY_END_OF_FILE
install -D -m 0755 /dev/stdin /opt/gangway/bin/run-trainer.sh <<'GANGWAY_END_OF_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DOCKER_ARGV=() RUN=(docker)
. "${GANGWAY_JOB_ENV:-/etc/gangway/job.env}"

mkdir -p "$STATE_DIR"
rm -f "$STATE_DIR/ran"
if leaving; then
    log "this node is about to go: the trainer is not started again"
    exit 0
fi
if [ -e "$STATE_DIR/ended" ]; then
    log "the job has ended ($(cat "$STATE_DIR/ended")): remove $STATE_DIR to start it again"
    exit 0
fi
if [ -e "$STATE_DIR/unfit" ] && [ -z "$TRIES_AGAIN" ]; then
    log "this node was given up: nothing is started on it"
    exit 4
fi
"$(dirname "$0")/close-metadata.sh" || exit 1
if [ -e "$STATE_DIR/failed" ]; then
    for check in $HEALTH_CHECKS; do
        if ! "$(dirname "$0")/$check"; then
            rest
            exit 4
        fi
    done
fi
rm -f "$STATE_DIR/failed" "$STATE_DIR/unfit"
for folder in "$RUN_DIR" ${DATA_DIR:+"$DATA_DIR"}; do
    prepare_folder "$folder" || exit 1
done
total_kib=$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' "${GANGWAY_MEMINFO:-/proc/meminfo}")
kept_kib=$((total_kib / 20 < 8388608 ? total_kib / 20 : 8388608))
DOCKER_ARGV=("${DOCKER_ARGV[0]}" --memory "$((total_kib - kept_kib))k" "${DOCKER_ARGV[@]:1}")
capacity=$(own_capacity) || capacity=
if [ -n "$capacity" ]; then
    DOCKER_ARGV=("${DOCKER_ARGV[0]}" --env "GANGWAY_CAPACITY=$capacity" "${DOCKER_ARGV[@]:1}")
fi
[ -e "$STATE_DIR/first-start" ] || up_sec >"$STATE_DIR/first-start"
rm -f "$STATE_DIR"/{end-put,told,kept}
touch "$STATE_DIR/ran"
exec "${RUN[@]}" "${DOCKER_ARGV[@]}"
GANGWAY_END_OF_FILE
install -D -m 0755 /dev/stdin /opt/gangway/bin/upload-record.sh <<'GANGWAY_END_OF_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"

put() {
    local said status=0
    said=$("${@:3}" 2>&1) || status=$?
    if [ "$status" != 0 ]; then
        said=${said:-exit status $status}
        log "$said"
        event record-not-put reason "$said"
        return 1
    fi
    echo "$2" >"$STATE_DIR/$1"
}

sign_record() {
    local own key=$STATE_DIR/signing.pem file=$STATE_DIR/run.json.sig
    [ -n "${SIGNING_KEY:-}" ] || return 0
    [ -s "$key" ] || (umask 077 && signing_key >"$key") || true
    own=$(openssl pkey -in "$key" -pubout -outform DER | tail -c 32 | base64 -w0) || true
    own+=" "$(openssl pkeyutl -sign -rawin -inkey "$key" -in "$RECORD" | base64 -w0) || true
    if [ "${#own}" = 133 ]; then
        own+=$'\n'$(grep -svxF "$own" "$file" | head -n 1) || true
    else
        own="cannot sign run.json with $SIGNING_KEY"
        log "$own"
        event record-not-signed reason "$own"
        rm "$key"
        own=
    fi
    echo "$own" >"$file"
    put signed "$SUM_OF_RECORD" put_object "$file" "$JOB_NAME/run.json.sig"
}

if [ -z "${OPENED:-}" ]; then
    mkdir -p "$STATE_DIR"
    results=
    if [ -n "$RESULTS_SEC" ] && { [ -z "$RESULTS_AT_END" ] || [ -e "$STATE_DIR/ended" ]; }; then
        results=yes
    fi
    OPENED=yes exec python3 "$(dirname "$0")/../lib/images/node/outbox.py" \
        "$RUN_DIR" "$TRAINER_UID" "$STATE_DIR" "${1:-$results}" bash "$0"
fi
status=0
if [ -n "$RECORD" ]; then
    if sign_record && put uploaded "$SUM_OF_RECORD" put_object "$RECORD" "$JOB_NAME/run.json"; then
        event record-put reason "$BUCKET_URI/$JOB_NAME/run.json"
    else
        status=1
    fi
elif [ -n "$PROGRESS" ] && [ "$(up_sec)" -ge "$(cat "$STATE_DIR/progress-due" 2>/dev/null || echo 0)" ]; then
    echo "$PROGRESS" >"$STATE_DIR/progress.json"
    if put_object "$STATE_DIR/progress.json" "$JOB_NAME/progress.json"; then
        echo $(($(up_sec) + 600)) >"$STATE_DIR/progress-due"
        echo "$PROGRESS" >"$STATE_DIR/progress"
    else
        log "the progress could not be put"
    fi
fi
if [ -n "$RESULTS" ]; then
    put results "$SUM_OF_RESULTS" put_folder "$RESULTS" "$JOB_NAME" || status=1
fi
exit "$status"
GANGWAY_END_OF_FILE
install -D -m 0755 /dev/stdin /opt/gangway/bin/leave-node.sh <<'GANGWAY_END_OF_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
STARTS_ALLOWED=${GANGWAY_STARTS_ALLOWED:-5}

exit_status() {
    if [ "${EXIT_CODE:-exited}" = exited ]; then
        echo "$EXIT_STATUS"
    else
        echo $((128 + $(kill -l "$EXIT_STATUS")))
    fi
}

not_run() {
    touch "$STATE_DIR/failed"
    echo >>"$STATE_DIR/not-run"
    if [ "$(wc -l <"$STATE_DIR/not-run")" -ge "$STARTS_ALLOWED" ]; then
        rm "$STATE_DIR/not-run"
        rest
        give_up "the trainer's container could not be started $STARTS_ALLOWED times in a row"
    fi
}

if leaving; then
    if group_waits; then
        let_go
    fi
    exit 0
fi
if [ -e "$STATE_DIR/ended" ] || [ -e "$STATE_DIR/unfit" ] || [ -z "${EXIT_STATUS:-}" ]; then
    exit 0
fi
mkdir -p "$STATE_DIR"
status=$(exit_status)
if [ ! -e "$STATE_DIR/ran" ] || { [ "$status" -ge 125 ] && [ "$status" -le 127 ]; }; then
    [ "$status" = 0 ] || not_run
    exit 0
fi
rm -f "$STATE_DIR/not-run"
case $status in
0) end_job 0 "done" ;;
2) end_job 2 bad-input ;;
3) end_job 3 fabric-too-slow ;;
4)
    [ -z "$TRIES_AGAIN" ] || { touch "$STATE_DIR/failed" && rest; }
    give_up "the trainer failed too often on this node, and others go on"
    ;;
5) end_job 5 too-many-failures ;;
6) end_job 6 max-hours ;;
75) log "interrupted with a checkpoint on disk: the trainer is started again" ;;
*)
    if [ "${SERVICE_RESULT:-}" != success ]; then
        log "the trainer has failed here, exit status $status: started again once this node's health was looked at"
        touch "$STATE_DIR/failed"
    fi
    ;;
esac
GANGWAY_END_OF_FILE
install -D -m 0755 /dev/stdin /opt/gangway/bin/watch-node.sh <<'GANGWAY_END_OF_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
GRACE_SEC=${GANGWAY_GRACE_SEC:-600}
TRAINER=gangway-trainer.service

too_long() {
    local first
    [ -n "$MAX_SEC" ] || return 1
    first=$(cat "$STATE_DIR/first-start" 2>/dev/null) || { made_for_job && first=0; } || return
    [ "$(up_sec)" -ge $((first + MAX_SEC + GRACE_SEC + ${1:-0})) ]
}

hours_over() { [ -e "$STATE_DIR/first-start" ] && too_long "$(idle_sec)"; }
idle_sec() { cat "$STATE_DIR/idle-sec" 2>/dev/null || echo 0; }

outlived() { [ -n "$TERMINATE_WHEN_DONE" ] && made_for_job && too_long; }

count_idle() {
    local now last was
    [ -e "$STATE_DIR/first-start" ] || return 0
    now=$(up_sec)
    read -r last was 2>/dev/null <"$STATE_DIR/looked" || last=$now was=
    echo "$now $1" >"$STATE_DIR/looked"
    if [ -n "$1" ] && [ -n "$was" ]; then
        echo $(($(idle_sec) + now - last)) >"$STATE_DIR/idle-sec"
    elif [ $((now - last)) -gt 600 ]; then
        echo $(($(idle_sec) + now - last - 60)) >"$STATE_DIR/idle-sec"
    fi
}

leave_alone() {
    if [ ! -e "$STATE_DIR/alone" ]; then
        log "up longer than the job's hours, in which the trainer rested: this node leaves"
        event node-outlived reason "up longer than the job's hours, in which the trainer rested"
        mkdir -p "$STATE_DIR" && touch "$STATE_DIR/alone"
    fi
    timeout $((${RESULTS_SEC:-0} + 60)) bash "$(dirname "$0")/upload-record.sh" ||
        log "the record could not be put: this node goes without"
    leave_group || log "could not leave: tried again in a minute"
}

trainer_rests() {
    case $(systemctl is-active "$TRAINER") in
    inactive | failed) ;;
    *) return 1 ;;
    esac
}

idle=
if trainer_rests; then
    idle=yes
fi
count_idle "$idle"
if [ -z "$idle" ] && ! "$(dirname "$0")/close-metadata.sh"; then
    log "the job could reach this machine's tokens: stopped"
    systemctl stop "$TRAINER"
    exit 1
fi
if [ -z "$idle" ]; then
    hours_over || outlived || {
        if [ -n "$RESULTS_SEC" ] && [ -z "$RESULTS_AT_END" ]; then
            timeout 60 bash "$(dirname "$0")/upload-record.sh" progress || true
        fi
        exit 0
    }
    log "the trainer still runs $GRACE_SEC s after the hours that it has here, or this machine: stopped"
    systemctl stop "$TRAINER"
fi
if group_waits; then
    let_go
elif [ -e "$STATE_DIR/ended" ]; then
    tell && depart
elif hours_over; then
    end_job 6 max-hours
elif outlived; then
    leave_alone
elif [ -e "$STATE_DIR/unfit" ] && [ -n "$TRIES_AGAIN" ] && rested; then
    systemctl start --no-block "$TRAINER"
fi
GANGWAY_END_OF_FILE
install -D -m 0755 /dev/stdin /opt/gangway/bin/run-tpu.sh <<'GANGWAY_END_OF_FILE'
#!/usr/bin/env bash
set -euo pipefail
. "$(dirname "$0")/common.sh"
DEADLINE_SEC=${GANGWAY_TPU_DEADLINE_SEC:-600}
MEET_SEC=${GANGWAY_MEET_DEADLINE_SEC:-3600}
PORT=${GANGWAY_MEET_PORT:-29400}

know_slice() {
    TPU_ENV=$(metadata instance/attributes/tpu-env) &&
        ENDPOINTS=$(metadata instance/attributes/worker-network-endpoints) && [ -n "$(tpu_env WORKER_ID)" ] &&
        { [ "$NUM_SLICES" = 1 ] || [ -n "$(tpu_env MEGASCALE_COORDINATOR_ADDRESS)" ]; }
}

retry "$DEADLINE_SEC" know_slice || give_up "no word of this slice in the metadata after $DEADLINE_SEC s"
IFS=, read -ra workers <<<"$ENDPOINTS"
first=${workers[0]##*:}
options=()
if [ "$NUM_SLICES" != 1 ]; then
    coordinator=$(tpu_env MEGASCALE_COORDINATOR_ADDRESS)
    first=${coordinator%:*}
    options+=(--env "MEGASCALE_COORDINATOR_ADDRESS=$coordinator" --env "MEGASCALE_NUM_SLICES=$NUM_SLICES"
        --env "MEGASCALE_SLICE_ID=$(tpu_env MEGASCALE_SLICE_ID)")
    if port=$(tpu_env MEGASCALE_PORT) && [ -n "$port" ]; then
        options+=(--env "MEGASCALE_PORT=$port")
    fi
fi
hosts=$((${#workers[@]} * NUM_SLICES))
if [ "$hosts" = 1 ]; then
    meeting=(--standalone --nnodes=1)
else
    meeting=("--nnodes=$hosts" --rdzv-backend=gangway "--rdzv-endpoint=$first:$PORT" "--rdzv-id=$JOB_NAME"
        "--rdzv-conf=is_host=0,join_timeout=$MEET_SEC")
    if first_host && ! systemctl start gangway-rendezvous.service; then
        log "the store in which the hosts meet does not start"
        exit 1
    fi
fi
log "TPU: host $(tpu_env WORKER_ID) of ${#workers[@]}, $NUM_SLICES slices, $hosts hosts meet at $first"
before=() word=
while [ $# -gt 0 ]; do
    word=$1
    shift
    [ "$word" != -- ] || break
    before+=("$word")
done
exec docker "${before[0]}" "${options[@]}" "${before[@]:1}" "${meeting[@]}" "$@"
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /opt/gangway/lib/images/node/outbox.py <<'GANGWAY_END_OF_FILE'
import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_BYTES_OF_RECORD = 64000000
_MOST_PICTURES = 10000
_NONE = -1

class Owned(NamedTuple):
    at: int
    uid: int

    def file(self, name):
        return self._opened(name, _FILE, stat.S_IFREG)

    def folder(self, name):
        return Owned(self._opened(name, _FOLDER, stat.S_IFDIR), self.uid)

    def has(self, name):
        descriptor = self.file(name)
        if descriptor != _NONE:
            os.close(descriptor)
        return descriptor != _NONE

    def close(self):
        if self.at != _NONE:
            os.close(self.at)

    def names(self):
        return sorted(os.listdir(self.at), reverse=True) if self.at != _NONE else []

    def _opened(self, name, flags, kind):
        if self.at == _NONE:
            return _NONE
        try:
            descriptor = os.open(name, flags, dir_fd=self.at)
        except FileNotFoundError:
            return _NONE
        except OSError as error:
            say(f'{name!r} is left out: {error.strerror}')
            return _NONE
        found = os.fstat(descriptor)
        if stat.S_IFMT(found.st_mode) == kind and found.st_uid == self.uid:
            return descriptor
        os.close(descriptor)
        say(f'{name!r} is left out: it is nothing that the trainer has written')
        return _NONE

class Results(NamedTuple):
    names: tuple[str, ...]
    sum: str

def say(sentence):
    print(f'gangway: {sentence}', file=sys.stderr, flush=True)

def get_checksum(descriptor):
    if descriptor == _NONE:
        return ''
    content = hashlib.sha256()
    with os.fdopen(descriptor, 'rb', closefd=False) as file:
        while (block := file.read(1 << 20)):
            content.update(block)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return content.hexdigest()

def get_record(run):
    record = run.file('run.json')
    if record == _NONE:
        say('no run record yet')
    elif os.fstat(record).st_size > _MOST_BYTES_OF_RECORD:
        say("'run.json' is left out: it is too large for a record")
        return _NONE
    return record

def get_progress(run):
    stats = run.file('stats.jsonl')
    if stats == _NONE:
        return ''
    with os.fdopen(stats, 'rb') as file:
        file.seek(max(0, os.fstat(stats).st_size - (1 << 20)))
        lines = file.read(1 << 20).splitlines()
    for line in reversed(lines):
        with suppress(Exception):
            told = json.loads(line)
            return json.dumps({'version': 1, **{name: int(told[name]) for name in ('images', 'time')}})
    return ''

def get_results(run):
    with closing(run.folder('checkpoints')) as checkpoints, closing(run.folder('samples')) as samples:
        saved = checkpoints.names()
        newest = next((name for name in saved if name.endswith('.pt') and checkpoints.has(name)), '')
        of_newest = [name for name in saved if newest and name.startswith(newest.removesuffix('pt'))]
        pictures = samples.names()
    if len(pictures) > _MOST_PICTURES:
        say(f'of {len(pictures)} pictures the last {_MOST_PICTURES} are put')
    names = [name for name in ('config.json', 'stats.jsonl', 'reals.png', 'samples.png') if run.has(name)]
    names += [f'checkpoints/{name}' for name in of_newest[:_MOST_PICTURES]]
    names += [f'samples/{name}' for name in pictures[:_MOST_PICTURES]]
    return Results(tuple(names), f"{newest} {get_checksum(run.file('stats.jsonl'))}")

@contextmanager
def gathered(run, names):
    prefix = f'.results-{socket.gethostname()}-'
    for name in run.names():
        if name.startswith(prefix):
            remove(run, name)
    name = prefix + os.urandom(8).hex()
    os.mkdir(name, 448, dir_fd=run.at)
    own = Owned(run.at, os.geteuid()).folder(name)
    if own.at == _NONE:
        raise OSError(f'{name} was swapped as soon as it was made')
    try:
        for folder, group in groupby(names, lambda each: each.rpartition('/')[0]):
            put_in(run, own, folder, [each.rpartition('/')[2] for each in group])
        yield own.at
    finally:
        remove(run, name)
        own.close()

def put_in(run, own, folder, names):
    if not folder:
        link(run, own, names)
        return
    os.mkdir(folder, 448, dir_fd=own.at)
    with closing(run.folder(folder)) as source, closing(own.folder(folder)) as target:
        link(source, target, names)

def link(source, target, names):
    for name in names:
        descriptor = source.file(name)
        if descriptor != _NONE:
            os.link(f'/proc/self/fd/{descriptor}', name, dst_dir_fd=target.at, follow_symlinks=True)
            os.close(descriptor)

def remove(run, name):
    try:
        shutil.rmtree(f'/proc/self/fd/{run.at}/{name}', ignore_errors=True)
    except RecursionError:
        say(f'{name!r} stays: it is deeper than any folder of ours')

def main(argv):
    run_dir, uid, marks, wanted, *command = argv
    run = Owned(os.open('/', os.O_RDONLY | os.O_DIRECTORY), int(uid)).folder(run_dir.lstrip('/'))
    record = _NONE if wanted == 'progress' else get_record(run)
    progress = ''
    try:
        progress = get_progress(run)
    except OSError as error:
        say(f'the progress is left out: {error}')
    paths = {'RECORD': '', 'SUM_OF_RECORD': get_checksum(record), 'RESULTS': '', 'SUM_OF_RESULTS': ''}
    paths['PROGRESS'] = '' if progress == last_sum(marks, 'progress') else progress
    with ExitStack() as held:
        given = []
        if record != _NONE and paths['SUM_OF_RECORD'] != last_sum(marks, 'uploaded'):
            given.append(record)
            paths['RECORD'] = f'/proc/self/fd/{record}'
        try:
            results = get_results(run) if wanted == 'yes' else Results((), '')
            if results.names and results.sum != last_sum(marks, 'results'):
                given.append(held.enter_context(gathered(run, results.names)))
                paths |= {'RESULTS': f'/proc/self/fd/{given[-1]}', 'SUM_OF_RESULTS': results.sum}
        except OSError as error:
            say(f'results are left out: {error}')
        return subprocess.run(command, env={**os.environ, **paths}, pass_fds=given, check=False).returncode

def last_sum(marks, name):
    path = Path(marks, name)
    return path.read_text('utf-8').strip() if path.exists() else ''
if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-notices.service <<'GANGWAY_END_OF_FILE'
[Unit]
Description=Gangway: keep what the cloud says of this machine's end where the job reads it
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
RuntimeDirectory=gangway-notices
RuntimeDirectoryPreserve=restart
Environment=PYTHONPATH=/opt/gangway/lib
ExecStart=/usr/bin/python3 -m images.node.gcp.notices /run/gangway-notices/held
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-prepare.service <<'GANGWAY_END_OF_FILE'
[Unit]
Description=Gangway: make this node ready for the trainer, or give it up
Wants=network-online.target
After=network-online.target docker.service

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=infinity
Restart=on-failure
RestartSec=30
ExecStart=/opt/gangway/bin/install-docker.sh
ExecStart=/opt/gangway/bin/mount-bucket.sh
ExecStart=/opt/gangway/bin/fetch-key.sh
ExecStart=/opt/gangway/bin/pull-image.sh
ExecStart=/usr/bin/systemctl start --no-block gangway-trainer.service
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-watch.service <<'GANGWAY_END_OF_FILE'
[Unit]
Description=Gangway: end this node's part in a job that is over
After=network-online.target

[Service]
Type=oneshot
TimeoutStartSec=300
ExecStart=/opt/gangway/bin/watch-node.sh
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-metadata.service <<'GANGWAY_END_OF_FILE'
[Unit]
Description=Gangway: keep users from the metadata service, before there is a network
DefaultDependencies=no
After=local-fs.target
Wants=network-pre.target
Before=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/opt/gangway/bin/close-metadata.sh rules

[Install]
WantedBy=multi-user.target
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-trainer.service <<'GANGWAY_END_OF_FILE'
[Unit]
Description=Gangway: the trainer's container
Requires=gangway-prepare.service
After=gangway-prepare.service docker.service
Wants=gangway-notices.service
After=gangway-notices.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStartPre=-/usr/bin/docker rm --force gangway-trainer
ExecStart=/opt/gangway/bin/run-trainer.sh
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec=30
ExecStopPost=-/usr/bin/docker rm --force gangway-trainer
ExecStopPost=-/opt/gangway/bin/upload-record.sh
ExecStopPost=-/opt/gangway/bin/leave-node.sh
Restart=on-failure
RestartForceExitStatus=75
RestartPreventExitStatus=2 3 4 5 6
RestartSec=5

[Install]
WantedBy=multi-user.target
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-watch.timer <<'GANGWAY_END_OF_FILE'
[Unit]
Description=Gangway: look every minute whether this node is still needed

[Timer]
OnBootSec=60
OnUnitInactiveSec=60
AccuracySec=1

[Install]
WantedBy=timers.target
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-logs.service <<'GANGWAY_END_OF_FILE'
[Unit]
Description=Gangway: the lines of our units to Cloud Logging
Wants=network-online.target
After=network-online.target
Before=gangway-prepare.service gangway-trainer.service
StartLimitIntervalSec=0

[Service]
Type=exec
Environment=PYTHONPATH=/opt/gangway/lib
ExecStart=/usr/bin/python3 -m images.node.gcp.logs acme-ml gangway-demo gangway-prepare.service gangway-trainer.service
RuntimeDirectory=gangway
RuntimeDirectoryPreserve=yes
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
Restart=always
RestartSec=10

[Install]
WantedBy=multi-user.target
GANGWAY_END_OF_FILE
install -D -m 0644 /dev/stdin /etc/systemd/system/gangway-rendezvous.service <<'GANGWAY_END_OF_FILE'
[Unit]
Description=Gangway: the store in which the job's nodes meet
Requires=gangway-prepare.service
After=gangway-prepare.service docker.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStartPre=-/usr/bin/docker rm --force gangway-rendezvous
ExecStart=/usr/bin/docker run --rm --init --name gangway-rendezvous --network host --cap-drop ALL --security-opt no-new-privileges --read-only --tmpfs /tmp:rw,exec,nosuid,nodev,mode=1777 --pids-limit 1024 --memory 1g --log-driver none --mount type=bind,source=/run/gangway-member.pem,target=/run/gangway-member.pem,readonly --user 0:0 --entrypoint python us-central1-docker.pkg.dev/acme-ml/gangway/trainer@sha256:abababababababababababababababababababababababababababababababab -m trainer.launch.rendezvous --member-key /run/gangway-member.pem --port 29400
ExecStop=/usr/bin/docker stop --time 10 gangway-rendezvous
TimeoutStopSec=20
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
GANGWAY_END_OF_FILE
systemctl daemon-reload
# Nothing is awaited: this script runs inside a unit of the image's own.
systemctl enable gangway-metadata.service gangway-trainer.service gangway-watch.timer gangway-logs.service
systemctl start --no-block gangway-metadata.service gangway-trainer.service gangway-watch.timer gangway-logs.service
