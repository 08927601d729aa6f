"""The head node, its DNS name and the image on moto: read back, told what is not kept, found when tampered with."""

import base64
from collections.abc import Iterator
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
