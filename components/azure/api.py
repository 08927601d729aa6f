"""Calls of Azure's APIs during `up`, where Pulumi's provider makes none."""

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

API_URL = "GANGWAY_API_URL"  # the environment variable whose value precedes every API's host in tests, as on machines
TIMEOUT_SEC = 30.0


def api_root(host: str) -> str:
    """The URL of an API's host."""
    api_url = os.environ.get(API_URL)
    return f"https://{host}" if api_url is None else f"{api_url}/{host}"


def get_json(path: str, api_version: str, token: str, query: Mapping[str, str] | None = None) -> Any:
    """The JSON body of the answer. OSError, ValueError: no answer, a refusal (HTTPError), or no JSON."""
    return json.loads(send("GET", path, api_version, token, query))


def send(method: str, path: str, api_version: str, token: str, query: Mapping[str, str] | None = None) -> bytes:
    """The body of Resource Manager's answer. OSError: no answer, or a refusal (HTTPError)."""
    # Imported here, so that a plan loads no HTTP client. Unlike gangway.images.node.web, urllib honours a proxy.
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    words = urlencode({**(query or {}), "api-version": api_version})
    url = f"{api_root('management.azure.com')}{path}?{words}"
    request = Request(url, headers={"Authorization": f"Bearer {token}"}, method=method)
    try:
        with urlopen(request, timeout=TIMEOUT_SEC) as answer:
            return bytes(answer.read())
    except HTTPError as error:
        error.close()
        raise
