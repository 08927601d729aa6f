"""The whole sandbox on moto: every component applied and read back, refusals, tampering, and nothing left behind."""

import ast
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pulumi
import pytest
from botocore.exceptions import ClientError

import gangway.components.aws
from gangway.sandbox.cloud import HANDLERS, MotoCloud
from gangway.sandbox.rows import SandboxRow, Status
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import run_program
from gangway.stacks.recording import record

REGION = "us-east-2"
VPC, SUBNET, TEMPLATE = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/launchTemplate:LaunchTemplate"

# What moto 5.2.5 cannot show. All other types must be read back equal.
NOT_READ_BACK = {
    "aws:budgets/budget:Budget": Status.ACCEPTED,
    "aws:cloudwatch/compositeAlarm:CompositeAlarm": Status.VALIDATED,
    "aws:codebuild/project:Project": Status.VALIDATED,
    "aws:costexplorer/costAllocationTag:CostAllocationTag": Status.VALIDATED,
    "aws:ec2/capacityBlockReservation:CapacityBlockReservation": Status.VALIDATED,
    "aws:ec2/instance:Instance": Status.ACCEPTED,
    "aws:ec2/placementGroup:PlacementGroup": Status.VALIDATED,
    "aws:ec2/spotFleetRequest:SpotFleetRequest": Status.ACCEPTED,
    "aws:eks/accessEntry:AccessEntry": Status.VALIDATED,
    "aws:eks/addon:Addon": Status.VALIDATED,
    "aws:eks/cluster:Cluster": Status.ACCEPTED,
    "aws:eks/nodeGroup:NodeGroup": Status.ACCEPTED,
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": Status.VALIDATED,
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": Status.VALIDATED,
    "aws:fsx/lustreFileSystem:LustreFileSystem": Status.ACCEPTED,
    "aws:lambda/function:Function": Status.ACCEPTED,
    "aws:route53/resolverFirewallDomainList:ResolverFirewallDomainList": Status.VALIDATED,
    "aws:route53/resolverFirewallRule:ResolverFirewallRule": Status.VALIDATED,
    "aws:route53/resolverFirewallRuleGroup:ResolverFirewallRuleGroup": Status.VALIDATED,
    "aws:route53/resolverFirewallRuleGroupAssociation:ResolverFirewallRuleGroupAssociation": Status.VALIDATED,
    "aws:imagebuilder/component:Component": Status.VALIDATED,
    "aws:imagebuilder/distributionConfiguration:DistributionConfiguration": Status.VALIDATED,
    "aws:imagebuilder/image:Image": Status.VALIDATED,
    "aws:imagebuilder/imageRecipe:ImageRecipe": Status.VALIDATED,
    "aws:imagebuilder/infrastructureConfiguration:InfrastructureConfiguration": Status.VALIDATED,
    "docker-build:index:Image": Status.VALIDATED,
}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the sandbox reached for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def stack(egress: str, **cluster: Any) -> StackConfig:
    capacity = [
        {"kind": "capacity-block", "id": "cr-0123456789abcdef0"},
        {"kind": "spot", "max_usd_per_hour": 25},
        {"kind": "on-demand"},
    ]
    return StackConfig.model_validate(
        {
            "stack": "sandboxed",
            "region": REGION,
            "cluster": {"accelerator": "H100x8", "nodes": {"min": 2, "max": 2}, "capacity": capacity, **cluster},
            "storage": {
                "kind": "lustre",
                "capacity_gib": 9600,
                "throughput_mbps_per_tib": 500,
                "source": "s3://my-bucket/digits",
            },
            "budget": {"monthly_usd": 60000, "emails": ["ml@example.com"]},
            "job": {"preset": "dcgan-digits", "kimg": 150, "max_hours": 1},
            "network": {"egress": egress},
            "tags": {"team": "ml", "cost_center": "1"},
        }
    )


