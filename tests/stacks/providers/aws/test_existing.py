"""Provided resources on AWS: mistakes of a file, the plan of what is used, findings, and the judgement of facts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.program import get_program
from gangway.stacks.providers.aws.existing import Facts, SubnetFacts, VpcFacts, problems

VPC, ACCOUNT = "vpc-0123456789abcdef0", "123456789012"
Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def changed(repo: Path, tmp_path: Path) -> Callable[..., StackConfig]:
    """A shipped stack with other values by path; None removes."""

    def make(changes: dict[str, Any], stack: str = "aws-existing") -> StackConfig:
        values = yaml.safe_load((repo / f"stacks/Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
        for path, value in changes.items():
            *parents, last = f"gangway:{path}".split(".")
            place = values
            for parent in parents:
                place = place.setdefault(parent, {})
            if value is None:
                del place[last]
            else:
                place[last] = value
        file = tmp_path / "Pulumi.own.yaml"
        file.write_text(yaml.safe_dump({"config": values}), "utf-8")
        return from_file(file)

    return make


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"aws.existing.vpc_id": "vpc-1"}, "aws.existing.vpc_id", "vpc-0123456789abcdef0"),
        ({"region": "us-west-2"}, "aws.existing.kms_key_arn", "it is in us-east-2, and the stack in us-west-2"),
        (
            {"aws.existing.permissions_boundary_arn": "arn:aws:iam::210987654321:policy/b"},
            "aws.existing.permissions_boundary_arn",
            "it is in account 210987654321, and kms_key_arn in 123456789012",
        ),
        ({"aws.existing.subnets": {"us-west-2a": "subnet-01234567"}}, "aws.existing.subnets", "no zone of us-east-2"),
        ({"aws.existing.subnets": {}}, "aws.existing.subnets", "missing"),
        ({"aws.existing.vpc_id": None}, "aws.existing.file_system", "would create its own network"),
        ({"encryption": "provider-key"}, "aws.existing.kms_key_arn", "set gangway:encryption: customer-key"),
        ({"storage": None}, "aws.existing.file_system", "gangway:storage, which describes it, is missing"),
        ({"storage.export_runs": True}, "storage.export_runs", "set export_runs: false"),
        ({"job.keep_runs": False}, "job.keep_runs", "set keep_runs: true"),
    ],
)
def test_a_mistake_in_the_file_names_place_value_and_fix(
    changed: Callable[..., StackConfig], changes: dict[str, Any], place: str, words: str
) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        changed(changes)
    mistakes = {one.place.rpartition(": ")[2]: one for one in caught.value.exceptions if isinstance(one, InputError)}
    assert words in str(mistakes[f"gangway:{place}"])
    assert all(mistake.fix for mistake in mistakes.values())


def test_an_eks_cluster_refuses_what_it_does_not_use_yet(changed: Callable[..., StackConfig]) -> None:
    arn = "arn:aws:logs:us-east-2:123456789012:log-group:/team/gan"
    with pytest.raises(ExceptionGroup) as caught:
        changed({"aws.existing.log_group_arn": arn}, "eks-p5-kueue")
    assert "not supported with engine: kubernetes so far" in str(caught.value.exceptions[0])


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"cluster.zone": "us-east-2b"}, "subnets"),
        ({"aws.existing.security_groups": {"fabric": "sg-01234567"}}, "security_groups.head"),
    ],
)
def test_a_plan_without_what_its_nodes_need_is_refused(
    changed: Callable[..., StackConfig], changes: dict[str, Any], place: str
) -> None:
    with pytest.raises(InputError) as caught:
        make_plan(changed(changes))
    assert caught.value.place == f"gangway:aws.existing.{place}"
    assert caught.value.fix


def test_groups_and_zone_are_the_stacks_own_if_none_are_given(changed: Callable[..., StackConfig]) -> None:
    plan = make_plan(changed({"aws.existing.security_groups": None, "aws.existing.private_zone_id": None}))
    made = [one for one in plan.resources if one.type == "aws:ec2/securityGroup:SecurityGroup"]
    assert {one.inputs["vpcId"] for one in made} == {VPC}
    assert {one.name for one in made} == {"own-fabric", "own-head"}
    (zone,) = [one for one in plan.resources if one.type == "aws:route53/zone:Zone"]
    assert zone.inputs["vpcs"] == [{"vpcId": VPC, "vpcRegion": "us-east-2"}]
    assert not plan.has_errors


def test_a_slurm_cluster_uses_a_provided_network_and_roles(changed: Callable[..., StackConfig]) -> None:
    profile = "arn:aws:iam::123456789012:instance-profile/gan"
    existing = {"vpc_id": VPC, "subnets": {"us-east-2a": "subnet-01234567"}, "instance_profiles": {"head": profile}}
    plan = make_plan(changed({"cluster.zone": "us-east-2a", "aws.existing": existing}, "aws-p5-slurm"))
    types = {one.type for one in plan.resources}
    assert "aws:ec2/vpc:Vpc" not in types
    (head,) = [one for one in plan.resources if one.type == "aws:ec2/instance:Instance"]
    assert head.inputs["subnetId"] == "subnet-01234567"
    ports = [one.inputs.get("fromPort") for one in plan.resources if one.type.endswith("SecurityGroupIngressRule")]
    assert {6817, 6818} <= set(ports)
    (needed,) = [one.message for one in plan.findings if one.code == "existing.role-permissions"]
    assert "autoscaling:SetDesiredCapacity" in needed


def test_the_role_of_nodes_that_leave_when_idle_has_to_let_them(changed: Callable[..., StackConfig]) -> None:
    messages = {}
    for idle in (None, {"minutes": 30}):
        plan = make_plan(changed({"job.terminate_when_done": False, **({"cluster.idle_stop": idle} if idle else {})}))
        (messages[idle is None],) = [
            one.message
            for one in plan.findings
            if one.code == "existing.role-permissions" and one.path.endswith(".node")
        ]
    leave = "autoscaling:TerminateInstanceInAutoScalingGroup"
    assert leave in messages[False]
    assert leave not in messages[True]


def test_findings_name_what_is_used_and_what_has_no_effect(changed: Callable[..., StackConfig]) -> None:
    plan = make_plan(changed({"network.cidr": "10.9.0.0/16"}))
    used = {
        one.path.removeprefix("gangway:aws.existing."): one for one in plan.findings if one.code == "existing.provided"
    }
    assert used["vpc_id"].message.startswith(f"{VPC} is used as it is")
    assert len(used) == 13
    assert [one.path for one in plan.findings if one.code == "existing.ignored-setting"] == ["gangway:network.cidr"]
    assert not [
        one for one in plan.cost.components if "lustre" in one.name.lower() or "nat" in one.name.lower().split()
    ]


GOOD = VpcFacts(ACCOUNT, ("10.7.0.0/16",), dns_support=True, dns_hostnames=True)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Facts("210987654321"), "in account 123456789012, and the stack in 210987654321"),
        (Facts(ACCOUNT, vpc=replace(GOOD, dns_hostnames=False)), "enableDnsHostnames is off"),
        (Facts(ACCOUNT, subnets={"us-east-2a": SubnetFacts("us-east-2a", "vpc-1", 99, "nat-1")}), "it is in vpc-1"),
    ],
)
def test_facts_that_do_not_fit_are_problems(changed: Callable[..., StackConfig], facts: Facts, words: str) -> None:
    config = changed({})
    found = list(problems(config, get_program("aws").plan(config), facts))
    assert found
    assert words in found[0].problem
    assert found[0].value
    assert found[0].fix


def test_a_closed_network_needs_an_endpoint_for_each_service(changed: Callable[..., StackConfig]) -> None:
    config = changed({"network.egress": "endpoints"})
    planned = get_program("aws").plan(config)
    closed = Facts(ACCOUNT, vpc=GOOD, subnets={"us-east-2a": SubnetFacts("us-east-2a", VPC, 99, "")})
    (missing,) = problems(config, planned, closed)
    assert "no endpoint for autoscaling, ec2messages, ecr.api" in missing.problem
    services = frozenset({"autoscaling", "ec2messages", "ecr.api", "ecr.dkr", "logs", "s3", "ssm", "ssmmessages"})
    assert not list(problems(config, planned, replace(closed, vpc=replace(GOOD, endpoint_services=services))))
