"""IAM policies: sizes, limits by names and tags, and that no statement is wider than its reason says."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import pytest

from gangway.live.permissions import aws
from gangway.live.permissions.needs import DEFAULT, Answer, Command, Need, make_needs
from gangway.stacks.plan.plan import Plan

Shipped = Callable[[str], Plan]
STACKS = ("aws-demo", "aws-g5-dev", "aws-p4d-block", "aws-p5-slurm", "aws-p5-spot", "eks-p5-kueue")


def answer(plan: Plan) -> Answer:
    return make_needs("aws", lambda: plan, DEFAULT)


def statements(found: Answer) -> list[Mapping[str, Any]]:
    return [each for document in found.documents for each in document.content["Statement"]]


def as_list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("name", STACKS)
def test_no_policy_is_longer_than_iam_allows_and_none_is_lost(shipped_plan: Shipped, name: str) -> None:
    found = answer(shipped_plan(name))
    for document in found.documents:
        assert len("".join(json.dumps(document.content).split())) <= 6144
    granted = {
        (action, *as_list(each["Resource"]), json.dumps(each.get("Condition", {})))
        for each in statements(found)
        for action in each["Action"]
    }
    assert granted == {(need.action, *need.scope, json.dumps(dict(need.condition))) for need in found.needs}
    assert len(found.documents) > 1
    assert found.notes[0].startswith(f"{len(found.documents)} policies, since IAM limits one to 6,144")


@pytest.mark.parametrize("name", STACKS)
def test_only_reading_and_explained_actions_are_about_everything(shipped_plan: Shipped, name: str) -> None:
    wide = {need.action for need in answer(shipped_plan(name)).needs if need.scope == ("*",) and not need.condition}
    reading = ("Describe", "Get", "List", "Lookup")
    assert {action for action in wide if not action.partition(":")[2].startswith(reading)} <= {
        "route53:AssociateVPCWithHostedZone",
        "route53:CreateHostedZone",
        "sns:SetSubscriptionAttributes",
        "sns:Unsubscribe",
    }


@pytest.mark.parametrize("command", list(Command))
def test_every_action_has_a_resource(shipped_plan: Shipped, command: Command) -> None:
    for name in STACKS:
        found = make_needs("aws", partial(shipped_plan, name), (command,))
        assert [need.action for need in found.needs if not need.scope] == []
        assert all("{" not in arn and "$" not in arn for need in found.needs for arn in need.scope)


def scopes(plan: Plan, action: str) -> list[tuple[tuple[str, ...], Mapping[str, Any]]]:
    return [(need.scope, need.condition) for need in answer(plan).needs if need.action == action]


def test_roles_and_buckets_are_limited_by_exact_names(shipped_plan: Shipped) -> None:
    plan = shipped_plan("aws-demo")
    ((roles, _),) = scopes(plan, "iam:CreateRole")
    assert "arn:aws:iam::*:role/aws-demo-node-???????" in roles
    assert fnmatchcase("arn:aws:iam::123456789012:role/aws-demo-node-0a1b2c3", roles[-1])
    assert not any(fnmatchcase("arn:aws:iam::123456789012:role/aws-demo-node-2-0a1b2c3", each) for each in roles)
    assert scopes(plan, "s3:CreateBucket") == [(("arn:aws:s3:::aws-demo-runs-???????",), {})]
    ((parameters, _),) = scopes(plan, "ssm:PutParameter")
    assert "arn:aws:ssm:us-east-2:*:parameter/gangway/aws-demo/member-key" in parameters
    ((groups, _),) = scopes(plan, "logs:CreateLogGroup")
    assert {"arn:aws:logs:us-east-2:*:log-group:/gangway/aws-demo:*"} < set(groups)


def test_a_role_is_passed_to_its_services_only(shipped_plan: Shipped) -> None:
    passed = scopes(shipped_plan("aws-p5-spot"), "iam:PassRole")
    services = {condition["StringEquals"]["iam:PassedToService"] for _, condition in passed}
    assert services == {"ec2.amazonaws.com", "lambda.amazonaws.com", "vpc-flow-logs.amazonaws.com"}
    made = scopes(shipped_plan("aws-p5-spot"), "iam:CreateServiceLinkedRole")
    assert all(condition["StringEquals"]["iam:AWSServiceName"] in scope[0] for scope, condition in made)


def test_what_has_ids_is_limited_by_the_tag(shipped_plan: Shipped) -> None:
    plan, everywhere = shipped_plan("aws-demo"), ("arn:aws:ec2:us-east-2:*:*",)
    new = {"StringEquals": {"aws:RequestTag/gangway:stack": "aws-demo"}}
    own = {"StringEquals": {"aws:ResourceTag/gangway:stack": "aws-demo"}}
    assert scopes(plan, "ec2:CreateVpc") == [(everywhere, new)]
    assert scopes(plan, "ec2:DeleteVpc") == [(everywhere, own)]
    assert scopes(plan, "ec2:CreateSubnet") == [(everywhere, new), (everywhere, own)], "the subnet, and its network"
    assert scopes(plan, "fsx:DeleteFileSystem") == [(("arn:aws:fsx:us-east-2:*:*",), own)]
    ((_, condition),) = scopes(plan, "ec2:DescribeVpcs")
    assert condition == {}


def test_a_data_bucket_is_named(shipped_plan: Shipped) -> None:
    scope = {arn for arns, _ in scopes(shipped_plan("aws-demo"), "s3:ListBucket") for arn in arns}
    assert scope == {"arn:aws:s3:::aws-demo-runs-???????", "arn:aws:s3:::my-bucket"}


def test_many_names_are_given_by_their_start_and_the_reason_says_so(shipped_plan: Shipped) -> None:
    (need,) = [one for one in answer(shipped_plan("aws-demo")).needs if one.action == "cloudwatch:PutMetricAlarm"]
    assert need.scope == (
        "arn:aws:cloudwatch:us-east-2:*:alarm:aws-demo-*",
        "arn:aws:cloudwatch:us-east-2:*:alarm:gangway-aws-demo-*",
    )
    assert "start with the stack's" in need.limit


@pytest.mark.parametrize(
    ("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov"), ("eu-west-1", "aws")]
)
def test_arns_are_in_the_regions_partition(shipped_plan: Shipped, region: str, partition: str) -> None:
    plan = shipped_plan("aws-demo")
    elsewhere = replace(plan, config=plan.config.model_copy(update={"region": region}))
    arns = {arn for need in answer(elsewhere).needs for arn in need.scope if arn != "*"}
    assert {arn.split(":")[1] for arn in arns} == {partition}
    assert {arn.split(":")[3] for arn in arns} == {region, ""}


def test_a_statement_that_is_too_long_is_divided(shipped_plan: Shipped) -> None:
    needs = [Need(f"ec2:Action{number:04}", ("*",), ("test",), "none") for number in range(600)]
    made = aws.documents(shipped_plan("aws-demo"), needs)
    found = [action for document in made for each in document.content["Statement"] for action in each["Action"]]
    assert found == [need.action for need in needs]
    assert len(made) > 1
    assert made[0].use.startswith("aws iam create-policy --policy-name aws-demo-1 ")
    assert aws.notes(shipped_plan("aws-demo"), needs * 20)[1].startswith("IAM attaches 10 policies")
