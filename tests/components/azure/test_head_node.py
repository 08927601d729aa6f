"""HeadNode: one closed machine with a fixed address and a name."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.head_node import HeadNode, head_address
from gangway.components.azure.launch import nobodys_key
from tests.components.fixture_types import Make, Mistakes

NODES = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/head"


@pytest.fixture
def make(declare_seen: Make, tags: dict[str, str]) -> Make:
    """Declares a head node with changes; `seen` are its outputs."""

    def run(**changes: Any) -> Any:
        args: Any = {
            "resource_group_name": "gangway-demo",
            "location": "eastus",
            "zone": "1",
            "subnet_id": "main",
            "private_ip": "10.20.63.254",
            "security_group_ids": ["heads"],
            "identity_id": NODES,
            "user_data": "IyE=",
            "host_name": "head.demo.gangway.internal",
            "zone_id": "demo.gangway.internal",
            "tags": tags,
            **changes,
        }
        return declare_seen(HeadNode, args)

    return run


def test_a_fixed_address_with_a_name(make: Make) -> None:
    made = make()
    (private,) = made.one("NetworkInterface").inputs["ipConfigurations"]
    assert (private["privateIPAddress"], private["privateIPAllocationMethod"]) == ("10.20.63.254", "Static")
    assert (private["subnet"]["id"], private["applicationSecurityGroups"]) == ("main", [{"id": "heads"}])
    assert "publicIPAddress" not in private
    record = made.one("PrivateRecordSet").inputs
    assert (record["privateZoneName"], record["relativeRecordSetName"]) == ("demo.gangway.internal", "head")
    assert (record["recordType"], record["aRecords"]) == ("A", [{"ipv4Address": "10.20.63.254"}])
    assert made.one("VirtualMachine").inputs["networkProfile"] == {
        "networkInterfaces": [{"id": "${NetworkInterface.demo-head.id}", "primary": True, "deleteOption": "Detach"}]
    }
    assert made.seen == {
        "instance_id": "${VirtualMachine.demo-head.id}", "private_ip": "10.20.63.254",
        "host": "head.demo.gangway.internal",
    }  # fmt: skip


def test_a_zone_may_be_of_another_group_or_none(make: Make) -> None:
    assert make(zone_resource_group_name="spoke").one("PrivateRecordSet").inputs["resourceGroupName"] == "spoke"
    made = make(zone_id=None, host_name="10.20.63.254")
    assert not made.of("PrivateRecordSet")
    assert made.seen["host"] == "10.20.63.254"


@pytest.mark.slow
@given(st.integers(16, 28), st.integers(0, 2**12 - 1))
def test_the_heads_address_is_one_that_azure_leaves_to_us(prefix: int, number: int) -> None:
    subnet = ip_network(((10 << 24) + (number << 12), prefix), strict=False)
    address = ip_address(head_address(str(subnet)))
    # Azure keeps the first four and the last one.
    assert address in list(subnet)[4:-1]


def test_the_machine_is_small_closed_and_tagged(make: Make, tags: dict[str, str]) -> None:
    machine = make().one("VirtualMachine").inputs
    assert (machine["hardwareProfile"], machine["priority"]) == ({"vmSize": "Standard_D2s_v5"}, "Regular")
    assert (machine["zones"], machine["tags"]) == (["1"], {**tags, "gangway-role": "head"})
    assert machine["identity"] == {"type": "UserAssigned", "userAssignedIdentities": [NODES]}
    assert machine["securityProfile"] == {
        "encryptionAtHost": True, "securityType": "TrustedLaunch",
        "uefiSettings": {"secureBootEnabled": True, "vTpmEnabled": True},
    }  # fmt: skip
    assert machine["storageProfile"] == {
        "imageReference": {
            "publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest",
        },
        "osDisk": {
            "createOption": "FromImage", "deleteOption": "Delete", "caching": "ReadWrite", "diskSizeGB": 64,
            "managedDisk": {"storageAccountType": "Premium_LRS"},
        },
    }  # fmt: skip
    profile = machine["osProfile"]
    assert (profile["computerName"], profile["customData"]) == ("demo-head", "IyE=")
    assert "adminPassword" not in profile
    linux = profile["linuxConfiguration"]
    assert linux["disablePasswordAuthentication"] is True
    assert [key["keyData"] for key in linux["ssh"]["publicKeys"]] == [nobodys_key()]
    assert machine["diagnosticsProfile"] == {"bootDiagnostics": {"enabled": True}}


def test_what_may_be_chosen(make: Make) -> None:
    own = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g/providers/Microsoft.Compute/images/ours"
    made = make(
        machine_type="Standard_B2s", image_id=own, root_volume_gib=100, zone="", disk_encryption_set_id="keys",
        trusted_launch=False, encryption_at_host=False, accelerated_networking=False,
    )  # fmt: skip
    machine = made.one("VirtualMachine").inputs
    assert machine["hardwareProfile"] == {"vmSize": "Standard_B2s"}
    assert "zones" not in machine
    assert machine["securityProfile"] == {"encryptionAtHost": False}
    assert machine["storageProfile"]["imageReference"] == {"id": own}
    disk = machine["storageProfile"]["osDisk"]
    assert (disk["diskSizeGB"], disk["managedDisk"]["diskEncryptionSet"]) == (100, {"id": "keys"})
    assert made.one("NetworkInterface").inputs["enableAcceleratedNetworking"] is False
    uefi = make(secure_boot=False).one("VirtualMachine").inputs["securityProfile"]["uefiSettings"]
    assert uefi == {"secureBootEnabled": False, "vTpmEnabled": True}, "a Lustre client is unsigned"


@pytest.mark.parametrize(
    ("machine_type", "has"), [("Standard_B2s", False), ("Standard_B2ms", False), ("Standard_B2as_v2", True)]
)
def test_a_machine_type_without_accelerated_networking_is_not_asked_for_it(
    make: Make, machine_type: str, has: bool
) -> None:
    """Azure refuses the machine otherwise ("Bv1 size series")."""
    nic = make(machine_type=machine_type).one("NetworkInterface").inputs
    assert nic["enableAcceleratedNetworking"] is has


def test_people_may_come_in_with_their_own_accounts(make: Make) -> None:
    made = make(entra_login=True)
    assert made.one("VirtualMachine").inputs["identity"]["type"] == "SystemAssigned, UserAssigned"
    login = made.one("VirtualMachineExtension").inputs
    assert (login["type"], login["vmName"]) == ("AADSSHLoginForLinux", "${VirtualMachine.demo-head.name}")
    assert not make().of("VirtualMachineExtension")


def test_azures_models_take_it(make: Make, arm_mistakes: Mistakes) -> None:
    assert arm_mistakes(make(entra_login=True, disk_encryption_set_id="keys")) == []
    assert arm_mistakes(make(trusted_launch=False)) == []
