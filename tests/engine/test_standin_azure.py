"""The stand-in for Pulumi's azure-native plugin, spoken to as the engine does: names, ids, and what Azure refuses."""

import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]  # ships no types
import pytest
import yaml
from pulumi.runtime.rpc import UNKNOWN

SUBSCRIPTION = "aaaaaaaa-0000-0000-0000-000000000000"
GROUP, NETWORK, SUBNET = (
    "azure-native:resources:ResourceGroup",
    "azure-native:network:VirtualNetwork",
    "azure-native:network:Subnet",
)
VM, SCALE_SET = "azure-native:compute:VirtualMachine", "azure-native:compute:VirtualMachineScaleSet"
ROLE, VAULT = "azure-native:authorization:RoleAssignment", "azure-native:keyvault:Vault"
NIC, ACCOUNT = "azure-native:network:NetworkInterface", "azure-native:storage:StorageAccount"
PLACE = {"resourceGroupName": "demo-gangway", "location": "eastus"}
OURS = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/demo-gangway"
NEAR = f"{OURS}/providers/Microsoft.Compute/proximityPlacementGroups/p"
PART = {"resourceGroupName": "demo-gangway", "virtualNetworkName": "v", "subnetName": "s"}
CLUSTER, POOL = "azure-native:containerservice:ManagedCluster", "azure-native:containerservice:AgentPool"
CLUSTERS = "providers/Microsoft.ContainerService/managedClusters"
POOL_PLACE = {"resourceGroupName": "demo-gangway", "resourceName": "c", "agentPoolName": "r0spot"}
MODE = {"upgradePolicy": {"mode": "Manual"}}


@pytest.fixture(scope="module")
def shared_plugin(tmp_path_factory: pytest.TempPathFactory, running_plugin: Any) -> Iterator[Any]:
    """One plugin for all tests: each start reads the SDK."""
    with running_plugin("azure-native", tmp_path_factory.mktemp("cloud")) as plugin:
        plugin.configure(subscriptionId=SUBSCRIPTION)
        yield plugin


@pytest.fixture
def plugin(shared_plugin: Any) -> Any:
    """The plugin over a cloud that holds one group."""
    for file in shared_plugin.cloud.iterdir():
        file.unlink()
    shared_plugin.create(GROUP, {"resourceGroupName": "demo-gangway"})
    return shared_plugin


@pytest.mark.parametrize(
    ("type_token", "inputs", "path", "reason"),
    [
        (SUBNET, {"virtualNetworkName": "v"}, "resourceGroupName", "missing required property 'resourceGroupName'"),
        (
            NETWORK,
            {**PLACE, "addressSpace": {"prefixes": []}},
            "addressSpace.prefixes",
            "no such input; there are: address",
        ),
        (SCALE_SET, {**PLACE, "upgradePolicy": {"mode": "Never"}}, "upgradePolicy.mode", "'Never' is none of"),
        (SCALE_SET, {**PLACE, "sku": {"capacity": "two"}}, "sku.capacity", "'two' is no float"),
        (SCALE_SET, {**PLACE, "overprovision": "no"}, "overprovision", "'no' is no bool"),
        (SCALE_SET, {**PLACE, "platformFaultDomainCount": 1.5}, "platformFaultDomainCount", "1.5 is no int"),
        (SCALE_SET, {**PLACE, "zones": [1.0]}, "zones[0]", "1.0 is no str"),
        (SCALE_SET, {**PLACE, "tags": {"a": {}}}, "tags.a", "an object is not expected here"),
        (ACCOUNT, {**PLACE, "accountName": "my-account", "kind": "StorageV2", "sku": {"name": "Standard_LRS"}},
         "accountName", "does not match expression '[a-z0-9]{3,24}'"),
        (POOL, {**POOL_PLACE, "agentPoolName": "r0-spot"}, "agentPoolName", "does not match expression"),
        (POOL, {**POOL_PLACE, "scaleSetPriority": "Cheap"}, "scaleSetPriority", "'Cheap' is none of"),
        (ROLE, {"roleAssignmentName": "mine", "principalId": "p", "roleDefinitionId": "r", "scope": OURS},
         "roleAssignmentName", "'mine' does not match expression"),
        (NETWORK, {**PLACE, "tags": {"a/b": "c"}}, "tags.a/b", "neither key nor value of a tag may look like this"),
        (NETWORK, {**PLACE, "tags": {str(n): "" for n in range(51)}}, "tags", "51 tags, 50 at most"),
        ("azure-native:batch:Pool", {"resourceGroupName": "g", "accountName": "a"}, "", "does not know where"),
    ],
)  # fmt: skip
def test_what_azure_does_not_take_is_refused(
    plugin: Any, type_token: str, inputs: dict[str, Any], path: str, reason: str
) -> None:
    ((where, said),) = plugin.faults(type_token, inputs)
    assert where == path
    assert reason in said


