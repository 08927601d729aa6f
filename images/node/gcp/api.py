"""Commands of a machine on Google Cloud that call Google's APIs, with the token of its service account.

    python3 -m gangway.images.node.gcp.api event PROJECT LOG job-ended exit_status 0 reason done
    python3 -m gangway.images.node.gcp.api replace | leave | zone | token
    python3 -m gangway.images.node.gcp.api release projects/P/locations/ZONE/queuedResources/NAME
    python3 -m gangway.images.node.gcp.api put FILE gs://BUCKET/KEY, or: put-folder FOLDER gs://BUCKET/PREFIX
    python3 -m gangway.images.node.gcp.api exists gs://BUCKET/KEY, or: list gs://BUCKET/PREFIX
    python3 -m gangway.images.node.gcp.api import FILE, which has a request to Managed Lustre
    python3 -m gangway.images.node.gcp.api copy gs://BUCKET/PREFIX FOLDER

Exit codes, with a line for the reason: 0 done, 1 failed, 2 not found or unsafe object name, 3 not allowed, which may
change while new rights propagate. Uses REST, since not all of Ubuntu's images have `gcloud`.
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

from gangway.images.node.safe_files import UnsafeNameError, get_size, open_folder, replace_file
from gangway.images.node.web import MAX_VALUE_CHARS, RefusedError, open_url

METADATA_URL = "http://metadata.google.internal"
TIMEOUT_SEC = 30
CHUNK_BYTES = 1 << 24
# Exit codes of permanent errors, by HTTP status and google.rpc.Code.
EXIT_CODES = {404: 2, 5: 2, 403: 3, 7: 3}


class GoogleApi:
    """Google's APIs as this machine may use them.

    Args:
        metadata_url: of the metadata server.
        api_url: prefix of every API's host in tests; else empty.
    """

    def __init__(self, metadata_url: str = METADATA_URL, api_url: str = "") -> None:
        self._metadata_url, self._api_url = metadata_url, api_url
        self._token, self._token_until = "", 0.0

    @classmethod
    def from_environment(cls) -> "GoogleApi":
        """Settings from the environment."""
        return cls(os.environ.get("GANGWAY_METADATA_URL", METADATA_URL), os.environ.get("GANGWAY_API_URL", ""))

    def metadata(self, item: str) -> str:
        """One item of metadata. Raises RefusedError, with status 404 for a missing one."""
        request = urllib.request.Request(
            f"{self._metadata_url}/computeMetadata/v1/{item}", headers={"Metadata-Flavor": "Google"}
        )
        return self._read(request).decode().strip()

    def name(self) -> str:
        """The instance's name."""
        return self.metadata("instance/name")

    def token(self) -> str:
        """An access token of the machine's service account, cached until a minute before it expires."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)  # includes sleep
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
        """An API's open response; `data` may be an open file. Raises RefusedError."""
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
        """The URLs of this machine's managed instance group and of the machine. Raises RefusedError, with status 404 if
        no group created it.
        """
        group = self.metadata("instance/attributes/created-by")
        zone = group.partition("/instanceGroupManagers/")[0]
        return f"https://compute.googleapis.com/compute/v1/{group}", f"{zone}/instances/{self.name()}"

    def call_group(self, verb: str) -> None:
        """Has the group delete this machine and shrink (deleteInstances), or recreate it (recreateInstances)."""
        group, instance = self.group()
        self.call("POST", f"{group}/{verb}", {"instances": [instance]})

    def release_slices(self, queued_resource: str) -> None:
        """Deletes a queued resource with all its nodes, if it exists."""
        url = f"https://tpu.googleapis.com/v2/{queued_resource}?force=true"
        try:
            self.call("DELETE", url)
        except RefusedError as error:
            if error.status != 404:
                raise

    def write_log(self, project: str, entries: Sequence[dict[str, Any]]) -> None:
        """Sends entries to Cloud Logging, as this machine."""
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
        # Streamed: a checkpoint may not fit into memory.
        with file.open("rb") as content:
            self.open("POST", url, content, "application/octet-stream").close()

    def put_folder(self, folder: Path, uri: str) -> None:
        """Copies all files of a folder into a bucket, below `uri`."""
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.put(file, f"{uri.rstrip('/')}/{file.relative_to(folder)}")

    def secret(self, name: str) -> str:
        """The newest version of a secret `projects/P/secrets/NAME`."""
        answer = self.call("GET", f"https://secretmanager.googleapis.com/v1/{name}/versions/latest:access")
        return base64.b64decode(answer["payload"]["data"]).decode()

    def exists(self, uri: str) -> bool:
        """Whether the object exists.

        Lists names, since without the right to list, a missing object gives 403, as one that may not be read
        (github.com/googleapis/google-api-php-client, issue 1791).
        """
        return uri.removeprefix("gs://").partition("/")[2] in self.list_names(uri)

    def list_names(self, uri: str) -> list[str]:
        """The names of all objects with this prefix."""
        bucket, key = _object(uri)
        found = self.pages("GET", f"https://storage.googleapis.com/storage/v1/b/{bucket}/o?prefix={key}", "items")
        return [item["name"] for item in found]

    def get(self, uri: str) -> bytes | None:
        """An object's content; None if it does not exist."""
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
        """Copies all objects below `uri` into a folder, each atomically; skips files of the same size. Raises
        UnsafeNameError for a name that leads out of the folder. Returns the number of objects.
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
        with open_folder(folder, name) as (at, last):
            if get_size(at, last) == wanted:
                return
            with self.open("GET", url) as answer, replace_file(at, last) as file:
                while chunk := answer.read(CHUNK_BYTES):
                    file.write(chunk)
                # A dropped connection looks like the end of the object.
                if (size := file.tell()) != wanted:
                    raise OSError(f"{item['name']}: received {size} of {wanted} bytes")

    def import_data(self, url: str, body: dict[str, Any], poll_sec: float) -> None:
        """Imports from a bucket into Managed Lustre, and waits for the end. Raises RefusedError."""
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
    """An entry of the stack's log with the current time."""
    now = datetime.now(timezone.utc).isoformat()  # noqa: UP017 - Python 3.10
    return {"logName": f"projects/{project}/logs/{quote(log, safe='')}", "timestamp": now, "jsonPayload": payload}


