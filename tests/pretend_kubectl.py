"""kubectl over a folder of objects, where nothing but what it is asked and what it answers is judged.

FOLDER/contexts               names, one a line
FOLDER/forbidden              resources that this user may not see, one a line
FOLDER/objects/RESOURCE       of what is in no namespace, NAME.json each
FOLDER/objects/RESOURCE/NAMESPACE/NAME.json
FOLDER/logs                   what pods have written
FOLDER/hangs                  a resource whose `create` never comes back, once it is there
"""

import json
import os
import stat
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest  # each call of kubectl begins anew, and is to begin at once

_FOLDER = "GANGWAY_PRETEND_KUBE"
_OF_NO_NAMESPACE = ("namespaces", "nodes", "clusterqueues", "resourceflavors", "workloadpriorityclasses", "topologies")


def resource_of(name: str) -> str:
    """As folders are called: of `localqueues.kueue.x-k8s.io`, of `ConfigMap`, of `node`."""
    short = name.partition(".")[0].lower()
    if short.endswith("y"):
        return f"{short[:-1]}ies"
    return short if short.endswith("s") else f"{short}s"


@dataclass(frozen=True)
class PretendKube:
    """One with the namespaces that are put there."""

    folder: Path

    def put(self, kind: str, name: str, namespace: str = "", **content: Any) -> None:
        meta = {"name": name, "creationTimestamp": "2026-01-02T03:04:05Z", "uid": name, **content.pop("metadata", {})}
        path = self.path(resource_of(kind), namespace) / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        spaced = {"namespace": namespace} if namespace else {}
        _write(path, {"kind": kind, "metadata": {**meta, **spaced}, **content})

    def path(self, resource: str, namespace: str) -> Path:
        base = self.folder / "objects" / resource
        return base if resource in _OF_NO_NAMESPACE else base / namespace

    def left(self, *kinds: str, namespace: str = "team-a") -> list[str]:
        """Resources and names of what is there."""
        found = [(kind, path.stem) for kind in kinds for path in self.path(kind, namespace).glob("*.json")]
        return sorted(f"{kind}/{name}" for kind, name in found)

    def forbid(self, *resources: str) -> None:
        (self.folder / "forbidden").write_text("\n".join(resources))

    def stand_up(
        self, queue: str = "gpu", namespace: str = "team-a", cpus: int = 4, devices: Mapping[str, int] | None = None
    ) -> None:
        """All that a job of one or more CPUs wants there; `devices`: by name, what its queue has a quota of besides."""
        more = {} if devices is None else devices
        self.put("Namespace", namespace)
        self.put("LocalQueue", queue, namespace, spec={"clusterQueue": "vision"})
        quotas: list[dict[str, object]] = [
            {"name": "cpu", "nominalQuota": cpus},
            {"name": "memory", "nominalQuota": "640Gi"},
        ]
        quotas += [{"name": name, "nominalQuota": number} for name, number in more.items()]
        group = {"coveredResources": ["cpu", "memory", *more], "flavors": [{"name": "plain", "resources": quotas}]}
        self.put("ClusterQueue", "vision", spec={"resourceGroups": [group]})
        self.put("ResourceFlavor", "plain", spec={})
        self.put("PersistentVolumeClaim", "gangway-runs", namespace)


def _write(path: Path, found: dict[str, Any]) -> None:
    """In one step: who writes may be killed, and others look meanwhile."""
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(found))
    partial.replace(path)


def pretend_kube(folder: Path, monkeypatch: "pytest.MonkeyPatch") -> PretendKube:
    """One that stands on PATH as kubectl."""
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "kubectl"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -ISB {__file__} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv(_FOLDER, str(folder))
    (folder / "contexts").write_text("here\nthere\n")
    return PretendKube(folder)


class _RefusedError(Exception):
    """What the real one says on standard error."""


def _main(words: list[str]) -> str:
    kube = PretendKube(Path(os.environ[_FOLDER]))
    options = dict(each.lstrip("-").partition("=")[::2] for each in words if each.startswith("--"))
    verb, *rest = [each for each in words if not each.startswith("--")]
    contexts = (kube.folder / "contexts").read_text().split()
    if verb == "config":
        return "\n".join(contexts)
    if options.get("context", contexts[0]) not in contexts:
        raise _RefusedError(f'error: context "{options["context"]}" does not exist')
    if verb == "logs":
        path = kube.folder / "logs"
        return path.read_text() if path.exists() else ""
    given = json.loads(sys.stdin.read()) if verb == "create" else {}
    resource = resource_of(given["kind"] if verb == "create" else rest[0])
    forbidden = kube.folder / "forbidden"
    if forbidden.exists() and resource in forbidden.read_text().split():
        raise _RefusedError(f'Error from server (Forbidden): {resource} is forbidden: User "ada" cannot list resource')
    folder = kube.path(resource, options["namespace"])
    if verb == "create":
        return _created(kube, folder, given, resource)
    if len(rest) == 1:
        paths = folder.parent.glob("*/*.json") if "all-namespaces" in options else folder.glob("*.json")
        found = [json.loads(path.read_text()) for path in sorted(paths)]
        return json.dumps({"kind": "List", "items": [each for each in found if _is_of(each, options)]})
    path = folder / f"{rest[1]}.json"
    if verb == "delete":
        path.unlink(missing_ok=True)
        return ""
    if not path.exists():
        raise _RefusedError(f'Error from server (NotFound): {rest[0]} "{rest[1]}" not found')
    known = json.loads(path.read_text())
    if verb == "patch":
        known = _merged(known, json.loads(options["patch"]))
        _write(path, known)
    return json.dumps(known)


def _merged(known: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """By the rules of a merge patch (RFC 7396), of one that takes nothing away."""
    deeper = {key: _merged(known.get(key, {}), value) for key, value in change.items() if isinstance(value, dict)}
    return {**known, **change, **deeper}


def _created(kube: PretendKube, folder: Path, given: dict[str, Any], resource: str) -> str:
    name = given["metadata"]["name"]
    if (folder / f"{name}.json").exists():
        raise _RefusedError(f'Error from server (AlreadyExists): {resource} "{name}" already exists')
    content = {key: given[key] for key in given if key not in ("kind", "apiVersion")}
    kube.put(given["kind"], name, folder.name, **content)
    hangs = kube.folder / "hangs"
    if hangs.exists() and hangs.read_text() == resource:
        time.sleep(60)
    return (folder / f"{name}.json").read_text()


def _is_of(found: dict[str, Any], options: dict[str, str]) -> bool:
    key, _, value = options.get("selector", "").partition("=")
    return not key or found["metadata"].get("labels", {}).get(key) == value


if __name__ == "__main__":
    try:
        print(_main(sys.argv[1:]), end="")
    except _RefusedError as refused:
        print(refused, file=sys.stderr)
        sys.exit(1)
