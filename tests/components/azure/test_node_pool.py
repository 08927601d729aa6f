"""IbNodePool: an empty scale set for each rung, in one placement group, none touched while it runs."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.capacity import FallbackConfig
from gangway.components.azure.launch import nobodys_key
from gangway.components.azure.node_pool import IbNodePool, plan_node_pool
from gangway.components.core.findings import InputError
from tests.components.fixture_types import Make, Mistakes

SPOT = {"kind": "spot"}
ON_DEMAND = {"kind": "on-demand"}
GROUP = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g"
    "/providers/Microsoft.Compute/capacityReservationGroups/ours"
)
RESERVED = {"kind": "reservation", "id": GROUP}
H100, A100, NC = "Standard_ND96isr_H100_v5", "Standard_ND96asr_v4", "Standard_NC24ads_A100_v4"


@pytest.fixture
def args(place: dict[str, Any]) -> dict[str, Any]:
    """Arguments of IbNodePool, to be varied."""
    return {
        **{key: value for key, value in place.items() if key != "stack"},
        "machine_type": H100,
        "num_nodes_min": 2,
        "num_nodes_max": 4,
        "capacity": [SPOT, ON_DEMAND],
        "subnet_ids": ["main"],
        "security_group_ids": ["workers"],
        "identity_id": "nodes",
        "user_data": "IyE=",
        "root_volume_gib": 256,
    }


@pytest.fixture
def make(declare_seen: Make, args: dict[str, Any]) -> Make:
    """Declares a pool with changes; `seen` are its outputs."""

    def run(name: str = "demo", **changes: Any) -> Any:
        return declare_seen(IbNodePool, {**args, **changes}, name)

    return run


def test_a_scale_set_for_each_rung_all_empty_for_the_head_to_fill(make: Make, tags: dict[str, str]) -> None:
    sets = make().of("VirtualMachineScaleSet")
    assert [one.name for one in sets] == ["demo-0-spot", "demo-1-on-demand"]
    for position, one in enumerate(sets):
        inputs = one.inputs
        assert inputs["sku"] == {"name": H100, "tier": "Standard", "capacity": 0}, (
            "`up` does not fail for want of nodes"
        )
        assert inputs["tags"] == {**tags, "gangway-nodes": "4", "gangway-nodes-min": "2", "gangway-rung": str(position)}
        assert inputs["zones"] == ["1"]
        assert (inputs["orchestrationMode"], inputs["overprovision"]) == ("Uniform", False)
        assert (inputs["singlePlacementGroup"], inputs["platformFaultDomainCount"]) == (True, 1)
        assert inputs["upgradePolicy"] == {"mode": "Manual"}, "`up` never restarts a worker"
        assert inputs["automaticRepairsPolicy"] == {"enabled": False}, "a node that saves may look unhealthy"
        assert inputs["scaleInPolicy"] == {"rules": ["NewestVM"]}
        assert inputs["identity"] == {"type": "UserAssigned", "userAssignedIdentities": ["nodes"]}
        assert "proximityPlacementGroup" not in inputs


def test_a_pool_without_a_head_asks_for_its_first_nodes_itself(make: Make) -> None:
    sizes = [one.inputs["sku"]["capacity"] for one in make(wait_for_nodes=True).of("VirtualMachineScaleSet")]
    assert sizes == [4, 0]


@pytest.mark.parametrize(("asked", "first"), [(False, ["sku.capacity"]), (True, None)])
def test_up_leaves_a_size_alone_that_the_head_owns(
    make: Make, monkeypatch: pytest.MonkeyPatch, asked: bool, first: list[str] | None
) -> None:
    from pulumi_azure_native import compute

    options: dict[str, Any] = {}
    real = compute.VirtualMachineScaleSet

    def noting(name: str, **values: Any) -> Any:
        options[name] = values["opts"]
        return real(name, **values)

    monkeypatch.setattr(compute, "VirtualMachineScaleSet", noting)
    make(wait_for_nodes=asked)
    ignored = {name: opts.ignore_changes for name, opts in options.items()}
    assert ignored == {"demo-0-spot": first, "demo-1-on-demand": ["sku.capacity"]}
    assert {opts.custom_timeouts.delete for opts in options.values()} == {"40m"}


def profiles(made: Any) -> list[dict[str, Any]]:
    return [one.inputs["virtualMachineProfile"] for one in made.of("VirtualMachineScaleSet")]


def test_how_each_rung_is_had(make: Make) -> None:
    capped = {**SPOT, "max_usd_per_hour": 30.5}
    spot, uncapped, on_demand = profiles(make(capacity=[capped, SPOT, ON_DEMAND]))
    assert (spot["priority"], spot["evictionPolicy"], spot["billingProfile"]) == ("Spot", "Delete", {"maxPrice": 30.5})
    assert uncapped["billingProfile"] == {"maxPrice": -1}, "never evicted for its price"
    assert on_demand["priority"] == "Regular"
    assert not {"evictionPolicy", "billingProfile", "capacityReservation"} & set(on_demand)
    (reserved,) = profiles(make(capacity=[RESERVED], machine_type=NC))
    assert reserved["capacityReservation"] == {"capacityReservationGroup": {"id": GROUP}}
    assert not {"evictionPolicy", "billingProfile"} & set(reserved)


def test_nodes_that_are_deleted_are_told_where_azure_tells_them(make: Make) -> None:
    spot, on_demand = profiles(make())
    assert "scheduledEventsProfile" not in spot, "Azure takes none for spot"
    assert on_demand["scheduledEventsProfile"] == {
        "terminateNotificationProfile": {"enable": True, "notBeforeTimeout": "PT5M"}
    }


def test_nodes_are_closed(make: Make) -> None:
    profile = profiles(make())[0]
    (nic,) = profile["networkProfile"]["networkInterfaceConfigurations"]
    assert nic["enableAcceleratedNetworking"] is True
    (private,) = nic["ipConfigurations"]
    assert (private["subnet"], private["applicationSecurityGroups"]) == ({"id": "main"}, [{"id": "workers"}])
    assert "publicIPAddressConfiguration" not in private
    linux = profile["osProfile"]["linuxConfiguration"]
    assert linux["disablePasswordAuthentication"] is True
    assert [key["keyData"] for key in linux["ssh"]["publicKeys"]] == [nobodys_key()]
    assert "adminPassword" not in profile["osProfile"]
    assert (profile["osProfile"]["customData"], "userData" in profile) == ("IyE=", False), (
        "userData is anybody's to read"
    )


def test_health_is_asked_where_the_node_answers(make: Make) -> None:
    (health,) = profiles(make())[0]["extensionProfile"]["extensions"]
    assert (health["publisher"], health["type"]) == ("Microsoft.ManagedServices", "ApplicationHealthLinux")
    assert health["typeHandlerVersion"] == "2.0", "a node that does not answer yet is not unhealthy"
    settings = health["settings"]
    assert (settings["protocol"], settings["port"], settings["requestPath"]) == ("http", 9401, "/health")
    assert 5 <= settings["intervalInSeconds"] <= 60
    assert settings["gracePeriod"] <= 14400


def test_people_may_come_in_with_their_own_accounts(make: Make) -> None:
    made = make(entra_login=True, capacity=[SPOT])
    _, login = profiles(made)[0]["extensionProfile"]["extensions"]
    assert login["type"] == "AADSSHLoginForLinux"
    assert made.one("VirtualMachineScaleSet").inputs["identity"]["type"] == "SystemAssigned, UserAssigned"


def test_disks_and_what_guards_them(make: Make) -> None:
    profile = profiles(make(disk_encryption_set_id="keys"))[0]
    assert profile["storageProfile"]["osDisk"] == {
        "createOption": "FromImage", "caching": "ReadWrite", "diskSizeGB": 256,
        "managedDisk": {"storageAccountType": "Premium_LRS", "diskEncryptionSet": {"id": "keys"}},
    }  # fmt: skip
    assert profile["securityProfile"] == {
        "encryptionAtHost": True, "securityType": "TrustedLaunch",
        "uefiSettings": {"secureBootEnabled": False, "vTpmEnabled": True},
    }  # fmt: skip
    older = profiles(make(machine_type=A100, encryption_at_host=False))[0]
    assert older["securityProfile"] == {"encryptionAtHost": False}, "no Trusted Launch on this size"


def test_the_image(make: Make) -> None:
    def seen(**changes: Any) -> Any:
        return profiles(make(**changes))[0]["storageProfile"]["imageReference"]

    assert seen() == {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404", "version": "latest"}
    own = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g/providers/Microsoft.Compute/images/ours"
    assert seen(image_id=own) == {"id": own}
    with pytest.raises(InputError, match="no public image"):
        make(machine_type="Standard_NV36ads_A10_v5")
    assert seen(machine_type="Standard_NV36ads_A10_v5", image_id=own) == {"id": own}


def test_nodes_without_infiniband_may_be_kept_in_one_data_centre(make: Make) -> None:
    made = make(machine_type=NC, proximity=True, capacity=[RESERVED, SPOT])
    placed = [one.inputs.get("proximityPlacementGroup") for one in made.of("VirtualMachineScaleSet")]
    assert placed == [None, {"id": "${ProximityPlacementGroup.demo-near.id}"}], "reserved capacity takes none"
    assert [one.inputs["singlePlacementGroup"] for one in made.of("VirtualMachineScaleSet")] == [False, False]
    assert not make(machine_type=NC).of("ProximityPlacementGroup")
    assert not make(machine_type=NC, proximity=True, capacity=[RESERVED]).of("ProximityPlacementGroup")
    with pytest.raises(InputError, match="placement group is narrower"):
        make(proximity=True)


def test_a_region_without_zones(make: Make) -> None:
    assert all("zones" not in one.inputs for one in make(zone="").each("VirtualMachineScaleSet"))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"machine_type": "p5.48xlarge"}, "no such machine type"),
        ({"capacity": [{"kind": "capacity-block", "id": "cr-0123456789abcdef0"}]}, "no such capacity"),
        ({"capacity": [{"kind": "flex-start", "max_hours": 24}]}, "no such capacity"),
        ({"capacity": [SPOT, RESERVED]}, "cannot be reserved"),
        ({"num_nodes_max": 1000}, "one InfiniBand partition"),
        ({"image_id": "ami-0123"}, "can be called so"),
        ({"machine_type": A100, "trusted_launch": True}, "does not have it"),
    ],
)
def test_what_azure_does_not_have_is_refused(make: Make, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        make(**changes)


RUNGS = st.one_of(
    st.just(ON_DEMAND),
    st.just(RESERVED),
    st.integers(1, 50_000_000).map(lambda n: {**SPOT, "max_usd_per_hour": round(n / 100_000, 5)}),
    st.just(SPOT),
)


@given(st.lists(RUNGS, min_size=1, max_size=5), st.integers(1, 50))
def test_a_rung_is_had_in_one_way_only(rungs: list[dict[str, Any]], num_nodes: int) -> None:
    args: Any = {
        "machine_type": NC, "capacity": rungs, "zone": "1", "num_nodes_min": 1, "num_nodes_max": num_nodes,
    }  # fmt: skip
    for rung, fields in zip(rungs, plan_node_pool(args).fields, strict=True):
        spot, reserved = rung["kind"] == "spot", rung["kind"] == "reservation"
        assert fields.priority == ("Spot" if spot else "Regular")
        assert (fields.eviction_policy is not None) is spot
        assert (fields.max_price is not None) is spot
        assert (fields.capacity_reservation_group is not None) is reserved


def test_the_outputs(make: Make) -> None:
    made = make()
    names = ["${VirtualMachineScaleSet.demo-0-spot.name}", "${VirtualMachineScaleSet.demo-1-on-demand.name}"]
    assert made.seen["group_names"] == names
    assert made.seen["launch_template_ids"] == [name.replace(".name}", ".id}") for name in names]
    assert made.seen["interfaces_per_node"] == 9, "eight InfiniBand adapters and Ethernet"
    config = json.loads(made.seen["fallback_config"])
    assert [group["name"] for group in config["groups"]] == names
    assert (config["resource_group_name"], config["together"]) == ("gangway-demo", False)
    assert set(FallbackConfig.__annotations__) | {"version"} == set(config)
    assert make(machine_type=NC).seen["interfaces_per_node"] == 1


def test_azures_models_take_the_groups(make: Make, arm_mistakes: Mistakes) -> None:
    everything = {"entra_login": True, "disk_encryption_set_id": "keys", "wait_for_nodes": True}
    assert arm_mistakes(make(**everything)) == []
    assert arm_mistakes(make(machine_type=NC, capacity=[RESERVED, SPOT], proximity=True)) == []
    assert arm_mistakes(make(machine_type=A100, image_id="/SharedGalleries/s/Images/i", zone="")) == []


def test_names_of_the_longest_stack_fit(make: Make) -> None:
    made = make("s" * 40, capacity=[RESERVED, SPOT, ON_DEMAND, *[SPOT] * 9], machine_type=NC)
    # Pulumi adds eight hex digits; Azure takes 64, and prefixes of 15.
    sets = made.of("VirtualMachineScaleSet")
    assert all(len(one.name) <= 64 - 8 for one in sets)
    prefixes = [profile["osProfile"]["computerNamePrefix"] for profile in profiles(made)]
    assert len(set(prefixes)) == 12, "nodes of two rungs have names of their own"
    assert all(len(prefix) <= 15 for prefix in prefixes)
