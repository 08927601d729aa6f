"""What Microsoft's own management models say about a resource as a component declares it.

Pulumi's provider takes most of what Azure's API wants below `properties` at the top level, and calls some of it by
another name; `body_of` undoes both along the model, and says what no model knows: an unknown property, a read-only one,
a missing one, a value outside an enumeration, a value of another type.
"""

import importlib
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pulumi.runtime import rpc

# Provider's resource -> where its model is, and which of its inputs are parts of the address, not of the body.
_COMPUTE, _NETWORK = "azure.mgmt.compute.models", "azure.mgmt.network.models"
_STORAGE, _LUSTRE = "azure.mgmt.storage.models", "azure.mgmt.storagecache.models"
_MONITOR, _AUTHORIZATION = "azure.mgmt.monitor.models", "azure.mgmt.authorization.v2022_04_01.models"
TABLE: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "authorization:RoleAssignment": (
        _AUTHORIZATION,
        "RoleAssignmentCreateParameters",
        ("roleAssignmentName", "scope"),
    ),
    "authorization:RoleDefinition": (_AUTHORIZATION, "RoleDefinition", ("roleDefinitionId", "scope")),
    "compute:CapacityReservationGroup": (_COMPUTE, "CapacityReservationGroup", ("capacityReservationGroupName",)),
    "compute:DiskEncryptionSet": (_COMPUTE, "DiskEncryptionSet", ("diskEncryptionSetName",)),
    "compute:Gallery": (_COMPUTE, "Gallery", ("galleryName",)),
    "compute:GalleryImage": (_COMPUTE, "GalleryImage", ("galleryImageName", "galleryName")),
    "compute:ProximityPlacementGroup": (_COMPUTE, "ProximityPlacementGroup", ("proximityPlacementGroupName",)),
    "compute:VirtualMachine": (_COMPUTE, "VirtualMachine", ("vmName",)),
    "compute:VirtualMachineExtension": (_COMPUTE, "VirtualMachineExtension", ("vmName", "vmExtensionName")),
    "compute:VirtualMachineScaleSet": (_COMPUTE, "VirtualMachineScaleSet", ("vmScaleSetName",)),
    "consumption:Budget": ("azure.mgmt.consumption.models", "Budget", ("budgetName", "scope")),
    "containerregistry:Registry": ("azure.mgmt.containerregistry.models", "Registry", ("registryName",)),
    "keyvault:Key": ("azure.mgmt.keyvault.models", "KeyCreateParameters", ("keyName", "vaultName")),
    "keyvault:Secret": ("azure.mgmt.keyvault.models", "SecretCreateOrUpdateParameters", ("secretName", "vaultName")),
    "keyvault:Vault": ("azure.mgmt.keyvault.models", "VaultCreateOrUpdateParameters", ("vaultName",)),
    "managedidentity:FederatedIdentityCredential": (
        "azure.mgmt.msi.models",
        "FederatedIdentityCredential",
        ("federatedIdentityCredentialResourceName", "resourceName"),
    ),
    "managedidentity:UserAssignedIdentity": (
        "azure.mgmt.msi.v2024_11_30.models",
        "Identity",
        ("resourceName",),
    ),
    "monitor:ActionGroup": (_MONITOR, "ActionGroupResource", ("actionGroupName",)),
    "monitor:DataCollectionEndpoint": (_MONITOR, "DataCollectionEndpointResource", ("dataCollectionEndpointName",)),
    "monitor:DataCollectionRule": (_MONITOR, "DataCollectionRuleResource", ("dataCollectionRuleName",)),
    "monitor:ScheduledQueryRule": (_MONITOR, "ScheduledQueryRuleResource", ("ruleName",)),
    "network:ApplicationSecurityGroup": (_NETWORK, "ApplicationSecurityGroup", ("applicationSecurityGroupName",)),
    "network:BastionHost": (_NETWORK, "BastionHost", ("bastionHostName",)),
    "network:FlowLog": (_NETWORK, "FlowLog", ("flowLogName", "networkWatcherName")),
    "network:NatGateway": (_NETWORK, "NatGateway", ("natGatewayName",)),
    "network:NetworkInterface": (_NETWORK, "NetworkInterface", ("networkInterfaceName",)),
    "network:NetworkSecurityGroup": (_NETWORK, "NetworkSecurityGroup", ("networkSecurityGroupName",)),
    "network:PrivateDnsZoneGroup": (
        _NETWORK,
        "PrivateDnsZoneGroup",
        ("privateDnsZoneGroupName", "privateEndpointName"),
    ),
    "network:PrivateEndpoint": (_NETWORK, "PrivateEndpoint", ("privateEndpointName",)),
    "network:PublicIPAddress": (_NETWORK, "PublicIPAddress", ("publicIpAddressName",)),
    "network:Subnet": (_NETWORK, "Subnet", ("subnetName", "virtualNetworkName")),
    "network:VirtualNetwork": (_NETWORK, "VirtualNetwork", ("virtualNetworkName",)),
    "operationalinsights:Table": ("azure.mgmt.loganalytics.models", "Table", ("tableName", "workspaceName")),
    "operationalinsights:Workspace": ("azure.mgmt.loganalytics.models", "Workspace", ("workspaceName",)),
    "privatedns:PrivateRecordSet": (
        "azure.mgmt.privatedns.models",
        "RecordSet",
        ("privateZoneName", "recordType", "relativeRecordSetName"),
    ),
    "privatedns:PrivateZone": ("azure.mgmt.privatedns.models", "PrivateZone", ("privateZoneName",)),
    "privatedns:VirtualNetworkLink": (
        "azure.mgmt.privatedns.models",
        "VirtualNetworkLink",
        ("privateZoneName", "virtualNetworkLinkName"),
    ),
    "resources:ResourceGroup": ("azure.mgmt.resource.resources.models", "ResourceGroup", ()),
    "storage:BlobContainer": (_STORAGE, "BlobContainer", ("accountName", "containerName")),
    "storage:BlobServiceProperties": (_STORAGE, "BlobServiceProperties", ("accountName", "blobServicesName")),
    "storage:ManagementPolicy": (_STORAGE, "ManagementPolicy", ("accountName", "managementPolicyName")),
    "storage:StorageAccount": (_STORAGE, "StorageAccountCreateParameters", ("accountName",)),
    "storagecache:AmlFilesystem": (_LUSTRE, "AmlFilesystem", ("amlFilesystemName",)),
    "storagecache:AutoExportJob": (_LUSTRE, "AutoExportJob", ("amlFilesystemName", "autoExportJobName")),
    "storagecache:ImportJob": (_LUSTRE, "ImportJob", ("amlFilesystemName", "importJobName")),
}
# Deprecated by its own documentation, which points to the region's list of sizes instead.
OUT_OF_DATE = ("VirtualMachineSizeTypes",)
# The provider's own spelling of a name that the models spell otherwise.
SPELLED = {"iPAddressOrRange": "ipAddressOrRange"}
# No management model of these is installed; their bodies are checked by tests of their own.
WITHOUT_MODEL = (
    "applicationinsights:Workbook",
    "containerservice:AgentPool",
    "containerservice:ManagedCluster",
    "logic:Workflow",
    "monitor:DiagnosticSetting",
    "portal:Dashboard",
    "virtualmachineimages:VirtualMachineImageTemplate",
)


