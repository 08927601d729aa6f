"""What others have on Azure for `azure-existing`: what Resource Manager answers about it, and what can be wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangway.components.azure.monitoring import TABLE
from gangway.stacks.loading.loader import from_file
from gangway.stacks.providers.azure.settings import get_existing

Answers = dict[str, Any]
"""By path. A missing one is 404."""
STACK = Path(__file__).parents[1] / "stacks" / "Pulumi.azure-existing.yaml"
OWN = get_existing(from_file(STACK))
IDS = OWN.ids
SUBNET, NETWORK, KEY = IDS["subnet_id"], OWN.network_id, OWN.key
assert KEY is not None
SPOKE = NETWORK.partition("/providers/")[0]
RULES = f"{SPOKE}/providers/Microsoft.Network/networkSecurityGroups/training"
ROUTES = f"{SPOKE}/providers/Microsoft.Network/routeTables/to-firewall"
BLOBS = IDS["run_container_id"].partition("/containers/")[0]
ROLES = "/providers/Microsoft.Authorization/roleAssignments"
_NAMES = ("node_identity_id", "head_identity_id", "key.identity_id")
_SCOPES = [IDS["resource_group_id"], IDS["registry_id"], IDS["run_container_id"], KEY.key_id]


def rule(priority: int, access: str, source: str, target: str, direction: str = "Inbound") -> dict[str, Any]:
    return {
        "properties": {
            "priority": priority,
            "access": access,
            "direction": direction,
            "protocol": "*",
            "sourceAddressPrefix": source,
            "destinationAddressPrefix": target,
            "destinationPortRange": "*",
        }
    }


def answers() -> Answers:
    """All in good order, in the forms of Azure's REST reference."""
    subnet = {
        "addressPrefix": "10.20.0.0/24",
        "serviceEndpoints": [{"service": "Microsoft.KeyVault"}],
        "delegations": [],
        "networkSecurityGroup": {"id": RULES},
        "routeTable": {"id": ROUTES},
        "defaultOutboundAccess": False,
    }
    lustre = {"storageCapacityTiB": 16, "provisioningState": "Succeeded", "clientInfo": {"mgsAddress": "10.20.4.5"}}
    inside = [rule(65000, "Allow", "VirtualNetwork", "VirtualNetwork", way) for way in ("Inbound", "Outbound")]
    assert KEY is not None
    return {
        IDS["resource_group_id"]: {"location": "eastus", "properties": {}},
        f"{IDS['resource_group_id']}/providers/Microsoft.Authorization/locks": {"value": []},
        NETWORK: {
            "location": "eastus",
            "properties": {
                "addressSpace": {"addressPrefixes": ["10.20.0.0/16"]},
                "subnets": [{"name": "training", "properties": subnet}],
                "virtualNetworkPeerings": [],
            },
        },
        f"{NETWORK}/usages": {"value": [{"id": SUBNET, "currentValue": 4, "limit": 251}]},
        f"{NETWORK}/CheckIPAddressAvailability": {"available": True},
        RULES: {
            "properties": {
                "securityRules": [],
                "defaultSecurityRules": [
                    *inside,
                    rule(65001, "Allow", "*", "Internet", "Outbound"),
                    *(rule(65500, "Deny", "*", "*", way) for way in ("Inbound", "Outbound")),
                ],
            }
        },
        ROUTES: {
            "properties": {
                "routes": [{"properties": {"addressPrefix": "0.0.0.0/0", "nextHopType": "VirtualAppliance"}}]
            }
        },
        **{id_: {"location": "eastus", "properties": {}} for key, id_ in IDS.items() if "security" in key},
        IDS["private_dns_zone_id"]: {"location": "global", "properties": {}},
        f"{IDS['private_dns_zone_id']}/virtualNetworkLinks": {
            "value": [{"properties": {"virtualNetwork": {"id": NETWORK}}}]
        },
        IDS["file_system_id"]: {
            "location": "eastus",
            "properties": {**lustre, "filesystemSubnet": f"{NETWORK}/subnets/lustre"},
        },
        IDS["key.vault_id"]: {
            "location": "eastus",
            "properties": {"enablePurgeProtection": True, "enableRbacAuthorization": True},
        },
        KEY.key_id: {"properties": {"attributes": {"enabled": True}}},
        IDS["key.disk_encryption_set_id"]: {
            "location": "eastus",
            "properties": {"activeKey": {"keyUrl": KEY.key_url}},
        },
        **{
            IDS[name]: {"properties": {"principalId": f"principal-of-{name}", "clientId": f"client-of-{name}"}}
            for name in _NAMES
        },
        **{f"{scope}{ROLES}": {"value": [{"id": "x"}]} for scope in _SCOPES},
        IDS["log_workspace_id"]: {"location": "eastus", "properties": {}},
        IDS["registry_id"]: {"location": "westus", "properties": {"loginServer": "platformimages.azurecr.io"}},
        IDS["run_container_id"]: {"properties": {"hasImmutabilityPolicy": False}},
        BLOBS: {"properties": {"isVersioningEnabled": True}},
    }


