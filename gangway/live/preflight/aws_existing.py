"""Checks of resources that exist already and that a stack on AWS uses: one or two per resource."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gangway.components.aws.alarms import events_group, get_log_group
from gangway.components.aws.identity import key_policy
from gangway.components.aws.network import ANYWHERE
from gangway.components.core.findings import InputError
from gangway.live.preflight.aws_api import Aws
from gangway.live.preflight.check import Check, NoAnswerError, Result, first
from gangway.live.preflight.existing import judge
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.aws.existing import (
    FileSystemFacts,
    GroupFacts,
    KeyFacts,
    ProfileFacts,
    RepositoryFacts,
    RuleFacts,
    SubnetFacts,
    VpcFacts,
    ZoneFacts,
    account_problems,
    bucket_problems,
    endpoint_problems,
    file_system_problems,
    group_problems,
    key_problems,
    profile_problems,
    repository_problems,
    subnet_problems,
    vpc_problems,
    zone_problems,
)
from gangway.stacks.providers.aws.existing_findings import role_statements
from gangway.stacks.providers.aws.plan import AwsPlan
from gangway.stacks.providers.aws.settings import EXISTING, arn_parts, get_existing

IAM_REGION = "us-east-1"
_MISSING = ("NotFound", "NoSuch", "404")
_TARGETS = (
    *("NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "GatewayId", "InstanceId", "CoreNetworkArn"),
    *("LocalGatewayId", "CarrierGatewayId", "VpcPeeringConnectionId"),
)
Found: TypeAlias = tuple[str, Iterable[InputError]]
"""What a resource is like, and its problems."""


@dataclass(frozen=True)
class Provided:
    """A stack and the account of the caller, empty if unknown."""

    config: StackConfig
    planned: AwsPlan
    aws: Aws
    account: str


def existing_checks(stack: Provided) -> Iterator[Check]:
    """One or two checks per provided resource."""
    existing = get_existing(stack.config)
    if existing.arns() and stack.account:
        yield _check(stack, "", "account of the provided ARNs", "sts:GetCallerIdentity", lambda: _find_account(stack))
    finders = {
        "vpc_id": ("ec2:DescribeVpcs", _find_vpc),
        "private_zone_id": ("route53:GetHostedZone", _find_zone),
        "file_system": ("fsx:DescribeFileSystems", _find_file_system),
        "kms_key_arn": ("kms:DescribeKey", _find_key),
        "permissions_boundary_arn": ("iam:GetPolicy", _find_boundary),
        "log_group_arn": ("logs:DescribeLogGroups", _find_log_groups),
        "repository_arn": ("ecr:DescribeRepositories", _find_repository),
        "run_bucket": ("s3:HeadBucket", _find_bucket),
    }
    for key, value in existing.provided().items():
        kind, _, name = key.partition(".")
        match kind:
            case "subnets" if name in stack.planned.zones:
                yield _check(stack, key, value, "ec2:DescribeSubnets", _later(_find_subnet, stack, name))
            case "security_groups":
                yield _check(stack, key, value, "ec2:DescribeSecurityGroupRules", _later(_find_group, stack, name))
            case "instance_profiles":
                yield _check(stack, key, value, "iam:GetInstanceProfile", _later(_find_profile, stack, name))
                yield _permissions(stack, name, value)
            case _ if key in finders:
                source, find = finders[key]
                yield _check(stack, key, value, source, _later(find, stack, value))
    if existing.kms_key_arn is not None:
        yield _key_users(stack, existing.kms_key_arn)
    if existing.run_bucket is not None:
        yield _versions(stack.aws, existing.run_bucket)


def _later(find: Callable[[Provided, str], Found], stack: Provided, value: str) -> Callable[[], Found]:
    return lambda: find(stack, value)


def _check(stack: Provided, key: str, value: str, source: str, find: Callable[[], Found]) -> Check:
    def run() -> Result:
        try:
            answer, problems = find()
        except NoAnswerError as refusal:
            if not any(word in refusal.code for word in _MISSING):
                raise
            answer = f"{value} does not exist in {stack.aws.region}: {refusal.reason}"
            return Result.error(answer, f"name one that does, or remove {key}")
        return judge(problems, answer)

    kind = key.partition(".")[0].removesuffix("_id").removesuffix("_arn").removesuffix("s").replace("_", " ")
    return Check(f"provided {kind} {value}".replace("provided  ", ""), source, run, f"{EXISTING}.{key}".rstrip("."))


def _find_account(stack: Provided) -> Found:
    return stack.account, account_problems(get_existing(stack.config), stack.account)


def _one(rows: Sequence[Any], what: str) -> Any:
    """The only row. NoAnswerError: there is none, although the call was answered."""
    if not rows:
        raise NoAnswerError(f"{what}: none", code="NotFound")
    return rows[0]


def _find_vpc(stack: Provided, vpc_id: str) -> Found:
    aws, config = stack.aws, stack.config
    row = _one(aws.call("ec2:DescribeVpcs", VpcIds=[vpc_id])["Vpcs"], vpc_id)

    def is_on(attribute: str) -> bool:
        answer = aws.call("ec2:DescribeVpcAttribute", VpcId=vpc_id, Attribute=attribute)
        return bool(answer[attribute[0].upper() + attribute[1:]]["Value"])

    filters = [{"Name": "vpc-id", "Values": [vpc_id]}, {"Name": "vpc-endpoint-state", "Values": ["available"]}]
    endpoints = aws.pages("ec2:DescribeVpcEndpoints", "VpcEndpoints", Filters=filters)
    prefix = f"com.amazonaws.{aws.region}."
    vpc = VpcFacts(
        owner=row["OwnerId"],
        cidrs=tuple(one["CidrBlock"] for one in row.get("CidrBlockAssociationSet", ())),
        dns_support=is_on("enableDnsSupport"),
        dns_hostnames=is_on("enableDnsHostnames"),
        endpoint_services=frozenset(one["ServiceName"].removeprefix(prefix) for one in endpoints),
    )
    subnets = {zone: _subnet(aws, get_existing(config).subnets[zone]) for zone in stack.planned.zones}
    account = stack.account or vpc.owner
    problems = [*vpc_problems(config, stack.planned, vpc, account), *endpoint_problems(config, vpc, subnets)]
    return f"{', '.join(vpc.cidrs)}, of account {vpc.owner}, with DNS", problems


def _subnet(aws: Aws, subnet_id: str) -> SubnetFacts:
    row = _one(aws.call("ec2:DescribeSubnets", SubnetIds=[subnet_id])["Subnets"], subnet_id)
    return SubnetFacts(
        zone=row["AvailabilityZone"],
        vpc_id=row["VpcId"],
        free_addresses=row["AvailableIpAddressCount"],
        default_route=_default_route(aws, subnet_id, row["VpcId"]),
    )


def _default_route(aws: Aws, subnet_id: str, vpc_id: str) -> str:
    own = [{"Name": "association.subnet-id", "Values": [subnet_id]}]
    main = [{"Name": "vpc-id", "Values": [vpc_id]}, {"Name": "association.main", "Values": ["true"]}]
    tables = (aws.call("ec2:DescribeRouteTables", Filters=filters)["RouteTables"] for filters in (own, main))
    table: Mapping[str, Any] = next((rows[0] for rows in tables if rows), {})
    routes = [row for row in table.get("Routes", ()) if row.get("DestinationCidrBlock") == ANYWHERE]
    return next((str(row[name]) for row in routes for name in _TARGETS if row.get(name)), "")


def _find_subnet(stack: Provided, zone: str) -> Found:
    subnet = _subnet(stack.aws, get_existing(stack.config).subnets[zone])
    answer = f"in {subnet.zone}, {subnet.free_addresses} free addresses, way out: {subnet.default_route or 'none'}"
    return answer, subnet_problems(stack.config, stack.planned, zone, subnet)


def _rules(aws: Aws, group_ids: Sequence[str]) -> tuple[RuleFacts, ...]:
    filters = [{"Name": "group-id", "Values": list(group_ids)}]
    rows = aws.pages("ec2:DescribeSecurityGroupRules", "SecurityGroupRules", Filters=filters)
    return tuple(_rule(row) for row in rows)


def _rule(row: Mapping[str, Any]) -> RuleFacts:
    has_ports = row["IpProtocol"] != "-1" and row.get("FromPort", -1) != -1
    group = row.get("ReferencedGroupInfo", {}).get("GroupId")
    peers = (group, row.get("CidrIpv4"), row.get("CidrIpv6"), row.get("PrefixListId"))
    return RuleFacts(
        direction="egress" if row["IsEgress"] else "ingress",
        protocol=row["IpProtocol"],
        ports=(row["FromPort"], row["ToPort"]) if has_ports else None,
        peer=next((peer for peer in peers if peer), ""),
    )


def _find_group(stack: Provided, role: str) -> Found:
    group_id = get_existing(stack.config).provided()[f"security_groups.{role}"]
    row = _one(stack.aws.call("ec2:DescribeSecurityGroups", GroupIds=[group_id])["SecurityGroups"], group_id)
    facts = GroupFacts(row["VpcId"], _rules(stack.aws, [group_id]))
    return f"{row['GroupName']}, {len(facts.rules)} rules", group_problems(stack.config, stack.planned, role, facts)


def _find_zone(stack: Provided, zone_id: str) -> Found:
    answer = stack.aws.call("route53:GetHostedZone", IAM_REGION, Id=zone_id)
    zone, vpc_id = answer["HostedZone"], get_existing(stack.config).vpc_id
    problems = list(zone_problems(stack.config, ZoneFacts(zone["Name"], zone["Config"]["PrivateZone"])))
    if vpc_id not in [row["VPCId"] for row in answer.get("VPCs", ())]:
        fix = f"aws route53 associate-vpc-with-hosted-zone --hosted-zone-id {zone_id} --vpc VPCId={vpc_id}"
        path = f"{EXISTING}.private_zone_id"
        problems.append(InputError(path, f"it is not associated with {vpc_id}", value=zone_id, fix=fix))
    return zone["Name"], problems


def _find_file_system(stack: Provided, system_id: str) -> Found:
    aws = stack.aws
    row = _one(aws.call("fsx:DescribeFileSystems", FileSystemIds=[system_id])["FileSystems"], system_id)
    lustre, ids = row.get("LustreConfiguration", {}), row.get("NetworkInterfaceIds", [])
    interfaces = aws.call("ec2:DescribeNetworkInterfaces", NetworkInterfaceIds=ids)["NetworkInterfaces"] if ids else []
    groups = sorted({group["GroupId"] for one in interfaces for group in one["Groups"]})
    by_system = [{"Name": "file-system-id", "Values": [system_id]}]
    links = aws.pages("fsx:DescribeDataRepositoryAssociations", "Associations", Filters=by_system)
    facts = FileSystemFacts(
        kind=row["FileSystemType"],
        state=row["Lifecycle"],
        vpc_id=row["VpcId"],
        mount_name=lustre.get("MountName", ""),
        capacity_gib=row["StorageCapacity"],
        deployment=lustre.get("DeploymentType", ""),
        throughput_mbps_per_tib=lustre.get("PerUnitStorageThroughput"),
        has_efa=bool(lustre.get("EfaEnabled")),
        links={one["FileSystemPath"]: one["DataRepositoryPath"] for one in links},
        rules=_rules(aws, groups) if groups else (),
    )
    answer = f"{facts.kind}, {facts.state}, {facts.capacity_gib} GiB, {facts.deployment}"
    return answer, file_system_problems(stack.config, stack.planned, facts)


def _find_key(stack: Provided, arn: str) -> Found:
    row = stack.aws.call("kms:DescribeKey", KeyId=arn)["KeyMetadata"]
    facts = KeyFacts(row["KeyState"], row.get("KeySpec", ""), row["KeyUsage"])
    return f"{facts.state}, {facts.spec}", key_problems(get_existing(stack.config), facts)


def _key_users(stack: Provided, arn: str) -> Check:
    source, account = "kms:GetKeyPolicy", arn_parts(arn)[1]
    wanted = key_policy(account, stack.config.region)["Statement"]
    users = {user for row in wanted if row["Sid"] != "AccountDecides" for user in _users(row)}

    def run() -> Result:
        policy = json.loads(stack.aws.call(source, KeyId=arn, PolicyName="default")["Policy"])
        allowed = {user for row in policy["Statement"] if row["Effect"] == "Allow" for user in _users(row)}
        if lacking := sorted(users - allowed):
            fix = "add them to the policy, or check that a grant lets them use the key"
            return Result.warning(f"its policy does not name {', '.join(lacking)}", fix)
        return Result.ok(f"its policy names {', '.join(sorted(users))}")

    return Check("services that use the provided key", source, run, f"{EXISTING}.kms_key_arn")


def _users(statement: Mapping[str, Any]) -> Iterator[str]:
    """Services, and roles of services, that a statement names as principal or in its condition."""
    for value in _texts([statement.get("Principal"), statement.get("Condition", {})]):
        name = value.rpartition("/")[2]
        if name.startswith("AWSServiceRole") or name.endswith(".amazonaws.com"):
            yield name


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(one)


def _find_profile(stack: Provided, role: str) -> Found:
    existing = get_existing(stack.config)
    name = existing.provided()[f"instance_profiles.{role}"].rpartition("/")[2]
    roles = stack.aws.call("iam:GetInstanceProfile", IAM_REGION, InstanceProfileName=name)["InstanceProfile"]["Roles"]
    row = first(roles)
    trust = "" if row is None else json.dumps(row["AssumeRolePolicyDocument"])
    facts = ProfileFacts("" if row is None else row["RoleName"], trust)
    return f"role {facts.role}, which EC2 may assume", profile_problems(existing, role, facts)


def _permissions(stack: Provided, role: str, arn: str) -> Check:
    source, aws = "iam:SimulatePrincipalPolicy", stack.aws

    def run() -> Result:
        name = arn.rpartition("/")[2]
        profile = aws.call("iam:GetInstanceProfile", IAM_REGION, InstanceProfileName=name)["InstanceProfile"]
        principal = _one(profile["Roles"], name)["Arn"]
        lacking: list[str] = []
        for row in role_statements(stack.config, stack.planned, role, arn_parts(arn)[1]):
            answers = aws.pages(
                *(source, "EvaluationResults", IAM_REGION),
                PolicySourceArn=principal,
                ActionNames=row["Action"],
                ResourceArns=[row["Resource"]],
            )
            lacking += [one["EvalActionName"] for one in answers if one["EvalDecision"] != "allowed"]
        if lacking:
            fix = "allow them; a statement for certain tags only is not recognized here"
            return Result.warning(f"{principal} lacks {', '.join(lacking)}", fix)
        return Result.ok(f"{principal} has what a {role} needs")

    return Check(f"permissions of the provided {role} role", source, run, f"{EXISTING}.instance_profiles.{role}")


def _find_boundary(stack: Provided, arn: str) -> Found:
    row = stack.aws.call("iam:GetPolicy", IAM_REGION, PolicyArn=arn)["Policy"]
    return str(row["PolicyName"]), ()


def _find_log_groups(stack: Provided, arn: str) -> Found:
    lines = get_log_group(arn)
    rows = stack.aws.pages("logs:DescribeLogGroups", "logGroups", logGroupNamePrefix=lines)
    names = {row["logGroupName"] for row in rows}
    wanted = [lines, events_group(lines)]
    problems = [
        InputError(f"{EXISTING}.log_group_arn", f"there is no log group {name}", fix=f"create {name}")
        for name in wanted
        if name not in names
    ]
    return " and ".join(wanted), problems


def _find_repository(stack: Provided, arn: str) -> Found:
    name = arn_parts(arn)[2].removeprefix("repository/")
    row = _one(stack.aws.call("ecr:DescribeRepositories", repositoryNames=[name])["repositories"], name)
    facts = RepositoryFacts(row["imageTagMutability"] == "IMMUTABLE")
    return str(row["repositoryUri"]), repository_problems(get_existing(stack.config), facts)


def _find_bucket(stack: Provided, name: str) -> Found:
    region = stack.aws.call("s3:HeadBucket", Bucket=name).get("BucketRegion", stack.aws.region)
    return f"in {region}", bucket_problems(stack.config, region)


def _versions(aws: Aws, bucket: str) -> Check:
    source = "s3:GetBucketVersioning"

    def run() -> Result:
        status = aws.call(source, Bucket=bucket).get("Status", "off")
        if status == "Enabled":
            return Result.ok("earlier versions of records are kept")
        fix = f"aws s3api put-bucket-versioning --bucket {bucket} --versioning-configuration Status=Enabled"
        return Result.warning(f"versioning is {status}: an overwritten record or checkpoint is lost", fix)

    return Check(f"versions in the provided bucket {bucket}", source, run, f"{EXISTING}.run_bucket")
