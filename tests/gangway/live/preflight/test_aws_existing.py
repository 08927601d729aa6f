"""Checks of provided resources: answers that botocore's own models validate, and what each is judged to be."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from gangway.components.aws.identity import key_policy
from gangway.live.preflight.aws import get_checks
from gangway.live.preflight.check import State, run_checks
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan
from tests.gangway.live.preflight.test_aws import GOOD, Calls, RefusalError

REGION, ACCOUNT, PATH = "us-east-2", "123456789012", "gangway:aws.existing"
VPC, SUBNET, FABRIC, HEAD = (
    "vpc-0123456789abcdef0",
    "subnet-0123456789abcdef0",
    "sg-0123456789abcdef0",
    "sg-0123456789abcdef1",
)
SYSTEM, ROLE = "fs-0123456789abcdef0", f"arn:aws:iam::{ACCOUNT}:role/gan"
SERVICES = ("ec2", "ecr", "fsx", "iam", "kms", "logs", "route53", "s3", "sts")
TRUST = {
    "Statement": [{"Effect": "Allow", "Principal": {"Service": ["ec2.amazonaws.com"]}, "Action": "sts:AssumeRole"}]
}


def rule(egress: bool, protocol: str, ports: tuple[int, int] | None, peer: str) -> dict[str, Any]:
    named = {"ReferencedGroupInfo": {"GroupId": peer}} if peer.startswith("sg-") else {"CidrIpv4": peer}
    first, last = ports or (-1, -1)
    return {"IsEgress": egress, "IpProtocol": protocol, "FromPort": first, "ToPort": last, **named}


INSIDE, WEB = "10.0.0.0/8", (443, 443)
RULES = [rule(False, "-1", None, FABRIC), rule(True, "-1", None, FABRIC), rule(True, "-1", None, INSIDE)]
OPEN = [*RULES, rule(False, "tcp", (0, 65535), INSIDE), rule(True, "tcp", WEB, "0.0.0.0/0")]


def role(trust: Any) -> Callable[[Any], dict[str, Any]]:
    """A new answer for each call: botocore decodes policies in place."""
    named = {
        "Path": "/",
        "RoleName": "gan",
        "RoleId": "AROA" + "A" * 16,
        "Arn": ROLE,
        "CreateDate": "2026-01-01T00:00:00Z",
    }
    own = {**named, "AssumeRolePolicyDocument": json.dumps(trust)}
    profile = {"Path": "/", "InstanceProfileName": "p", "InstanceProfileId": "AIPA" + "A" * 16, "Arn": ROLE}
    return lambda _: {"InstanceProfile": {**profile, "CreateDate": "2026-01-01T00:00:00Z", "Roles": [dict(own)]}}


def system(**changes: Any) -> dict[str, Any]:
    lustre = {"MountName": "abcdefgh", "DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 500}
    row = {"FileSystemType": "LUSTRE", "Lifecycle": "AVAILABLE", "VpcId": VPC, "StorageCapacity": 9600}
    return {
        "FileSystems": [
            {**row, "LustreConfiguration": lustre, "NetworkInterfaceIds": ["eni-0123456789abcdef0"], **changes}
        ]
    }


def subnet(free: int = 200, zone: str = "us-east-2a") -> dict[str, Any]:
    return {"Subnets": [{"AvailabilityZone": zone, "VpcId": VPC, "AvailableIpAddressCount": free}]}


def routes(**target: str) -> dict[str, Any]:
    rows = [{"DestinationCidrBlock": "0.0.0.0/0", **target}] if target else []
    return {"RouteTables": [{"Routes": rows}]}


def zone(vpc_id: str = VPC, name: str = "gangway.internal.") -> dict[str, Any]:
    hosted = {"Id": "Z1", "Name": name, "CallerReference": "r", "Config": {"PrivateZone": True}}
    return {"HostedZone": hosted, "VPCs": [{"VPCRegion": REGION, "VPCId": vpc_id}]}


def attribute(is_on: bool = True) -> Callable[[Any], dict[str, Any]]:
    names = ("EnableDnsSupport", "EnableDnsHostnames")
    return lambda _: {name: {"Value": is_on} for name in names}


ANSWERS: Mapping[str, Any] = {
    "ec2:DescribeVpcs": {"Vpcs": [{"OwnerId": ACCOUNT, "CidrBlockAssociationSet": [{"CidrBlock": "10.7.0.0/16"}]}]},
    "ec2:DescribeVpcAttribute": attribute(),
    "ec2:DescribeVpcEndpoints": {"VpcEndpoints": []},
    "ec2:DescribeSubnets": subnet(),
    "ec2:DescribeRouteTables": routes(TransitGatewayId="tgw-1"),
    "ec2:DescribeSecurityGroups": {"SecurityGroups": [{"GroupName": "gan", "VpcId": VPC}]},
    "ec2:DescribeSecurityGroupRules": {"SecurityGroupRules": OPEN},
    "ec2:DescribeNetworkInterfaces": {"NetworkInterfaces": [{"Groups": [{"GroupId": FABRIC}]}]},
    "route53:GetHostedZone": zone(),
    "fsx:DescribeFileSystems": system(),
    "fsx:DescribeDataRepositoryAssociations": {
        "Associations": [{"FileSystemPath": "/data", "DataRepositoryPath": "s3://my-bucket/digits/"}]
    },
    "kms:DescribeKey": {
        "KeyMetadata": {
            "KeyId": "k",
            "KeyState": "Enabled",
            "KeySpec": "SYMMETRIC_DEFAULT",
            "KeyUsage": "ENCRYPT_DECRYPT",
        }
    },
    "kms:GetKeyPolicy": {"Policy": json.dumps(key_policy(ACCOUNT, REGION))},
    "iam:GetInstanceProfile": role(TRUST),
    "iam:GetPolicy": {"Policy": {"PolicyName": "team-boundary"}},
    "logs:DescribeLogGroups": {"logGroups": [{"logGroupName": "/team/gan"}, {"logGroupName": "/team/gan/events"}]},
    "ecr:DescribeRepositories": {
        "repositories": [{"repositoryUri": "123456789012.dkr.ecr/team/trainer", "imageTagMutability": "MUTABLE"}]
    },
    "s3:HeadBucket": {"BucketRegion": REGION},
    "s3:GetBucketVersioning": {"Status": "Enabled"},
}


@pytest.fixture(autouse=True)
def _cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield


@pytest.fixture(scope="module")
def existing_plan(repo: Path) -> Plan:
    return make_plan(from_file(repo / "stacks/Pulumi.aws-existing.yaml"))


@pytest.fixture
def judged(existing_plan: Plan) -> Callable[..., list[Any]]:
    """The answers about provided resources, with other answers of the cloud."""

    def run(changes: Mapping[str, Any]) -> list[Any]:
        Calls.answers = {**GOOD, **ANSWERS, **changes}
        calls = Calls()
        for service in SERVICES:  # a session makes clients for one thread at a time
            calls(service, REGION), calls(service, "us-east-1")
        return run_checks([check for check in get_checks(existing_plan, calls) if check.path.startswith(PATH)])

    return run


def test_what_is_as_the_stack_needs_it_is_fine(judged: Callable[..., list[Any]]) -> None:
    found = judged({})
    assert [(one.check.subject, one.result) for one in found if one.result.state is not State.OK] == []
    assert len({one.check.path for one in found}) == 14, "all that the stack file names, and the account"
    assert all(one.check.source and one.result.answer for one in found)


@pytest.mark.parametrize(
    ("operation", "answer", "key", "words"),
    [
        ("ec2:DescribeVpcs", RefusalError("InvalidVpcID.NotFound"), "vpc_id", f"{VPC} does not exist in us-east-2"),
        ("ec2:DescribeVpcAttribute", attribute(False), "vpc_id", "enableDnsSupport and enableDnsHostnames is off"),
        (
            "ec2:DescribeSubnets",
            subnet(free=2),
            "subnets.us-east-2a",
            "2 of its addresses are free, and the stack needs 3",
        ),
        ("ec2:DescribeSubnets", subnet(zone="us-east-2b"), "subnets.us-east-2a", "it is in us-east-2b"),
        ("ec2:DescribeRouteTables", routes(), "subnets.us-east-2a", "no route for 0.0.0.0/0"),
        ("ec2:DescribeRouteTables", routes(GatewayId="igw-1"), "subnets.us-east-2a", "leads to igw-1"),
        (
            "ec2:DescribeSecurityGroupRules",
            {"SecurityGroupRules": RULES[1:]},
            "security_groups.head",
            "tcp 29400 to 29400 from",
        ),
        (
            "ec2:DescribeSecurityGroupRules",
            {"SecurityGroupRules": OPEN[2:]},
            "security_groups.fabric",
            "all traffic from",
        ),
        ("route53:GetHostedZone", zone(vpc_id="vpc-1"), "private_zone_id", f"it is not associated with {VPC}"),
        ("route53:GetHostedZone", zone(name="example.com."), "private_zone_id", "it is the private zone example.com"),
        ("fsx:DescribeFileSystems", system(Lifecycle="CREATING"), "file_system", "it is LUSTRE, CREATING"),
        (
            "fsx:DescribeFileSystems",
            system(StorageCapacity=1200),
            "file_system",
            "the file system that exists has 1200",
        ),
        ("fsx:DescribeFileSystems", system(NetworkInterfaceIds=[]), "file_system", "tcp 988 to 988 from"),
        ("fsx:DescribeDataRepositoryAssociations", {"Associations": []}, "file_system", "links nothing"),
        (
            "iam:GetInstanceProfile",
            role({"Statement": []}),
            "instance_profiles.node",
            "its role gan does not trust EC2",
        ),
        ("logs:DescribeLogGroups", {"logGroups": []}, "log_group_arn", "there is no log group /team/gan"),
        ("ecr:DescribeRepositories", RefusalError("RepositoryNotFoundException"), "repository_arn", "does not exist"),
        (
            "s3:HeadBucket",
            {"BucketRegion": "eu-west-1"},
            "run_bucket",
            "it is in eu-west-1, and the stack in us-east-2",
        ),
    ],
)
def test_what_is_not_is_an_error_with_its_fix(
    judged: Callable[..., list[Any]], operation: str, answer: Any, key: str, words: str
) -> None:
    wrong = [one for one in judged({operation: answer}) if one.check.path == f"{PATH}.{key}"]
    errors = [one.result for one in wrong if one.result.state is State.ERROR]
    assert len(errors) == 1, [one.result for one in wrong]
    assert words in errors[0].answer
    assert errors[0].fix


@pytest.mark.parametrize(
    ("operation", "answer", "words"),
    [
        ("kms:GetKeyPolicy", {"Policy": json.dumps({"Statement": []})}, "does not name AWSServiceRoleForAutoScaling"),
        ("s3:GetBucketVersioning", {}, "versioning is off"),
        (
            "iam:SimulatePrincipalPolicy",
            {"EvaluationResults": [{"EvalActionName": "s3:PutObject", "EvalDecision": "implicitDeny"}]},
            "lacks s3:PutObject",
        ),
    ],
)
def test_what_may_work_all_the_same_is_a_warning(
    judged: Callable[..., list[Any]], operation: str, answer: Any, words: str
) -> None:
    warned = [one.result for one in judged({operation: answer}) if one.result.state is State.WARNING]
    assert warned
    assert all(words in one.answer and one.fix for one in warned)