def test_a_whole_resource_gets_random_digits_a_part_does_not(plugin: Any) -> None:
    digits = b"seed".hex()
    first = plugin.checked(NETWORK, PLACE)
    assert first["virtualNetworkName"] == f"thing{digits}"
    assert plugin.checked(NETWORK, PLACE, first, name="other") == first, "chosen once"
    part = plugin.checked(SUBNET, {"resourceGroupName": "g", "virtualNetworkName": "v"})
    assert part["subnetName"] == "thing"
    group = plugin.checked(GROUP, {"location": "eastus"}, name="demo-gangway")
    assert group["resourceGroupName"] == f"demo-gangway{digits}"
    assigned = plugin.checked(ROLE, {"principalId": "p", "roleDefinitionId": "r", "scope": OURS})
    assert len(assigned["roleAssignmentName"]) == 36


def test_ids_are_paths_in_the_subscription(plugin: Any) -> None:
    network = plugin.create(NETWORK, {**PLACE, "virtualNetworkName": "v"})
    assert network.id == f"{OURS}/providers/Microsoft.Network/virtualNetworks/v"
    assert (network.outputs["name"], network.outputs["type"]) == ("v", "Microsoft.Network/virtualNetworks")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", network.outputs["azureApiVersion"])
    role = {"principalId": "p", "roleDefinitionId": "r", "scope": network.id, "roleAssignmentName": "n"}
    assert plugin.create(ROLE, role).id == f"{network.id}/providers/Microsoft.Authorization/roleAssignments/n"


def test_a_set_of_identities_comes_back_as_an_object(plugin: Any) -> None:
    ids = [f"{OURS}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"]
    identity = {"type": "UserAssigned", "userAssignedIdentities": ids}
    plugin.create("azure-native:managedidentity:UserAssignedIdentity", {**PLACE, "resourceName": "i"})
    inputs = {**PLACE, "vmScaleSetName": "s", "identity": identity}
    assert plugin.faults(SCALE_SET, inputs) == []
    told = plugin.create(SCALE_SET, inputs).outputs["identity"]["userAssignedIdentities"]
    assert list(told) == ids
    assert set(told[ids[0]]) == {"clientId", "principalId"}
    unknown = {**inputs, "identity": {**identity, "userAssignedIdentities": [UNKNOWN]}}
    coming = plugin.create(SCALE_SET, unknown, preview=True).outputs
    assert coming["identity"]["userAssignedIdentities"] == UNKNOWN


@pytest.mark.parametrize(
    ("subnet", "refusal"),
    [
        ({"serviceEndpoints": [{"service": "Microsoft.KeyVault"}]}, ""),
        ({"serviceEndpoints": [{"service": "Microsoft.Storage"}]}, "SubnetsHaveNoServiceEndpointsConfigured: .*/s"),
        ({"delegations": [{"name": "d", "serviceName": "Microsoft.Web/serverFarms"}]}, "SubnetIsDelegated: .*/s"),
    ],
)
def test_a_subnet_must_take_what_is_put_into_it(plugin: Any, subnet: dict[str, Any], refusal: str) -> None:
    plugin.create(NETWORK, {**PLACE, "virtualNetworkName": "v"})
    id_ = plugin.create(SUBNET, {**PART, **subnet}).id
    rules = {"virtualNetworkRules": [{"id": id_}]}
    vault = {**PLACE, "vaultName": "k", "properties": {"networkAcls": rules}}
    nic = {**PLACE, "networkInterfaceName": "n", "ipConfigurations": [{"subnet": {"id": id_}}]}
    kind, inputs = (NIC, nic) if "delegations" in subnet else (VAULT, vault)
    if not refusal:
        assert plugin.create(kind, inputs).id
        return
    with pytest.raises(grpc.RpcError, match=refusal):
        plugin.create(kind, inputs)


