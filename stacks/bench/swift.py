"""SwiftFolder: a folder of OpenStack's object store, as whoever runs `gangway` may read it.

Logs in as Pulumi's provider does: by the cloud's entry in clouds.yaml, else by OS_* of the environment; with a password
or an application credential. The machines have a credential of their own (`images.on_node.openstack`).
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import yaml

__all__ = ["SwiftFolder"]

_TIMEOUT_SEC = 30.0
_FILES = ("clouds.yaml", "~/.config/openstack/clouds.yaml", "/etc/openstack/clouds.yaml")
_PAGE = 1000


class SwiftFolder:
    """What lies below `swift://CONTAINER/FOLDER`.

    Args:
        url: of the folder.
        region: whose object store it is.
        cloud: name of the entry in clouds.yaml; empty for OS_* alone.

    Raises:
        OSError: there is no login, or Keystone refuses it.
    """

    def __init__(self, url: str, region: str, cloud: str) -> None:
        parts = urlsplit(url)
        self._container, self._folder = parts.netloc, f"{parts.path.strip('/')}/"
        self._token, self._url = _logged_in(_login(cloud), region)

    def read(self, name: str, max_bytes: int | None = None) -> bytes | None:
        """A file's content; None where it is larger. Raises FileNotFoundError, or another OSError."""
        path = quote(f"{self._container}/{self._folder}{name}", safe="/")
        content = self._asked(path, -1 if max_bytes is None else max_bytes + 1)
        return None if max_bytes is not None and len(content) > max_bytes else content

    def names(self) -> list[str]:
        """Every file below. Raises OSError, also where there is no such container."""
        names: list[str] = []
        while True:
            query = {"prefix": self._folder, "limit": _PAGE, "format": "json"}
            query |= {"marker": f"{self._folder}{names[-1]}"} if names else {}
            try:
                page = json.loads(self._asked(f"{quote(self._container)}?{urlencode(query)}") or b"[]")
            except FileNotFoundError:
                raise OSError("404 Not Found: the container") from None
            names += [one["name"].removeprefix(self._folder) for one in page]
            if len(page) < _PAGE:
                return sorted(names)

    def _asked(self, path: str, num_bytes: int = -1) -> bytes:
        request = urllib.request.Request(f"{self._url}/{path}", headers={"X-Auth-Token": self._token})
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SEC) as answer:
                content: bytes = answer.read(num_bytes)
                return content
        except urllib.error.HTTPError as refused:
            with refused:
                if refused.code == 404:
                    raise FileNotFoundError(path) from None
                raise


def _login(cloud: str) -> Mapping[str, str]:
    """What `clouds.yaml` says of the cloud under `auth`, else OS_* by the same names."""
    named = os.environ.get("OS_CLIENT_CONFIG_FILE")
    for file in ([named] if named else []) + list(_FILES):
        path = Path(file).expanduser()
        if cloud and path.is_file():
            entry = (yaml.safe_load(path.read_text("utf-8")) or {}).get("clouds", {}).get(cloud)
            if entry:
                return dict(entry["auth"])
    return {name.removeprefix("OS_").lower(): value for name, value in os.environ.items() if name.startswith("OS_")}


def _identity(login: Mapping[str, str]) -> dict[str, Any]:
    """Keystone's request for a token (API v3)."""
    if "application_credential_id" in login:
        own = {"id": login["application_credential_id"], "secret": login["application_credential_secret"]}
        return {"identity": {"methods": ["application_credential"], "application_credential": own}}
    domain = {"name": login.get("user_domain_name", "Default")}
    user = {"name": login["username"], "password": login["password"], "domain": domain}
    project = {"name": login.get("project_name", ""), "domain": {"name": login.get("project_domain_name", "Default")}}
    scope = {"project": {"id": login["project_id"]} if "project_id" in login else project}
    return {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}


def _logged_in(login: Mapping[str, str], region: str) -> tuple[str, str]:
    """A token, and where the object store of the region answers."""
    try:
        url, body = f"{login['auth_url'].rstrip('/')}/auth/tokens", {"auth": _identity(login)}
    except KeyError as missing:
        raise OSError(f"no login: neither clouds.yaml nor OS_* says {missing}") from None
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SEC) as answer:
        token, catalog = answer.headers["X-Subject-Token"], json.load(answer)["token"]["catalog"]
    for service in catalog:
        for endpoint in service["endpoints"] if service["type"] == "object-store" else ():
            if (endpoint["interface"], endpoint["region_id"]) == ("public", region):
                return token, endpoint["url"].rstrip("/")
    raise OSError(f"the catalogue has no object store in region {region}")
