"""The head node, its DNS name and the image on moto: read back, told what is not kept, found when tampered with."""

import base64
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pulumi
import pytest
from pulumi_aws import ec2, route53

from gangway.components.aws.launch import HeadNode
from gangway.components.core.image import TrainerImage
from gangway.sandbox.cloud import MotoCloud
from gangway.sandbox.compute import UNKEPT
from gangway.sandbox.rows import SandboxRow, Status
from gangway.stacks.config.paths import program_folder
from gangway.stacks.estimates.run_context import dockerfile_for
from gangway.stacks.recording import record

INSTANCE, RECORD, IMAGE = "aws:ec2/instance:Instance", "aws:route53/record:Record", "docker-build:index:Image"
HOST = "head.demo.gangway.internal"


def network() -> dict[str, Any]:
    """What a head node stands in."""
    vpc = ec2.Vpc("net", cidr_block="10.7.0.0/16")
    subnet = ec2.Subnet("net", vpc_id=vpc.id, cidr_block="10.7.0.0/20")
    group = ec2.SecurityGroup("head", vpc_id=vpc.id, description="head")
    zone = route53.Zone("net", name="demo.gangway.internal", vpcs=[{"vpc_id": vpc.id, "vpc_region": "us-east-2"}])
    return {"subnet_id": subnet.id, "security_group_ids": [group.id], "zone_id": zone.id}


def program() -> dict[str, Any]:
    args: Any = {
        **network(),
        "instance_profile_arn": "arn:aws:iam::123456789012:instance-profile/head",
        "user_data": base64.b64encode(b"#cloud-config\n").decode(),
        "host_name": HOST,
        "image_id": "ami-12345678",
        "tags": {"team": "ml"},
    }
    made = HeadNode("demo", args)
    image: Any = {
        "repository_url": "registry.example.com/demo",
        "registry": {"address": "registry.example.com", "username": "AWS", "password": "x"},
        "dockerfile": dockerfile_for("cpu"),
        "context": "..",
        "platform": "linux/amd64",
        "tag": "0",
    }
    return {"private_ip": made.private_ip, "image": TrainerImage("demo", image).image}


@pytest.fixture
def cloud() -> Iterator[MotoCloud]:
    with MotoCloud("us-east-2") as made:
        yield made


@pytest.fixture
def built(cloud: MotoCloud) -> dict[str, Any]:
    """What the program exports, applied to `cloud`."""
    return dict(record(program, cloud, "demo").result)


def get_rows(cloud: MotoCloud) -> dict[str, SandboxRow]:
    return {row.type: row for row in cloud.read_back() if row.type in (INSTANCE, RECORD, IMAGE)}


@pytest.mark.slow
def test_the_machine_is_held_as_declared(cloud: MotoCloud, built: dict[str, Any]) -> None:
    row = get_rows(cloud)[INSTANCE]
    assert (row.status, row.calls) == (Status.ACCEPTED, ("ec2:RunInstances",))
    fields = set(row.fields_compared)
    assert {"InstanceType", "SubnetId", "Tags[gangway:role].Value", "Tags[team].Value"} <= fields
    assert any(field.startswith("SecurityGroups") for field in fields)
    assert "its AMI stays unresolved" in row.note
    assert "not sent by the sandbox" not in row.note
    hidden = row.note.partition("not to be read back from moto: ")[2].partition(";")[0]
    assert {place.partition(".")[0] for place in hidden.split(", ")} <= set(UNKEPT)
    (reservation,) = boto3.client("ec2").describe_instances()["Reservations"]
    (instance,) = reservation["Instances"]
    assert instance["InstanceType"] == "t3.medium"
    assert "PublicIpAddress" not in instance