@pytest.fixture(scope="module")
def rows(
    every_capacity: Callable[[], dict[str, Any]], every_surrounding: Callable[[], dict[str, Any]]
) -> tuple[SandboxRow, ...]:
    """Every component with both ways out of the network, then every shape and option, which no one stack has."""
    found: tuple[SandboxRow, ...] = ()
    for program in (every_capacity, every_surrounding):
        with MotoCloud(REGION) as cloud:
            record(program, cloud, "shapes")
            found = (*found, *cloud.read_back())
    with MotoCloud(REGION) as cloud:
        run_program(stack("endpoints"), cloud)
        found = (*found, *cloud.read_back())
    with MotoCloud(REGION) as cloud:
        run_program(stack("nat", machine_image={"keep": 2}), cloud)
        return (*found, *cloud.read_back())


def is_resource(made: Any) -> bool:
    return isinstance(made, type) and issubclass(made, pulumi.CustomResource)


def declared_types() -> set[str]:
    """The type tokens of every pulumi_aws resource that the source of the AWS components names."""
    tokens = set()
    for path in Path(gangway.components.aws.__path__[0]).glob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        modules = {
            alias.asname or alias.name: alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "pulumi_aws"
            for alias in node.names
        }
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=module), attr=name) if module in modules:
                    made = getattr(__import__(f"pulumi_aws.{modules[module]}", fromlist=[name]), name)
                    if is_resource(made):
                        tokens.add(made.pulumi_type)
    return tokens


@pytest.mark.slow
def test_every_type_the_components_declare_has_a_handler_and_is_tried(rows: tuple[SandboxRow, ...]) -> None:
    assert {*declared_types(), "docker-build:index:Image"} == set(HANDLERS)
    assert {row.type for row in rows} == set(HANDLERS)


def test_an_unknown_type_is_our_own_bug() -> None:
    with MotoCloud(REGION) as cloud, pytest.raises(AssertionError, match=r"no handler for aws:sqs/queue:Queue \(q\)"):
        cloud("aws:sqs/queue:Queue", "q", {})


@pytest.mark.parametrize("type_token", sorted(HANDLERS))
def test_each_type_is_applied_and_read_back(rows: tuple[SandboxRow, ...], type_token: str) -> None:
    mine = [row for row in rows if row.type == type_token]
    assert {row.status for row in mine} == {NOT_READ_BACK.get(type_token, Status.READ_BACK_EQUAL)}
    for row in mine:
        assert row.calls or row.type.startswith("docker-build:"), "an image is no request to AWS"
        assert "not sent by the sandbox" not in row.note
        assert bool(row.fields_compared) is (row.status is not Status.VALIDATED)
        assert row.note or row.status is Status.READ_BACK_EQUAL


def by_name(rows: tuple[SandboxRow, ...], type_token: str, name: str) -> SandboxRow:
    return next(row for row in rows if (row.type, row.name) == (type_token, name))


def test_all_33_network_interfaces_are_read_back(rows: tuple[SandboxRow, ...]) -> None:
    row = by_name(rows, TEMPLATE, "sandboxed-0-capacity-block")
    cards = [path for path in row.fields_compared if path.endswith("NetworkCardIndex")]
    assert len(cards) == 33
    assert "LaunchTemplateData.UserData" in row.fields_compared
    assert "LaunchTemplateData.InstanceMarketOptions.MarketType" in row.fields_compared


