"""AWS: IAM policies. Actions are limited by the names of resources, or by the tag gangway:stack."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gangway.components.aws.alarms import events_group
from gangway.components.aws.identity import partition_in
from gangway.components.catalog.permissions import load_permissions
from gangway.live.permissions.needs import Document, Need, Use
from gangway.stacks.base.rule import is_unknown, kind
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.providers.aws.settings import EXISTING, get_existing

MAX_CHARACTERS = 6144
"""Of a managed policy, without white space. See IAM's quotas."""
MAX_POLICIES = 10
"""Managed policies that IAM attaches to a user or role by default."""
TAG = "gangway:stack"
_AUTONAME = "-" + "?" * 7
"""Pulumi appends seven random digits to a name."""
_EXACT_NAMES = 6
"""More names of one kind of resource are replaced by their common start."""
_KEYS = {"new": f"aws:RequestTag/{TAG}", "tagged": f"aws:ResourceTag/{TAG}"}
_LEFT_OUT = {"kms:alias": "alias/", "ssm:parameter": "/"}
"""What a name starts with and its ARN leaves out."""
_LIMITS = {
    "new": f"resources that the request tags {TAG}={{stack}}",
    "tagged": f"resources tagged {TAG}={{stack}}",
}
_PROVIDED = "a resource that exists already"
_LOOKUPS: Mapping[str, tuple[str, ...]] = {
    "vpc_id": ("ec2:DescribeVpcs", "ec2:DescribeVpcAttribute", "ec2:DescribeVpcEndpoints", "ec2:DescribeRouteTables"),
    "subnets": ("ec2:DescribeSubnets",),
    "security_groups": ("ec2:DescribeSecurityGroups", "ec2:DescribeSecurityGroupRules"),
    "private_zone_id": ("route53:GetHostedZone", "route53:ListTagsForResource"),
    "kms_key_arn": ("kms:DescribeKey",),
    "instance_profiles": ("iam:GetInstanceProfile",),
    "permissions_boundary_arn": ("iam:GetPolicy", "iam:GetPolicyVersion"),
    "log_group_arn": ("logs:DescribeLogGroups", "logs:ListTagsForResource"),
    "repository_arn": ("ecr:DescribeRepositories", "ecr:ListTagsForResource"),
    "run_bucket": ("s3:ListBucket", "s3:GetBucketLocation"),
}
"""What `up` reads of each provided resource."""
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
        partition = partition_in(region)
        self._places = {"partition": partition, "region": region}
        self.provided = _provided(plan.config, partition)
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
            yield from self._by_resource(use)

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

    def _by_resource(self, use: Use) -> Iterator[_Grant]:
        action, rows = use.action, self._table.actions[use.action]
        open_arns: list[str] = []
        is_named = True
        for resource, marks in rows.items():
            if resource in self.provided and use.type not in self._table.resources[resource].types:
                yield _Grant(self.provided[resource], _PROVIDED)
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
        is_given = any(resource in self.provided for resource in rows)
        if not rows or not (open_arns or is_given or any(mark != "plain" for mark in rows.values())):
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
    made = [
        Need(action, grant.arns, tuple(reasons), grant.limit, grant.condition)
        for (action, _, _), (grant, reasons) in sorted(found.items(), key=lambda item: item[0])
    ]
    listed = {(need.action, need.scope) for need in made}
    return [*made, *(need for need in _lookup_needs(plan.config) if (need.action, need.scope) not in listed)]


def _provided(config: StackConfig, partition: str) -> dict[str, tuple[str, ...]]:
    """ARNs of provided resources by kind of resource, as the table names it."""
    existing, found = get_existing(config), dict[str, tuple[str, ...]]()
    kinds = {"vpc_id": "vpc", "subnets": "subnet", "security_groups": "security-group"}
    for key, id_ in existing.provided().items():
        if (name := kinds.get(key.partition(".")[0])) is not None:
            arn = f"arn:{partition}:ec2:{config.region}:*:{name}/{id_}"
            found[f"ec2:{name}"] = (*found.get(f"ec2:{name}", ()), arn)
    arns = {"kms:key": existing.kms_key_arn, "ecr:repository": existing.repository_arn}
    found |= {name: (arn,) for name, arn in arns.items() if arn is not None}
    if (logs := existing.log_group_arn) is not None:
        found["logs:log-group"] = tuple(f"{group}{end}" for group in (logs, events_group(logs)) for end in ("", ":*"))
    return found


def _lookup_needs(config: StackConfig) -> Iterator[Need]:
    for key, id_ in get_existing(config).provided().items():
        actions = _LOOKUPS.get(key.partition(".")[0], ())
        # EC2, Route 53 and CloudWatch Logs limit reading to no resource that an id names.
        arn = id_ if id_.startswith("arn:") and ":logs:" not in id_ else "*"
        if key == "run_bucket":
            arn = f"arn:{partition_in(config.region)}:s3:::{id_}"
        for action in actions:
            yield Need(action, (arn,), (f"look up {EXISTING}.{key}",), _PROVIDED if arn != "*" else _ALL)


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
    """How many policies there are, if several, and what they cannot name."""
    count = len(documents(plan, needs))
    own = list(_unnamed_roles(plan))
    lines = [f"{count} policies, since IAM limits one to {MAX_CHARACTERS:,} characters: attach all of them"]
    if count > MAX_POLICIES:
        lines.append(f"IAM attaches {MAX_POLICIES} policies by default: ask for a larger quota")
    return [*own, *(lines if count > 1 else [])]


def _unnamed_roles(plan: Plan) -> Iterator[str]:
    """The roles of provided instance profiles, whose names only IAM knows."""
    for key, arn in get_existing(plan.config).arns().items():
        if key.startswith("instance_profiles."):
            yield f"iam:GetRole and iam:PassRole, to ec2.amazonaws.com, for the role of {arn}: add its ARN"


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
