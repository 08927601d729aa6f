"""HeadNode: one closed machine with a fixed address and a name."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.gcp.launch import HEAD_IMAGE, HeadNode, instance_metadata

Make = Callable[..., Any]


@pytest.fixture
def make(declare_seen: Callable[..., Any], labels: dict[str, str]) -> Make:
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


def test_a_fixed_address_with_a_name(make: Make) -> None:
    made = make()
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


def test_the_machine_is_small_closed_and_labelled(make: Make, labels: dict[str, str]) -> None:
    instance = make().one("Instance").inputs
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


def test_what_may_be_chosen(make: Make) -> None:
    chosen = {"machine_type": "e2-standard-4", "image_id": "projects/lab/global/images/ours", "root_volume_gib": 100,
              "secure_boot": False, "kms_key_name": "projects/lab/key"}  # fmt: skip
    instance = make(**chosen).one("Instance").inputs
    disk = instance["bootDisk"]
    assert instance["machineType"] == "e2-standard-4"
    assert (disk["initializeParams"]["image"], disk["initializeParams"]["size"]) == (
        "projects/lab/global/images/ours",
        100,
    )
    assert disk["kmsKeySelfLink"] == "projects/lab/key"
    assert instance["shieldedInstanceConfig"]["enableSecureBoot"] is False


def test_other_user_data_makes_another_machine(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from pulumi_gcp import compute

    options: list[Any] = []
    real = compute.Instance

    def noting(name: str, **values: Any) -> Any:
        options.append(values["opts"])
        return real(name, **values)

    monkeypatch.setattr(compute, "Instance", noting)
    make()
    (opts,) = options
    assert opts.replace_on_changes == ["metadata"], "cloud-init acts on the first boot only"
    assert opts.delete_before_replace is True, "one address, one machine"


def test_a_head_that_the_budget_stopped_is_not_as_declared(make: Make) -> None:
    assert make().one("Instance").inputs["desiredStatus"] == "RUNNING", "else no `up` would start it again"


def test_everything_is_the_components_child(make: Make) -> None:
    made = make()
    (component,) = [r for r in made.resources if r.type == "gangway:gcp:HeadNode"]
    assert all(r.parent == component.urn for r in made.resources if r.custom)
    assert made.outputs[component.urn] == set(HeadNode.__annotations__)
    assert all(r.inputs["project"] == "lab" for r in made.resources if r.custom)


def test_the_api_takes_it(make: Make, api_mistakes: Callable[..., list[str]]) -> None:
    made = make()
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
