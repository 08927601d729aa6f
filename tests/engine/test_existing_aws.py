"""A stack on AWS that brings all its resources, under the real engine: they are used, and stay as they were."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

ACCOUNT, ZONE = "123456789012", "us-east-2a"
VPC, SUBNET, TABLE = "vpc-0123456789abcdef0", "subnet-0123456789abcdef0", "rtb-0123456789abcdef0"
FABRIC, HEAD = "sg-0123456789abcdef0", "sg-0123456789abcdef1"
HOSTED, KEY = "Z0123456789ABCDEFGHIJ", f"arn:aws:kms:us-east-2:{ACCOUNT}:key/11111111-0000-4000-8000-111111111111"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/team-boundary"
TAGS = {"owner": "network-team"}
TRUST = {"Statement": {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}}
RULES = [
    (FABRIC, False, "-1", None, None, FABRIC),
    (FABRIC, True, "-1", None, None, FABRIC),
    (FABRIC, True, "-1", None, None, "0.0.0.0/0"),
    (FABRIC, False, "tcp", 9400, 9400, HEAD),
    (FABRIC, False, "tcp", 988, 1023, HEAD),
    (HEAD, False, "tcp", 29400, 29400, "10.0.0.0/8"),
    (HEAD, False, "tcp", 988, 1023, FABRIC),
    (HEAD, True, "-1", None, None, "0.0.0.0/0"),
    (HEAD, True, "tcp", 0, 65535, FABRIC),
]


def resources() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What the account has before the stack: type, id and what a lookup answers."""
    yield (
        "aws:ec2/vpc:Vpc",
        VPC,
        {
            "ownerId": ACCOUNT,
            "cidrBlock": "10.7.0.0/16",
            "cidrBlockAssociations": [{"cidrBlock": "10.7.0.0/16", "associationId": "a", "state": "associated"}],
            "enableDnsSupport": True,
            "enableDnsHostnames": True,
        },
    )
    yield (
        "aws:ec2/subnet:Subnet",
        SUBNET,
        {
            "availabilityZone": ZONE,
            "availableIpAddressCount": 200,
            "vpcId": VPC,
        },
    )
    route = {"cidrBlock": "0.0.0.0/0", "transitGatewayId": "tgw-0123456789abcdef0"}
    yield "aws:ec2/routeTable:RouteTable", TABLE, {"subnetId": SUBNET, "vpcId": VPC, "routes": [route]}
    for group in (FABRIC, HEAD):
        yield "aws:ec2/securityGroup:SecurityGroup", group, {"vpcId": VPC}
    for number, (group, egress, protocol, first, last, peer) in enumerate(RULES):
        key = "referencedSecurityGroupId" if peer.startswith("sg-") else "cidrIpv4"
        ports = {"fromPort": first, "toPort": last} if first is not None else {}
        owner = {"securityGroupId": group, "isEgress": egress, "ipProtocol": protocol}
        yield "rule", f"sgr-{number:017x}", {**owner, **ports, key: peer}
    yield "aws:route53/zone:Zone", HOSTED, {"name": "gangway.internal", "privateZone": True}
    usable = {"keyState": "Enabled", "keySpec": "SYMMETRIC_DEFAULT", "keyUsage": "ENCRYPT_DECRYPT"}
    yield "aws:kms/key:Key", KEY, {"keyId": KEY, "arn": KEY, **usable}
    for role in ("gan-node", "gan-head"):
        yield "aws:iam/instanceProfile:InstanceProfile", role, {"roleName": role}
        yield "aws:iam/role:Role", role, {"name": role, "assumeRolePolicy": json.dumps(TRUST)}
    yield "aws:iam/policy:Policy", BOUNDARY, {"arn": BOUNDARY}
    for name in ("/team/gan", "/team/gan/events"):
        yield "aws:cloudwatch/logGroup:LogGroup", name, {"name": name}
    yield "aws:ecr/repository:Repository", "team/trainer", {"name": "team/trainer", "imageTagMutability": "MUTABLE"}
    yield "aws:s3/bucket:Bucket", "my-run-records", {"bucket": "my-run-records", "bucketRegion": "us-east-2"}


def hold(engine: Any, type_: str, id_: str, outputs: Mapping[str, Any]) -> Path:
    """Puts a resource of others into the stand-in's cloud."""
    file: Path = engine.cloud / f"{hashlib.sha256(f'{type_}|{id_}'.encode()).hexdigest()}.json"
    record = {"type": type_, "id": id_, "urn": "others", "inputs": {"tags": TAGS}, "outputs": outputs}
    file.write_text(json.dumps(record), "utf-8")
    return file


@pytest.fixture
def engine(make_engine: Callable[[str], Any]) -> Any:
    made = make_engine("aws-existing")
    for resource in resources():
        hold(made, *resource)
    return made


def own(engine: Any) -> list[dict[str, Any]]:
    """The stack's resources."""
    return [one for one in engine.resources() if one["urn"].startswith("urn:")]