def test_what_azure_adds_to_an_object_is_not_known_before(plugin: Any) -> None:
    properties = {"sku": {"family": "A", "name": "standard"}, "tenantId": "t"}
    inputs = {**PLACE, "vaultName": "v", "properties": properties}
    coming = plugin.create(VAULT, inputs, preview=True).outputs
    assert coming["properties"] == {**properties, "vaultUri": UNKNOWN}
    made = plugin.create(VAULT, inputs)
    assert made.outputs["properties"]["vaultUri"] == "https://v.vault.azure.net/"
    changed = plugin.update(VAULT, made, inputs, {**inputs, "tags": {"a": "b"}})
    assert changed["properties"]["vaultUri"] == "https://v.vault.azure.net/", "also after an update"


@pytest.mark.parametrize(
    ("type_token", "inputs", "missing"),
    [
        (NETWORK, {**PLACE, "resourceGroupName": "other-gangway", "virtualNetworkName": "v"}, "other-gangway"),
        (SUBNET, PART, "virtualNetworks/v"),
        (POOL, POOL_PLACE, "managedClusters/c"),
        (SCALE_SET, {**PLACE, "vmScaleSetName": "s", "proximityPlacementGroup": {"id": NEAR}}, NEAR),
        (ROLE, {"principalId": "p", "roleDefinitionId": "r", "scope": f"{OURS}/providers/Microsoft.KeyVault/vaults/v",
                "roleAssignmentName": "n"}, "vaults/v"),
    ],
)  # fmt: skip
def test_what_is_named_has_to_be_there(plugin: Any, type_token: str, inputs: dict[str, Any], missing: str) -> None:
    with pytest.raises(grpc.RpcError, match=f"ResourceNotFound: .*{missing}"):
        plugin.create(type_token, inputs)
    assert len(list(plugin.cloud.iterdir())) == 1


def test_what_is_somebody_elses_is_not_looked_for(plugin: Any) -> None:
    data = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/data/providers/Microsoft.Storage/storageAccounts/mine"
    role = {"principalId": "p", "roleDefinitionId": "r", "scope": data, "roleAssignmentName": "n"}
    assert plugin.create(ROLE, role).id.startswith(data)


def nic(plugin: Any) -> tuple[Any, Any]:
    """A subnet, and a card in it."""
    plugin.create(NETWORK, {**PLACE, "virtualNetworkName": "v"})
    subnet = plugin.create(SUBNET, PART)
    card = {**PLACE, "networkInterfaceName": "n", "ipConfigurations": [{"subnet": {"id": subnet.id}}]}
    return subnet, plugin.create(NIC, card)


def test_what_is_in_use_cannot_be_deleted(plugin: Any) -> None:
    subnet, card = nic(plugin)
    with pytest.raises(grpc.RpcError, match=r"subnets/s cannot be deleted because it is in use by .*/n"):
        plugin.delete(SUBNET, subnet)
    plugin.delete(NIC, card)
    plugin.delete(SUBNET, subnet)
    assert plugin.read(SUBNET, subnet).id == ""


def test_what_azure_cannot_change_is_tried_and_refused(plugin: Any) -> None:
    old = {**PLACE, "vmName": "head", "osProfile": {"customData": "YQ=="}}
    new = {**old, "osProfile": {"customData": "Yg=="}}
    made = plugin.create(VM, old)
    assert list(plugin.diff(VM, old, new).replaces) == [], "the plugin itself would try"
    with pytest.raises(grpc.RpcError, match=r"PropertyChangeNotAllowed: .*'osProfile\.customData'"):
        plugin.update(VM, made, old, new)
    assert plugin.update(VM, made, old, {**old, "tags": {"a": "b"}})["tags"] == {"a": "b"}


