"""Addresses in Azure's blob storage, az://ACCOUNT/CONTAINER/FOLDER, as `gangway.trainer.data.sources` reads them."""

import re
from dataclasses import dataclass

from gangway.components.core.findings import InputError

CONTAINER_PATTERN = r"az://[a-z0-9]{3,24}/[a-z0-9](-?[a-z0-9]){1,62}"
"""For patterns without lookahead; `read_blob_url` also checks that a container's name has 3 to 63 letters."""
_URL = re.compile(rf"(?P<root>{CONTAINER_PATTERN})(?:/(?P<prefix>.*))?")
_ALLOWED = "az://ACCOUNT/CONTAINER or az://ACCOUNT/CONTAINER/FOLDER/FOLDER, no folder empty, . or .."


@dataclass(frozen=True)
class BlobUrl:
    """`az://account/container/prefix`, the prefix without slashes around it."""

    account: str
    container: str
    prefix: str

    def __str__(self) -> str:
        return "/".join(part for part in (f"az://{self.account}", self.container, self.prefix) if part)

    @property
    def https(self) -> str:
        """The address as Azure's own tools write it."""
        return f"https://{self.account}.blob.core.windows.net/{self.container}/{self.prefix}"


def read_blob_url(url: str, place: str = "gangway:storage.source") -> BlobUrl:
    """Parse `url`. InputError: not `az://account/container/prefix`, or a folder is empty, `.` or `..`."""
    found = _URL.fullmatch(url)
    folders = ((found and found["prefix"]) or "").removesuffix("/").split("/")
    account, container = found["root"].split("/")[2:] if found else ("", "")
    # On a node such folders would resolve differently than in the container.
    if not found or not 3 <= len(container) <= 63 or (folders != [""] and {"", ".", ".."} & set(folders)):
        raise InputError(
            place,
            "not a place in Azure's blob storage",
            value=url,
            allowed=_ALLOWED,
            fix="write it like az://mydata/images/celeba",
        )
    return BlobUrl(account, container, "/".join(folders))