@pytest.mark.slow
def test_its_disk_is_its_templates(cloud: MotoCloud, built: dict[str, Any]) -> None:
    (template,) = [row for row in cloud.read_back() if row.type == "aws:ec2/launchTemplate:LaunchTemplate"]
    assert template.status is Status.READ_BACK_EQUAL
    disk = "LaunchTemplateData.BlockDeviceMappings[0]"
    fields = {f"{disk}.DeviceName", f"{disk}.Ebs.Encrypted", f"{disk}.Ebs.VolumeSize"}
    assert fields < set(template.fields_compared)
    assert "BlockDeviceMappings" not in get_rows(cloud)[INSTANCE].note, "the machine declares none of its own"


@pytest.mark.slow
def test_its_address_is_what_the_name_leads_to(cloud: MotoCloud, built: dict[str, Any]) -> None:
    row = get_rows(cloud)[RECORD]
    assert (row.status, row.calls, row.note) == (
        Status.READ_BACK_EQUAL, ("route53:ChangeResourceRecordSets",), "",
    )  # fmt: skip
    dns = boto3.client("route53")
    (zone,) = dns.list_hosted_zones()["HostedZones"]
    sets = dns.list_resource_record_sets(HostedZoneId=zone["Id"])["ResourceRecordSets"]
    (name,) = [entry for entry in sets if entry["Type"] == "A"]
    assert name["Name"] == f"{HOST}."
    assert name["ResourceRecords"] == [{"Value": built["private_ip"]}]


@pytest.mark.slow
def test_the_image_is_checked_and_not_built(cloud: MotoCloud, built: dict[str, Any]) -> None:
    row = get_rows(cloud)[IMAGE]
    assert (row.status, row.calls, row.fields_compared) == (Status.VALIDATED, (), ())
    assert "images/locks/, trainer/ are in the build context" in row.note
    assert built["image"] == f"registry.example.com/demo@sha256:{'0' * 64}"


def test_a_dockerfile_that_copies_what_is_not_there_is_our_own_bug(cloud: MotoCloud) -> None:
    inputs = {"context": {"location": ".."}, "dockerfile": {"inline": "FROM x\nCOPY nowhere/ /opt/\n"}}
    with pytest.raises(AssertionError, match=r"not in its context: \['nowhere/'\]"):
        cloud(IMAGE, "demo", inputs)
    assert (program_folder() / "..").resolve() == Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_tampering_is_found(cloud: MotoCloud, built: dict[str, Any]) -> None:
    clients: Any = {name: boto3.client(name) for name in ("ec2", "route53")}
    (reservation,) = clients["ec2"].describe_instances()["Reservations"]
    (instance,) = reservation["Instances"]
    clients["ec2"].create_tags(Resources=[instance["InstanceId"]], Tags=[{"Key": "team", "Value": "other"}])
    (zone,) = clients["route53"].list_hosted_zones()["HostedZones"]
    wrong = {"Name": HOST, "Type": "A", "TTL": 60, "ResourceRecords": [{"Value": "10.9.9.9"}]}
    clients["route53"].change_resource_record_sets(
        HostedZoneId=zone["Id"], ChangeBatch={"Changes": [{"Action": "UPSERT", "ResourceRecordSet": wrong}]}
    )
    rows = get_rows(cloud)
    assert rows[INSTANCE].status is rows[RECORD].status is Status.DIFFERENT
    assert "Tags[team].Value: declared 'ml', held 'other'" in rows[INSTANCE].note
    assert "10.9.9.9" in rows[RECORD].note


@pytest.mark.slow
def test_a_name_in_no_zone_is_refused(cloud: MotoCloud) -> None:
    cloud(RECORD, "head", {"zoneId": "Z404", "name": HOST, "type": "A", "ttl": 60, "records": ["10.0.0.1"]})
    (row,) = cloud.read_back()
    assert row.status is Status.REFUSED
    assert "NoSuchHostedZone" in row.note


