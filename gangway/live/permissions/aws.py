"""AWS: IAM policies. Actions are limited by the names of resources, or by the tag gangway:stack."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gangway.components.catalog.permissions import load_permissions
from gangway.live.permissions.needs import Document, Need, Use
from gangway.stacks.base.rule import is_unknown, kind
from gangway.stacks.plan.plan import Plan

MAX_CHARACTERS = 6144
"""Of a managed policy, without white space. See IAM's quotas."""
MAX_POLICIES = 10
"""Managed policies that IAM attaches to a user or role by default."""
TAG = "gangway:stack"
_AUTONAME = "-" + "?" * 7
"""Pulumi appends seven random digits to a name."""
_EXACT_NAMES = 6
"""More names of one kind of resource are replaced by their common start."""
_PARTITIONS = {"cn": "aws-cn", "us-gov": "aws-us-gov"}
_KEYS = {"new": f"aws:RequestTag/{TAG}", "tagged": f"aws:ResourceTag/{TAG}"}
_LEFT_OUT = {"kms:alias": "alias/", "ssm:parameter": "/"}
"""What a name starts with and its ARN leaves out."""
_LIMITS = {
    "new": f"resources that the request tags {TAG}={{stack}}",
    "tagged": f"resources tagged {TAG}={{stack}}",
}
_BY_NAME = "the stack's names"
_BY_START = "names that start with the stack's, since there are many: other stacks' names may start with it too"
_BY_KIND = "this kind of resource in the region: tags cannot limit this action"
_ANY = "a plan cannot tell which resource that is"
_ALL = "IAM limits this action to no resource"


@dataclass(frozen=True)
class _Grant:
    """The resources of an action and the condition on them."""

    arns: tuple[str, ...]
    limit: str
    condition: Mapping[str, Any] = field(default_factory=dict)


class _Scopes:
    """The ARNs of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._table = load_permissions("aws")
        self._plan, self._stack = plan, plan.config.stack
        region = plan.config.region
        partition = next((name for start, name in _PARTITIONS.items() if region.startswith(f"{start}-")), "aws")
        self._places = {"partition": partition, "region": region}
        self._types = {kind(resource.type) for resource in plan.resources}

    def grants(self, use: Use) -> Iterator[_Grant]:
        """What the action may touch. Several: IAM checks each resource of a request on its own."""
        extra = use.extra
        if extra is not None and extra.to:
            yield from self._roles(use.action, extra.to)
        elif extra is not None and extra.resource:
            sources = self._sources(use) if "{source}" in extra.resource else [""]
            arns = tuple(extra.resource.format(**self._places, source=name) for name in sources)
            yield _Grant(arns, _ANY if arns == ("*",) else "this resource")
        else:
            yield from self._by_resource(use.action)

    def _roles(self, action: str, services: tuple[str, ...]) -> Iterator[_Grant]:
        if action == "iam:PassRole":
            condition = {"StringEquals": {"iam:PassedToService": services[0] if len(services) == 1 else list(services)}}
            yield _Grant(self._named("iam:role"), f"{_BY_NAME}, for {', '.join(services)}", condition)
            return
        for service in services:
            arn = f"arn:{self._places['partition']}:iam::*:role/aws-service-role/{service}/*"
            key = {"StringEquals": {"iam:AWSServiceName": service}} if action.startswith("iam:Create") else {}
            yield _Grant((arn,), f"the role of {service}", key)

    def _sources(self, use: Use) -> list[str]:
        """Names of the buckets in `dataRepositoryPath`."""
        paths = [str(resource.inputs.get("dataRepositoryPath", "")) for resource in use.resources]
        names = {path.removeprefix("s3://").partition("/")[0] for path in paths}
        own = self._names("s3:bucket")
        return sorted({name for each in names for name in (own if is_unknown(each) else [each])})

    def _by_resource(self, action: str) -> Iterator[_Grant]:
        rows = self._table.actions[action]
        open_arns: list[str] = []
        is_named = True
        for resource, marks in rows.items():
            if resource != "*" and not self._may_occur(resource):
                continue
            for mark in marks.split(" or "):
                if mark in _KEYS:
                    key = {"StringEquals": {_KEYS[mark]: self._stack}}
                    yield _Grant(self._service(action, resource), _LIMITS[mark].format(stack=self._stack), key)
                else:
                    arns = self._named(resource)
                    is_named &= "{name}" in self._table.resources[resource].arns[0]
                    open_arns += arns
        if open_arns:
            by_name = _BY_START if any(f"{self._stack}-*" in arn for arn in open_arns) else _BY_NAME
            yield _Grant(tuple(sorted(set(open_arns))), by_name if is_named else _BY_KIND)
        if not rows or not (open_arns or any(mark != "plain" for mark in rows.values())):
            yield _Grant(("*",), _ALL)

    def _may_occur(self, resource: str) -> bool:
        types = self._table.resources[resource].types
        return not types or not self._types.isdisjoint(types)

    def _service(self, action: str, resource: str) -> tuple[str, ...]:
        """Where a condition limits the resources, their kind adds nothing, and IAM's policies are short."""
        if resource == "*":
            return ("*",)
        return (f"arn:{self._places['partition']}:{action.partition(':')[0]}:{self._places['region']}:*:*",)

    def _named(self, resource: str) -> tuple[str, ...]:
        entry = self._table.resources[resource]
        names = self._names(resource) if "{name}" in entry.arns[0] else [""]
        return tuple(sorted(arn.format(**self._places, name=name) for arn in entry.arns for name in names))

    def _names(self, resource: str) -> list[str]:
        inputs = self._table.resources[resource].types
        made = [(one, inputs[kind(one.type)]) for one in self._plan.resources if kind(one.type) in inputs]
        names = {str(one.inputs.get(key) or f"{one.name}{_AUTONAME}") for one, key in made}
        names = {name.removeprefix(_LEFT_OUT.get(resource, "")) for name in names}
        return sorted(names) if len(names) <= _EXACT_NAMES else self._starts(names)

    def _starts(self, names: set[str]) -> list[str]:
        """The starts of names up to the stack's; names without it stay."""
        ends = {
            name.partition(f"{self._stack}-")[0] + f"{self._stack}-*" for name in names if f"{self._stack}-" in name
        }
        return sorted(ends | {name for name in names if f"{self._stack}-" not in name})


