"""Azure: the operations of types, checked against the URLs of Microsoft's clients and against Azure's built-in roles.

A type's operations are TYPE/read, TYPE/write and TYPE/delete, where the type is the part of its URL behind
`/providers/` without the names; a client in the environment has that URL, or a built-in role names the operations.
"""

import fnmatch
import json
import re
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gangway.stacks.base.registry import get_provider
from tools.snapshots import revision, run_git

DECISIONS = Path(__file__).parent / "azure.yaml"
_VERBS = {"create": ("write", "read"), "read": ("read",), "update": ("write",), "delete": ("delete", "read")}


def client_types() -> frozenset[str]:
    """The types in the URLs of the clients `azure-mgmt-*`, in lower case."""
    folder = Path(sysconfig.get_paths()["purelib"]) / "azure/mgmt"
    urls = {
        url
        for path in folder.rglob("_operations.py")
        for url in re.findall(r'"(/[^"\s]*/providers/[^"\s]*)"', path.read_text("utf-8"))
    }
    return frozenset(_type(url) for url in urls)


def _type(url: str) -> str:
    parts = url.rpartition("/providers/")[2].split("/")
    return "/".join(part for part in parts if not part.startswith("{") and part != "default").lower()


def role_operations(repository: Path) -> frozenset[str]:
    """The operations that built-in roles name, in lower case; some have wildcards."""
    roles = json.loads(run_git(repository, "show", "HEAD:azure/built-in-roles-raw.json"))
    return frozenset(
        action.lower()
        for role in roles
        for permission in role["permissions"]
        for action in (*permission["actions"], *permission["dataActions"])
    )


class _Known:
    def __init__(self, repository: Path) -> None:
        self._types, self._operations = client_types(), role_operations(repository)

    def has(self, operation: str) -> bool:
        """Whether a client has the URL, or a role with more than `*/read` names the operation."""
        lower = operation.lower()
        if lower in self._operations or lower.rpartition("/")[0] in self._types:
            return True
        if lower.removesuffix("/action") in self._types:
            return True
        patterns = [each for each in self._operations if "*" in each and each.startswith(lower.partition("/")[0])]
        return any(fnmatch.fnmatchcase(lower, each) for each in patterns if each.count("/") > 1)


def generate(repository: Path) -> dict[str, Any]:
    """The content of Azure's permissions.yaml. ValueError: an operation that no source has."""
    decisions = yaml.safe_load(DECISIONS.read_text("utf-8"))
    types: dict[str, dict[str, Any]] = {
        kind: {
            verb: [f"{name}/{word}" for word in words]
            for verb, words in _VERBS.items()
            if verb != "delete" or kind not in decisions["kept"]
        }
        for kind, name in decisions["types"].items()
    }
    for entry in decisions["added"]:
        for kind in entry["types"]:
            fields = {key: value for key, value in entry.items() if key != "types"}
            types.setdefault(kind, {}).setdefault("added", []).append(fields)
    declared = {each for classes in get_provider("azure").retention.classes for each in classes}
    if missing := {each for each in declared if each.startswith("azure-native:")} - types.keys():
        raise ValueError(f"no permissions for {', '.join(sorted(missing))}")
    _check(types, decisions, _Known(repository))
    return {
        "sources": [
            "URLs in Microsoft's clients azure-mgmt-* of requirements.lock",
            f"Azure's built-in roles as iann0036/iam-dataset has them, {revision(repository)}",
            "tools/permissions/azure.yaml: decisions by hand",
        ],
        "types": dict(sorted(types.items())),
        "commands": decisions["commands"],
        "actions": {action: {"data": "plain"} for action in decisions["data_actions"]},
    }


def _check(types: Mapping[str, Any], decisions: Mapping[str, Any], known: _Known) -> None:
    every = {entry["action"] for entries in decisions["commands"].values() for entry in entries}
    for each in types.values():
        every |= {entry["action"] for entry in each.get("added", ())}
        every |= {operation for verb in _VERBS for operation in each.get(verb, ())}
    wrong = sorted(one for one in every if not known.has(one) and one not in decisions["unlisted"])
    if wrong:
        raise ValueError(f"neither in a client nor in a role: {', '.join(wrong)}")
