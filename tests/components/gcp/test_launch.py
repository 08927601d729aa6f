"""Instance templates: one machine type, closed, and had in one way; checked against Compute Engine's own schema."""

import base64
from collections.abc import Callable, Mapping
from typing import Any, cast

import pulumi
import pytest

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.gcp.capacity import Provisioning
from gangway.components.gcp.fabric import plan_interfaces
from gangway.components.gcp.launch import (
    GPU_IMAGE,
    HEAD_IMAGE,
    HeadNode,
    NodeLaunch,
    boot_disk_type,
    instance_metadata,
    instance_template,
)
from tests.components.fixture_types import Mistakes

MACHINES = cast("dict[str, GcpMachineType]", load_provider("gcp").machines)
USER_DATA = base64.b64encode(b"#cloud-config\n").decode()
WAYS = {
    "spot": Provisioning("SPOT", False, "DELETE"),
    "on-demand": Provisioning("STANDARD", True),
    "reservation": Provisioning("RESERVATION_BOUND", True, "DELETE", "ours"),
    "flex-start": Provisioning("FLEX_START", False, "DELETE", run_duration_sec=86400),
}
Make = Callable[..., Mapping[str, Any]]


@pytest.fixture
def make(declare: Callable[..., Any], labels: dict[str, str]) -> Make:
    """The inputs of a template."""

    def run(machine_type: str, way: str, **changes: Any) -> Mapping[str, Any]:
        machine = MACHINES[machine_type]
        subnets = [f"subnet-{interface.index}" for interface in plan_interfaces(machine)]
        values: dict[str, Any] = {
            "project": "lab",
            "region": "us-east4",
            "image": GPU_IMAGE,
            "service_account_email": "nodes@lab.iam.gserviceaccount.com",
            "network_tags": ["demo-fabric"],
            "user_data": USER_DATA,
            "root_volume_gib": 200,
            "secure_boot": True,
            "kms_key_name": None,
            "labels": labels,
            **changes,
        }

        def program() -> None:
            launch = NodeLaunch(subnet_ids=pulumi.Output.from_input(subnets), **values)
            instance_template("demo-0", launch, machine, WAYS[way], pulumi.ResourceOptions())

        return cast("Mapping[str, Any]", declare(program).one("InstanceTemplate").inputs)

    return run