def needs(plan: Plan, uses: Sequence[Use]) -> list[Need]:
    """One per action and limit, by action."""
    scopes = _Scopes(plan)
    found: dict[tuple[str, tuple[str, ...], str], tuple[_Grant, list[str]]] = {}
    for use in uses:
        for grant in scopes.grants(use):
            key = (use.action, grant.arns, json.dumps(grant.condition))
            reasons = found.setdefault(key, (grant, []))[1]
            if use.reason not in reasons:
                reasons.append(use.reason)
    return [
        Need(action, grant.arns, tuple(reasons), grant.limit, grant.condition)
        for (action, _, _), (grant, reasons) in sorted(found.items(), key=lambda item: item[0])
    ]


def documents(plan: Plan, needs: Sequence[Need]) -> list[Document]:
    """As few policies as IAM's limit allows; statements are never left out."""
    policies: list[list[dict[str, Any]]] = [[]]
    for statement in _statements(needs):
        if policies[-1] and _length([*policies[-1], statement]) > MAX_CHARACTERS:
            policies.append([])
        policies[-1].append(statement)
    name = plan.config.stack
    numbers = [f"-{number}" for number in range(1, len(policies) + 1)] if len(policies) > 1 else [""]
    return [
        Document(
            _policy(statements), f"aws iam create-policy --policy-name {name}{number} --policy-document file://FILE"
        )
        for statements, number in zip(policies, numbers, strict=True)
    ]


def notes(plan: Plan, needs: Sequence[Need]) -> list[str]:
    """How many policies there are, if several."""
    count = len(documents(plan, needs))
    lines = [f"{count} policies, since IAM limits one to {MAX_CHARACTERS:,} characters: attach all of them"]
    if count > MAX_POLICIES:
        lines.append(f"IAM attaches {MAX_POLICIES} policies by default: ask for a larger quota")
    return lines if count > 1 else []


def _policy(statements: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _length(statements: Sequence[Mapping[str, Any]]) -> int:
    return len("".join(json.dumps(_policy(statements)).split()))


def _statements(needs: Sequence[Need]) -> Iterator[dict[str, Any]]:
    """Actions with the same limits share a statement; one that is too long for a policy is divided."""
    groups: dict[str, tuple[Need, list[str]]] = {}
    for need in needs:
        key = json.dumps([need.scope, need.condition], sort_keys=True)
        groups.setdefault(key, (need, []))[1].append(need.action)
    for need, actions in groups.values():
        rest = actions
        while rest:
            fitting = rest
            while len(fitting) > 1 and _length([_statement(need, fitting)]) > MAX_CHARACTERS:
                fitting = fitting[: len(fitting) // 2]
            yield _statement(need, fitting)
            rest = rest[len(fitting) :]


def _statement(need: Need, actions: Sequence[str]) -> dict[str, Any]:
    condition = {"Condition": dict(need.condition)} if need.condition else {}
    resource = need.scope[0] if len(need.scope) == 1 else list(need.scope)
    return {"Effect": "Allow", "Action": sorted(actions), "Resource": resource, **condition}
