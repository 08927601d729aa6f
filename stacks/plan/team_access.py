"""The table of team, resource and permissions of a cluster with a queue, made from the plan."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from gangway.components.kubernetes.namespaces import CLAIM, MEMBER_GROUP, RUNS_APART
from gangway.stacks.recording import PlannedResource

_EVERYBODY = frozenset({"system:authenticated", "system:serviceaccounts", "system:unauthenticated"})


@dataclass(frozen=True)
class TeamAccess:
    """One row. `cluster`: the stack; empty for a cloud grant, which may be valid in any cluster."""

    team: str
    principal: str
    cluster: str
    resource: str
    where: str
    permissions: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**asdict(self), "permissions": list(self.permissions)}


def team_access(stack: str, resources: Sequence[PlannedResource]) -> tuple[TeamAccess, ...]:
    """All rows, sorted by team; empty for a stack without namespaces of teams."""
    manifests = [each.inputs for each in resources if each.type.startswith("kubernetes:") and "kind" in each.inputs]
    teams = sorted(each["metadata"]["name"] for each in manifests if each["kind"] == "Namespace")
    rows = [
        *_role_rows(stack, teams, manifests),
        *_volume_rows(stack, manifests),
        *(row for team in teams for row in _cloud_rows(team, resources)),
    ]
    return tuple(sorted(rows, key=lambda row: (row.team, row.principal, row.where, row.resource)))


def _role_rows(stack: str, teams: Sequence[str], manifests: Sequence[Mapping[str, Any]]) -> Iterator[TeamAccess]:
    roles = {_key(each, each["kind"]): each["rules"] for each in manifests if each["kind"] in ("Role", "ClusterRole")}
    for binding in (each for each in manifests if each["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        namespace = binding["metadata"].get("namespace")
        where = "whole cluster" if namespace is None else f"namespace {namespace}"
        rules = roles[_key(binding, binding["roleRef"]["kind"], binding["roleRef"]["name"])]
        for subject, rule in product(binding["subjects"], rules):
            principal, verbs = f"{subject['kind'].lower()} {subject['name']}", tuple(rule["verbs"])
            for team, group, kind in product(_get_teams(subject, teams), rule["apiGroups"], rule["resources"]):
                yield TeamAccess(team, principal, stack, f"{kind}.{group}" if group else kind, where, verbs)


def _key(manifest: Mapping[str, Any], kind: str, name: str | None = None) -> tuple[str, str, str]:
    namespace = manifest["metadata"].get("namespace", "") if kind == "Role" else ""
    return kind, namespace, name or manifest["metadata"]["name"]


def _get_teams(subject: Mapping[str, str], teams: Sequence[str]) -> Sequence[str]:
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        return [team for team in teams if team == subject.get("namespace")]
    if name in _EVERYBODY:
        return teams
    return [team for team in teams if name in (f"{MEMBER_GROUP}{team}", f"system:serviceaccounts:{team}")]


def _volume_rows(stack: str, manifests: Sequence[Mapping[str, Any]]) -> Iterator[TeamAccess]:
    """Pods of a team can mount the claims of its namespace. The claim of run folders is one volume for all teams."""
    apart = any((each["kind"], each["metadata"]["name"]) == ("ValidatingAdmissionPolicyBinding", RUNS_APART)
                for each in manifests)  # fmt: skip
    for claim in manifests:
        if claim["kind"] == "PersistentVolumeClaim":
            team, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
            where = f"folder {team}/" if apart and name == CLAIM else "all of it"
            verbs = ("read", "write", "delete") if "ReadWriteMany" in claim["spec"]["accessModes"] else ("read",)
            yield TeamAccess(team, f"pods of {team}", stack, f"claim {name}", where, verbs)


def _cloud_rows(team: str, resources: Sequence[PlannedResource]) -> Iterator[TeamAccess]:
    named = re.compile(
        rf'(system:serviceaccount:|/ns/|/namespace/|\.svc\.id\.goog\[|"[nN]amespace": "){re.escape(team)}["/:\]]'
    )
    found = [each for each in resources if not each.type.startswith(("kubernetes:", "pulumi:", "gangway:"))]
    grants = [each for each in found if named.search(json.dumps(each.to_json()["inputs"]))]
    pods = f"pods of {team}"
    for each in grants:
        role = str(next((each.inputs[key] for key in ("role", "roleArn") if key in each.inputs), "unknown"))
        yield TeamAccess(team, pods, "", f"{each.type.rpartition(':')[2]} {each.name}", "unknown", (role,))
    if not grants:
        yield TeamAccess(team, pods, "", "the cloud's API", "nothing", ())
