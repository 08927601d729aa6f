"""TrainingNetwork: address plan, both ways out, and nothing that could be reached from outside."""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import boto3
import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.identity import head_policy, node_policy, parameter_name
from gangway.components.aws.network import (
    ENDPOINT_SERVICES,
    GROUPS,
    Flow,
    RulePlan,
    TrainingNetwork,
    answered_names,
    delivery_policy,
    delivery_trust,
    endpoint_policy,
    plan_flows,
    plan_network,
    plan_rules,
    s3_endpoint_policy,
)
from gangway.components.core.findings import InputError
from gangway.components.core.limits import HeadPortsArgs
from tests.components.fixture_types import Make

PRIVATE = [IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"), IPv4Network("192.168.0.0/16")]


@st.composite
def private_networks(draw: st.DrawFn) -> IPv4Network:
    around = draw(st.sampled_from(PRIVATE))
    prefix = draw(st.integers(max(16, around.prefixlen), 20))
    place = draw(st.integers(0, 2 ** (prefix - around.prefixlen) - 1))
    return IPv4Network((int(around.network_address) + place * 2 ** (32 - prefix), prefix))


@given(private_networks(), st.integers(1, 6))
def test_subnets_are_disjoint_and_inside_the_range(network: IPv4Network, zones: int) -> None:
    plan = plan_network(str(network), zones)
    subnets = [IPv4Network(cidr) for cidr in (*plan.private_cidrs, plan.public_cidr)]
    assert len(plan.private_cidrs) == zones
    assert all(subnet.subnet_of(network) for subnet in subnets)
    assert not any(a.overlaps(b) for i, a in enumerate(subnets) for b in subnets[i + 1 :])
    assert all(subnet.prefixlen <= 28 for subnet in subnets), "EC2's smallest subnet is a /28"
    assert subnets[0].num_addresses >= 512, "room for nodes of 33 interfaces"


def test_the_plan_of_a_16_by_hand() -> None:
    plan = plan_network("10.42.0.0/16", 2)
    assert plan.private_cidrs == ("10.42.0.0/19", "10.42.32.0/19")
    assert plan.public_cidr == "10.42.224.0/23"


@pytest.mark.parametrize(
    "cidr",
    [
        "10.42.0.0/15", "10.42.0.0/21", "10.42.0.1/16", "8.8.0.0/16", "10.42.0.0.0/16", "", "localhost", "fd00::/16",
        "127.0.0.0/16", "169.254.0.0/16", "0.0.0.0/16", "240.0.0.0/16", "172.32.0.0/16", "10.42.0.0/99",
    ],
)  # fmt: skip
def test_a_range_that_cannot_be_used_is_refused_with_one_that_can(cidr: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_network(cidr, 1, "gangway:network.cidr")
    assert (caught.value.place, caught.value.value) == ("gangway:network.cidr", cidr)
    assert caught.value.allowed == "a private IPv4 network, /16 to /20"
    assert plan_network(caught.value.fix.removeprefix("use "), 1).private_cidrs == ("10.42.0.0/19",)


@given(st.text(max_size=20))
def test_any_text_is_a_plan_or_an_input_error(cidr: str) -> None:
    try:
        plan = plan_network(cidr, 1)
    except InputError:
        return
    assert IPv4Network(plan.private_cidrs[0]).subnet_of(IPv4Network(cidr))


def test_endpoints_reach_the_services_a_node_calls_and_nothing_else(make: Make) -> None:
    made = make(TrainingNetwork, egress="endpoints", s3_bucket_arns=None, head=None)
    endpoints = {r.inputs["serviceName"]: r.inputs for r in made.of("VpcEndpoint")}
    assert set(endpoints) == {f"com.amazonaws.us-east-2.{name}" for name in ("s3", *ENDPOINT_SERVICES)}
    subnets = {subnet.id for subnet in made.of("Subnet")}
    (group,) = [g for g in made.of("SecurityGroup") if g.name == "demo-endpoints"]
    for name in ENDPOINT_SERVICES:
        inputs = endpoints[f"com.amazonaws.us-east-2.{name}"]
        assert inputs["vpcEndpointType"] == "Interface"
        assert inputs["privateDnsEnabled"] is True
        assert set(inputs["subnetIds"]) == subnets
        assert inputs["securityGroupIds"] == [group.id]
    gateway = endpoints["com.amazonaws.us-east-2.s3"]
    assert gateway["vpcEndpointType"] == "Gateway"
    assert gateway["routeTableIds"] == [made.one("RouteTable").id]
    assert gateway.get("policy") is None, "any bucket, unless buckets are named"
    for kind in ("InternetGateway", "NatGateway", "Eip", "Route"):
        assert not made.of(kind), f"{kind}: without NAT there is no way to the internet"


def test_a_head_node_needs_no_endpoint_of_its_own(make: Make) -> None:
    """Only its Prometheus would ask EC2, and that runs only behind a NAT gateway."""
    services = {e.inputs["serviceName"] for e in make(TrainingNetwork, egress="endpoints").of("VpcEndpoint")}
    assert services == {f"com.amazonaws.us-east-2.{name}" for name in ("s3", *ENDPOINT_SERVICES)}


# Which endpoint a command of the AWS CLI, or of Docker, goes to.
COMMANDS = {
    r"\baws autoscaling ": "autoscaling",
    r"\baws ecr ": "ecr.api",
    r"\baws logs ": "logs",
    r"\baws s3 ": "s3",
    r"\baws ssm ": "ssm",
    r"\bdocker login ": "ecr.dkr",
    r"awslogs": "logs",
}
# What AWS documents for Session Manager, whose agent is in Amazon's images.
SESSION_MANAGER = {"ec2messages", "ssm", "ssmmessages"}


def test_every_service_that_the_machines_call_has_an_endpoint_and_every_endpoint_a_caller(repo: Path) -> None:
    sources = [*(repo / "images").rglob("*.py"), *(repo / "images" / "templates").rglob("*.*")]
    text = "\n".join(file.read_text("utf-8") for file in sources if file.is_file() and file.suffix != ".pyc")
    calls = {service for pattern, service in COMMANDS.items() if re.search(pattern, text)}
    assert calls | SESSION_MANAGER == {"s3", *ENDPOINT_SERVICES}
    words = set(re.findall(r"\baws ([a-z0-9-]+) ", text))
    known = {match[1] for match in (re.search(r"aws ([a-z0-9-]+)", pattern) for pattern in COMMANDS) if match}
    assert words <= known, "a new service needs an endpoint, and a line in COMMANDS"


def test_the_trainer_calls_no_service_of_aws(repo: Path) -> None:
    """It runs on the nodes too, and would need an endpoint."""
    text = "\n".join(file.read_text("utf-8") for file in (repo / "trainer").rglob("*.py"))
    assert not re.search(r"\b(boto3|botocore|amazonaws)\b", text)


def test_nat_gives_the_private_subnets_one_way_out(make: Make) -> None:
    made = make(TrainingNetwork, egress="nat")
    nat, gateway = made.one("NatGateway"), made.one("InternetGateway")
    assert nat.inputs["allocationId"] == made.one("Eip").id
    public = next(s for s in made.of("Subnet") if s.id == nat.inputs["subnetId"])
    assert public.inputs["cidrBlock"] == "10.42.224.0/23"
    tables = {table.name: table.id for table in made.of("RouteTable")}
    routes = {route.inputs["routeTableId"]: route.inputs for route in made.of("Route")}
    assert routes[tables["demo-private"]]["natGatewayId"] == nat.id
    assert "gatewayId" not in routes[tables["demo-private"]], "private subnets have no route to the internet gateway"
    assert routes[tables["demo-nat"]]["gatewayId"] == gateway.id
    assert {route["destinationCidrBlock"] for route in routes.values()} == {"0.0.0.0/0"}
    tied = {a.inputs["subnetId"]: a.inputs["routeTableId"] for a in made.of("RouteTableAssociation")}
    assert tied == {s.id: tables["demo-nat" if s.id == public.id else "demo-private"] for s in made.of("Subnet")}
    assert [e.inputs["vpcEndpointType"] for e in made.of("VpcEndpoint")] == ["Gateway"]


@pytest.mark.parametrize("egress", ["endpoints", "nat"])
def test_no_subnet_hands_out_public_addresses(make: Make, egress: str) -> None:
    made = make(TrainingNetwork, egress=egress)
    assert all(subnet.inputs["mapPublicIpOnLaunch"] is False for subnet in made.each("Subnet"))
    private = [s for s in made.of("Subnet") if s.name.startswith("demo-private")]
    assert {s.inputs["availabilityZone"] for s in private} == {"us-east-2a", "us-east-2b"}


def test_the_default_group_is_emptied(make: Make) -> None:
    made = make(TrainingNetwork)
    default = made.one("DefaultSecurityGroup").inputs
    assert default["vpcId"] == made.one("Vpc").id
    assert not {"ingress", "egress"} & set(default)


def test_named_buckets_and_image_layers_are_all_that_s3_offers(make: Make) -> None:
    made = make(TrainingNetwork)
    gateway = next(e.inputs for e in made.of("VpcEndpoint") if e.inputs["vpcEndpointType"] == "Gateway")
    policy = json.loads(gateway["policy"])
    assert policy == s3_endpoint_policy("us-east-2", ["arn:aws:s3:::runs"], "${account of Vpc.demo-vpc.arn}")
    ours, *theirs = policy["Statement"]
    assert ours["Resource"] == ["arn:aws:s3:::runs", "arn:aws:s3:::runs/*"]
    assert [statement["Resource"] for statement in theirs] == [
        "arn:aws:s3:::prod-us-east-2-starport-layer-bucket/*",
        "arn:aws:s3:::al2023-repos-us-east-2-de612dc2/*",
    ]
    assert [statement["Action"] for statement in theirs] == [["s3:GetObject"]] * 2


def test_the_head_node_gets_a_name_that_only_the_vpc_resolves(make: Make) -> None:
    made = make(TrainingNetwork)
    zone = made.one("Zone").inputs
    assert zone["name"] == "demo.gangway.internal"
    assert zone["vpcs"] == [{"vpcId": made.one("Vpc").id, "vpcRegion": "us-east-2"}]


def test_without_a_head_node_there_is_neither_zone_nor_group(make: Make) -> None:
    made = make(TrainingNetwork, head=None)
    assert not made.of("Zone")
    assert [group.name for group in made.of("SecurityGroup")] == ["demo-fabric"]


def test_flow_logs_are_kept_for_a_month_by_a_role_of_their_own(make: Make) -> None:
    made = make(TrainingNetwork)
    group, log, role = made.one("LogGroup"), made.one("FlowLog").inputs, made.one("Role")
    assert group.inputs["retentionInDays"] == 30
    assert group.inputs["kmsKeyId"] == "arn:aws:kms:us-east-2:1:key/x"
    assert (log["vpcId"], log["trafficType"]) == (made.one("Vpc").id, "ALL")
    assert log["logDestination"] == "${LogGroup.demo-flow-logs.arn}"
    assert log["iamRoleArn"] == "${Role.demo-flow-logs.arn}"
    assert json.loads(role.inputs["assumeRolePolicy"]) == delivery_trust(
        "${account of LogGroup.demo-flow-logs.arn}", "us-east-2"
    )
    policy = json.loads(made.one("RolePolicy").inputs["policy"])
    assert policy == delivery_policy("${LogGroup.demo-flow-logs.arn}")
    assert not make(TrainingNetwork, flow_logs=False).of("FlowLog")


def test_only_this_accounts_flow_logs_may_take_the_role() -> None:
    (statement,) = delivery_trust("1234", "us-east-2")["Statement"]
    assert statement["Principal"] == {"Service": "vpc-flow-logs.amazonaws.com"}
    assert statement["Condition"] == {
        "StringEquals": {"aws:SourceAccount": "1234"},
        "ArnLike": {"aws:SourceArn": "arn:aws:ec2:us-east-2:1234:vpc-flow-log/*"},
    }


CIDR, ANYWHERE = "10.42.0.0/16", "0.0.0.0/0"
HEAD = HeadPortsArgs(rendezvous_port=29400, metrics_port=9400)
HEAD_WITH_LUSTRE = HeadPortsArgs(rendezvous_port=29400, metrics_port=9400, lustre=True)
LUSTRE = [988, *range(1018, 1024)]
ports = st.integers(1, 65535)
heads = st.none() | st.builds(HeadPortsArgs, rendezvous_port=ports, metrics_port=ports, lustre=st.booleans())


def rules_of(head: HeadPortsArgs | None, *, endpoints: bool = False) -> tuple[RulePlan, ...]:
    return plan_rules(plan_flows(CIDR, head, endpoints))


def allowed(rules: tuple[RulePlan, ...], group: str, direction: str, peer: str, port: int) -> bool:
    """Whether one side lets TCP to `port` pass. Every address lies within 0.0.0.0/0."""
    return any(
        (rule.group, rule.direction) == (group, direction)
        and rule.peer in (peer, ANYWHERE)
        and (rule.from_port is None or (rule.to_port is not None and rule.from_port <= port <= rule.to_port))
        for rule in rules
    )


def opens(rules: tuple[RulePlan, ...], source: str, target: str, port: int) -> bool:
    """Whether a machine in `source` can connect to one in `target`: both sides have to let it pass."""
    return allowed(rules, source, "egress", target, port) and allowed(rules, target, "ingress", source, port)


@given(heads, st.booleans())
def test_nothing_comes_in_but_from_our_own_groups_and_https_to_the_endpoints(
    head: HeadPortsArgs | None, endpoints: bool
) -> None:
    rules = rules_of(head, endpoints=endpoints)
    assert {rule.group for rule in rules} <= set(GROUPS)
    for rule in rules:
        assert rule.direction in ("ingress", "egress")
        if rule.direction == "ingress":
            assert rule.peer in GROUPS or (rule.group, rule.peer, rule.to_port) == ("endpoints", CIDR, 443)
    names = [(rule.group, rule.direction, rule.name) for rule in rules]
    assert len(set(names)) == len(names)


@given(heads, st.booleans())
def test_a_flow_between_groups_has_a_rule_on_either_side(head: HeadPortsArgs | None, endpoints: bool) -> None:
    flows = plan_flows(CIDR, head, endpoints)
    rules = plan_rules(flows)
    for flow in flows:
        same = [rule for rule in rules if (rule.name, rule.protocol) == (flow.name, flow.protocol)]
        sides = {(rule.direction, rule.group, rule.peer) for rule in same}
        wanted = {("egress", flow.source, flow.target), ("ingress", flow.target, flow.source)}
        assert {side for side in wanted if side[1] in GROUPS} <= sides
        assert {side for side in wanted if side[1] not in GROUPS}.isdisjoint(sides), "an address range has no rules"


def test_the_rules_of_one_flow_by_hand() -> None:
    assert plan_rules([Flow("web", "fabric", "head", "tcp", (80, 90))]) == (
        RulePlan("fabric", "egress", "web", "head", "tcp", 80, 90),
        RulePlan("head", "ingress", "web", "fabric", "tcp", 80, 90),
    )
    assert plan_rules([Flow("out", "head", ANYWHERE)]) == (RulePlan("head", "egress", "out", ANYWHERE),)
    assert plan_rules([Flow("https", CIDR, "endpoints", "tcp", (443, 443))]) == (
        RulePlan("endpoints", "ingress", "https", CIDR, "tcp", 443, 443),
    )


@given(heads, st.booleans())
def test_the_fabric_names_itself_in_both_directions(head: HeadPortsArgs | None, endpoints: bool) -> None:
    """EFA needs the self-reference spelled out, also beside 0.0.0.0/0; it covers Lustre's ports too."""
    rules = rules_of(head, endpoints=endpoints)
    for direction in ("ingress", "egress"):
        assert RulePlan("fabric", direction, "self", "fabric") in rules


@pytest.mark.parametrize(
    ("head", "into_head", "into_fabric"),
    [
        (HEAD, [29400], [9400]),
        (HEAD_WITH_LUSTRE, [29400, *LUSTRE], [9400, *LUSTRE]),
        (HeadPortsArgs(rendezvous_port=29400, metrics_port=9400, last_metrics_port=9402), [29400], [9400, 9401, 9402]),
    ],
)
def test_head_and_workers_open_these_ports_to_each_other_and_no_other(
    head: HeadPortsArgs, into_head: list[int], into_fabric: list[int]
) -> None:
    """The file system stands in the fabric's group: a head that mounts it needs Lustre's ports, both ways."""
    rules = rules_of(head)
    everything = range(1, 65536)
    assert [port for port in everything if opens(rules, "fabric", "head", port)] == sorted(into_head)
    assert [port for port in everything if opens(rules, "head", "fabric", port)] == sorted(into_fabric)
    assert not any(opens(rules, "head", "head", port) for port in everything)


def test_a_flow_written_on_one_side_only_would_be_seen() -> None:
    """What the test above rests on: either side alone lets nothing pass."""
    both = plan_rules([Flow("web", "fabric", "head", "tcp", (80, 80))])
    assert opens(both, "fabric", "head", 80)
    for side in both:
        assert not opens((side,), "fabric", "head", 80)


@pytest.mark.parametrize(("egress", "expected"), [("nat", {"fabric", "head"}), ("endpoints", set(GROUPS))])
def test_rules_are_resources_of_their_own_and_never_inline(make: Make, egress: str, expected: set[str]) -> None:
    made = make(TrainingNetwork, egress=egress, head=HEAD_WITH_LUSTRE)
    groups = {group.id: group for group in made.of("SecurityGroup")}
    assert {group.name for group in groups.values()} == {f"demo-{key}" for key in expected}
    for group in groups.values():
        assert not {"ingress", "egress"} & set(group.inputs), "inline rules would overwrite the others"
        assert group.inputs["description"] == GROUPS[group.name.removeprefix("demo-")]
    rules = [*made.of("SecurityGroupIngressRule"), *made.of("SecurityGroupEgressRule")]
    assert len(rules) == len(rules_of(HEAD_WITH_LUSTRE, endpoints=egress == "endpoints"))
    for rule in rules:
        assert rule.inputs["securityGroupId"] in groups
        assert ("referencedSecurityGroupId" in rule.inputs) is not ("cidrIpv4" in rule.inputs)
        assert ("fromPort" in rule.inputs) is (rule.inputs["ipProtocol"] != "-1"), "protocol -1 takes no ports"
    by_name = {rule.name: rule.inputs for rule in rules}
    (fabric,) = [group.id for group in groups.values() if group.name == "demo-fabric"]
    assert by_name["demo-head-ingress-rendezvous"]["referencedSecurityGroupId"] == fabric
    assert by_name["demo-head-ingress-rendezvous"]["toPort"] == 29400
    lustre = by_name["demo-head-egress-lustre-1018-1023"]
    assert (lustre["fromPort"], lustre["toPort"]) == (1018, 1023)
    assert lustre["referencedSecurityGroupId"] == fabric
    assert by_name["demo-fabric-ingress-self"]["referencedSecurityGroupId"] == fabric
    assert by_name["demo-fabric-egress-out"]["cidrIpv4"] == ANYWHERE


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
