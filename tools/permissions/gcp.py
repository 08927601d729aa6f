"""Google Cloud: permissions by collection, checked against Google's predefined roles and discovery documents.

A method's permission is its collection's with the verb: `compute.instances.insert` needs `compute.instances.create`,
`patch` and `update` need `.update`. Every permission must be in a predefined role, and every collection must have the
method in the service's discovery document.
"""

import importlib.resources
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gangway.stacks.base.registry import get_provider
from tools.snapshots import revision, run_git

DECISIONS = Path(__file__).parent / "gcp.yaml"
METHODS = {"create": ("insert", "create"), "get": ("get",), "update": ("patch", "update"), "delete": ("delete",)}
"""The last word of a permission -> those of methods."""
_VERBS = {"create": "create", "read": "get", "update": "update", "delete": "delete"}
_POLICY = {
    "create": ("getIamPolicy", "setIamPolicy"),
    "read": ("getIamPolicy",),
    "delete": ("getIamPolicy", "setIamPolicy"),
}


def read_roles(repository: Path) -> frozenset[str]:
    """Every permission of Google's predefined roles."""
    words = ("grep", "-hoE", r'"[a-z]+(\.[a-zA-Z0-9]+){2,}"', "HEAD", "--", "gcp/roles")
    return frozenset(line.strip('"') for line in run_git(repository, *words).splitlines())


def methods(document: str) -> frozenset[str]:
    """The ids of a discovery document's methods."""
    path = f"discovery_cache/documents/{document}.json"
    text = importlib.resources.files("googleapiclient").joinpath(path).read_text("utf-8")
    return frozenset(_ids(json.loads(text)))


def _ids(value: Any) -> Iterator[str]:
    for method in value.get("methods", {}).values():
        yield method["id"]
    for resource in value.get("resources", {}).values():
        yield from _ids(resource)


def _collection(name: str, known: frozenset[str], decisions: Mapping[str, Any]) -> dict[str, list[str]]:
    """The permissions of a collection by verb. ValueError: the service has no such method."""
    service, _, noun = name.partition(".")
    documents = decisions["documents"]
    document = documents.get(name, documents.get(service, f"{service}.v1"))
    every = methods(document) if document else frozenset()
    noun = decisions["methods"].get(name, noun)
    found = {}
    for verb, word in _VERBS.items():
        if (permission := f"{name}.{word}") not in known:
            continue
        found[verb] = [permission]
        if document and not any(re.search(rf"\b{noun}\.{one}$", each) for each in every for one in METHODS[word]):
            raise ValueError(f"{permission}: {document} has no method {noun}.{' or '.join(METHODS[word])}")
    return found


def generate(repository: Path) -> dict[str, Any]:
    """The content of Google's permissions.yaml. ValueError: a permission that no source has."""
    decisions = yaml.safe_load(DECISIONS.read_text("utf-8"))
    known = read_roles(repository)
    types: dict[str, dict[str, Any]] = {}
    for kind, name in decisions["collections"].items():
        types[kind] = dict(_collection(name, known, decisions))
    for kind, name in decisions["policies"].items():
        types[kind] = {verb: [f"{name}.{word}" for word in words] for verb, words in _POLICY.items()}
    for entry in decisions["added"]:
        for kind in entry["types"]:
            fields = {key: value for key, value in entry.items() if key != "types"}
            types.setdefault(kind, {}).setdefault("added", []).append(fields)
    declared = {
        each for classes in get_provider("gcp").retention.classes for each in classes if each.startswith("gcp:")
    }
    if missing := declared - types.keys():
        raise ValueError(f"no permissions for {', '.join(sorted(missing))}")
    _check(types, decisions, known)
    return {
        "sources": [
            f"Google's predefined roles as iann0036/iam-dataset has them, {revision(repository)}",
            "discovery documents in google-api-python-client 2.202.0",
            "tools/permissions/gcp.yaml: decisions by hand",
        ],
        "types": dict(sorted(types.items())),
        "commands": decisions["commands"],
    }


def _check(types: Mapping[str, Any], decisions: Mapping[str, Any], known: frozenset[str]) -> None:
    every = {entry["action"] for entries in decisions["commands"].values() for entry in entries}
    for each in types.values():
        every |= {entry["action"] for entry in each.get("added", ())}
        every |= {permission for verb in _VERBS for permission in each.get(verb, ())}
    if wrong := every - known - decisions["unlisted"].keys():
        raise ValueError(f"in no predefined role: {', '.join(sorted(wrong))}")
    if idle := decisions["unlisted"].keys() & known:
        raise ValueError(f"in a predefined role: {', '.join(sorted(idle))}; remove them from unlisted")
