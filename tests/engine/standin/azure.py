"""The stand-in for Pulumi's azure-native plugin: what its answers look like, and what Azure refuses.

Ids are paths, names are chosen as the plugin chooses them. It knows what the cloud holds: a resource in or below one,
or that names one, which is not there (yet, or any more) is refused, as is the end of one that others use. Not a
check of bodies: that is `tests/arm_models.py`. The tables are `standin.azure_facts`.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from uuid import UUID, uuid4

from pulumi.runtime.rpc import UNKNOWN

from gangway.components.azure.common import IMMUTABLE

from .aks import CLUSTER, credentials, known_of_cluster
from .azure_facts import (
    BY_GUID,
    HELD_BY_USERS,
    LOOSE_USERS,
    NAMES,
    NEVER_SWITCHED,
    OPEN_ENUMS,
    PATHS,
    REPLACING_INPUTS,
)
from .service import Look, RefusedError, Service, texts
from .shapes import Fault, documentation

PACKAGE = "azure-native:"
TOKEN_PREFIX = "azure-token-"
"""Every token begins so: a test that searches for it finds those that were never used, too."""
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
TENANT = "11111111-1111-1111-1111-111111111111"
RANDOM = "__createBeforeDelete"
"""The plugin's own mark in the inputs of what it gave a random name: another may stand beside it for a while."""

GROUP = f"{PACKAGE}resources:ResourceGroup"
OURS = "gangway"
"""What the groups that stacks make are called by; others are somebody else's: unless a test puts the group into the
cloud, nobody here knows what is in them.
"""

_MAX_TAGS, _MAX_TAG_KEY, _MAX_TAG_VALUE = 50, 512, 256
_PARAMETER = re.compile(r"{(\w+)}")
_ID = re.compile(r"/subscriptions/([^/]+)(?:/resourceGroups/([^/]+))?(?:/providers/.+)?")


def _kind(type_token: str) -> str:
    return type_token.removeprefix(PACKAGE)


@cache
def _path(kind: str) -> str:
    """The whole path of a type."""
    path = PATHS[kind]
    group = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers/"
    return path if path.startswith("/") else group + path


@cache
def _kinds() -> Mapping[str, str]:
    """Azure's own name of a type, such as `Microsoft.Network/virtualNetworks/subnets` -> ours."""
    return {_arm_type(_path(kind).replace("{recordType}", "A")): kind for kind in PATHS}


def _arm_type(id_: str) -> str:
    _, found, rest = id_.rpartition("/providers/")
    if not found:
        return "Microsoft.Resources/resourceGroups"
    namespace, *steps = rest.split("/")
    return "/".join([namespace, *steps[::2]])


@cache
def _api_version(type_token: str) -> str:
    """The version of Azure's API that the SDK speaks for a type."""
    found = re.search(r"Uses Azure REST API version (\S+)\.", documentation(type_token))
    assert found is not None, f"the SDK says no version of {type_token}"
    return found[1]


def _is_part(kind: str) -> bool:
    """Whether a type is a part of another resource."""
    _, found, rest = _path(kind).rpartition("/providers/")
    return bool(found) and len(_PARAMETER.findall(rest)) > 1


def _at(inputs: Any, path: str) -> Any:
    for step in path.split("."):
        inputs = (inputs or {}).get(step)
    return inputs


