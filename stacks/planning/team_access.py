"""What each team of a cluster with a queue may do: a table of team, resource and permissions, made from a plan."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from components.kubernetes.namespaces import CLAIM, MEMBER_GROUP, RUNS_APART
from stacks.planning.recording import PlannedResource

_EVERYBODY = frozenset({"system:authenticated", "system:serviceaccounts", "system:unauthenticated"})


@dataclass(frozen=True)
class TeamAccess:
    """One row.

    Attributes:
        team: whose members or pods they are.
        principal: as the cluster or the cloud knows them.
        cluster: the stack's, if the principal counts there alone; empty for a grant of the cloud's, which may count in
            any cluster.
        resource: a kind of Kubernetes, a volume claim, or the cloud resource that makes the grant.
        where: a namespace, a folder, or `whole cluster`.
        permissions: verbs, or a role of the cloud's.
    """

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
    """All rows, by team; empty where the stack has no teams' namespaces."""
    inside = [each.inputs for each in resources if each.type.startswith("kubernetes:") and "kind" in each.inputs]
    teams = sorted(each["metadata"]["name"] for each in inside if each["kind"] == "Namespace")
    rows = [
        *_by_roles(stack, teams, inside),
        *_by_volumes(stack, inside),
        *(row for team in teams for row in _by_the_cloud(team, resources)),
    ]
    return tuple(sorted(rows, key=lambda row: (row.team, row.principal, row.where, row.resource)))


def _by_roles(stack: str, teams: Sequence[str], inside: Sequence[Mapping[str, Any]]) -> Iterator[TeamAccess]:
    roles = {_key(each, each["kind"]): each["rules"] for each in inside if each["kind"] in ("Role", "ClusterRole")}
    for binding in inside:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        namespace = binding["metadata"].get("namespace")
        where = "whole cluster" if namespace is None else f"namespace {namespace}"
        rules = roles[_key(binding, binding["roleRef"]["kind"], binding["roleRef"]["name"])]
        for subject in binding["subjects"]:
            for team in _teams_of(subject, teams):
                principal = f"{subject['kind'].lower()} {subject['name']}"
                for rule in rules:
                    for group in rule["apiGroups"]:
                        for kind in rule["resources"]:
                            name = f"{kind}.{group}" if group else kind
                            yield TeamAccess(team, principal, stack, name, where, tuple(rule["verbs"]))


def _key(manifest: Mapping[str, Any], kind: str, name: str | None = None) -> tuple[str, str, str]:
    namespace = manifest["metadata"].get("namespace", "") if kind == "Role" else ""
    return kind, namespace, name or manifest["metadata"]["name"]


def _teams_of(subject: Mapping[str, str], teams: Sequence[str]) -> Sequence[str]:
    """Whose members or pods a subject of a binding is."""
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        return [team for team in teams if team == subject.get("namespace")]
    if name in _EVERYBODY:
        return teams
    return [team for team in teams if name in (f"{MEMBER_GROUP}{team}", f"system:serviceaccounts:{team}")]


def _by_volumes(stack: str, inside: Sequence[Mapping[str, Any]]) -> Iterator[TeamAccess]:
    """Pods of a team mount the claims of its namespace; that of run folders is one volume for all teams."""
    apart = any((each["kind"], each["metadata"]["name"]) == ("ValidatingAdmissionPolicyBinding", RUNS_APART)
                for each in inside)  # fmt: skip
    for claim in inside:
        if claim["kind"] == "PersistentVolumeClaim":
            team, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
            where = f"folder {team}/" if apart and name == CLAIM else "all of it"
            verbs = ("read", "write", "delete") if "ReadWriteMany" in claim["spec"]["accessModes"] else ("read",)
            yield TeamAccess(team, f"pods of {team}", stack, f"claim {name}", where, verbs)


def _by_the_cloud(team: str, resources: Sequence[PlannedResource]) -> Iterator[TeamAccess]:
    """Resources of the cloud's that name the team's pods, in the ways in which the clouds name pods. None is usual."""
    named = re.compile(
        rf'(system:serviceaccount:|/ns/|/namespace/|\.svc\.id\.goog\[|"[nN]amespace": "){re.escape(team)}["/:\]]'
    )
    found = [each for each in resources if not each.type.startswith(("kubernetes:", "pulumi:", "gangway:"))]
    grants = [each for each in found if named.search(json.dumps(each.to_json()["inputs"]))]
    pods = f"pods of {team}"
    for each in grants:
        yield TeamAccess(team, pods, "", f"{each.type.rpartition(':')[2]} {each.name}", "unknown", (_role(each),))
    if not grants:
        yield TeamAccess(team, pods, "", "the cloud's API", "nothing", ())


def _role(resource: PlannedResource) -> str:
    return str(next((resource.inputs[key] for key in ("role", "roleArn") if key in resource.inputs), "unknown"))