Spoil = Callable[[Answers], None]


def without(path: str) -> Spoil:
    return lambda answers: answers.pop(path)


def changed(path: str, **properties: Any) -> Spoil:
    return lambda answers: answers[path]["properties"].update(properties)


def subnet(**properties: Any) -> Spoil:
    return lambda answers: answers[NETWORK]["properties"]["subnets"][0]["properties"].update(properties)


def at(path: str, **fields: Any) -> Spoil:
    return lambda answers: answers.setdefault(path, {}).update(fields)


def refused(source: str, target: str, direction: str = "Inbound") -> Spoil:
    return changed(RULES, securityRules=[rule(100, "Deny", source, target, direction)])


MISTAKES: dict[str, tuple[Spoil, str, list[str]]] = {
    "no such subnet": (
        changed(NETWORK, subnets=[]),
        "subnet_id",
        ["there is no such resource, or you may not read it", "az resource show --ids /subscriptions/"],
    ),
    "no such identity": (without(IDS["node_identity_id"]), "node_identity_id", ["there is no such resource"]),
    "another region": (at(NETWORK, location="West Europe"), "subnet_id", ["it is in West Europe", "eastus"]),
    "a key of another region": (at(IDS["key.vault_id"], location="westus"), "key.vault_id", ["it is in westus"]),
    "a full subnet": (
        at(f"{NETWORK}/usages", value=[{"id": SUBNET, "currentValue": 250, "limit": 251}]),
        "subnet_id",
        ["1 free addresses, and nodes and head need 2", "name a larger subnet"],
    ),
    "no endpoint of vaults": (
        subnet(serviceEndpoints=[{"service": "Microsoft.Storage"}]),
        "subnet_id",
        ["its service endpoints are Microsoft.Storage", "--service-endpoints Microsoft.Storage Microsoft.KeyVault"],
    ),
    "a delegated subnet": (
        subnet(delegations=[{"properties": {"serviceName": "Microsoft.Web/serverFarms"}}]),
        "subnet_id",
        ["delegated to Microsoft.Web/serverFarms"],
    ),
    "no way out": (subnet(routeTable=None), "subnet_id", ["no way out: no NAT gateway, and no route for 0.0.0.0/0"]),
    "a route to nowhere": (
        changed(ROUTES, routes=[{"properties": {"addressPrefix": "0.0.0.0/0", "nextHopType": "None"}}]),
        "subnet_id",
        ["no way out: no NAT gateway, and None for 0.0.0.0/0"],
    ),
    "closed ports": (
        refused("10.20.0.0/24", "10.20.0.0/24"),
        "subnet_id",
        ["its network security group refuses TCP from the head to nodes on port 9400"],
    ),
    "no internet": (refused("*", "Internet", "Outbound"), "subnet_id", ["from nodes to the internet on port 443"]),
    "an address in use": (
        at(f"{NETWORK}/CheckIPAddressAvailability", available=False),
        "head_private_ip",
        ["another machine has it", "az network vnet subnet list-available-ips"],
    ),
    "an address elsewhere": (
        subnet(addressPrefix="10.20.9.0/24"),
        "head_private_ip",
        ["not a usable address of the subnet", "10.20.9.4 to 10.20.9.254", "set head_private_ip: 10.20.9.254"],
    ),
    "a zone of another network": (
        at(f"{IDS['private_dns_zone_id']}/virtualNetworkLinks", value=[]),
        "private_dns_zone_id",
        ["not linked to the machines' network spoke"],
    ),
    "a locked group": (
        at(f"{IDS['resource_group_id']}/providers/Microsoft.Authorization/locks", value=[{"name": "keep"}]),
        "resource_group_id",
        ["it has the lock keep", "remove the lock"],
    ),
    "a file system of another size": (
        changed(IDS["file_system_id"], storageCapacityTiB=32),
        "file_system_id",
        ["it has 32768 GiB, and gangway:storage has 16384", "set gangway:storage.capacity_gib: 32768"],
    ),
    "a failed file system": (
        changed(IDS["file_system_id"], provisioningState="Failed"),
        "file_system_id",
        ["its state is Failed"],
    ),
    "root squash": (
        changed(IDS["file_system_id"], rootSquashSettings={"mode": "RootOnly"}),
        "file_system_id",
        ["it maps root to another user"],
    ),
    "a file system without peering": (
        changed(IDS["file_system_id"], filesystemSubnet=f"{NETWORK}-2/subnets/lustre"),
        "file_system_id",
        ["to which the machines' network has no peering"],
    ),
    "a disabled key": (changed(KEY.key_id, attributes={"enabled": False}), "key.key_url", ["the key is disabled"]),
    "no such key": (without(KEY.key_id), "key.key_url", ["the vault has no such key", "az keyvault key list"]),
    "no purge protection": (
        changed(IDS["key.vault_id"], enablePurgeProtection=None),
        "key.vault_id",
        ["without purge protection", "--enable-purge-protection"],
    ),
    "a disk encryption set with another key": (
        changed(IDS["key.disk_encryption_set_id"], activeKey={"keyUrl": "https://other.vault.azure.net/keys/a/1"}),
        "key.disk_encryption_set_id",
        ["it encrypts with https://other.vault.azure.net/keys/a/1", "a set with the key training"],
    ),
    "identities without roles": (
        at(f"{IDS['registry_id']}{ROLES}", value=[]),
        "node_identity_id",
        [f"it has no role on {IDS['registry_id']}", "--assignee-object-id principal-of-node_identity_id"],
    ),
    "a key without roles": (
        at(f"{KEY.key_id}{ROLES}", value=[]),
        "key.identity_id",
        ["an identity with Key Vault Crypto Service Encryption User"],
    ),
    "a workspace of another stack": (
        at(f"{IDS['log_workspace_id']}/tables/{TABLE}", name=TABLE),
        "log_workspace_id",
        ["the table of another stack"],
    ),
    "no versions": (changed(BLOBS, isVersioningEnabled=False), "run_container_id", ["keeps no old versions"]),
    "a legal hold": (changed(IDS["run_container_id"], hasLegalHold=True), "run_container_id", ["a legal hold"]),
    "immutable records": (
        changed(IDS["run_container_id"], hasImmutabilityPolicy=True),
        "run_container_id",
        ["an immutability policy"],
    ),
}
"""What is wrong; the setting below `existing` that the message names; its words."""
ONLY_NEW = {"a full subnet", "an address in use", "a workspace of another stack"}
"""No mistakes once the stack itself is up."""