def test_provided_resources_are_used_and_stay_as_they_are(engine: Any) -> None:
    before = {file: file.read_bytes() for file in engine.cloud.glob("*.json")}
    engine.put("my-run-records", "others/run.json")
    up = engine.applied("up")
    made = {one["type"] for one in own(engine)}
    brought = {type_ for type_, _, _ in resources()} - {"aws:iam/role:Role", "aws:cloudwatch/logGroup:LogGroup"}
    assert not made & brought, "but for the budget's stop, its role and log group"
    assert "existing.provided" in up.text
    they_are_in_use(engine)
    assert set(engine.applied("up", "--expect-no-changes").changes) == {"same"}
    engine.applied("destroy")
    assert own(engine) == []
    assert {file: file.read_bytes() for file in before} == before
    assert "others/run.json" in [one["id"] for one in engine.resources()]


def they_are_in_use(engine: Any) -> None:
    by_type: dict[str, list[dict[str, Any]]] = {}
    for one in own(engine):
        by_type.setdefault(one["type"], []).append(one["inputs"])
    (head,) = by_type["aws:ec2/instance:Instance"]
    assert (head["subnetId"], head["vpcSecurityGroupIds"]) == (SUBNET, [HEAD])
    (group,) = by_type["aws:autoscaling/group:Group"]
    assert group["vpcZoneIdentifiers"] == [SUBNET]
    profiles = {
        one["iamInstanceProfile"]["arn"].rpartition("/")[2] for one in by_type["aws:ec2/launchTemplate:LaunchTemplate"]
    }
    assert profiles == {"gan-node", "gan-head"}
    assert {one["zoneId"] for one in by_type["aws:route53/record:Record"]} == {HOSTED}
    assert {one["permissionsBoundary"] for one in by_type["aws:iam/role:Role"]} == {BOUNDARY}
    assert {one["keyId"] for one in by_type["aws:ssm/parameter:Parameter"]} == {KEY}
    filters = by_type["aws:cloudwatch/logMetricFilter:LogMetricFilter"]
    assert {one["logGroupName"] for one in filters} == {"/team/gan", "/team/gan/events"}
    (image,) = by_type["docker-build:index:Image"]
    assert image["tags"][0].startswith(f"{ACCOUNT}.dkr.ecr.us-east-2.amazonaws.com/team/trainer:")


Edit = Callable[[Any], None]


def answers(type_: str, id_: str, **changes: Any) -> Edit:
    """The cloud's resource is another."""

    def edit(engine: Any) -> None:
        outputs = next(one for kind, name, one in resources() if (kind, name) == (type_, id_))
        hold(engine, type_, id_, {**outputs, **changes})

    return edit


def missing(type_: str, id_: str) -> Edit:
    return lambda engine: hold(engine, type_, id_, {}).unlink()


def writes(path: str, value: Any) -> Edit:
    """The stack file names another."""

    def edit(engine: Any) -> None:
        content = yaml.safe_load(engine.file.read_text("utf-8"))
        *parents, last = path.split(".")
        place = content["config"]["gangway:aws"]["existing"]
        for parent in parents:
            place = place[parent]
        place[last] = value
        engine.file.write_text(yaml.safe_dump(content), "utf-8")

    return edit


OTHER = "210987654321"
MISTAKES: list[tuple[Edit, list[str]]] = [
    (writes("kms_key_arn", KEY.replace("us-east-2", "eu-west-1")), ["existing.kms_key_arn", "it is in eu-west-1"]),
    (writes("repository_arn", f"arn:aws:ecr:us-east-2:{OTHER}:repository/x"), ["existing.repository_arn", OTHER]),
    (missing("aws:ec2/vpc:Vpc", VPC), ["existing.vpc_id: cannot look up", VPC, "NotFound"]),
    (
        answers("aws:ec2/routeTable:RouteTable", TABLE, routes=[]),
        [f"existing.subnets.{ZONE}", SUBNET, "no route for 0.0.0.0/0", "add the route"],
    ),
    (
        answers("aws:ec2/subnet:Subnet", SUBNET, availableIpAddressCount=2),
        [f"existing.subnets.{ZONE}", SUBNET, "2 of its addresses are free", "at least 3 free addresses"],
    ),
    (answers("aws:ec2/subnet:Subnet", SUBNET, availabilityZone="us-east-2b"), ["it is in us-east-2b"]),
    (
        answers("aws:iam/role:Role", "gan-node", assumeRolePolicy=json.dumps({"Statement": []})),
        ["existing.instance_profiles.node", "gan-node does not trust EC2", "update-assume-role-policy"],
    ),
    (missing("rule", f"sgr-{5:017x}"), ["existing.security_groups.head", "tcp 29400 to 29400 from"]),
    (
        answers("aws:kms/key:Key", KEY, keyId=KEY, keyState="PendingDeletion"),
        ["existing.kms_key_arn", "PendingDeletion"],
    ),
    (
        answers("aws:s3/bucket:Bucket", "my-run-records", bucketRegion="us-west-2"),
        ["existing.run_bucket", "'my-run-records'", "it is in us-west-2"],
    ),
]


def test_a_mistake_is_one_message_and_nothing_is_created(engine: Any) -> None:
    content = engine.file.read_text("utf-8")
    before = len(list(engine.cloud.glob("*.json")))
    for edit, words in MISTAKES:
        edit(engine)
        outcome = engine.run("up", "--yes", "--skip-preview")
        assert outcome.status != 0
        assert [word for word in words if word not in outcome.text] == [], outcome.text
        assert "Traceback" not in outcome.text
        assert own(engine) == []
        engine.file.write_text(content, "utf-8")
        for resource in resources():
            hold(engine, *resource)
    assert len(list(engine.cloud.glob("*.json"))) == before