@dataclass(frozen=True)
class Property:
    """One property of a model: where it is in the body, its type, and whether it may or must be sent."""

    path: tuple[str, ...]
    kind: Any
    readonly: bool
    required: bool


def camel(name: str) -> str:
    """`some_name` as the provider spells it."""
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def _package(model: type) -> types.ModuleType:
    return importlib.import_module(re.sub(r"\._models(_py3)?$", "", model.__module__))


def properties(model: type) -> dict[str, Property]:
    """Every name by which the provider may call a property of `model`."""
    return _old(model) if hasattr(model, "_attribute_map") else _new(model)


def _new(model: Any) -> dict[str, Property]:
    """A model of the newer generator: typed fields; what is below `properties` is a model of its own."""
    # A class gets its table with its first instance; until then it shows that of its parent.
    model.__new__(model)
    names: dict[str, Any] = {"_models": _package(model)}
    hints = typing.get_type_hints(model, localns=names)
    found: dict[str, Property] = {}
    for attribute, field in model._attr_to_rest_field.items():
        hint, visible = hints[attribute], field._visibility
        optional = type(None) in typing.get_args(hint)
        entry = Property((field._rest_name,), _kind(hint), visible == ["read"], not optional and visible != ["read"])
        found[field._rest_name] = entry
        found.setdefault(camel(attribute), entry)
    inner = found.get("properties")
    if inner is not None and isinstance(inner.kind, type):
        for name, entry in properties(inner.kind).items():
            below = Property(("properties", *entry.path), entry.kind, entry.readonly, entry.required)
            # A name that only the answer has outside is the one below `properties`: an extension's `type`.
            if name not in found or found[name].readonly:
                found[name] = below
    return found


