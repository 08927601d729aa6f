"""What a machine's Python starts from: the APIs in small, and what Google publishes of the real ones."""

import json
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from images.node.gcp.api import GoogleApi

# There is none of Managed Lustre among them.
DOCUMENTS = {
    "compute": "compute.v1",
    "logging": "logging.v2",
    "secretmanager": "secretmanager.v1",
    "storage": "storage.v1",
}


@pytest.fixture
def google(gce: Any) -> GoogleApi:
    """The APIs as a machine of the stand-in sees them."""
    return GoogleApi(gce.url, gce.url)


def _methods(resource: dict[str, Any]) -> list[dict[str, Any]]:
    found = list(resource.get("methods", {}).values())
    for one in resource.get("resources", {}).values():
        found += _methods(one)
    return found


def _paths(document: dict[str, Any], method: dict[str, Any]) -> list[str]:
    upload = method.get("mediaUpload", {}).get("protocols", {}).get("simple", {}).get("path")
    return [f"/{document['servicePath']}{method['path']}", *([upload] if upload else [])]


def _pattern(path: str) -> str:
    """A path of a discovery document as a pattern; `{+name}` may hold slashes."""
    parts = re.split(r"(\{\+?\w+\})", path)
    return "".join(
        "[^/]+" if p.startswith("{") and p[1] != "+" else ".+" if p.startswith("{+") else re.escape(p) for p in parts
    )


@pytest.fixture(scope="session")
def published() -> Callable[[Any], set[str]]:
    """The ids of the methods that a call may be, with all of its parameters known; empty where there is none."""
    documents = {
        host: json.loads((files("googleapiclient.discovery_cache") / "documents" / f"{name}.json").read_text("utf-8"))
        for host, name in DOCUMENTS.items()
    }

    def look(call: Any) -> set[str]:
        host, _, path = call.path[1:].partition(".googleapis.com")
        document = documents[host]
        # Of every method of every API.
        always = {"uploadType", *document.get("parameters", {})}
        return {
            method["id"]
            for method in _methods(document)
            if method["httpMethod"] == call.method
            and any(re.fullmatch(_pattern(one), path) for one in _paths(document, method))
            and call.query.keys() <= always | method.get("parameters", {}).keys()
        }

    return look