def api_body(template: Mapping[str, Any]) -> dict[str, Any]:
    """A template's inputs as Compute Engine's InstanceProperties."""
    (disk,) = template["disks"]
    affinity = template["reservationAffinity"]
    specific = affinity.get("specificReservation", {})
    same = ("machineType", "canIpForward", "networkInterfaces", "scheduling", "shieldedInstanceConfig", "labels")
    return {
        **{key: template[key] for key in same},
        "tags": {"items": template["tags"]},
        "serviceAccounts": [template["serviceAccount"]],
        "metadata": {"items": [{"key": key, "value": value} for key, value in template["metadata"].items()]},
        "reservationAffinity": {"consumeReservationType": affinity["type"], **specific},
        "disks": [
            {
                "boot": disk["boot"],
                "autoDelete": disk["autoDelete"],
                "initializeParams": {
                    "diskType": disk["diskType"],
                    "diskSizeGb": disk["diskSizeGb"],
                    "sourceImage": disk["sourceImage"],
                    "labels": disk["labels"],
                },
            }
        ],
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("machine_type", ["a2-highgpu-8g", "a3-highgpu-8g", "a3-megagpu-8g", "a4-highgpu-8g"])
def test_the_api_takes_every_template(make: Make, api_mistakes: Mistakes, machine_type: str, way: str) -> None:
    assert api_mistakes("compute.v1", "InstanceProperties", api_body(make(machine_type, way))) == []


def test_the_check_against_the_api_can_fail(make: Make, api_mistakes: Mistakes) -> None:
    body = api_body(make("a2-highgpu-8g", "spot"))
    body["scheduling"] = {**body["scheduling"], "provisioningModel": "CHEAP"}
    assert len(api_mistakes("compute.v1", "InstanceProperties", body)) == 1


@pytest.mark.parametrize("machine_type", ["a2-highgpu-8g", "a3-megagpu-8g", "a3-ultragpu-8g"])
def test_each_nic_lies_in_its_subnet_and_has_no_external_address(make: Make, machine_type: str) -> None:
    interfaces = make(machine_type, "spot")["networkInterfaces"]
    planned = plan_interfaces(MACHINES[machine_type])
    assert interfaces == [{"subnetwork": f"subnet-{i.index}", "nicType": i.nic_type} for i in planned]


@pytest.mark.parametrize(
    ("way", "scheduling"),
    [
        ("spot", {"provisioningModel": "SPOT", "preemptible": True, "automaticRestart": False,
                  "instanceTerminationAction": "DELETE"}),
        ("on-demand", {"provisioningModel": "STANDARD", "preemptible": False, "automaticRestart": True}),
        ("reservation", {"provisioningModel": "RESERVATION_BOUND", "preemptible": False, "automaticRestart": True,
                         "instanceTerminationAction": "DELETE"}),
        ("flex-start", {"provisioningModel": "FLEX_START", "preemptible": False, "automaticRestart": False,
                        "instanceTerminationAction": "DELETE", "maxRunDuration": {"seconds": 86400}}),
    ],
)  # fmt: skip
def test_how_it_is_had(make: Make, way: str, scheduling: dict[str, Any]) -> None:
    template = make("a3-ultragpu-8g", way)
    assert template["scheduling"] == {**scheduling, "onHostMaintenance": "TERMINATE"}
    wanted = {"key": "compute.googleapis.com/reservation-name", "values": ["ours"]}
    assert template["reservationAffinity"] == (
        {"type": "SPECIFIC_RESERVATION", "specificReservation": wanted}
        if way == "reservation"
        else {"type": "NO_RESERVATION"}
    )


def test_a_node_is_closed(make: Make, labels: dict[str, str]) -> None:
    template = make("a3-megagpu-8g", "on-demand")
    assert template["shieldedInstanceConfig"] == {
        "enableSecureBoot": True, "enableVtpm": True, "enableIntegrityMonitoring": True,
    }  # fmt: skip
    assert template["serviceAccount"] == {
        "email": "nodes@lab.iam.gserviceaccount.com", "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
    }  # fmt: skip
    assert (template["tags"], template["labels"], template["canIpForward"]) == (["demo-fabric"], labels, False)
    assert template["metadata"] == instance_metadata(USER_DATA)
    assert {template["metadata"][key] for key in ("enable-oslogin", "block-project-ssh-keys")} == {"TRUE"}
    assert base64.b64decode(template["metadata"]["user-data"]).startswith(b"#cloud-config")
    assert template["metadata"]["user-data-encoding"] == "base64"
    assert "guestAccelerators" not in template, "the machine type brings them"


@pytest.mark.parametrize(("machine_type", "disk_type"), [("a2-ultragpu-8g", "pd-balanced"),
                                                        ("a3-megagpu-8g", "pd-balanced"),
                                                        ("a3-ultragpu-8g", "hyperdisk-balanced"),
                                                        ("a4-highgpu-8g", "hyperdisk-balanced")])  # fmt: skip
def test_the_disk(make: Make, labels: dict[str, str], machine_type: str, disk_type: str) -> None:
    assert boot_disk_type(MACHINES[machine_type]) == disk_type
    (disk,) = make(machine_type, "spot", kms_key_name="projects/lab/key")["disks"]
    assert disk == {
        "boot": True, "autoDelete": True, "sourceImage": GPU_IMAGE, "diskType": disk_type, "diskSizeGb": 200,
        "diskEncryptionKey": {"kmsKeySelfLink": "projects/lab/key"}, "labels": labels,
    }  # fmt: skip
    (plain,) = make(machine_type, "spot")["disks"]
    assert "diskEncryptionKey" not in plain


MakeHead = Callable[..., Any]


@pytest.fixture
def make_head(declare_seen: Callable[..., Any], labels: dict[str, str]) -> MakeHead:
    """Declares a head node with changes; `seen` are its outputs."""

    def run(**changes: Any) -> Any:
        args: Any = {
            "project": "lab",
            "region": "us-east4",
            "zone": "us-east4-b",
            "subnet_id": "main",
            "security_group_ids": ["demo-head"],
            "service_account_email": "head@lab.iam.gserviceaccount.com",
            "user_data": "IyE=",
            "host_name": "head.demo.gangway.internal",
            "zone_id": "demo-head",
            "tags": labels,
            **changes,
        }
        return declare_seen(HeadNode, args)

    return run


def test_a_fixed_address_with_a_name(make_head: MakeHead) -> None:
    made = make_head()
    address, record = made.one("Address").inputs, made.one("RecordSet").inputs
    fixed = "${Address.demo-head.address}"
    assert (address["addressType"], address["subnetwork"], address["region"]) == ("INTERNAL", "main", "us-east4")
    assert made.one("Instance").inputs["networkInterfaces"] == [
        {"subnetwork": "main", "networkIp": fixed, "nicType": "GVNIC"}
    ], "no access configuration, so no external address"
    assert (record["name"], record["type"], record["rrdatas"]) == ("head.demo.gangway.internal.", "A", [fixed])
    assert record["managedZone"] == "demo-head"
    assert made.seen == {
        "instance_id": "${Instance.demo-head.id}", "private_ip": fixed, "host": "head.demo.gangway.internal",
    }  # fmt: skip


def test_the_machine_is_small_closed_and_labelled(make_head: MakeHead, labels: dict[str, str]) -> None:
    instance = make_head().one("Instance").inputs
    role = {**labels, "gangway-role": "head"}
    assert (instance["machineType"], instance["labels"], instance["tags"]) == ("e2-medium", role, ["demo-head"])
    assert instance["bootDisk"] == {
        "autoDelete": True,
        "initializeParams": {"image": HEAD_IMAGE, "size": 60, "type": "pd-balanced", "labels": role},
    }
    assert instance["metadata"] == instance_metadata("IyE=")
    assert instance["shieldedInstanceConfig"] == {
        "enableSecureBoot": True, "enableVtpm": True, "enableIntegrityMonitoring": True,
    }  # fmt: skip
    assert instance["scheduling"] == {
        "provisioningModel": "STANDARD", "automaticRestart": True, "onHostMaintenance": "MIGRATE",
    }  # fmt: skip
    assert instance["serviceAccount"]["email"] == "head@lab.iam.gserviceaccount.com"
    assert instance["deletionProtection"] is False, "destroying the stack takes it too"


def test_what_may_be_chosen(make_head: MakeHead) -> None:
    chosen = {"machine_type": "e2-standard-4", "image_id": "projects/lab/global/images/ours", "root_volume_gib": 100,
              "secure_boot": False, "kms_key_name": "projects/lab/key"}  # fmt: skip
    instance = make_head(**chosen).one("Instance").inputs
    disk = instance["bootDisk"]
    assert instance["machineType"] == "e2-standard-4"
    assert (disk["initializeParams"]["image"], disk["initializeParams"]["size"]) == (
        "projects/lab/global/images/ours",
        100,
    )
    assert disk["kmsKeySelfLink"] == "projects/lab/key"
    assert instance["shieldedInstanceConfig"]["enableSecureBoot"] is False


def test_other_user_data_makes_another_machine(make_head: MakeHead, monkeypatch: pytest.MonkeyPatch) -> None:
    from pulumi_gcp import compute

    options: list[Any] = []
    real = compute.Instance

    def noting(name: str, **values: Any) -> Any:
        options.append(values["opts"])
        return real(name, **values)

    monkeypatch.setattr(compute, "Instance", noting)
    make_head()
    (opts,) = options
    assert opts.replace_on_changes == ["metadata"], "cloud-init acts on the first boot only"
    assert opts.delete_before_replace is True, "one address, one machine"


def test_a_head_that_the_budget_stopped_is_not_as_declared(make_head: MakeHead) -> None:
    assert make_head().one("Instance").inputs["desiredStatus"] == "RUNNING", "else no `up` would start it again"


def test_the_api_takes_it(make_head: MakeHead, api_mistakes: Mistakes) -> None:
    made = make_head()
    instance, address = made.one("Instance").inputs, made.one("Address").inputs
    (interface,) = instance["networkInterfaces"]
    same = ("canIpForward", "scheduling", "shieldedInstanceConfig", "labels", "deletionProtection", "machineType")
    body = {
        **{key: instance[key] for key in same},
        "networkInterfaces": [
            {**{k: interface[k] for k in ("subnetwork", "nicType")}, "networkIP": interface["networkIp"]}
        ],
        "tags": {"items": instance["tags"]},
        "serviceAccounts": [instance["serviceAccount"]],
    }
    assert api_mistakes("compute.v1", "Instance", body) == []
    named = ("addressType", "subnetwork", "labels")
    assert api_mistakes("compute.v1", "Address", {key: address[key] for key in named}) == []