def test_a_machine_in_no_subnet_is_refused(cloud: MotoCloud) -> None:
    def alone() -> dict[str, Any]:
        ec2.Instance(
            "head", ami="ami-12345678", instance_type="t3.medium", subnet_id="subnet-404",
            vpc_security_group_ids=["sg-404"], associate_public_ip_address=False,
            opts=pulumi.ResourceOptions(),
        )  # fmt: skip
        return {}

    record(alone, cloud, "demo")
    row = get_rows(cloud)[INSTANCE]
    assert row.status is Status.REFUSED
    assert row.note


REGION = "us-east-2"
GROUP, SCHEDULE = "aws:autoscaling/group:Group", "aws:autoscaling/schedule:Schedule"
BLOCK, FLEET, SPOT_FLEET = (
    "aws:ec2/capacityBlockReservation:CapacityBlockReservation",
    "aws:ec2/fleet:Fleet",
    "aws:ec2/spotFleetRequest:SpotFleetRequest",
)

PLACEMENT = "aws:ec2/placementGroup:PlacementGroup"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the sandbox reached for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def rows(every_capacity: Callable[[], dict[str, Any]]) -> dict[tuple[str, str], SandboxRow]:
    with MotoCloud(REGION) as cloud:
        record(every_capacity, cloud, "capacity")
        return {(row.type, row.name): row for row in cloud.read_back()}


@pytest.mark.slow
def test_everything_moto_knows_is_applied(rows: dict[tuple[str, str], SandboxRow]) -> None:
    special = {BLOCK: Status.VALIDATED, PLACEMENT: Status.VALIDATED, SPOT_FLEET: Status.ACCEPTED}
    for (type_token, name), row in rows.items():
        assert row.status is special.get(type_token, Status.READ_BACK_EQUAL), f"{name}: {row.note}"
        assert "not sent by the sandbox" not in row.note
    assert {BLOCK, FLEET, SPOT_FLEET, GROUP, SCHEDULE} < {type_token for type_token, _ in rows}


def test_a_mixed_group_is_read_back_with_each_types_template(rows: dict[tuple[str, str], SandboxRow]) -> None:
    policy = "MixedInstancesPolicy.LaunchTemplate"
    for name in ("ladder-2-spot", "ladder-3-on-demand", "mixed-0-spot"):
        compared = set(rows[GROUP, name].fields_compared)
        assert {
            f"{policy}.Overrides[{index}].{field}"
            for index in (0, 1)
            for field in ("InstanceType", "LaunchTemplateSpecification.LaunchTemplateId")
        } < compared
        assert "MixedInstancesPolicy.InstancesDistribution.OnDemandPercentageAboveBaseCapacity" in compared
        assert not any(path.startswith("LaunchTemplate.") for path in compared), "one or the other, never both"
    assert (
        "moto started 2 p4d.24xlarge with 1 of the template's 5 network interfaces" in rows[GROUP, "mixed-0-spot"].note
    )


def test_a_blocks_last_action_and_the_hooks_are_read_back(rows: dict[tuple[str, str], SandboxRow]) -> None:
    for name in ("ladder-0-capacity-block", "ladder-1-capacity-block"):
        assert {"StartTime", "MinSize", "MaxSize", "DesiredCapacity"} < set(rows[SCHEDULE, name].fields_compared)
    groups = [row for (type_token, _), row in rows.items() if type_token == GROUP]
    assert groups
    for row in groups:
        hook = {f"LifecycleHooks[0].{field}" for field in ("LifecycleTransition", "HeartbeatTimeout", "DefaultResult")}
        assert hook < set(row.fields_compared)


def test_a_group_has_its_hook_before_it_asks_for_nodes(rows: dict[tuple[str, str], SandboxRow]) -> None:
    """As the provider does it: a node that came first could leave without its last checkpoint."""
    for (type_token, _), row in rows.items():
        if type_token == GROUP:
            assert [call.partition(":")[2] for call in row.calls[:3]] == [
                "CreateAutoScalingGroup", "PutLifecycleHook", "UpdateAutoScalingGroup",
            ]  # fmt: skip