def _event(google: GoogleApi, project: str, log: str, event: str, *pairs: str) -> None:
    """`pairs`: alternating names and values; exit_status is a number."""
    values = [os.fsencode(word).decode(errors="replace")[:MAX_VALUE_CHARS] for word in pairs]
    line: dict[str, Any] = {"event": event, "instance_id": google.name()}
    for name, value in zip(values[::2], values[1::2], strict=True):
        line[name] = int(value) if name == "exit_status" else value
    google.write_log(project, [log_entry(project, log, line)])


def _exists(google: GoogleApi, uri: str) -> None:
    if not google.exists(uri):
        raise RefusedError(404, f"{uri} does not exist")


def _import(google: GoogleApi, file: str) -> None:
    request = json.loads(Path(file).read_text("utf-8"))
    google.import_data(request["url"], request["body"], float(os.environ.get("GANGWAY_POLL_SEC", "10")))


def _copy(google: GoogleApi, uri: str, folder: str) -> None:
    number = google.copy(uri, Path(folder))
    if not number:
        raise RefusedError(404, f"no objects below {uri.rstrip('/')}/")
    print(f"copied {number} objects from {uri}", flush=True)


COMMANDS: dict[str, Callable[..., None]] = {
    "copy": _copy,
    "event": _event,
    "exists": _exists,
    "import": _import,
    "leave": lambda google: google.call_group("deleteInstances"),
    "list": lambda google, uri: print(*google.list_names(uri), sep="\n"),
    "put": lambda google, file, uri: google.put(Path(file), uri),
    "put-folder": lambda google, folder, uri: google.put_folder(Path(folder), uri),
    "release": lambda google, queued_resource: google.release_slices(queued_resource),
    "replace": lambda google: google.call_group("recreateInstances"),
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