def _kind(hint: Any) -> Any:
    """A type hint as: a model, an enumeration, ("list", kind), ("dict", kind), or a plain type."""
    origin, args = typing.get_origin(hint), [arg for arg in typing.get_args(hint) if arg is not type(None)]
    if origin in (typing.Union, types.UnionType):
        kinds = [_kind(arg) for arg in args]
        enums = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum)]
        return enums[0] if enums else kinds[0]
    if origin in (list, dict):
        return (origin.__name__, _kind(args[-1]))
    return typing.get_args(hint)[0] if origin is typing.Literal else hint


def _old(model: Any) -> dict[str, Property]:
    """A model of the older generator: a map of attributes, whose enumerations are told in the documentation only."""
    documented = dict(re.findall(r":vartype (\w+):\s+str\s+or\s+~([\w.]+)", model.__doc__ or ""))
    found: dict[str, Property] = {}
    for attribute, entry in model._attribute_map.items():
        rules = model._validation.get(attribute, {})
        path = tuple(entry["key"].replace("\\.", "\0").split("."))
        path = tuple(step.replace("\0", ".") for step in path)
        kind = _old_kind(model, entry["type"], documented.get(attribute))
        made = Property(path, kind, rules.get("readonly", False), rules.get("required", False))
        found[path[-1]] = made
        found.setdefault(camel(attribute), made)
    return found


def _old_kind(model: type, word: str, enumeration: str | None) -> Any:
    if word[0] == "[":
        return ("list", _old_kind(model, word[1:-1], enumeration))
    if word[0] == "{":
        return ("dict", _old_kind(model, word[1:-1], enumeration))
    if enumeration is not None:
        return getattr(_package(model), enumeration.rpartition(".")[2])
    plain = {"str": str, "int": int, "long": int, "float": float, "bool": bool, "object": object, "iso-8601": str}
    return plain.get(word) or {"duration": str}.get(word) or getattr(_package(model), word)


def _missing(known: Mapping[str, Property], seen: set[tuple[str, ...]]) -> list[str]:
    """Required properties that were not sent. Of those below `properties`, only where something else there was."""
    inside = any(len(path) > 1 for path in seen)
    needed = {entry.path: name for name, entry in known.items() if entry.required and (len(entry.path) == 1 or inside)}
    # Whoever sends `properties` as it is, is looked at there.
    sent = seen | ({("properties",)} if inside else set())
    return [
        name for path, name in needed.items() if path not in sent and (("properties",) not in seen or len(path) == 1)
    ]


