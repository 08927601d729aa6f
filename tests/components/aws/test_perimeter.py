"""What gets out of a network without NAT: policies are asked as IAM would ask them, names as DNS Firewall would."""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import boto3
import pulumi
import pytest

from gangway.components.aws.identity import head_policy, node_policy, parameter_name
from gangway.components.aws.network import TrainingNetwork
from gangway.components.aws.perimeter import ENDPOINT_SERVICES, answered_names, endpoint_policy, s3_endpoint_policy
from tests.components.fixture_types import Make

OWN, OTHER = "111111111111", "222222222222"
REGION = "us-east-2"
BUCKET = "arn:aws:s3:::runs"
REPOSITORY = f"arn:aws:ecr:{REGION}:{OWN}:repository/trainer"
THEIRS = f"arn:aws:ecr:{REGION}:{OTHER}:repository/trainer"
ANYTHING = {"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}]}
"""What AWS gives an endpoint that nobody gives a policy."""


def passes(
    policy: dict[str, Any], action: str, resource: str = "*", caller: str = OWN, owner: str | None = OWN
) -> bool:
    """Whether a call gets through: some statement allows it, and none of ours denies. `owner` None: the call names
    nothing, and AWS need not say whose it is.
    """
    known = {"aws:PrincipalAccount": caller, "aws:ResourceAccount": owner}

    def holds(statement: dict[str, Any]) -> bool:
        assert (statement["Effect"], statement["Principal"]) == ("Allow", "*")
        condition = statement.get("Condition", {})
        assert set(condition) <= {"StringEquals"}
        return (
            any(fnmatchcase(action, pattern) for pattern in listed(statement["Action"]))
            and any(fnmatchcase(resource, pattern) for pattern in listed(statement["Resource"]))
            and all(known[key] == wanted for key, wanted in condition.get("StringEquals", {}).items())
        )

    return any(holds(statement) for statement in policy["Statement"])


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def policies(repository: str | None = REPOSITORY) -> dict[str, dict[str, Any]]:
    interfaces = {service: endpoint_policy(service, OWN, repository) for service in ENDPOINT_SERVICES}
    return {**interfaces, "s3": s3_endpoint_policy(REGION, [BUCKET], OWN)}


def machine_calls() -> Iterator[tuple[str, str, str]]:
    """Endpoint, action and resource of all that the roles of nodes and head may do over an endpoint."""
    logs = f"arn:aws:logs:{REGION}:{OWN}:log-group:nodes"
    member, signing = (
        f"arn:aws:ssm:{REGION}:{OWN}:parameter{parameter_name('demo', what)}" for what in ("member-key", "signing-key")
    )
    keys = {"member_key_arn": member, "signing_key_arn": signing}
    for policy in (
        node_policy(BUCKET, REPOSITORY, "demo", log_group_arn=logs, **keys, self_termination=True),
        head_policy(BUCKET, REPOSITORY, "demo", log_group_arn=logs, **keys),
    ):
        for statement in policy["Statement"]:
            for action in statement["Action"]:
                prefix = action.partition(":")[0]
                for service in policies():
                    if service.partition(".")[0] == prefix:
                        yield service, action, statement["Resource"]


CALLS = sorted(set(machine_calls()))
every_call = pytest.mark.parametrize(("service", "action", "resource"), CALLS)


def test_a_call_to_every_endpoint_is_tried() -> None:
    assert {service for service, *_ in CALLS} == {"s3", *ENDPOINT_SERVICES}
    # The head's Prometheus asks EC2, behind NAT alone.
    assert not any(action.startswith("ec2:") for _, action, _ in CALLS)


@every_call
def test_what_the_roles_allow_passes(service: str, action: str, resource: str) -> None:
    assert passes(policies()[service], action, resource, owner=None if resource == "*" else OWN)


@pytest.mark.attack("root of a node", "sends data to another account (AWS endpoints)")
@every_call
def test_nobody_else_and_nothing_of_anybody_else_passes(service: str, action: str, resource: str) -> None:
    """Keys of another account that somebody brought along; and our own, on what another account holds."""
    policy, owner = policies()[service], None if resource == "*" else OWN
    assert passes(ANYTHING, action, resource, OTHER, OTHER), "without a policy it would"
    assert not passes(policy, action, resource, caller=OTHER, owner=owner)
    assert not passes(policy, action, resource, caller=OTHER, owner=OTHER)
    assert not passes(policy, action, resource, caller="anonymous", owner=owner)
    if resource != "*":
        theirs = THEIRS if service.startswith("ecr") else resource.replace(OWN, OTHER)
        assert not passes(policy, action, theirs, owner=OTHER)


@pytest.mark.attack("root of a node", "calls what no role of the stack may (AWS endpoints)")
@pytest.mark.parametrize(
    ("service", "action"),
    [
        ("autoscaling", "autoscaling:CreateAutoScalingGroup"),
        ("ecr.api", "ecr:CreateRepository"),
        ("ecr.dkr", "ecr:PutImage"),
        ("logs", "logs:CreateLogGroup"),
        ("logs", "logs:PutSubscriptionFilter"),
        ("ssm", "ssm:GetParameter"),
        ("ssm", "ssm:SendCommand"),
        ("ssmmessages", "ssm:StartSession"),
    ],
)
def test_what_no_role_of_ours_may_do_passes_for_nobody(service: str, action: str) -> None:
    assert not passes(policies()[service], action)


def test_an_image_of_another_account_is_pulled_from_its_one_repository() -> None:
    for service in ("ecr.api", "ecr.dkr"):
        policy = policies(THEIRS)[service]
        assert passes(policy, "ecr:BatchGetImage", THEIRS, owner=OTHER)
        assert not passes(policy, "ecr:BatchGetImage", THEIRS, caller=OTHER, owner=OTHER)
        assert not passes(policy, "ecr:BatchGetImage", f"{THEIRS}2", owner=OTHER)
        assert not passes(policy, "ecr:PutImage", THEIRS, owner=OTHER)
        anyones = policies(None)[service]
        assert passes(anyones, "ecr:BatchGetImage", REPOSITORY)
        assert not passes(anyones, "ecr:BatchGetImage", THEIRS, owner=OTHER)


@pytest.mark.attack("root of a node", "sends data to another account (AWS endpoints)")
def test_s3_is_our_buckets_by_us_and_aws_own_for_reading() -> None:
    policy = policies()["s3"]
    assert passes(policy, "s3:PutObject", f"{BUCKET}/demo/run.json")
    assert not passes(policy, "s3:PutObject", f"{BUCKET}/demo/run.json", owner=OTHER), "whose name it is by now"
    assert not passes(policy, "s3:PutObject", "arn:aws:s3:::theirs/x", owner=OTHER)
    assert not passes(policy, "s3:PutObject", "arn:aws:s3:::runs2/x")
    for bucket in (f"prod-{REGION}-starport-layer-bucket", f"al2023-repos-{REGION}-de612dc2"):
        of_aws = f"arn:aws:s3:::{bucket}/x"
        assert passes(policy, "s3:GetObject", of_aws, caller="anonymous", owner=OTHER)
        assert not passes(policy, "s3:PutObject", of_aws, owner=OTHER)


def test_each_endpoint_is_declared_with_its_policy(make: Make) -> None:
    made = make(TrainingNetwork, egress="endpoints", repository_arn=REPOSITORY)
    account = "${account of Vpc.demo-vpc.arn}"
    found = {e.inputs["serviceName"].removeprefix(f"com.amazonaws.{REGION}."): e for e in made.of("VpcEndpoint")}
    declared = {service: json.loads(endpoint.inputs["policy"]) for service, endpoint in found.items()}
    assert declared.pop("s3") == s3_endpoint_policy(REGION, [BUCKET], account)
    assert declared == {service: endpoint_policy(service, account, REPOSITORY) for service in ENDPOINT_SERVICES}


def answered(question: str, names: tuple[str, ...]) -> bool:
    """As DNS Firewall compares: whole names, or what ends like one that begins with an asterisk."""
    asked = f"{question.rstrip('.')}."
    return any(asked.endswith(name[1:]) if name.startswith("*") else asked == name for name in names)


@pytest.mark.parametrize("region", ["us-east-1", "us-east-2", "us-gov-west-1", "cn-north-1"])
def test_the_hosts_that_boto_would_call_are_answered(region: str) -> None:
    names = answered_names(region, "10.42.0.0/16", "demo.gangway.internal")
    for service in ("autoscaling", "ecr", "logs", "ssm", "s3"):
        assert answered(host_of(service, region), names), service
    assert answered(f"{OWN}.dkr.{host_of('ecr', region).removeprefix('api.')}", names)


def host_of(service: str, region: str) -> str:
    client: Any = boto3.client(service, region_name=region)  # type: ignore[call-overload]  # a name that varies
    return str(client.meta.endpoint_url).removeprefix("https://")


@pytest.mark.attack("root of a node", "sends data in DNS questions (AWS)")
@pytest.mark.parametrize(
    ("question", "is_answered"),
    [
        (f"{OWN}.dkr.ecr.us-east-2.amazonaws.com", True),
        ("ssmmessages.us-east-2.amazonaws.com", True),
        ("ec2messages.us-east-2.amazonaws.com", True),
        ("prod-us-east-2-starport-layer-bucket.s3.us-east-2.amazonaws.com", True),
        ("al2023-repos-us-east-2-de612dc2.s3.dualstack.us-east-2.amazonaws.com", True),
        ("fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com", True),
        ("ip-10-42-0-5.us-east-2.compute.internal", True),
        ("5.0.42.10.in-addr.arpa", True),
        ("head.demo.gangway.internal", True),
        ("head.other.gangway.internal", False),
        ("5.0.43.10.in-addr.arpa", False),
        ("4.3.2.1.in-addr.arpa", False),
        ("ec2.us-east-2.amazonaws.com", False),
        ("x.execute-api.us-east-2.amazonaws.com", False),
        ("bucket.s3.eu-west-1.amazonaws.com", False),
        ("c2VjcmV0.tunnel.example.com", False),
        ("logs.us-east-2.amazonaws.com.example.com", False),
        ("evils3.us-east-2.amazonaws.com", False),
    ],
)
def test_which_names_are_answered(question: str, is_answered: bool) -> None:
    assert answered(question, answered_names(REGION, "10.42.0.0/16", "demo.gangway.internal")) is is_answered


def test_names_are_written_as_dns_firewall_takes_them() -> None:
    """UpdateFirewallDomains: an asterisk may begin a name; and it keeps the root's dot, so that without it each refresh
    would find a difference.
    """
    names = answered_names("us-east-1", "172.16.0.0/20", None)
    assert all(re.fullmatch(r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)+\.", name) for name in names)
    assert len(set(names)) == len(names)
    assert "*.16.172.in-addr.arpa." in names
    assert not any("gangway" in name for name in names)


def test_all_other_names_are_said_not_to_exist(make: Make) -> None:
    made = make(TrainingNetwork, egress="endpoints")
    lists = {one.id: one.inputs["domains"] for one in made.of("ResolverFirewallDomainList")}
    rules = sorted((rule.inputs for rule in made.of("ResolverFirewallRule")), key=lambda rule: rule["priority"])
    assert [rule["action"] for rule in rules] == ["ALLOW", "BLOCK"]
    first, last = rules
    assert lists[first["firewallDomainListId"]] == list(answered_names(REGION, "10.42.0.0/16", "demo.gangway.internal"))
    assert lists[last["firewallDomainListId"]] == ["*."]
    assert last["blockResponse"] == "NXDOMAIN"
    assert first["firewallDomainRedirectionAction"] == "TRUST_REDIRECTION_DOMAIN"
    association = made.one("ResolverFirewallRuleGroupAssociation")
    assert association.inputs["vpcId"] == made.one("Vpc").id
    assert association.inputs["firewallRuleGroupId"] == made.one("ResolverFirewallRuleGroup").id
    assert {rule.urn for rule in made.of("ResolverFirewallRule")} <= association.dependencies


def test_machines_come_after_the_firewall(declare: Make, network_args: dict[str, Any]) -> None:
    from pulumi_aws import ec2

    def program() -> None:
        network = TrainingNetwork("demo", network_args)  # type: ignore[arg-type]  # a fixture's dict
        ec2.NetworkInterface("machine", subnet_id=network.private_subnet_ids[0], opts=pulumi.ResourceOptions())

    made = declare(program)
    assert made.one("ResolverFirewallRuleGroupAssociation").urn in made.one("NetworkInterface").dependencies


@pytest.mark.parametrize("changes", [{"egress": "nat"}, {"egress": "endpoints", "dns_firewall": False}])
def test_nothing_is_filtered_behind_nat_or_where_nobody_wants_it(make: Make, changes: dict[str, Any]) -> None:
    made = make(TrainingNetwork, **changes)
    assert not [resource for resource in made.resources if "esolverFirewall" in resource.type]