@pytest.mark.parametrize("name", ["spot", "cheap", "on-demand"])
def test_a_fleet_is_read_back_pool_by_pool(rows: dict[tuple[str, str], SandboxRow], name: str) -> None:
    compared = rows[FLEET, f"{name}-fleet"].fields_compared
    assert sum(path.endswith(".SubnetId") for path in compared) == 4, "two templates in two zones"
    assert "TargetCapacitySpecification.TotalTargetCapacity" in compared


def test_rows_tell_what_moto_cannot_show(rows: dict[tuple[str, str], SandboxRow]) -> None:
    purchase = rows[BLOCK, "ladder-cbo-0123456789abcdef0"]
    assert purchase.calls == ("ec2:PurchaseCapacityBlock",)
    assert "nothing was bought" in purchase.note
    assert "first override of each template, 2 more were sent" in rows[SPOT_FLEET, "old-fleet"].note


@pytest.mark.slow
def test_a_tampered_schedule_hook_and_mixed_group_are_found(every_capacity: Callable[[], dict[str, Any]]) -> None:
    with MotoCloud(REGION) as cloud:
        record(every_capacity, cloud, "capacity")
        scaling = boto3.client("autoscaling")
        actions = scaling.describe_scheduled_actions()["ScheduledUpdateGroupActions"]
        action = next(action for action in actions if action["ScheduledActionName"].endswith("-stop"))
        names = {key: action[key] for key in ("AutoScalingGroupName", "ScheduledActionName")}
        scaling.put_scheduled_update_group_action(
            **names, MinSize=0, MaxSize=5, DesiredCapacity=5, StartTime="2036-01-01"
        )
        hook = scaling.describe_lifecycle_hooks(**{"AutoScalingGroupName": names["AutoScalingGroupName"]})
        gone = hook["LifecycleHooks"][0]["LifecycleHookName"]
        scaling.delete_lifecycle_hook(LifecycleHookName=gone, AutoScalingGroupName=names["AutoScalingGroupName"])
        different = {row.type: row.note for row in cloud.read_back() if row.status is Status.DIFFERENT}
    assert set(different) == {SCHEDULE, GROUP}
    assert "MaxSize: declared 0, held 5" in different[SCHEDULE]
    assert "LifecycleHooks: declared '1 items', held '0 items'" in different[GROUP]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        BLOCK,
        {"capacityBlockOfferingId": "cbo-0123456789abcdef0", "instancePlatform": "Linux/Unix"},
        "did you mean 'Linux/UNIX'?",
    ),
    (BLOCK, {"instancePlatform": "Linux/UNIX"}, "CapacityBlockOfferingId"),
    (
        FLEET,
        {
            "launchTemplateConfigs": [],
            "targetCapacitySpecification": {"totalTargetCapacity": 1},
            "spotOptions": {"allocationStrategy": "lowest"},
        },
        "did you mean 'lowest-price'?",
    ),
    (SCHEDULE, {"autoscalingGroupName": "x"}, "ScheduledActionName"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("type_token", "inputs", "words"), REFUSED)
def test_a_refused_request_is_a_row_with_the_reason(type_token: str, inputs: dict[str, Any], words: str) -> None:
    with MotoCloud(REGION) as cloud:
        cloud(type_token, "wrong", inputs)
        (row,) = cloud.read_back()
    assert row.status is Status.REFUSED
    assert words in row.note


@pytest.mark.slow
def test_moto_still_lacks_the_purchase_of_a_block() -> None:
    with MotoCloud(REGION):
        session: Any = boto3.Session()
        client = session.client("ec2", region_name=REGION)
        with pytest.raises(NotImplementedError):
            client.purchase_capacity_block(CapacityBlockOfferingId="cbo-0", InstancePlatform="Linux/UNIX")
