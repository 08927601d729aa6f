"""HTTP sessions: the parts of `requests` used here, so that tests can pass their own; Azure's, with `az`'s token."""

import json
import subprocess
from typing import Any, Protocol

from gangway.components.core.findings import InputError


class Reply(Protocol):
    """A response."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""

    @property
    def text(self) -> str:
        """The body."""

    def json(self) -> Any:
        """The body as JSON. ValueError: it is not JSON."""


class Session(Protocol):
    """A session, such as google-auth's AuthorizedSession."""

    def request(self, method: str, url: str, *, params: Any = None, json: Any = None, timeout: Any = None) -> Reply:
        """Send one request."""


class Poster(Protocol):
    """The part of a `requests` session used here."""

    def post(self, url: str, *, params: Any = None, json: Any = None, timeout: Any = None) -> Reply:
        """Send one request."""


class AzureSession(Poster, Session, Protocol):
    """Also for other methods than POST."""


def open_session(subscription: str, resource: str = "") -> AzureSession:
    """Open a session with `az`'s token, for Resource Manager or another API. InputError: no `az`, or not logged in."""
    argv = ["az", "account", "get-access-token", "--subscription", subscription, "--output", "json"]
    argv += ["--resource", resource] if resource else []
    place = f"Azure, subscription {subscription}"
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
        token = json.loads(done.stdout)["accessToken"] if done.returncode == 0 else ""
    except FileNotFoundError:
        raise InputError(place, "az is not installed here, and it has the token", fix="install the Azure CLI") from None
    except (subprocess.TimeoutExpired, ValueError, KeyError) as problem:
        raise InputError(place, f"az gave no token: {problem!r}", fix="az login") from None
    if not token:
        why = " ".join(done.stderr.split()) or "no reason given"
        raise InputError(place, f"az gave no token: {why}", fix="az login, also with --service-principal")
    import requests

    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {token}"
    return session