class Body:
    """A resource's inputs as the body of the request, and what is wrong with them."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []

    def of(self, kind: Any, value: Any, at: str) -> Any:
        """`value` as the API wants it; it sees what a secret is."""
        if isinstance(value, dict) and value.get(rpc._special_sig_key) == rpc._special_secret_sig:
            value = value["value"]
        if isinstance(kind, tuple):
            return self._items(kind, value, at)
        if isinstance(kind, type) and issubclass(kind, Enum):
            if kind.__name__ not in OUT_OF_DATE and value not in {member.value for member in kind}:
                self.mistakes.append(f"{at}: {value!r} is none of {sorted(member.value for member in kind)}")
            return value
        if isinstance(kind, type) and (hasattr(kind, "_attribute_map") or hasattr(kind, "_calculated")):
            return self._model(kind, value, at)
        self._plain(kind, value, at)
        return int(value) if kind is int and isinstance(value, float) else value

    def _items(self, kind: tuple[str, Any], value: Any, at: str) -> Any:
        if kind[0] == "list" and isinstance(value, list):
            return [self.of(kind[1], item, f"{at}[{index}]") for index, item in enumerate(value)]
        if kind[0] == "dict" and isinstance(value, dict):
            return {key: self.of(kind[1], item, f"{at}.{key}") for key, item in value.items()}
        self.mistakes.append(f"{at}: {value!r} is no {kind[0]}")
        return value

    def _model(self, model: type, value: Any, at: str) -> Any:
        if not isinstance(value, dict):
            self.mistakes.append(f"{at}: {value!r} is no object")
            return value
        known, seen = properties(model), set()
        body: dict[str, Any] = {}
        for key, item in value.items():
            name = str(key)
            entry = known.get(SPELLED.get(name, name))
            if entry is None:
                self.mistakes.append(f"{at}.{key}: unknown to {model.__name__}")
                continue
            # An id is read-only where a resource is made, and how another is named.
            if entry.readonly and key != "id":
                self.mistakes.append(f"{at}.{key}: read-only in {model.__name__}")
            seen.add(entry.path)
            # The provider spells a set of identities as a list of their ids.
            if key == "userAssignedIdentities" and isinstance(item, list):
                item = {identity: {} for identity in item}
            inner = body
            for step in entry.path[:-1]:
                inner = inner.setdefault(step, {})
            inner[entry.path[-1]] = self.of(entry.kind, item, f"{at}.{key}")
        self.mistakes += [f"{at}.{name}: required by {model.__name__}" for name in _missing(known, seen)]
        return body

    def _plain(self, kind: Any, value: Any, at: str) -> None:
        if isinstance(value, str) and value.startswith("${"):
            return
        wanted: Any = {int: (int, float), float: (int, float), bool: bool, str: str}.get(kind)
        wrong = wanted is not None and not isinstance(value, wanted)
        if wrong or (isinstance(value, bool) and kind in (int, float)):
            self.mistakes.append(f"{at}: {value!r} is no {kind.__name__}")
        elif kind is int and isinstance(value, float) and not value.is_integer():
            self.mistakes.append(f"{at}: {value!r} is no whole number")


def get_key(type_token: str) -> str:
    """`azure-native:network:Subnet` -> `network:Subnet`, a version in the module left out."""
    _, module, name = type_token.split(":")
    return f"{module.partition('/')[0]}:{name}"


def get_model(type_token: str) -> type:
    """The model of a provider's resource."""
    module, name, _ = TABLE[get_key(type_token)]
    found: type = getattr(importlib.import_module(module), name)
    return found


def body_of(type_token: str, inputs: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """The request's body for a declared resource, and what is wrong with it."""
    address = {"resourceGroupName", *TABLE[get_key(type_token)][2]}
    made = Body()
    body = made.of(get_model(type_token), {k: v for k, v in inputs.items() if k not in address}, get_key(type_token))
    return body, made.mistakes


def as_model(model: Any, inputs: Mapping[str, Any]) -> Any:
    """`inputs` of a resource, or of a part of one, as an instance of `model`.

    Raises:
        AssertionError: what the model does not know or refuses.
    """
    address = [parts for _, name, parts in TABLE.values() if name == model.__name__]
    left_out = {"resourceGroupName", *(part for parts in address for part in parts)}
    made = Body()
    body = made.of(model, {key: value for key, value in inputs.items() if key not in left_out}, model.__name__)
    assert not made.mistakes, "\n".join(made.mistakes)
    return model.from_dict(body) if hasattr(model, "_attribute_map") else model(body)


def mistakes_in(resources: Iterable[Any]) -> list[str]:
    """What the models say against declared resources, Azure's among them. A type that no table knows is one of them."""
    wrong: list[str] = []
    for resource in resources:
        if not resource.type.startswith("azure-native:"):
            continue
        key = get_key(resource.type)
        if key in TABLE:
            _, mistakes = body_of(resource.type, resource.inputs)
            wrong += [f"{resource.name}: {mistake}" for mistake in mistakes]
        elif key not in WITHOUT_MODEL:
            wrong.append(f"{resource.name}: {key} is in no table")
    return wrong