def test_rows_tell_what_moto_cannot_show(rows: tuple[SandboxRow, ...]) -> None:
    notes = {row.type: row.note for row in rows if row.type in NOT_READ_BACK}
    assert "NotificationsWithSubscribers.Subscribers, ResourceTags" in notes["aws:budgets/budget:Budget"]
    assert "SecurityGroupIds" in notes["aws:fsx/lustreFileSystem:LustreFileSystem"]
    assert "InstanceInterruptionBehavior" in notes["aws:ec2/spotFleetRequest:SpotFleetRequest"]
    assert "moto has no CreatePlacementGroup" in notes["aws:ec2/placementGroup:PlacementGroup"]
    nodes = by_name(rows, "aws:autoscaling/group:Group", "sandboxed-0-capacity-block").note
    assert "2 p5.48xlarge with 1 of the template's 33 network interfaces" in nodes
    assert "AMI reference unresolved" in nodes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("service", "request_", "parameters"),
    [
        ("ec2", "create_placement_group", {"GroupName": "x", "Strategy": "cluster"}),
        (
            "fsx",
            "create_data_repository_association",
            {"FileSystemId": "fs-12345678901", "FileSystemPath": "/data", "DataRepositoryPath": "s3://bucket/x"},
        ),
        ("budgets", "list_tags_for_resource", {"ResourceARN": "arn:aws:budgets::123456789012:budget/x"}),
        ("ce", "list_cost_allocation_tags", {}),
        ("eks", "create_addon", {"clusterName": "x", "addonName": "coredns"}),
        ("eks", "create_access_entry", {"clusterName": "x", "principalArn": "arn:aws:iam::123456789012:role/x"}),
        ("eks", "list_pod_identity_associations", {"clusterName": "x"}),
        ("route53resolver", "list_firewall_domain_lists", {}),
        ("route53resolver", "list_firewall_rule_groups", {}),
    ],
)
def test_moto_still_lacks_what_is_only_validated(service: str, request_: str, parameters: dict[str, str]) -> None:
    with MotoCloud(REGION):
        # Made inside: a session older than moto's first import is not intercepted, and would call AWS itself.
        session: Any = boto3.Session()
        client = session.client(service, region_name=REGION)
        # What is asked by REST is answered with words, not an error of Python's.
        with pytest.raises((NotImplementedError, ClientError), match=r"[Nn]ot (yet |been )?implemented"):
            getattr(client, request_)(**parameters)


LAUNCH = {"imageId": "ami-12345678", "instanceType": "p5.48xlarge"}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (VPC, {"cidrBlock": "10.42.0.0"}, "CreateVpc"),
    (VPC, {"cidrBlock": 10}, "Invalid type for parameter CidrBlock"),
    (VPC, {"cidrBlock": "10.0.0.0/16", "colour": "red"}, 'Unknown parameter in input: "colour"'),
    (TEMPLATE, {**LAUNCH, "networkInterfaces": [{"networkCardIndex": "many"}]}, "NetworkCardIndex, value: many"),
    (TEMPLATE, {**LAUNCH, "instanceMarketOptions": {"marketType": "Spot"}}, "did you mean 'spot'?"),
    ("aws:ec2/placementGroup:PlacementGroup", {"strategy": "clusters"}, "did you mean 'cluster'?"),
    ("aws:ec2/placementGroup:PlacementGroup", {"partitionCount": "two"}, "PartitionCount, value: two"),
    ("aws:s3/bucket:Bucket", {"bucket": "No_Bucket!"}, "Invalid bucket name"),
    ("aws:autoscaling/group:Group", {"minSize": 0, "maxSize": 1, "vpcZoneIdentifiers": ["subnet-1"]}, "LaunchTemplate"),
]


@pytest.mark.parametrize(("type_token", "inputs", "words"), REFUSED)
def test_a_refused_request_is_a_row_with_the_reason(type_token: str, inputs: dict[str, Any], words: str) -> None:
    with MotoCloud(REGION) as cloud:
        id_, outputs = cloud(type_token, "wrong", inputs)
        (row,) = cloud.read_back()
    assert row.status is Status.REFUSED
    assert words in row.note
    assert id_.startswith("${")
    assert outputs.items() >= inputs.items()


@pytest.mark.slow
def test_what_hangs_on_a_refused_resource_is_refused_too() -> None:
    with MotoCloud(REGION) as cloud:
        vpc_id, _ = cloud(VPC, "net", {"cidrBlock": "10.42.0.0/16"})
        outside, _ = cloud(SUBNET, "outside", {"vpcId": vpc_id, "cidrBlock": "10.43.0.0/20"})
        table, _ = cloud("aws:ec2/routeTable:RouteTable", "table", {"vpcId": vpc_id})
        cloud(
            "aws:ec2/routeTableAssociation:RouteTableAssociation",
            "table",
            {"subnetId": outside, "routeTableId": table},
        )
        found = {(row.type, row.name): row for row in cloud.read_back()}
    assert "InvalidSubnet.Range" in found[SUBNET, "outside"].note
    association = found["aws:ec2/routeTableAssociation:RouteTableAssociation", "table"]
    assert (association.status, outside in association.note) == (Status.REFUSED, True)
    assert found[VPC, "net"].status is Status.READ_BACK_EQUAL


