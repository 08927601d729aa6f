"""What instances start from: image, disk, user data."""

import base64
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.components.openstack.launch import (
    USER_DATA_LIMIT_BYTES,
    HeadNode,
    HeadNodeArgs,
    check_user_data,
    plan_boot_source,
)
from tests.components.fixture_types import Make

IMAGE = "22222222-0000-4000-8000-222222222222"


def test_an_image_is_named_or_known_by_its_id() -> None:
    assert plan_boot_source("ubuntu-24.04", None, None).inputs() == {"image_name": "ubuntu-24.04"}
    assert plan_boot_source(IMAGE, None, None).inputs() == {"image_id": IMAGE}


def test_a_volume_is_made_from_an_id_and_goes_with_its_machine() -> None:
    (disk,) = plan_boot_source(IMAGE, 200, "luks").inputs()["block_devices"]
    assert (disk.uuid, disk.volume_size, disk.volume_type, disk.boot_index) == (IMAGE, 200, "luks", 0)
    assert (disk.source_type, disk.destination_type, disk.delete_on_termination) == ("image", "volume", True)
    with pytest.raises(InputError, match=r"openstack image show .* 'ubuntu-24\.04'"):
        plan_boot_source("ubuntu-24.04", 200, None)


def test_user_data_have_a_limit() -> None:
    most = base64.b64encode(b"x" * (USER_DATA_LIMIT_BYTES // 4 * 3)).decode()
    assert check_user_data(most) == most
    with pytest.raises(InputError, match=r"65536 bytes of base64, 49152 before"):
        check_user_data(base64.b64encode(b"x" * 49152).decode())


@pytest.fixture
def args(everything: dict[str, Any]) -> dict[str, Any]:
    optional = {"boot_volume_gib", "volume_type"}
    return {name: everything[name] for name in set(HeadNodeArgs.__annotations__) - optional}


def test_it_keeps_its_address_whoever_it_is(make: Make, args: dict[str, Any]) -> None:
    made = make(HeadNode, args)
    port, machine = made.one("Port"), made.one("Instance")
    assert port.inputs["fixedIps"] == [{"subnetId": "subnet", "ipAddress": "10.42.0.10"}]
    assert machine.inputs["networks"] == [{"port": port.id}]
    assert machine.inputs["metadata"]["gangway:role"] == "head"
    assert machine.inputs["imageId"] == args["image"]
    assert machine.inputs["metadata"]["gangway:secrets"] == args["secrets_place"]
    assert machine.inputs["userData"] == args["user_data"]
    assert "schedulerHints" not in machine.inputs


def test_it_may_start_from_a_volume(make: Make, args: dict[str, Any]) -> None:
    machine = make(HeadNode, {**args, "boot_volume_gib": 64, "zone": ""}).one("Instance")
    assert machine.inputs["blockDevices"][0]["volumeSize"] == 64
    assert "availabilityZone" not in machine.inputs