@pytest.mark.parametrize(
    ("type_token", "old", "new", "replaces"),
    [
        (SCALE_SET, {**MODE}, {"upgradePolicy": {"mode": "Rolling"}}, []),
        (SCALE_SET, {"location": "eastus"}, {"location": "westus"}, ["location"]),
        (SCALE_SET, {"vmScaleSetName": "a"}, {"vmScaleSetName": "b"}, ["vmScaleSetName"]),
        (ROLE, {"principalId": "a", "scope": "s"}, {"principalId": "b", "scope": "s"}, ["principalId"]),
        (CLUSTER, {"dnsPrefix": "a"}, {"dnsPrefix": "b"}, ["dnsPrefix"]),
        (POOL, {"vmSize": "a"}, {"vmSize": "b"}, ["vmSize"]),
        (POOL, {"maxCount": 1}, {"maxCount": 2}, []),
        (ACCOUNT, {"isHnsEnabled": True}, {"isHnsEnabled": False}, ["isHnsEnabled"]),
    ],
)
def test_what_replaces(
    plugin: Any, type_token: str, old: dict[str, Any], new: dict[str, Any], replaces: list[str]
) -> None:
    assert list(plugin.diff(type_token, old, new).replaces) == replaces


@pytest.mark.parametrize("random", [True, False])
def test_two_of_one_name_are_never_there(plugin: Any, random: bool) -> None:
    old = {"location": "eastus", "vmScaleSetName": "a", **({"__createBeforeDelete": True} if random else {})}
    assert plugin.diff(SCALE_SET, old, {**old, "location": "westus"}).deleteBeforeReplace is not random


def test_functions(plugin: Any) -> None:
    answer, refused = plugin.invoke("azure-native:authorization:getClientConfig")
    assert (answer["subscriptionId"], refused) == (SUBSCRIPTION, [])
    tokens = {plugin.invoke("azure-native:authorization:getClientToken")[0]["token"] for _ in range(2)}
    assert len(tokens) == 2
    assert all(token.startswith("azure-token-") for token in tokens)
    assert plugin.invoke("azure-native:compute:getImage")[1] != []


@pytest.mark.parametrize(("private", "key", "zone"), [(False, "fqdn", "hcp"), (True, "privateFQDN", "privatelink")])
def test_a_cluster_says_who_it_is_and_where(plugin: Any, private: bool, key: str, zone: str) -> None:
    function = "azure-native:containerservice:listManagedClusterUserCredentials"
    asked = {"resourceGroupName": "demo-gangway", "resourceName": "c"}
    assert plugin.invoke(function, asked)[1] == [f"ResourceNotFound: {OURS}/{CLUSTERS}/c"], "before it is there"
    access = {"enablePrivateCluster": private}
    inputs = {**PLACE, "resourceName": "c", "dnsPrefix": "c", "apiServerAccessProfile": access}
    inputs["oidcIssuerProfile"] = {"enabled": True}
    coming = plugin.create(CLUSTER, inputs, preview=True).outputs
    assert coming["oidcIssuerProfile"] == {"enabled": True, "issuerURL": UNKNOWN}
    made = plugin.create(CLUSTER, inputs)
    host, issuer = made.outputs[key], made.outputs["oidcIssuerProfile"]["issuerURL"]
    assert re.fullmatch(rf"c-[0-9a-f]{{8}}\.{zone}\.eastus\.azmk8s\.io", host)
    [credentials] = plugin.invoke(function, asked)[0]["kubeconfigs"]
    config = yaml.safe_load(b64decode(credentials["value"]))
    assert config["clusters"][0]["cluster"]["server"] == f"https://{host}:443"
    changed = plugin.update(CLUSTER, made, inputs, {**inputs, "tags": {"a": "b"}})
    assert (changed[key], changed["oidcIssuerProfile"]["issuerURL"]) == (host, issuer)


def test_a_pool_stays_what_it_is(plugin: Any) -> None:
    plugin.create(CLUSTER, {**PLACE, "resourceName": "c", "dnsPrefix": "c"})
    old = {**POOL_PLACE, "scaleSetPriority": "Spot", "maxCount": 4}
    made = plugin.create(POOL, old)
    assert made.id == f"{OURS}/{CLUSTERS}/c/agentPools/r0spot"
    with pytest.raises(grpc.RpcError, match=r"PropertyChangeNotAllowed: .*'scaleSetPriority'"):
        plugin.update(POOL, made, old, {**old, "scaleSetPriority": "Regular"})
    assert plugin.update(POOL, made, old, {**old, "maxCount": 6})["maxCount"] == 6