class Azure(Service):
    """One subscription."""

    sdk = "pulumi_azure_native"
    open_enums = OPEN_ENUMS
    held = frozenset(PACKAGE + one for one in HELD_BY_USERS)
    loose = frozenset(PACKAGE + one for one in LOOSE_USERS)

    def __init__(self) -> None:
        self._subscription = SUBSCRIPTION

    def configure(self, args: Mapping[str, Any]) -> None:
        """See Service."""
        self._subscription = args.get("subscriptionId", self._subscription)

    def complete(
        self, type_token: str, name: str, seed: bytes, inputs: dict[str, Any], before: Mapping[str, Any]
    ) -> None:
        """See Service. A part of another resource is called as the program calls it; the rest gets random digits."""
        kind = _kind(type_token)
        if kind not in PATHS:
            return
        key = _PARAMETER.findall(PATHS[kind])[-1]
        if inputs.get(key) is not None:
            return
        if key in before:
            inputs[key] = before[key]
            inputs.update({RANDOM: before[RANDOM]} if RANDOM in before else {})
        elif kind in BY_GUID:
            inputs.update({key: str(UUID(bytes=(seed * 16)[:16])), RANDOM: True})
        elif _is_part(kind):
            inputs[key] = name
        else:
            inputs.update({key: f"{name}{seed.hex()[:8]}", RANDOM: True})

    def faults(self, type_token: str, inputs: Mapping[str, Any]) -> Iterator[Fault]:
        """See Service."""
        kind = _kind(type_token)
        if kind not in PATHS:
            yield "", f"the stand-in for {self.sdk} does not know where a {type_token} is"
            return
        key = _PARAMETER.findall(PATHS[kind])[-1]
        name = inputs[key]
        if name != UNKNOWN and not re.fullmatch(NAMES.get(kind, ".+"), name):
            yield key, f"{name!r} does not match expression '{NAMES[kind]}'"
        tags = inputs.get("tags") or {}
        if tags != UNKNOWN:
            yield from _tag_faults(tags)

    def identify(self, type_token: str, name: str, inputs: Mapping[str, Any]) -> str:
        """See Service."""
        known = {"subscriptionId": self._subscription, **inputs}
        return _PARAMETER.sub(lambda part: str(known[part[1]]).strip("/"), _path(_kind(type_token)))

    def replaced(self, type_token: str) -> frozenset[str]:
        """See Service. What the path says, and the place."""
        kind = _kind(type_token)
        return REPLACING_INPUTS.get(kind, frozenset()) | {"location", *_PARAMETER.findall(_path(kind))}

    def goes_first(self, inputs: Mapping[str, Any]) -> bool:
        """See Service. Two of one name cannot be."""
        return not inputs.get(RANDOM, False)

    def foreseen(self, type_token: str) -> dict[str, Any]:
        """See Service."""
        inside = {
            f"{PACKAGE}compute:DiskEncryptionSet": {"identity": {"principalId": UNKNOWN}},
            f"{PACKAGE}keyvault:Vault": {"properties": {"vaultUri": UNKNOWN}},
            PACKAGE + CLUSTER: {"oidcIssuerProfile": {"issuerURL": UNKNOWN}},
        }
        return inside.get(type_token, {})

    def told(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """See Service. A set of identities goes in as a list of their ids, and comes back as an object by them."""
        identity = inputs.get("identity")
        ids = identity.get("userAssignedIdentities") if isinstance(identity, dict) else None
        if not isinstance(ids, list):
            return inputs
        each = {"clientId": str(uuid4()), "principalId": str(uuid4())}
        objects: Any = UNKNOWN if UNKNOWN in ids else dict.fromkeys(ids, each)
        return {**inputs, "identity": {**inputs["identity"], "userAssignedIdentities": objects}}

    def computed(
        self, type_token: str, id_: str, inputs: Mapping[str, Any], before: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See Service."""
        name, kind = id_.rpartition("/")[2], _kind(type_token)
        vault = f"https://{inputs.get('vaultName', name)}.vault.azure.net/"
        nested: dict[str, Any] = {"properties": {"vaultUri": vault}} if kind == "keyvault:Vault" else {}
        if kind == CLUSTER:
            nested = known_of_cluster(id_, inputs)
        if before:
            return {**before, **nested}
        if (inputs.get("identity") or {}).get("type") == "SystemAssigned":
            nested["identity"] = {"principalId": str(uuid4())}
        location, address = inputs.get("location", ""), f"10.42.0.{4 + secrets.randbelow(200)}"
        # What is an input too, such as a role assignment's `principalId`, stays what the program says.
        return {
            "azureApiVersion": _api_version(type_token),
            "clientId": str(uuid4()),
            "clientInfo": {
                "lustreVersion": "2.15",
                "mgsAddress": address,
                "mountCommand": f"mount -t lustre {address}@tcp:/lustrefs /mnt",
            },
            "customerId": str(uuid4()),
            "etag": secrets.token_hex(8),
            "immutableId": f"dcr-{secrets.token_hex(16)}",
            "keyUri": f"{vault}keys/{name}",
            "keyUriWithVersion": f"{vault}keys/{name}/{secrets.token_hex(16)}",
            "loginServer": f"{name}.azurecr.io".lower(),
            "logsIngestion": {"endpoint": f"https://{name}-ab12.{location}-1.ingest.monitor.azure.com"},
            "name": name,
            "principalId": str(uuid4()),
            "provisioningState": "Succeeded",
            "tenantId": TENANT,
            "type": _arm_type(id_),
            **nested,
        }

    def admit(self, type_token: str, inputs: Mapping[str, Any], look: Look) -> None:
        """See Service. What it is a part of, and what it names, has to be there."""
        id_ = self.identify(type_token, "", inputs)
        above = id_.rpartition("/")[0].rpartition("/")[0].removesuffix("/blobServices/default")
        named = {text if text.startswith("/") else f"/{text}" for text in texts(dict(inputs))}
        for other in {above, *named} - {id_}:
            found = _ID.fullmatch(other)
            if found and found[2] and (OURS in found[2] or look(GROUP, other.partition("/providers/")[0])):
                self._admit_reference(other, look)
        self._admit_subnets(type_token, inputs, look)

    def _admit_subnets(self, type_token: str, inputs: Mapping[str, Any], look: Look) -> None:
        """A vault admits only subnets with its endpoint; machines are not in subnets that are delegated."""
        for id_ in texts(dict(inputs)):
            subnet = look(f"{PACKAGE}network:Subnet", id_) if "/subnets/" in id_ else {}
            services = [one["service"] for one in subnet.get("serviceEndpoints", ())]
            if subnet and type_token == f"{PACKAGE}keyvault:Vault" and "Microsoft.KeyVault" not in services:
                raise RefusedError(f"SubnetsHaveNoServiceEndpointsConfigured: {id_}")
            if subnet.get("delegations") and type_token != f"{PACKAGE}storagecache:AmlFilesystem":
                raise RefusedError(f"SubnetIsDelegated: {id_}")

    def _admit_reference(self, id_: str, look: Look) -> None:
        """A resource that is named has to be there, and so has its group."""
        group, _, rest = id_.partition("/providers/")
        kind = _kinds().get(_arm_type(id_))
        for type_, one in (("resources:ResourceGroup", group), *([(kind, id_)] if rest and kind else [])):
            if not look(PACKAGE + type_, one):
                raise RefusedError(f"ResourceNotFound: {one}")

    def contains(self, type_token: str, id_: str, other: str) -> bool:
        """See Service."""
        return type_token == GROUP and other.startswith(f"{id_}/")

    def admit_change(self, type_token: str, before: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
        """See Service."""
        for path in IMMUTABLE.get(_kind(type_token), ()):
            if UNKNOWN != _at(inputs, path) != _at(before, path):
                raise RefusedError(f"PropertyChangeNotAllowed: Changing property '{path}' is not allowed")
        switch = NEVER_SWITCHED.get(_kind(type_token))
        if switch and (_at(before, switch) is None) != (_at(inputs, switch) is None):
            raise RefusedError(f"PropertyChangeNotAllowed: Adding or removing '{switch}' is not allowed")

    def ask(self, function: str, args: Mapping[str, Any], look: Look) -> dict[str, Any]:
        """See Service. A new token each time, as Azure gives."""
        if function == f"{PACKAGE}authorization:getClientConfig":
            return {
                "clientId": str(uuid4()),
                "objectId": str(uuid4()),
                "subscriptionId": self._subscription,
                "tenantId": TENANT,
            }
        if function == f"{PACKAGE}authorization:getClientToken":
            return {"token": f"{TOKEN_PREFIX}{secrets.token_hex(16)}"}
        if function == f"{PACKAGE}containerservice:listManagedClusterUserCredentials":
            id_ = self.identify(PACKAGE + CLUSTER, "", args)
            if not (cluster := look(PACKAGE + CLUSTER, id_)):
                raise RefusedError(f"ResourceNotFound: {id_}")
            return {"kubeconfigs": [{"name": "clusterUser", "value": credentials(id_, cluster)}]}
        raise RefusedError(f"the stand-in for {self.sdk} knows no function {function}")


def _tag_faults(tags: Mapping[str, Any]) -> Iterator[Fault]:
    if len(tags) > _MAX_TAGS:
        yield "tags", f"{len(tags)} tags, {_MAX_TAGS} at most"
    for key, value in tags.items():
        if len(key) > _MAX_TAG_KEY or re.search(r"[<>%&\\?/]", key) or len(value) > _MAX_TAG_VALUE:
            yield f"tags.{key}", f"{value!r}: neither key nor value of a tag may look like this"
