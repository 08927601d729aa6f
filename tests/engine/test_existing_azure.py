"""A stack on Azure that uses what exists, under the real Pulumi engine: it leaves all of that as it was."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.azure_existing import IDS, MISTAKES, NETWORK, ONLY_NEW, OWN, SUBNET, answers
from tests.engine.existing_resources import Cloud, check_refused, put

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

Edit = Callable[[dict[str, Any]], None]
AZURE = "azure-native:"
KINDS = {
    "resource_group_id": "resources:ResourceGroup",
    "subnet_id": "network:Subnet",
    "application_security_groups.fabric": "network:ApplicationSecurityGroup",
    "application_security_groups.head": "network:ApplicationSecurityGroup",
    "private_dns_zone_id": "privatedns:PrivateZone",
    "file_system_id": "storagecache:AmlFilesystem",
    "key.vault_id": "keyvault:Vault",
    "key.identity_id": "managedidentity:UserAssignedIdentity",
    "key.disk_encryption_set_id": "compute:DiskEncryptionSet",
    "node_identity_id": "managedidentity:UserAssignedIdentity",
    "head_identity_id": "managedidentity:UserAssignedIdentity",
    "log_workspace_id": "operationalinsights:Workspace",
    "registry_id": "containerregistry:Registry",
    "run_container_id": "storage:BlobContainer",
}


def existing_cloud() -> Cloud:
    """All that the shipped stack file names, with its groups: the stand-in then knows what is in them."""
    groups = {id_.partition("/providers/")[0] for id_ in IDS.values()}
    account = IDS["run_container_id"].partition("/blobServices/")[0]
    kinds = {
        **{id_: KINDS[name] for name, id_ in IDS.items()},
        **dict.fromkeys(groups, "resources:ResourceGroup"),
        NETWORK: "network:VirtualNetwork",
        account: "storage:StorageAccount",
    }
    cloud: Cloud = {(AZURE + kind, id_): {"tags": {"owner": "platform"}} for id_, kind in kinds.items()}
    cloud[AZURE + "network:Subnet", SUBNET]["serviceEndpoints"] = [{"service": "Microsoft.KeyVault"}]
    return cloud


@pytest.fixture
def engine(make_engine: Any, running_plugin: Any, azure_vm: Any) -> Iterator[Any]:
    azure_vm.existing = answers()
    made = make_engine("azure-existing")
    with running_plugin("azure-native", made.cloud) as plugin:
        made.env["PULUMI_DEBUG_PROVIDERS"] = f"azure-native:{plugin.port}"
        yield made


def made(engine: Any) -> list[dict[str, Any]]:
    return [one for one in engine.resources() if one["urn"]]


def test_a_stack_leaves_what_exists_as_it_was(engine: Any, azure_vm: Any) -> None:
    before = put(engine, existing_cloud())
    put_by_others = engine.put(IDS["run_container_id"], "others/record.json")
    engine.applied("up")
    own = made(engine)
    names = {one["type"].removeprefix(AZURE): one["urn"].rpartition("::")[2] for one in own}
    doubles = {kind: name for kind, name in names.items() if kind in KINDS.values()}
    assert doubles.pop("managedidentity:UserAssignedIdentity") == "azure-existing-stop", "of the budget's stop"
    assert list(doubles) == ["keyvault:Vault"], "of the job's secrets"
    roles = [one["inputs"]["scope"] for one in own if one["type"].endswith(":RoleAssignment")]
    assert {scope.partition("/providers/")[0] for scope in roles} <= {IDS["resource_group_id"]}, "of the budget's stop"
    parts = {one["type"] for one in own if one["id"].startswith((IDS["private_dns_zone_id"], IDS["log_workspace_id"]))}
    assert parts == {f"{AZURE}privatedns:PrivateRecordSet", f"{AZURE}operationalinsights:Table"}
    (head,) = (one["inputs"] for one in own if one["type"].endswith(":NetworkInterface"))
    assert head["ipConfigurations"][0]["privateIPAddress"] == OWN.head_private_ip
    for name in ONLY_NEW:  # what the stack itself has caused
        MISTAKES[name][0](azure_vm.existing)
    assert set(engine.applied("up", "--expect-no-changes").changes) == {"same"}
    engine.applied("destroy")
    assert {file: file.read_text("utf-8") for file in before} == before
    assert put_by_others.exists()
    assert [one["type"] for one in made(engine) if not one["type"].endswith(":Secret")] == []
    assert {call.method for call in azure_vm.asked("management.azure.com")} == {"GET"}


OTHER = "/subscriptions/22222222-0000-0000-0000-222222222222/resourceGroups/spoke"
IN_THE_FILE: dict[str, tuple[str, Any, list[str]]] = {
    "another subscription": (
        "subnet_id",
        f"{OTHER}/providers/Microsoft.Network/virtualNetworks/spoke/subnets/training",
        ["gangway:azure.existing.subnet_id", "Azure connects machines only to networks of the same subscription"],
    ),
    "a key of another vault": (
        "key.key_url",
        f"https://other-keys.vault.azure.net/keys/training/{'0' * 32}",
        ["gangway:azure.existing.key.key_url", "not a key of the vault in vault_id", "platform-keys.vault.azure.net"],
    ),
}
IN_THE_CLOUD = (
    *("no such subnet", "another region", "a full subnet", "no endpoint of vaults", "a delegated subnet", "no way out"),
    *("a locked group", "a file system of another size", "identities without roles", "a disabled key"),
)


@pytest.mark.parametrize("mistake", [*IN_THE_FILE, *IN_THE_CLOUD])
def test_what_does_not_fit_is_one_message_and_no_resource(
    engine: Any, set_value: Callable[..., Edit], azure_vm: Any, mistake: str
) -> None:
    settings, words = dict[str, Any](), list[str]()
    if mistake in IN_THE_FILE:
        key, value, words = IN_THE_FILE[mistake]
        settings = {key: value}
    else:
        spoil, key, words = MISTAKES[mistake]
        spoil(azure_vm.existing)
        words = [f"gangway:azure.existing.{key}: ", *words]
    check_refused(engine, set_value, "azure", existing_cloud(), (None, settings, words))
