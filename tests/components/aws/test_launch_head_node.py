"""HeadNode: closed, encrypted, recovered by EC2, and found under its name."""

from collections.abc import Callable
from typing import Any

from gangway.components.aws.launch import HEAD_IMAGE, HeadNode


def test_it_is_closed_and_encrypted(make: Callable[..., Any]) -> None:
    made = make(HeadNode)
    inputs = made.one("Instance").inputs
    assert inputs["associatePublicIpAddress"] is False
    assert inputs["metadataOptions"] == {
        "httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1,
    }  # fmt: skip
    assert inputs["vpcSecurityGroupIds"] == ["sg-head"]
    assert made.one("LaunchTemplate").inputs["iamInstanceProfile"] == {"arn": "arn:aws:iam::1:instance-profile/head"}
    assert "keyName" not in inputs, "people come in through Session Manager"


def test_ec2_recovers_it_and_its_user_data_replaces_it(make: Callable[..., Any]) -> None:
    inputs = make(HeadNode).one("Instance").inputs
    assert inputs["maintenanceOptions"] == {"autoRecovery": "default"}
    assert (inputs["userDataBase64"], inputs["userDataReplaceOnChange"]) == ("IyE=", True)
    assert "instanceMarketOptions" not in inputs, "on demand: it must outlive the workers"


def test_it_has_a_name(make: Callable[..., Any]) -> None:
    record = make(HeadNode).one("Record").inputs
    assert (record["zoneId"], record["name"], record["type"]) == ("Z1", "head.test.gangway.internal", "A")
    assert record["records"] == ["${Instance.demo-head.privateIp}"]


def test_its_tags_tell_it_from_the_workers(make: Callable[..., Any]) -> None:
    inputs = make(HeadNode).one("Instance").inputs
    assert inputs["tags"]["gangway:role"] == "head"
    assert inputs["volumeTags"] == inputs["tags"]
    assert inputs["tags"]["gangway:stack"] == "test"


def test_its_disk_stands_in_the_template_for_the_provider_asks_for_the_ami_of_any_other(
    make: Callable[..., Any],
) -> None:
    made = make(HeadNode)
    assert not {"rootBlockDevice", "ebsBlockDevices"} & made.one("Instance").inputs.keys()
    assert made.one("LaunchTemplate").inputs["blockDeviceMappings"] == [
        {
            "deviceName": "/dev/xvda",
            "ebs": {"volumeSize": 60, "volumeType": "gp3", "encrypted": "true", "deleteOnTermination": "true"},
        }
    ]
    ubuntu = make(HeadNode, root_device_name="/dev/sda1", root_volume_gib=100, kms_key_arn="arn:key")
    (disk,) = ubuntu.one("LaunchTemplate").inputs["blockDeviceMappings"]
    assert (disk["deviceName"], disk["ebs"]["volumeSize"], disk["ebs"]["kmsKeyId"]) == ("/dev/sda1", 100, "arn:key")


def test_its_ami_is_resolved_by_ec2_unless_given(make: Callable[..., Any]) -> None:
    made = make(HeadNode)
    assert made.one("LaunchTemplate").inputs["imageId"] == HEAD_IMAGE
    assert "ami" not in made.one("Instance").inputs
    chosen = make(HeadNode, image_id="ami-1", machine_type="m7i.large")
    assert chosen.one("LaunchTemplate").inputs["imageId"] == "ami-1"
    assert chosen.one("Instance").inputs["instanceType"] == "m7i.large"
