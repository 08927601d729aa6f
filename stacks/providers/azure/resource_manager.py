"""GET requests to Azure Resource Manager, for what the provider's SDK has no function for."""

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

API_URL = "GANGWAY_API_URL"
"""The environment variable whose value precedes every API's host in tests, as on machines."""
TIMEOUT_SEC = 30.0


def api_root(host: str) -> str:
    """The URL of an API's host."""
    api_url = os.environ.get(API_URL)
    return f"https://{host}" if api_url is None else f"{api_url}/{host}"


def get_json(path: str, api_version: str, token: str, query: Mapping[str, str] | None = None) -> Any:
    """The JSON body of the answer. OSError, ValueError: no answer, a refusal (HTTPError), or no JSON."""
    # Imported here, so that a plan loads no HTTP client. Unlike gangway.images.node.web, urllib honours a proxy.
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    words = urlencode({**(query or {}), "api-version": api_version})
    url = f"{api_root('management.azure.com')}{path}?{words}"
    try:
        with urlopen(Request(url, headers={"Authorization": f"Bearer {token}"}), timeout=TIMEOUT_SEC) as answer:
            return json.load(answer)
    except HTTPError as error:
        error.close()
        raise
