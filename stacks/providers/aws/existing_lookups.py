"""The facts about provided resources that Pulumi's SDK can look up, before the stack's first resource."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ParamSpec, TypeVar

import pulumi
import pulumi_aws as aws
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.settings import get_monitor

from gangway.components.aws.alarms import events_group, get_log_group
from gangway.components.aws.network import ANYWHERE, ENDPOINT_SERVICES
from gangway.components.core.fields import Egress
from gangway.components.core.lookup import Lookup, LookupFailedError, look_up
from gangway.stacks.base.ownership import own_state
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.aws.existing import (
    Facts,
    GroupFacts,
    KeyFacts,
    ProfileFacts,
    RepositoryFacts,
    RuleFacts,
    SubnetFacts,
    VpcFacts,
    ZoneFacts,
    problems,
    raise_problems,
)
from gangway.stacks.providers.aws.lookups import LOGIN
from gangway.stacks.providers.aws.plan import AwsPlan
from gangway.stacks.providers.aws.settings import EXISTING, arn_parts, get_existing

P = ParamSpec("P")
T = TypeVar("T")
_NOTHING = ("no results", "no matching", "couldn't find resource", "empty result")
_TARGETS = (
    *("nat_gateway_id", "transit_gateway_id", "vpc_endpoint_id", "network_interface_id", "gateway_id", "instance_id"),
    *("core_network_arn", "local_gateway_id", "carrier_gateway_id", "vpc_peering_connection_id"),
)


def check_existing(config: StackConfig, planned: AwsPlan, provider: aws.Provider) -> None:
    """Checks the provided resources unless the stack's state records that (`record_existing`): later the stack's own
    machines take addresses. ExceptionGroup of InputError: the problems; LookupFailedError: a refused lookup.
    """
    # A plan has no cloud to ask.
    if not get_existing(config).provided() or isinstance(get_monitor(), MockMonitor):
        return
    name = _record_name(config, planned)
    if not any(urn.endswith(f"::{name}") for urn in own_state()):
        raise_problems(problems(config, planned, find_facts(config, planned, provider)))


def record_existing(config: StackConfig, planned: AwsPlan) -> None:
    """Records what `check_existing` has checked, after all lookups."""
    if provided := get_existing(config).provided():
        pulumi.Stash(_record_name(config, planned), input=provided)


def _record_name(config: StackConfig, planned: AwsPlan) -> str:
    checked = json.dumps([get_existing(config).provided(), config.network.egress, planned.zones], sort_keys=True)
    return f"{config.stack}-existing-{hashlib.sha256(checked.encode()).hexdigest()[:8]}"


def find_facts(config: StackConfig, planned: AwsPlan, provider: aws.Provider) -> Facts:
    """Looks everything up. LookupFailedError: the first that fails, such as an id that does not exist."""
    existing, asks = get_existing(config), _Lookups(config, pulumi.InvokeOptions(provider=provider))
    groups, profiles = existing.security_groups, existing.instance_profiles
    account = asks.account()
    if existing.permissions_boundary_arn is not None:
        asks.check_boundary(existing.permissions_boundary_arn)
    if existing.log_group_arn is not None:
        asks.check_log_groups(existing.log_group_arn)
    return Facts(
        account=account,
        vpc=None if existing.vpc_id is None else asks.vpc(existing.vpc_id),
        subnets={zone: asks.subnet(zone, existing.subnets[zone]) for zone in planned.zones if existing.vpc_id},
        groups={} if groups is None else dict(asks.groups({"fabric": groups.fabric, "head": groups.head})),
        zone=None if existing.private_zone_id is None else asks.zone(existing.private_zone_id),
        key=None if existing.kms_key_arn is None else asks.key(existing.kms_key_arn),
        profiles=dict(asks.profiles({"node": profiles.node, "head": profiles.head})),
        repository=None if existing.repository_arn is None else asks.repository(existing.repository_arn),
        bucket_region=None if existing.run_bucket is None else asks.bucket_region(existing.run_bucket),
    )


class _Lookups:
    """One method per kind of resource; `check_...` where only its existence matters."""

    def __init__(self, config: StackConfig, opts: pulumi.InvokeOptions) -> None:
        self._config, self._opts = config, opts

    def _ask(
        self, key: str, subject: str, permission: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        region = self._config.region
        fix = f"name one that exists in the account and in {region}, or remove {key}; to look it up: {permission}"
        lookup = Lookup(subject, region, f"{EXISTING}.{key}", f"{fix}. Then run `up` again")
        return look_up(lookup, function, *args, **kwargs)

    def account(self) -> str:
        fix = f"{LOGIN}, with sts:GetCallerIdentity. Then run `up` again"
        lookup = Lookup("the caller's account", self._config.region, EXISTING, fix)
        return str(look_up(lookup, aws.get_caller_identity, opts=self._opts).account_id)

    def check_boundary(self, arn: str) -> None:
        function = aws.iam.get_policy
        self._ask("permissions_boundary_arn", f"the policy {arn}", "iam:GetPolicy", function, arn=arn, opts=self._opts)

    def check_log_groups(self, arn: str) -> None:
        lines, function = get_log_group(arn), aws.cloudwatch.get_log_group
        for name in (lines, events_group(lines)):
            subject, permission = f"the log group {name}", "logs:DescribeLogGroups"
            self._ask("log_group_arn", subject, permission, function, name=name, opts=self._opts)

    def vpc(self, vpc_id: str) -> VpcFacts:
        found = self._ask("vpc_id", vpc_id, "ec2:DescribeVpcs", aws.ec2.get_vpc, id=vpc_id, opts=self._opts)
        services = {"s3", *ENDPOINT_SERVICES} if self._config.network.egress is Egress.ENDPOINTS else set()
        return VpcFacts(
            owner=found.owner_id,
            cidrs=tuple(one.cidr_block for one in found.cidr_block_associations),
            dns_support=found.enable_dns_support,
            dns_hostnames=found.enable_dns_hostnames,
            endpoint_services=frozenset(one for one in services if self._has_endpoint(vpc_id, one)),
        )

    def _has_endpoint(self, vpc_id: str, service: str) -> bool:
        name, function = f"com.amazonaws.{self._config.region}.{service}", aws.ec2.get_vpc_endpoint
        subject, permission = f"the endpoint {name} of {vpc_id}", "ec2:DescribeVpcEndpoints"
        try:
            found = self._ask(
                "vpc_id", subject, permission, function, vpc_id=vpc_id, service_name=name, opts=self._opts
            )
        except LookupFailedError as failed:
            if not any(words in failed.answer for words in _NOTHING):
                raise
            return False
        return found.state == "available"

    def subnet(self, zone: str, subnet_id: str) -> SubnetFacts:
        key, opts = f"subnets.{zone}", self._opts
        found = self._ask(key, subnet_id, "ec2:DescribeSubnets", aws.ec2.get_subnet, id=subnet_id, opts=opts)
        free, vpc_id = found.available_ip_address_count, found.vpc_id
        return SubnetFacts(found.availability_zone, vpc_id, free, self._default_route(key, subnet_id, vpc_id))

    def _default_route(self, key: str, subnet_id: str, vpc_id: str) -> str:
        subject, permission, function = f"the routes of {subnet_id}", "ec2:DescribeRouteTables", aws.ec2.get_route_table
        try:
            table = self._ask(key, subject, permission, function, subnet_id=subnet_id, opts=self._opts)
        except LookupFailedError as failed:
            if not any(words in failed.answer for words in _NOTHING):
                raise
            # A subnet without an association has the main table.
            main = [aws.ec2.GetRouteTableFilterArgs(name="association.main", values=["true"])]
            table = self._ask(key, subject, permission, function, vpc_id=vpc_id, filters=main, opts=self._opts)
        routes = [route for route in table.routes if route.cidr_block == ANYWHERE]
        targets = [str(getattr(route, name)) for route in routes for name in _TARGETS if getattr(route, name)]
        return next(iter(targets), "")

    def groups(self, ids: Mapping[str, str | None]) -> Iterator[tuple[str, GroupFacts]]:
        for role, group_id in ids.items():
            if group_id is not None:
                key = f"security_groups.{role}"
                function = aws.ec2.get_security_group
                found = self._ask(key, group_id, "ec2:DescribeSecurityGroups", function, id=group_id, opts=self._opts)
                yield role, GroupFacts(found.vpc_id, tuple(self._rules(key, group_id)))

    def _rules(self, key: str, group_id: str) -> Iterable[RuleFacts]:
        subject, permission, filters = f"the rules of {group_id}", "ec2:DescribeSecurityGroupRules", _by_group(group_id)
        listed = aws.vpc.get_security_group_rules
        for rule_id in self._ask(key, subject, permission, listed, filters=filters, opts=self._opts).ids:
            one = aws.vpc.get_security_group_rule
            rule = self._ask(key, subject, permission, one, security_group_rule_id=rule_id, opts=self._opts)
            peer = rule.referenced_security_group_id or rule.cidr_ipv4 or rule.cidr_ipv6 or rule.prefix_list_id
            has_ports = rule.ip_protocol != "-1" and rule.from_port not in (None, -1)
            yield RuleFacts(
                direction="egress" if rule.is_egress else "ingress",
                protocol=rule.ip_protocol,
                ports=(rule.from_port, rule.to_port) if has_ports else None,
                # Of a peered network's group it is `ACCOUNT/GROUP`.
                peer=str(peer).rpartition("/")[2] if rule.referenced_security_group_id else str(peer),
            )

    def zone(self, zone_id: str) -> ZoneFacts:
        function = aws.route53.get_zone
        found = self._ask(
            "private_zone_id", zone_id, "route53:GetHostedZone", function, zone_id=zone_id, opts=self._opts
        )
        return ZoneFacts(found.name, bool(found.private_zone))

    def key(self, arn: str) -> KeyFacts:
        found = self._ask("kms_key_arn", arn, "kms:DescribeKey", aws.kms.get_key, key_id=arn, opts=self._opts)
        return KeyFacts(found.key_state, found.key_spec, found.key_usage)

    def profiles(self, arns: Mapping[str, str | None]) -> Iterator[tuple[str, ProfileFacts]]:
        for role, arn in arns.items():
            if arn is None:
                continue
            key, name = f"instance_profiles.{role}", arn.rpartition("/")[2]
            function = aws.iam.get_instance_profile
            found = self._ask(
                key, f"the profile {name}", "iam:GetInstanceProfile", function, name=name, opts=self._opts
            )
            trust = ""
            if found.role_name:
                subject, ask = f"the role {found.role_name}", aws.iam.get_role
                answer = self._ask(key, subject, "iam:GetRole", ask, name=found.role_name, opts=self._opts)
                trust = answer.assume_role_policy
            yield role, ProfileFacts(found.role_name, trust)

    def repository(self, arn: str) -> RepositoryFacts:
        name, function = arn_parts(arn)[2].removeprefix("repository/"), aws.ecr.get_repository
        subject, permission = f"the repository {name}", "ecr:DescribeRepositories"
        found = self._ask("repository_arn", subject, permission, function, name=name, opts=self._opts)
        return RepositoryFacts(found.image_tag_mutability == "IMMUTABLE")

    def bucket_region(self, name: str) -> str:
        subject, permission = f"the bucket {name}", "s3:ListBucket and s3:GetBucketLocation"
        found = self._ask("run_bucket", subject, permission, aws.s3.get_bucket, bucket=name, opts=self._opts)
        return str(found.bucket_region)


def _by_group(group_id: str) -> list[aws.vpc.GetSecurityGroupRulesFilterArgs]:
    return [aws.vpc.GetSecurityGroupRulesFilterArgs(name="group-id", values=[group_id])]
