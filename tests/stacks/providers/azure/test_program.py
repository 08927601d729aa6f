"""A stack on Azure: how the components are wired together, held against Microsoft's own models of requests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.azure.common import IMMUTABLE
from gangway.components.core.lookup import STASH
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, run_program
from gangway.stacks.providers.azure.plan import plan
from gangway.stacks.providers.azure.program import price
from gangway.stacks.recording import PlaceholderCloud, PlannedResource, Recording
from tests.sdk_arguments import sdk_arguments

SPOT, V4, DEV = "azure-ndv5-spot", "azure-ndv4", "azure-nc-dev"
SUBSCRIPTION = "11111111-0000-0000-0000-111111111111"
REGISTRY = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/images/providers/Microsoft.ContainerRegistry/registries/myown"
PREBUILT = {
    "image": {"prebuilt": f"myown.azurecr.io/gan/trainer@sha256:{'ab' * 32}"},
    "azure": {"registry_id": REGISTRY},
}
Edited = Callable[..., StackConfig]
Resources = tuple[PlannedResource, ...]
# The names that a stack exports on any provider.
EVERYWHERE = {
    "dashboard", "group_names", "head_instance_id", "image", "job", "log_group", "lustre_dns_name", "machine_images",
    "run_bucket",
}  # fmt: skip


@pytest.mark.parametrize("stack", [SPOT, "aks-ndv5"])
def test_what_azure_refuses_to_change_is_replaced(repo: Path, stack: str) -> None:
    """Of every resource of these types: none of their components may forget it."""
    config = from_file(repo / "stacks" / f"Pulumi.{stack}.yaml")
    resources = run_program(config, PlaceholderCloud()).resources
    found = {r.type.removeprefix("azure-native:"): r.replace_on_changes for r in resources if r.custom}
    expected = {kind: tuple(paths) for kind, paths in IMMUTABLE.items() if kind in found}
    assert "network:PublicIPAddress" in expected
    assert {kind: found[kind] for kind in expected} == expected


def of(resources: Resources, kind: str) -> list[PlannedResource]:
    return [r for r in resources if r.type.startswith("azure-native:") and r.type.endswith(f":{kind}")]


def one(resources: Resources, kind: str, name: str = "") -> PlannedResource:
    (found,) = [r for r in of(resources, kind) if name in r.name]
    return found


def before(resources: Resources, resource: PlannedResource) -> frozenset[str]:
    """What stands before a resource, also by its user data, which the state keeps."""
    kept = (each.dependencies for each in resources if each.type == STASH and each.urn in resource.dependencies)
    return resource.dependencies.union(*kept)


HEAD_IMAGE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.Compute/images/head"
NO_SOURCE = {"source_account_id": None, "importer_principal_id": None}


@pytest.fixture(
    scope="module",
    params=[
        (SPOT, {}),
        (SPOT, PREBUILT),
        (SPOT, {"storage": {"export_runs": True}, "encryption": "provider-key", "network": {"flow_logs": False},
                "azure": {"tenant_id": None}}),
        (SPOT, {"storage": None, "azure": NO_SOURCE, "budget": {"stop_at_percent": None}}),
        (V4, {}),
        (DEV, {}),
        (DEV, {"encryption": "customer-key", "azure": {"tenant_id": SUBSCRIPTION}, "network": {"egress": "endpoints"}}),
        (V4, {"azure": {"role_wait_sec": 0, "trusted_launch": False, "encryption_at_host": False}}),
        (DEV, {"azure": {"proximity": True}, "cluster": {"nodes": {"min": 2, "max": 2}}}),
        (V4, {"azure": {"private_endpoints": True, "head_image": HEAD_IMAGE}, "network": {"egress": "endpoints"}}),
    ],
    ids=["v5", "prebuilt", "exporting", "bare", "v4", "dev", "dev with a key", "unguarded", "near", "private"],
)  # fmt: skip
def program(
    request: pytest.FixtureRequest, azure_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> tuple[StackConfig, Recording]:
    name, changes = request.param
    config = azure_edited(name, **changes)
    return config, recorded(config)


@pytest.fixture
def made(azure_plans: dict[str, Plan]) -> Resources:
    """The largest of the shipped stacks."""
    return azure_plans[SPOT].resources


def test_microsofts_models_take_all_that_is_declared(
    program: tuple[StackConfig, Recording], arm_mistakes: Callable[[Any], list[str]]
) -> None:
    _, recorded = program
    assert len([r for r in recorded.resources if r.type.startswith("azure-native:")]) > 40
    assert arm_mistakes(recorded) == []


def test_whatever_takes_tags_has_them_all(program: tuple[StackConfig, Recording]) -> None:
    config, recorded = program
    tags, checked = plan(config).tags, 0
    for resource in recorded.resources:
        if resource.type.startswith("azure-native:") and "tags" in sdk_arguments(resource.type):
            # The head and the scale sets have some more.
            assert tags.items() <= resource.inputs["tags"].items(), resource.urn
            checked += 1
    assert checked > 20
    assert tags["gangway-stack"] == config.stack


def test_everything_is_in_the_one_group_of_the_stacks_own_provider(program: tuple[StackConfig, Recording]) -> None:
    config, recorded = program
    (provider,) = [r for r in recorded.resources if r.type == "pulumi:providers:azure-native"]
    assert (provider.inputs["subscriptionId"], provider.inputs["location"]) == (SUBSCRIPTION, config.region)
    group = one(recorded.resources, "ResourceGroup")
    components = {r.urn for r in recorded.resources if r.type.startswith("gangway:")}
    # Azure's own watcher, and the log of imports in the account of the data.
    elsewhere = {"FlowLog": "NetworkWatcherRG", "BlobContainer": "data"}
    for resource in recorded.resources:
        if not resource.type.startswith("azure-native:"):
            continue
        assert resource.parent in components, resource.urn
        own = resource.inputs.get("resourceGroupName", f"${{ResourceGroup.{group.name}.name}}")
        assert own in (f"${{ResourceGroup.{group.name}.name}}", elsewhere.get(resource.type.rpartition(":")[2]))


def test_the_exports_have_the_names_of_every_provider(program: tuple[StackConfig, Recording]) -> None:
    config, recorded = program
    exported = dict(recorded.result)
    own = {"alarm_topic_id", "budget_topic_id", "mount_point", "resource_group", "run_bucket_url", "zone"}
    assert set(exported) == EVERYWHERE | own | {"signing_public_key"}
    assert exported["zone"] == plan(config).zone
    assert exported["resource_group"] == f"${{ResourceGroup.{config.stack}-gangway.name}}"
    assert len(exported["group_names"]) == len(config.cluster.capacity)
    assert exported["alarm_topic_id"] == f"${{ActionGroup.{config.stack}-alarms.id}}"
    assert exported["head_instance_id"] == f"${{VirtualMachine.{config.stack}-head.id}}"
    for name in ("lustre_dns_name", "mount_point"):
        assert (exported[name] is not None) is (config.storage is not None)
    assert exported["job"]["num_nodes_max"] == config.cluster.nodes.max


def test_no_machine_has_a_public_address(program: tuple[StackConfig, Recording]) -> None:
    _, recorded = program
    machines = [*of(recorded.resources, "NetworkInterface"), *of(recorded.resources, "VirtualMachineScaleSet")]
    assert len(machines) > 1
    assert "publicip" not in json.dumps([r.inputs for r in machines]).lower()
    assert [r.name.rpartition("-")[2] for r in of(recorded.resources, "PublicIPAddress")] == ["nat"]
    assert all(subnet.inputs["defaultOutboundAccess"] is False for subnet in of(recorded.resources, "Subnet"))


def test_scale_sets_are_made_empty_and_the_head_may_fill_them(program: tuple[StackConfig, Recording]) -> None:
    config, recorded = program
    sets = of(recorded.resources, "VirtualMachineScaleSet")
    assert [group.inputs["sku"]["capacity"] for group in sets] == [0] * len(config.cluster.capacity)
    (permission,) = one(recorded.resources, "RoleDefinition", "-head-fill").inputs["permissions"]
    assert "Microsoft.Compute/virtualMachineScaleSets/write" in permission["actions"]
    scrapes = "Microsoft.Network/networkInterfaces/read" in permission["actions"]
    assert scrapes is (config.network.egress == "nat"), "Prometheus comes from outside"
    head = one(recorded.resources, "VirtualMachine")
    assert {group.urn for group in sets} <= before(recorded.resources, head), "it has to know their names"


def test_what_a_node_needs_stands_before_it(made: Resources) -> None:
    """And outlives it: it pulls, mounts, saves, sends lines and leaves its set with these."""
    needed = [
        one(made, "AmlFilesystem"),
        one(made, "DataCollectionRule"),
        one(made, "BlobContainer", "-runs"),
        one(made, "DiskEncryptionSet"),
        *(one(made, "RoleAssignment", f"-node-{label}") for label in ("image", "leave", "lines", "runs")),
        *(one(made, "Subnet", label) for label in ("-private", "-lustre")),
    ]
    for group in of(made, "VirtualMachineScaleSet"):
        assert {resource.urn for resource in needed} <= before(made, group)


def test_the_parts_refer_to_each_other(made: Resources) -> None:
    sets, head = of(made, "VirtualMachineScaleSet"), one(made, "VirtualMachine")
    assert [group.name for group in sets] == [f"{SPOT}-0-spot", f"{SPOT}-1-on-demand"]
    stop = one(made, "Workflow").inputs["parameters"]
    assert stop["sets"]["value"] == [group.id for group in sets]
    assert stop["heads"]["value"] == [head.id]
    (address,) = one(made, "NetworkInterface").inputs["ipConfigurations"]
    record = one(made, "PrivateRecordSet").inputs
    assert record["aRecords"] == [{"ipv4Address": address["privateIPAddress"]}]
    assert f"{record['relativeRecordSetName']}.{one(made, 'PrivateZone').inputs['privateZoneName']}" == (
        f"head.{SPOT}.gangway.internal"
    )
    assert one(made, "Budget").ignore_changes == ("timePeriod.startDate",), "the month of the first `up` stays"
    (filtered,) = [one(made, "Budget").inputs["filter"]["tags"]]
    assert (filtered["name"], filtered["values"]) == ("gangway-stack", [SPOT])


def test_the_stacks_own_key_is_on_everything_that_takes_one(made: Resources) -> None:
    disks = one(made, "DiskEncryptionSet").id
    for group in of(made, "VirtualMachineScaleSet"):
        disk = group.inputs["virtualMachineProfile"]["storageProfile"]["osDisk"]["managedDisk"]
        assert disk["diskEncryptionSet"] == {"id": disks}
    head = one(made, "VirtualMachine").inputs["storageProfile"]["osDisk"]["managedDisk"]
    assert head["diskEncryptionSet"] == {"id": disks}
    accounts = of(made, "StorageAccount")
    assert len(accounts) == 2
    assert {account.inputs["encryption"]["keySource"] for account in accounts} == {"Microsoft.Keyvault"}
    assert "keyEncryptionKey" in one(made, "AmlFilesystem").inputs["encryptionSettings"]


def test_azure_imports_the_data_and_no_machine_may_read_it(made: Resources) -> None:
    settings = one(made, "AmlFilesystem").inputs["hsm"]["settings"]
    assert settings["container"].endswith("/storageAccounts/myaccount/blobServices/default/containers/images")
    assert settings["importPrefixesInitial"] == ["/digits"]
    on_account = [r for r in of(made, "RoleAssignment") if "/storageAccounts/myaccount" in r.inputs["scope"]]
    assert {r.name.removeprefix(f"{SPOT}-lustre-") for r in on_account} == {"account", "blobs"}


def test_machines_with_lustre_boot_without_secure_boot(made: Resources, azure_plans: dict[str, Plan]) -> None:
    """A client built on the machine is an unsigned module."""
    head = one(made, "VirtualMachine").inputs["securityProfile"]
    assert head["uefiSettings"] == {"secureBootEnabled": False, "vTpmEnabled": True}
    alone = one(azure_plans[DEV].resources, "VirtualMachine").inputs["securityProfile"]
    assert alone["uefiSettings"] == {"secureBootEnabled": True, "vTpmEnabled": True}


@pytest.mark.slow
def test_a_prebuilt_image_is_pulled_from_where_it_is(azure_edited: Edited) -> None:
    resources = run_program(azure_edited(SPOT, **PREBUILT), PlaceholderCloud()).resources
    assert not of(resources, "Registry")
    assert not [r for r in resources if r.type.startswith("docker-build:")]
    pulls = [r for r in of(resources, "RoleAssignment") if r.name.endswith("-image")]
    assert [r.inputs["scope"] for r in pulls] == [REGISTRY] * 2


def test_an_image_is_pushed_with_a_password_that_no_plan_asks_for(made: Resources) -> None:
    (built,) = [r for r in made if r.type.startswith("docker-build:")]
    (registry,) = built.inputs["registries"]
    assert registry["address"] == "${Registry.azurendv5spot.loginServer}"
    assert registry["username"] == "00000000-0000-0000-0000-000000000000"
    assert registry["password"]["value"] == ""
    assert built.to_json()["inputs"]["registries"][0]["password"] == "[secret]"
    assert built.inputs["tags"] == [
        f"${{Registry.azurendv5spot.loginServer}}/trainer:{built.inputs['buildArgs']['REVISION']}"
    ]


def test_machines_come_after_their_private_endpoints(
    azure_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> None:
    changes = {"azure": {"private_endpoints": True, "head_image": HEAD_IMAGE}, "network": {"egress": "endpoints"}}
    made = recorded(azure_edited(V4, **changes)).resources
    known = {r.urn: r.dependencies for r in made}

    def above(urn: str) -> set[str]:
        seen: set[str] = set()
        waiting = [urn]
        while waiting:
            more = known.get(waiting.pop(), frozenset()) - seen
            seen |= more
            waiting += more
        return seen

    needed = {r.urn for r in (*of(made, "PrivateDnsZoneGroup"), *of(made, "PrivateEndpoint"))}
    assert len(needed) == 6
    for machine in (*of(made, "VirtualMachine"), *of(made, "VirtualMachineScaleSet")):
        assert needed <= above(machine.urn)
    (registry,) = of(made, "Registry")
    assert registry.inputs["sku"] == {"name": "Premium"}
    (head,) = of(made, "VirtualMachine")
    assert head.inputs["storageProfile"]["imageReference"] == {"id": HEAD_IMAGE}


def test_the_bill_has_every_resource_that_costs(made: Resources, azure_configs: dict[str, StackConfig]) -> None:
    bill = price(azure_configs[SPOT], made)
    names = "\n".join(component.name for component in bill)
    costly = ("VirtualMachineScaleSet", "VirtualMachine", "AmlFilesystem", "Registry", "NatGateway", "PrivateZone")
    for resource in [found for kind in costly for found in of(made, kind)]:
        assert f"{resource.name}: " in names, resource.name
    standby = {component.name.partition(":")[0] for component in bill if component.standby}
    assert standby == {f"{SPOT}-1-on-demand"}


def test_runs_are_kept_in_several_zones_where_the_region_has_them(azure_plans: dict[str, Plan]) -> None:
    account = next(r for r in of(azure_plans[DEV].resources, "StorageAccount") if "flows" not in r.name)
    assert plan(azure_plans[DEV].config).region.zones
    assert account.inputs["sku"] == {"name": "Standard_ZRS"}


def waits(resources: Resources) -> dict[str, PlannedResource]:
    return {r.name.removeprefix(f"{SPOT}-"): r for r in resources if r.type.endswith(":Settling")}


def test_a_plan_shows_every_wait_for_roles(made: Resources, azure_edited: Edited) -> None:
    found = waits(made)
    roles = {"disks-heeded", "flows-heeded", "key-heeded", "lustre-heeded"}
    own = {"head-fill-known", "head-runs-known", "node-leave-known", "node-runs-known", "stop-empty-known"}
    assert set(found) == {*roles, *own, "watcher"}
    assert {wait.inputs["seconds"] for name, wait in found.items() if name not in own} == {300}
    assert {found[name].inputs["seconds"] for name in own} == {60}
    without = azure_edited(SPOT, azure={"role_wait_sec": 0})
    assert waits(run_program(without, PlaceholderCloud()).resources) == {}


def test_who_needs_a_role_comes_after_the_wait_for_it(made: Resources) -> None:
    found = waits(made)
    lustre, log = one(made, "AmlFilesystem"), one(made, "FlowLog")
    assert {found["lustre-heeded"].urn, found["key-heeded"].urn} <= lustre.dependencies
    assert {found["flows-heeded"].urn, found["watcher"].urn} <= log.dependencies
    for account in of(made, "StorageAccount"):
        assert found["key-heeded"].urn in account.dependencies, "it is encrypted from the beginning"
    for machine in (*of(made, "VirtualMachineScaleSet"), one(made, "VirtualMachine")):
        assert found["disks-heeded"].urn in machine.dependencies


def test_a_flow_log_of_somebody_elses_watcher(azure_edited: Edited) -> None:
    config = azure_edited(DEV, azure={"network_watcher": "net-hub/nw-eastus"})
    resources = run_program(config, PlaceholderCloud()).resources
    log = one(resources, "FlowLog").inputs
    assert (log["resourceGroupName"], log["networkWatcherName"]) == ("net-hub", "nw-eastus")
    assert not [name for name in waits(resources) if "watcher" in name]


def test_what_the_stack_file_turns_off_is_off_on_nodes_and_head(azure_edited: Edited) -> None:
    config = azure_edited(DEV, azure={"trusted_launch": False, "encryption_at_host": False})
    resources = run_program(config, PlaceholderCloud()).resources
    profiles = [group.inputs["virtualMachineProfile"] for group in of(resources, "VirtualMachineScaleSet")]
    for machine in (*profiles, one(resources, "VirtualMachine").inputs):
        assert machine["securityProfile"] == {"encryptionAtHost": False}


@pytest.mark.slow
def test_a_pinned_hpc_image_boots_as_the_newest_does(azure_edited: Edited) -> None:
    """Nobody signs its modules, whatever its version: with Secure Boot the GPUs would have no driver."""
    config = azure_edited(DEV, cluster={"image_id": "microsoft-dsvm:ubuntu-hpc:2404:24.04.2026072901"})
    for group in of(run_program(config, PlaceholderCloud()).resources, "VirtualMachineScaleSet"):
        profile = group.inputs["virtualMachineProfile"]
        assert profile["storageProfile"]["imageReference"]["version"] == "24.04.2026072901"
        assert profile["securityProfile"]["uefiSettings"] == {"secureBootEnabled": False, "vTpmEnabled": True}


def test_flow_logs_are_written_without_a_key(made: Resources) -> None:
    log, account = one(made, "FlowLog"), one(made, "StorageAccount", "flows")
    assert log.inputs["storageId"] == account.id
    assert log.inputs["identity"]["userAssignedIdentities"] == [f"${{UserAssignedIdentity.{SPOT}-flows.id}}"]
    assert one(made, "RoleAssignment", "-flows-write").urn in log.dependencies


def test_a_bastion_is_the_one_way_in(azure_edited: Edited, arm_mistakes: Callable[[Any], list[str]]) -> None:
    recorded = run_program(azure_edited(DEV, azure={"bastion": True}), PlaceholderCloud())
    assert arm_mistakes(recorded) == []
    made = recorded.resources
    assert {r.name.rpartition("-")[2] for r in of(made, "PublicIPAddress")} == {"nat", "bastion"}
    assert one(made, "BastionHost").inputs["enableTunneling"] is True
    rules = {rule["name"]: rule for rule in one(made, "NetworkSecurityGroup", "-private").inputs["securityRules"]}
    for role in ("fabric", "head"):
        assert rules[f"bastion-{role}"]["destinationPortRange"] == "22"
    for machine in (*of(made, "VirtualMachineScaleSet"), one(made, "VirtualMachine")):
        assert machine.inputs["identity"]["type"] == "SystemAssigned, UserAssigned", "Entra ID asks for it"
    assert one(made, "VirtualMachineExtension").inputs["type"] == "AADSSHLoginForLinux"
    assert not of(run_program(azure_edited(DEV), PlaceholderCloud()).resources, "BastionHost")


def test_nodes_without_infiniband_in_one_data_centre(azure_edited: Edited) -> None:
    near = azure_edited(DEV, azure={"proximity": True}, cluster={"nodes": {"min": 2, "max": 2}})
    made = run_program(near, PlaceholderCloud()).resources
    group = one(made, "ProximityPlacementGroup").id
    assert [r.inputs["proximityPlacementGroup"] for r in of(made, "VirtualMachineScaleSet")] == [{"id": group}] * 2
