"""What a machine on OpenStack puts into the object store, by the application credential it was given.

    python3 -m images.node.openstack put FILE swift://CONTAINER/NAME
    python3 -m images.node.openstack put-folder FOLDER swift://CONTAINER/PREFIX

Exit code 0, or 1 with one line that says why. Keystone says where the object store is, and for how long: a token lasts
longer than a command. One request puts a file whole, up to the 5 GiB that Swift takes at once ("Large objects").
GANGWAY_CREDENTIAL names the file with the credential.
"""

import json
import os
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from images.node.web import RefusedError, open_url

CREDENTIAL = "/etc/gangway/credential.json"
TIMEOUT_SEC = 30.0
PUT_TIMEOUT_SEC = 280.0
"""A little less than what a machine has for all of its results."""
MAX_OBJECT_BYTES = 5 * 1024**3
SERVICE, INTERFACE = "object-store", "public"


class Store:
    """The object store as this machine may use it.

    Attributes:
        url: of the project's account.
        token: of this session.
    """

    def __init__(self, credential: Mapping[str, str]) -> None:
        """Logs in. Raises OSError where Keystone says no, or knows no object store of the region."""
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
            raise OSError(f"{file} has {size} bytes, and the object store takes {MAX_OBJECT_BYTES} in one piece")
        # From the disk as it goes: a checkpoint need not fit into memory beside the trainer.
        with file.open("rb") as content:
            request = urllib.request.Request(
                f"{self.url}/{_path(place)}",
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
    """Where the object store of a region answers, for everybody."""
    for service in catalog:
        for endpoint in service["endpoints"] if service["type"] == SERVICE else ():
            if (endpoint["interface"], endpoint["region_id"]) == (INTERFACE, region):
                return str(endpoint["url"]).rstrip("/")
    raise RefusedError(404, f"the catalogue has no {SERVICE} in region {region}")


def _path(place: str) -> str:
    parts = urlsplit(place)
    return quote(f"{parts.netloc}{parts.path}", safe="/")


COMMANDS: dict[str, Callable[[Store, Path, str], None]] = {"put": Store.put, "put-folder": Store.put_folder}


def main(argv: Sequence[str]) -> int:
    """Runs one command."""
    try:
        credential = json.loads(Path(os.environ.get("GANGWAY_CREDENTIAL", CREDENTIAL)).read_text("utf-8"))
        COMMANDS[argv[0]](Store(credential), Path(argv[1]), argv[2])
    except OSError as error:
        print(f"gangway: {argv[0]}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
