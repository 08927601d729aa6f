"""Checks on AWS: moto where it has the call; else answers, which botocore's own models validate."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar

import boto3
import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.validate import validate_parameters
from moto import mock_aws
from moto.core import set_initial_no_auth_action_count

from gangway.components.core.findings import InputError
from gangway.live.permissions.needs import actions_of_up
from gangway.live.preflight.aws import get_checks
from gangway.live.preflight.aws_service_roles import service_roles
from gangway.live.preflight.check import Answer, Check, State, run_checks
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, make_plan

REGION, ZONE = "us-east-2", "us-east-2a"
Outcomes = Callable[..., dict[str, Answer]]
P_SPOT, P_ON_DEMAND = (
    "quota L-7212CCBC (All P Spot Instance Requests)",
    "quota L-417A185B (Running On-Demand P instances)",
)


class RefusalError(Exception):
    """An answer that AWS refuses with this code."""


@pytest.fixture(autouse=True)
def _cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield


class Calls:
    """Clients of moto, with other answers for some operations: a body, a RefusalError, an exception, or a function.

    All tests share the clients, which take long to make.
    """

    made: ClassVar[dict[tuple[str, str], Any]] = {}
    answers: ClassVar[dict[str, Any]] = {}

    def __call__(self, service: str, region: str) -> Any:
        if (service, region) not in self.made:
            client: Any = boto3.client(service, region_name=region)  # type: ignore[call-overload]  # one overload a service
            client.meta.events.register("before-call", self._answer)
            self.made[service, region] = client
        return self.made[service, region]

    def _answer(self, model: Any, params: Any, **_more: Any) -> Any:
        name = f"{model.service_model.service_name}:{model.name}"
        if name not in self.answers:
            return None
        answer = self.answers[name]
        answer = answer(params) if callable(answer) else answer
        if isinstance(answer, RefusalError):
            error = {"Code": str(answer), "Message": f"refused {model.name}"}
            return SimpleNamespace(status_code=400), {"Error": error, "ResponseMetadata": {}}
        if isinstance(answer, Exception):
            raise answer
        validate_parameters(answer, model.output_shape)
        return SimpleNamespace(status_code=200), answer


def quota(value: float) -> dict[str, Any]:
    return {"Quota": {"Value": value}}


SCORES = {"SpotPlacementScores": [{"Region": REGION, "AvailabilityZoneId": "use2-az1", "Score": 7}]}
ALLOWED = {"EvaluationResults": [{"EvalActionName": "ec2:CreateVpc", "EvalDecision": "allowed"}]}
GOOD = {
    "service-quotas:GetServiceQuota": quota(10000),
    "ec2:GetSpotPlacementScores": SCORES,
    "iam:SimulatePrincipalPolicy": ALLOWED,
    "iam:GetRole": {
        "Role": {
            **{"Path": "/", "RoleName": "r", "RoleId": "AROA" + "A" * 16, "Arn": "arn:aws:iam::123456789012:role/r"},
            "CreateDate": datetime(2026, 1, 1, tzinfo=UTC),
        }
    },
    "ssm:GetParameter": {"Parameter": {"Name": "n", "Value": "ami-0123456789abcdef0"}},
    "s3:ListObjectsV2": {"KeyCount": 1},
}


SERVICES = ("budgets", "ec2", "ecr", "fsx", "iam", "resourcegroupstaggingapi", "s3", "service-quotas", "ssm", "sts")


def stub(answers: Mapping[str, Any]) -> Calls:
    Calls.answers = {**GOOD, **answers}
    calls = Calls()
    for source in SERVICES:  # a session makes clients for one thread at a time
        calls(source, REGION), calls(source, "us-east-1")
    return calls


class Found(Mapping[str, Answer]):
    """Checks by subject, each of which runs when it is read: all of them take a second."""

    def __init__(self, checks: Sequence[Check]) -> None:
        self._checks = {check.subject: check for check in checks}

    def __getitem__(self, subject: str) -> Answer:
        return run_checks([self._checks[subject]])[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._checks)

    def __len__(self) -> int:
        return len(self._checks)


@pytest.fixture
def checked(demo_plan: Plan) -> Callable[..., Found]:
    def run(plan: Plan = demo_plan, /, **answers: Any) -> Found:
        named = {name.replace("__", ":").replace("_", "-"): answer for name, answer in answers.items()}
        return Found(get_checks(plan, stub(named)))

    return run


@pytest.fixture
def with_capacity(edited: Callable[[Any], StackConfig]) -> Callable[..., Plan]:
    """The demo with these rungs."""

    def plan(*rungs: dict[str, Any], **cluster: Any) -> Plan:
        def edit(values: dict[str, Any]) -> None:
            values["gangway:cluster"] = {**values["gangway:cluster"], "capacity": list(rungs), **cluster}

        return make_plan(edited(edit))

    return plan


def states(answers: Mapping[str, Answer]) -> dict[str, State]:
    return {name: answer.result.state for name, answer in answers.items()}


def test_an_account_with_everything_is_fine(checked: Any) -> None:
    found = checked()
    assert set(states(found).values()) == {State.OK}
    assert found[P_SPOT].result.answer == "384 vCPUs needed, limit 10,000"
    assert found[P_SPOT].check.path == "gangway:cluster.capacity[0]"
    assert found["spot capacity (placement score)"].result.answer.startswith("7 of 10 in us-east-2a for 2 at once")
    assert {answer.check.source.partition(":")[0] for answer in found.values()} >= {
        "ec2",
        "iam",
        "s3",
        "ssm",
        "budgets",
    }


def test_a_quota_below_the_need_is_an_error_with_the_request(checked: Any) -> None:
    found = checked(service_quotas__GetServiceQuota=quota(100))
    assert found[P_ON_DEMAND].result.state is State.ERROR
    assert found[P_ON_DEMAND].result.fix == (
        "aws service-quotas request-service-quota-increase --region us-east-2 --service-code ec2 "
        "--quota-code L-417A185B --desired-value 384"
    )


def test_a_default_counts_where_the_account_has_no_limit_of_its_own(checked: Any) -> None:
    refused, default = RefusalError("NoSuchResourceException"), quota(5000)
    found = checked(service_quotas__GetServiceQuota=refused, service_quotas__GetAWSDefaultServiceQuota=default)
    assert found[P_SPOT].result.answer == "384 vCPUs needed, limit 5,000"
    found = checked(service_quotas__GetServiceQuota=refused, service_quotas__GetAWSDefaultServiceQuota=refused)
    assert found[P_SPOT].result.answer == "Service Quotas does not list ec2/L-7212CCBC in us-east-2"


def machine(name: str, cores: int, lifecycle: str = "", stack: str = "other") -> dict[str, Any]:
    row = {
        "InstanceType": name,
        "CpuOptions": {"CoreCount": cores, "ThreadsPerCore": 2},
        "Tags": [{"Key": "gangway:stack", "Value": stack}],
    }
    return {"Instances": [{**row, "InstanceLifecycle": lifecycle} if lifecycle else row]}


def test_machines_of_others_count_those_of_the_stack_and_of_blocks_do_not(checked: Any) -> None:
    rows = [
        machine("p5.48xlarge", 96),
        machine("p5.48xlarge", 96, stack="aws-demo"),
        machine("p5.48xlarge", 96, "capacity-block"),
        machine("p4d.24xlarge", 48, "spot"),
        machine("t3.medium", 1),
    ]
    found = checked(ec2__DescribeInstances={"Reservations": rows}, service_quotas__GetServiceQuota=quota(500))
    assert found[P_ON_DEMAND].result.state is State.WARNING
    assert "192 in use" in found[P_ON_DEMAND].result.answer
    assert "--desired-value 576" in found[P_ON_DEMAND].result.fix
    assert "96 in use" in found[P_SPOT].result.answer


def test_usage_that_may_not_be_read_leaves_the_limit(checked: Any) -> None:
    found = checked(ec2__DescribeInstances=RefusalError("UnauthorizedOperation"))
    assert found[P_SPOT].result.answer.endswith("limit 10,000, what is in use is unknown")


@pytest.mark.parametrize(
    ("zones", "state", "fix"),
    [
        (["us-east-2a", "us-east-2c"], State.OK, ""),
        (["us-east-2c", "us-east-2b"], State.ERROR, "set gangway:cluster.zone: us-east-2b"),
        ([], State.ERROR, "gangway quote lists other offers"),
    ],
)
def test_a_machine_type_must_be_offered_in_its_zone(checked: Any, zones: list[str], state: State, fix: str) -> None:
    rows = [{"InstanceType": "p5.48xlarge", "Location": zone} for zone in zones]
    found = checked(ec2__DescribeInstanceTypeOfferings={"InstanceTypeOfferings": rows})["machine type p5.48xlarge"]
    assert (found.result.state, found.result.fix) == (state, fix)


def test_a_low_score_proposes_the_better_zone(checked: Any) -> None:
    rows = [{"AvailabilityZoneId": zone, "Score": score} for zone, score in (("use2-az1", 1), ("use2-az2", 9))]
    found = checked(ec2__GetSpotPlacementScores={"SpotPlacementScores": rows})["spot capacity (placement score)"]
    assert (found.result.state, found.result.fix) == (State.WARNING, "set gangway:cluster.zone: us-east-2b")


SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
BLOCK = {
    "CapacityReservationId": "cr-0123456789abcdef0",
    "InstanceType": "p5.48xlarge",
    "AvailabilityZone": ZONE,
    "State": "active",
    "TotalInstanceCount": 2,
    "AvailableInstanceCount": 2,
    "EndDate": SOON,
}


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ({}, State.OK, "2 of 2 p5.48xlarge free in us-east-2a"),
        ({"State": "expired"}, State.ERROR, "name another reservation"),
        ({"EndDate": datetime(2026, 1, 1, tzinfo=UTC)}, State.ERROR, "name another reservation"),
        ({"InstanceType": "p4d.24xlarge"}, State.ERROR, "set gangway:cluster.machine_type: p4d.24xlarge"),
        ({"AvailabilityZone": "us-east-2b"}, State.ERROR, "set gangway:cluster.capacity[0].zone: us-east-2b"),
        ({"EndDate": SOON + timedelta(hours=1)}, State.WARNING, "set gangway:cluster.capacity[0].ends_at"),
        ({"AvailableInstanceCount": 1}, State.WARNING, "2 needed"),
    ],
)
def test_a_block_exists_fits_and_lasts(
    checked: Any, with_capacity: Any, change: dict[str, Any], state: State, words: str
) -> None:
    rung = {"kind": "capacity-block", "id": BLOCK["CapacityReservationId"], "zone": ZONE, "ends_at": SOON.isoformat()}
    plan = with_capacity(rung, nodes={"min": 2, "max": 2})
    answer = {"CapacityReservations": [{**BLOCK, **change}]}
    result = checked(plan, ec2__DescribeCapacityReservations=answer)[f"capacity-block {rung['id']}"].result
    assert result.state is state
    assert words in f"{result.answer} {result.fix}"
    missing = checked(plan, ec2__DescribeCapacityReservations=RefusalError("InvalidCapacityReservationId.NotFound"))
    assert missing[f"capacity-block {rung['id']}"].result.state is State.ERROR


@pytest.mark.parametrize(
    ("offering", "state"), [("cbo-0123456789abcdef0", State.OK), ("cbo-0123456789abcdef1", State.WARNING)]
)
def test_an_offering_is_still_there(checked: Any, with_capacity: Any, offering: str, state: State) -> None:
    rung = {
        **{"kind": "capacity-block", "purchase": True, "offering_id": "cbo-0123456789abcdef0", "upfront_usd": 16000},
        **{"starts_at": SOON.isoformat(), "ends_at": (SOON + timedelta(days=1)).isoformat(), "zone": ZONE},
    }
    row = {"CapacityBlockOfferingId": offering, "UpfrontFee": "16000.0", "AvailabilityZone": ZONE}
    found = checked(
        with_capacity(rung, nodes={"min": 2, "max": 2}),
        ec2__DescribeCapacityBlockOfferings={"CapacityBlockOfferings": [row]},
    )
    assert found["capacity block offering cbo-0123456789abcdef0"].result.state is state


@pytest.mark.parametrize(
    ("answer", "state", "fix"),
    [
        ({"Images": []}, State.ERROR, "use an AMI of us-east-2"),
        (RefusalError("InvalidAMIID.NotFound"), State.ERROR, "use an AMI of us-east-2"),
        (
            {"Images": [{"State": "available", "RootDeviceName": "/dev/xvda"}]},
            State.ERROR,
            "set gangway:cluster.root_device_name: /dev/xvda",
        ),
        ({"Images": [{"State": "available", "RootDeviceName": "/dev/sda1"}]}, State.OK, ""),
        (RefusalError("UnauthorizedOperation"), State.UNKNOWN, "ask for the permission ec2:DescribeImages"),
    ],
)
def test_an_image_exists(checked: Any, with_capacity: Any, answer: Any, state: State, fix: str) -> None:
    plan = with_capacity({"kind": "on-demand"}, image_id="ami-0123456789abcdef0")
    result = checked(plan, ec2__DescribeImages=answer)["machine image ami-0123456789abcdef0"].result
    assert (result.state, result.fix) == (state, fix)


def test_a_region_without_the_newest_image(checked: Any) -> None:
    found = checked(ssm__GetParameter=RefusalError("ParameterNotFound"))
    fixes = [found[f"newest machine image of the {what}"].result.fix for what in ("nodes", "head")]
    assert fixes == ["set gangway:cluster.image_id to an AMI", "choose another gangway:region"]


def test_a_prebuilt_container_image_is_looked_up(checked: Any, edited: Any) -> None:
    digest = f"sha256:{'0123456789abcdef' * 4}"
    image = f"123456789012.dkr.ecr.us-east-2.amazonaws.com/gan/trainer@{digest}"
    plan = make_plan(edited(lambda values: values.update({"gangway:image": {"prebuilt": image}})))
    assert checked(plan)["container image gan/trainer"].result.state is State.ERROR
    boto3.client("ecr", region_name=REGION).create_repository(repositoryName="gan/trainer")
    assert "push the image" in checked(plan)["container image gan/trainer"].result.fix
    found = checked(plan, ecr__DescribeImages={"imageDetails": [{"imageDigest": digest}]})
    assert found["container image gan/trainer"].result.answer == f"{digest} exists"


@pytest.mark.parametrize(
    ("decision", "state"),
    [("allowed", State.OK), ("implicitDeny", State.WARNING), ("explicitDeny", State.ERROR)],
)
def test_permissions_are_simulated(checked: Any, demo_plan: Plan, decision: str, state: State) -> None:
    asked: list[str] = []

    def simulate(params: Any) -> dict[str, Any]:
        names = [value for key, value in params["body"].items() if key.startswith("ActionNames")]
        asked.extend(names)
        return {"EvaluationResults": [{"EvalActionName": name, "EvalDecision": decision} for name in names]}

    result = checked(iam__SimulatePrincipalPolicy=simulate)["permissions"].result
    assert result.state is state
    assert asked == list(actions_of_up(demo_plan))
    assert ("ec2:RunInstances" in result.answer) == (decision != "allowed")


def test_a_role_is_simulated_by_its_own_arn(checked: Any) -> None:
    identity = {"Account": "123456789012", "Arn": "arn:aws:sts::123456789012:assumed-role/r/me", "UserId": "u"}
    found = checked(sts__GetCallerIdentity=identity)["permissions"].result
    assert "arn:aws:iam::123456789012:role/r may call all" in found.answer
    root = {**identity, "Arn": "arn:aws:iam::123456789012:root"}
    assert "root user" in checked(sts__GetCallerIdentity=root)["permissions"].result.answer


def test_missing_service_roles_are_warnings_with_the_command(checked: Any) -> None:
    found = checked(iam__GetRole=RefusalError("NoSuchEntity"))["service-linked role AWSServiceRoleForEC2Spot"].result
    assert found.state is State.WARNING
    assert found.fix == "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"


def test_resources_with_the_same_identity_are_named(checked: Any) -> None:
    iam = boto3.client("iam")
    for name in ("aws-demo-node-0123456", "aws-demo-node-other", "aws-demo2-node-0123456"):
        iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")
    bucket = boto3.client("s3", region_name="us-east-1")
    bucket.create_bucket(Bucket="aws-demo-runs-1")
    tags = [{"Key": "gangway:stack", "Value": "aws-demo"}]
    ec2 = boto3.client("ec2", region_name=REGION)
    ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": tags}])
    found = checked()
    assert found["roles named aws-demo-..."].result.answer.startswith("aws-demo-node-0123456: ")
    assert found["roles named aws-demo-..."].result.state is State.WARNING
    assert ":vpc/vpc-" in found["resources with the tag aws-demo"].result.answer
    assert "1 in use" in found["quota L-F678F1CE (VPCs per Region)"].result.answer, "the default VPC, not the stack's"


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ({"KeyCount": 0}, State.WARNING),
        (RefusalError("NoSuchBucket"), State.ERROR),
        (RefusalError("AccessDenied"), State.UNKNOWN),
    ],
)
def test_data_must_be_readable(checked: Any, answer: Any, state: State) -> None:
    assert checked(s3__ListObjectsV2=answer)["data s3://my-bucket/digits"].result.state is state


def test_a_caller_without_permissions_gets_every_check_as_unknown(demo_plan: Plan, outcomes: Outcomes) -> None:
    """Moto's own authorization, for a user with one policy."""
    iam = boto3.client("iam")
    iam.create_user(UserName="reader")
    allowed = {"Effect": "Allow", "Action": ["iam:ListRoles", "budgets:ViewBudget"], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_user_policy(UserName="reader", PolicyName="p", PolicyDocument=policy)
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    session = boto3.Session(key["AccessKeyId"], key["SecretAccessKey"])
    made: dict[tuple[str, str], Any] = {}
    for service in SERVICES:
        for region in (REGION, "us-east-1"):
            made[service, region] = session.client(service, region_name=region)  # type: ignore[call-overload]  # one overload a service
    checks = get_checks(demo_plan, lambda service, region: made[service, region])
    found = set_initial_no_auth_action_count(0)(lambda: outcomes(checks))()
    assert found["roles named aws-demo-..."].result.state is State.OK
    denied = found["zones in us-east-2"].result
    assert (denied.state, denied.fix) == (State.UNKNOWN, "ask for the permission ec2:DescribeAvailabilityZones")
    assert found["data s3://my-bucket/digits"].result.answer.startswith("no permission for s3:ListBucket")


def test_no_credentials_are_one_error_with_the_ways_to_log_in(demo_plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no valid credentials") as caught:
        get_checks(demo_plan, stub({"sts:GetCallerIdentity": RefusalError("ExpiredToken")}))
    assert "aws sso login" in caught.value.fix
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(InputError, match="no-such-profile"):
        get_checks(demo_plan)


def test_a_service_that_does_not_answer_leaves_the_others(checked: Any) -> None:
    slow = ReadTimeoutError(endpoint_url="https://budgets.amazonaws.com")
    found = checked(budgets__DescribeBudgets=slow, sts__GetCallerIdentity=slow)
    assert "ReadTimeoutError" in found["budgets"].result.answer or "STS" in found["budgets"].result.answer.upper()
    assert found["permissions"].result.answer == "sts:GetCallerIdentity gave no answer"
    assert found[P_SPOT].result.state is State.OK


def test_a_hostile_name_is_only_text(checked: Any, with_capacity: Any) -> None:
    row = {"State": "available", "RootDeviceName": "/dev/sda1", "Name": "[red]\x1b]0;owned\x07"}
    plan = with_capacity({"kind": "on-demand"}, image_id="ami-0123456789abcdef0")
    found = checked(plan, ec2__DescribeImages={"Images": [row]})["machine image ami-0123456789abcdef0"]
    assert found.to_json()["answer"].startswith("[red]\\x1b]0;owned\\x07")


def test_service_roles_follow_the_stack(shipped_plans: Mapping[str, Plan]) -> None:
    assert "AWSServiceRoleForAmazonEKSNodegroup" in service_roles(shipped_plans["eks-p5-kueue"])
    assert list(service_roles(shipped_plans["aws-g5-dev"])) == ["AWSServiceRoleForAutoScaling"]


@pytest.fixture(scope="module")
def shipped_plans(repo: Any) -> dict[str, Plan]:
    from gangway.stacks.loading.loader import from_file

    names = ("aws-g5-dev", "aws-p5-slurm", "eks-p5-kueue", "aws-p4d-block")
    return {name: make_plan(from_file(repo / "stacks" / f"Pulumi.{name}.yaml")) for name in names}
