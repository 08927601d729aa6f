"""Which of the methods that Google publishes a call is: by the discovery documents of google-api-python-client."""

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

# There is none of Managed Lustre among them.
DOCUMENTS = {
    "artifactregistry": "artifactregistry.v1",
    "cloudasset": "cloudasset.v1",
    "cloudbilling": "cloudbilling.v1",
    "cloudkms": "cloudkms.v1",
    "cloudbuild": "cloudbuild.v1",
    "cloudresourcemanager": "cloudresourcemanager.v3",
    "compute": "compute.v1",
    "iam": "iam.v1",
    "logging": "logging.v2",
    "secretmanager": "secretmanager.v1",
    "serviceusage": "serviceusage.v1",
    "storage": "storage.v1",
    "tpu": "tpu.v2",
}


@cache
def document(host: str) -> dict[str, Any]:
    """An API's discovery document."""
    text = (files("googleapiclient.discovery_cache") / "documents" / f"{DOCUMENTS[host]}.json").read_text("utf-8")
    return dict(json.loads(text))


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


def published(call: Any) -> set[str]:
    """The ids of the methods that a call may be, with all of its parameters known; empty where there is none."""
    host, _, path = call.path[1:].partition(".googleapis.com")
    known = document(host)
    # Of every method of every API.
    always = {"uploadType", *known.get("parameters", {})}
    return {
        method["id"]
        for method in _methods(known)
        if method["httpMethod"] == call.method
        and any(re.fullmatch(_pattern(one), path) for one in _paths(known, method))
        and call.query.keys() <= always | method.get("parameters", {}).keys()
    }
