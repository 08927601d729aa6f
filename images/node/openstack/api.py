"""Commands of a machine on OpenStack: fetch its secrets at boot, upload to the object store.

    python3 -m gangway.images.node.openstack.api fetch
    python3 -m gangway.images.node.openstack.api secret NAME
    python3 -m gangway.images.node.openstack.api put FILE swift://CONTAINER/NAME
    python3 -m gangway.images.node.openstack.api put-folder FOLDER swift://CONTAINER/PREFIX

Exit code 0, or 1 with a line for the reason. `fetch` downloads the machine's secrets, from the URL in its metadata, to
the file GANGWAY_SECRETS, if they changed; `secret` prints one. A file is one request, up to Swift's limit of 5 GiB
("Large objects").
"""

import json
import os
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from gangway.images.node.web import RefusedError, open_url

SECRETS = "/etc/gangway/secrets.json"
METADATA_URL = "http://169.254.169.254"
# As in gangway.components.openstack.machine_secrets.
PLACE, SIGNATURE = "gangway:secrets", "gangway:secrets-signature"
MAX_SECRETS_BYTES = 65_536
TIMEOUT_SEC = 30.0
PUT_TIMEOUT_SEC = 280.0
"""Slightly less than the machine's limit for all results."""
MAX_OBJECT_BYTES = 5 * 1024**3
SERVICE, INTERFACE = "object-store", "public"


def fetch(file: Path) -> None:
    """Updates the secrets in a file of root's. Raises OSError without an answer and a previous file."""
    previous = _read_previous(file)
    try:
        place, signature = _get_location()
    except OSError as error:
        if not previous:
            raise
        print(f"gangway: fetch: {error}; using the previous secrets", file=sys.stderr, flush=True)
        return
    if previous.get("place") == place:
        return
    try:
        with open_url(urllib.request.Request(f"{place}?{signature}"), TIMEOUT_SEC) as answer:
            found = json.loads(answer.read(MAX_SECRETS_BYTES))
    except RefusedError as error:
        # Without the signature, since this is logged to the console.
        raise RefusedError(error.status, f"GET {place}") from None
    except ValueError:
        raise OSError(f"{place} is not JSON") from None
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as written:
        json.dump({**found, "place": place}, written)
        written.flush()
        # After a power failure, the URL may have expired.
        os.fsync(written.fileno())
    new.replace(file)


def _read_previous(file: Path) -> dict[str, Any]:
    """The previous secrets; empty if missing or incomplete."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _get_location() -> tuple[str, str]:
    """The URL of the secrets and its signature, from the metadata."""
    url = os.environ.get("GANGWAY_METADATA_URL", METADATA_URL)
    request = urllib.request.Request(f"{url}/openstack/latest/meta_data.json")
    with open_url(request, TIMEOUT_SEC) as answer:
        items = json.load(answer).get("meta", {})
    if PLACE not in items or SIGNATURE not in items:
        raise OSError(f"this machine's metadata has no {PLACE} or {SIGNATURE}")
    return items[PLACE], items[SIGNATURE]


class Store:
    """The object store as this machine may use it.

    Attributes:
        url: of the project's account.
        token: for this session.
    """

    def __init__(self, credential: Mapping[str, str]) -> None:
        """Logs in. Raises OSError if Keystone refuses or lists no object store in the region."""
        own = {"id": credential["id"], "secret": credential["secret"]}
        body = {"auth": {"identity": {"methods": ["application_credential"], "application_credential": own}}}
        request = urllib.request.Request(
            f"{credential['auth_url'].rstrip('/')}/auth/tokens",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with open_url(request, TIMEOUT_SEC) as answer:
            self.token: str = answer.headers["X-Subject-Token"]
            catalog = json.load(answer)["token"]["catalog"]
        self.url = _endpoint(catalog, credential["region"])

    def put(self, file: Path, place: str) -> None:
        """Copies a file to `swift://CONTAINER/NAME`."""
        size = file.stat().st_size
        if size > MAX_OBJECT_BYTES:
            raise OSError(f"{file}: {size} bytes; allowed: at most {MAX_OBJECT_BYTES} per object")
        # Streamed: a checkpoint may not fit into memory.
        with file.open("rb") as content:
            request = urllib.request.Request(
                f"{self.url}/{_object_path(place)}",
                content,
                {
                    "X-Auth-Token": self.token,
                    "Content-Length": str(size),
                    "Content-Type": "application/octet-stream",
                },
                method="PUT",
            )
            open_url(request, PUT_TIMEOUT_SEC).close()

    def put_folder(self, folder: Path, place: str) -> None:
        """Copies all files of a folder, below `place`."""
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.put(file, f"{place.rstrip('/')}/{file.relative_to(folder).as_posix()}")


def _endpoint(catalog: Sequence[Mapping[str, Any]], region: str) -> str:
    """The public endpoint of a region's object store."""
    for service in catalog:
        for endpoint in service["endpoints"] if service["type"] == SERVICE else ():
            if (endpoint["interface"], endpoint["region_id"]) == (INTERFACE, region):
                return str(endpoint["url"]).rstrip("/")
    raise RefusedError(404, f"Keystone's catalog has no {SERVICE} in region {region}")


def _object_path(place: str) -> str:
    parts = urlsplit(place)
    return quote(f"{parts.netloc}{parts.path}", safe="/")


COMMANDS: dict[str, Callable[[Store, Path, str], None]] = {"put": Store.put, "put-folder": Store.put_folder}


def main(argv: Sequence[str]) -> int:
    """Runs one command."""
    file = Path(os.environ.get("GANGWAY_SECRETS", SECRETS))
    try:
        if argv[0] == "fetch":
            fetch(file)
            return 0
        secrets = json.loads(file.read_text("utf-8"))
        if argv[0] == "secret":
            if argv[1] not in secrets:
                raise OSError(f"this machine's secrets, from an earlier pulumi up, have no {argv[1]}")
            print(secrets[argv[1]], end="")
        else:
            COMMANDS[argv[0]](Store(secrets["credential"]), Path(argv[1]), argv[2])
    except OSError as error:
        print(f"gangway: {argv[0]}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