def _vpc_id(ec2: Any) -> str:
    id_: str = ec2.describe_vpcs(Filters=[{"Name": "isDefault", "Values": ["false"]}])["Vpcs"][0]["VpcId"]
    return id_


@pytest.mark.slow
def test_tampering_between_apply_and_read_back_is_found() -> None:
    with MotoCloud(REGION) as cloud:
        run_program(stack("endpoints"), cloud)
        ec2, s3, scaling = (boto3.client("ec2"), boto3.client("s3"), boto3.client("autoscaling"))
        vpc_id = _vpc_id(ec2)
        ec2.modify_vpc_attribute(VpcId=vpc_id, EnableDnsHostnames={"Value": False})
        (subnet,) = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])["Subnets"]
        ec2.create_tags(Resources=[subnet["SubnetId"]], Tags=[{"Key": "team", "Value": "somebody else"}])
        groups = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])["SecurityGroups"]
        fabric = next(group for group in groups if group["GroupName"].startswith("sandboxed-fabric"))
        ec2.revoke_security_group_ingress(GroupId=fabric["GroupId"], IpPermissions=fabric["IpPermissions"])
        (bucket,) = s3.list_buckets()["Buckets"]
        s3.put_bucket_versioning(Bucket=bucket["Name"], VersioningConfiguration={"Status": "Suspended"})
        (table,) = ec2.describe_launch_templates()["LaunchTemplates"][:1]
        ec2.delete_launch_template(LaunchTemplateId=table["LaunchTemplateId"])
        group = scaling.describe_auto_scaling_groups()["AutoScalingGroups"][-1]["AutoScalingGroupName"]
        scaling.update_auto_scaling_group(AutoScalingGroupName=group, MaxSize=9)
        budgets = boto3.client("budgets")
        (budget,) = budgets.describe_budgets(AccountId="123456789012")["Budgets"]
        budgets.delete_budget(AccountId="123456789012", BudgetName=budget["BudgetName"])
        different = {row.type: row.note for row in cloud.read_back() if row.status is Status.DIFFERENT}
    assert different[VPC] == "EnableDnsHostnames: declared True, held False"
    assert different[SUBNET] == "Tags[team].Value: declared 'ml', held 'somebody else'"
    assert different["aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"].endswith("held nothing")
    assert different["aws:s3/bucketVersioning:BucketVersioning"] == "Status: declared 'Enabled', held 'Suspended'"
    assert different["aws:autoscaling/group:Group"].startswith("MaxSize: declared 2, held 9")
    assert different[TEMPLATE].startswith("gone when read back: ")
    assert different["aws:budgets/budget:Budget"].startswith("gone when read back: ")
    assert len(different) == 7


@pytest.mark.parametrize("fails", [False, True])
def test_the_environment_comes_back_and_real_settings_are_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:4566")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "real")
    before = dict(os.environ)
    try:
        with MotoCloud(REGION):
            assert not {"AWS_PROFILE", "AWS_ENDPOINT_URL"} & os.environ.keys()
            assert os.environ["AWS_ACCESS_KEY_ID"] != "real"
            if fails:
                raise KeyError
    except KeyError:
        assert fails
    assert dict(os.environ) == before


@pytest.mark.slow
def test_a_second_cloud_begins_empty() -> None:
    for _ in range(2):
        with MotoCloud("us-east-1") as cloud:
            cloud("aws:s3/bucket:Bucket", "runs", {})
            (row,) = cloud.read_back()
            assert (row.status, row.calls) == (Status.READ_BACK_EQUAL, ("s3:CreateBucket",))


def test_importing_the_sandbox_loads_neither_moto_nor_boto() -> None:
    code = (
        "import gangway.sandbox, sys; print(sorted({'moto', 'boto3', 'botocore', 'pulumi_aws'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
