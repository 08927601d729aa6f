"""The head node: one small machine at an address of its own."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.openstack.launch import HeadNode, HeadNodeArgs


@pytest.fixture
def args(everything: dict[str, Any]) -> dict[str, Any]:
    optional = {"boot_volume_gib", "volume_type"}
    return {name: everything[name] for name in set(HeadNodeArgs.__annotations__) - optional}


def test_it_keeps_its_address_whoever_it_is(make: Callable[..., Any], args: dict[str, Any]) -> None:
    made = make(HeadNode, args)
    port, machine = made.one("Port"), made.one("Instance")
    assert port.inputs["fixedIps"] == [{"subnetId": "subnet", "ipAddress": "10.42.0.10"}]
    assert machine.inputs["networks"] == [{"port": port.id}]
    assert machine.inputs["metadata"]["gangway:role"] == "head"
    assert machine.inputs["imageId"] == args["image"]
    assert machine.inputs["metadata"]["gangway:secrets"] == args["secrets_place"]
    assert machine.inputs["userData"] == args["user_data"]
    assert "schedulerHints" not in machine.inputs


def test_it_may_start_from_a_volume(make: Callable[..., Any], args: dict[str, Any]) -> None:
    machine = make(HeadNode, {**args, "boot_volume_gib": 64, "zone": ""}).one("Instance")
    assert machine.inputs["blockDevices"][0]["volumeSize"] == 64
    assert "availabilityZone" not in machine.inputs
