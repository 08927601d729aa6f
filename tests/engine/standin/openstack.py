"""The stand-in for Pulumi's openstack plugin: what its answers look like, and what OpenStack's services refuse.

What replaces a resource is read from the SDK's own words ("Changing this creates a new ..."). It knows what the cloud
holds: a resource that names one which is not there (yet, or any more) is refused, as is the end of one that others
name. The tables are `standin.openstack_facts`.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from typing import Any
from uuid import UUID

from pulumi.runtime.rpc import UNKNOWN

from .openstack_facts import ALSO_REPLACING, EXISTING, MAX_TAG, REFERENCES, USER_DATA_LIMIT_BYTES, WORDS
from .service import Look, RefusedError, Service
from .shapes import Fault, documentation

PACKAGE = "openstack:"
SECRET_PREFIX = "credential-secret-"
"""Every secret of an application credential begins so: a test that searches for it finds those never used, too."""
ROUTER_ADDRESS = "203.0.113.40"
ACCOUNT_URL = f"https://swift.example.com/v1/AUTH_{'0' * 32}"
CONTAINER, OBJECT, TEMP_URL = (
    "objectstorage/container:Container",
    "objectstorage/containerObject:ContainerObject",
    "objectstorage/tempUrl:TempUrl",
)
INSTANCE, PORT, SUBNET = "compute/instance:Instance", "networking/port:Port", "networking/subnet:Subnet"

# The second group tells what the stand-in has made from what was there before.
_OURS = re.compile(r"[0-9a-f]{8}-57ac-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}")
_PARAMETER = re.compile(r":param [^\n]*?\s(\w+): (.*?)(?=\n\s*:param |\Z)", re.DOTALL)
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_METADATA_KEY = re.compile(r"[a-zA-Z0-9_:. -]{1,255}")


def _kind(type_token: str) -> str:
    return type_token.removeprefix(PACKAGE)


def _wire(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


@cache
def _replacing(type_token: str) -> frozenset[str]:
    """The inputs of which the SDK says that another value makes another resource."""
    said = {
        _wire(name)
        for name, text in _PARAMETER.findall(documentation(type_token))
        if re.search(r"changing\s+this\s+(?:setting\s+)?(?:creates|will\s+create)\s+a\s+new", text, re.IGNORECASE)
    }
    also = ALSO_REPLACING.get(_kind(type_token), frozenset())
    assert said or also, f"the SDK says nothing of {type_token}"
    return frozenset(said) | also


def _is_uuid(text: Any) -> bool:
    try:
        UUID(str(text))
    except ValueError:
        return False
    return True


class Openstack(Service):
    """One project."""

    sdk = "pulumi_openstack"

    def replaced(self, type_token: str) -> frozenset[str]:
        """See Service."""
        return _replacing(type_token)

    def goes_first(self, inputs: Mapping[str, Any]) -> bool:
        """See Service. What has a name of its own or random digits need not."""
        return False

    def identify(self, type_token: str, name: str, inputs: Mapping[str, Any]) -> str:
        """See Service. A container is called by its name, an object after both; the rest by a UUID."""
        if _kind(type_token) == CONTAINER:
            return str(inputs["name"])
        if _kind(type_token) == OBJECT:
            return f"{inputs['containerName']}/{inputs['name']}"
        return f"{secrets.token_hex(4)}-57ac-4000-8000-{secrets.token_hex(6)}"

    def faults(self, type_token: str, inputs: Mapping[str, Any]) -> Iterator[Fault]:
        """See Service."""
        kind = _kind(type_token)
        for path, allowed in WORDS.get(kind, {}).items():
            value = inputs.get(path)
            if value not in (None, UNKNOWN, *allowed):
                yield path, f"expected {path} to be one of {list(allowed)}, got {value}"
        if isinstance(inputs.get("tags"), list):
            for tag in inputs["tags"]:
                if len(tag) > MAX_TAG or "," in tag or "/" in tag:
                    yield "tags", f"{tag!r} is no tag"
        yield from {
            INSTANCE: _instance_faults,
            PORT: _port_faults,
            "networking/secGroupRule:SecGroupRule": _rule_faults,
            CONTAINER: _container_faults,
            TEMP_URL: _temp_url_faults,
            "identity/applicationCredential:ApplicationCredential": _credential_faults,
            "sharedfilesystem/share:Share": _share_faults,
        }.get(kind, _no_faults)(inputs)

    def admit(self, type_token: str, inputs: Mapping[str, Any], look: Look) -> None:
        """See Service. What it names has to be there, and an address has to lie in its subnet."""
        for path, kind in REFERENCES.get(_kind(type_token), ()):
            for id_ in _at(inputs, path):
                if _OURS.fullmatch(str(id_)) and not look(PACKAGE + kind, str(id_)):
                    raise RefusedError(f"{kind.rpartition(':')[2]} {id_} could not be found")
        self._admit_object(_kind(type_token), inputs, look)
        if _kind(type_token) == PORT:
            for fixed in inputs.get("fixedIps") or ():
                cidr = look(PACKAGE + SUBNET, str(fixed["subnetId"]))["cidr"]
                if IPv4Address(fixed["ipAddress"]) not in IPv4Network(cidr):
                    raise RefusedError(f"IP address {fixed['ipAddress']} is not a valid IP for the specified subnet")

    def _admit_object(self, kind: str, inputs: Mapping[str, Any], look: Look) -> None:
        """An object goes into a container that is there; a URL of one that is there is signed by a key it knows."""
        container = inputs.get("containerName" if kind == OBJECT else "container")
        if kind not in (OBJECT, TEMP_URL):
            return
        held = look(PACKAGE + CONTAINER, str(container))
        if not held:
            raise RefusedError(f"container {container} could not be found")
        if kind == TEMP_URL:
            if not look(PACKAGE + OBJECT, f"{container}/{inputs['object']}"):
                raise RefusedError(f"object {container}/{inputs['object']} could not be found")
            known = (held.get("metadata") or {}).get("Temp-URL-Key", inputs.get("key"))
            if inputs.get("key", known) != known:
                raise RefusedError("nobody would take a URL that another key has signed")

    def release(self, type_token: str, id_: str, others: Iterable[Mapping[str, Any]]) -> None:
        """See Service."""
        for other in others:
            # A signature is no reference: the service keeps none of those it has made.
            if _kind(other["type"]) != TEMP_URL and id_ in _texts(other["inputs"]):
                raise RefusedError(f"409: {id_} is still in use by {other['type']} {other['id']}")

    def ask(self, function: str, args: Mapping[str, Any], look: Look) -> dict[str, Any]:
        """See Service. Neutron lists the subnets that have every tag which is asked for."""
        subnets = {one["id"]: one["outputs"] for one in self.resources_of_type(PACKAGE + SUBNET)}
        if function == "openstack:networking/getSubnetIdsV2:getSubnetIdsV2":
            ids = [id_ for id_, subnet in subnets.items() if {*args["tags"]} <= {*subnet["allTags"]}]
            return {"id": "subnets", "ids": ids, **args}
        if function == "openstack:networking/getPortIds:getPortIds":
            ports = {one["id"]: one["outputs"] for one in self.resources_of_type(PACKAGE + PORT)}
            return {"id": "ports", "ids": [id_ for id_, one in ports.items() if {*args["tags"]} <= {*one["allTags"]}]}
        if function in EXISTING:
            type_token, key = EXISTING[function]
            found = next((one for one in self.resources_of_type(PACKAGE + type_token) if one["id"] == args[key]), None)
            if found is None:
                raise RefusedError(f"Your query returned no results for {args[key]}: 404")
            return {"id": args[key], **found["outputs"], **args}
        raise RefusedError(f"the stand-in for {self.sdk} knows no function {function}")

    def computed(
        self, type_token: str, id_: str, inputs: Mapping[str, Any], before: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See Service."""
        if before:
            return dict(before)
        if _kind(type_token) == TEMP_URL:
            return {"url": _signed(inputs)}
        address = f"198.51.100.{4 + secrets.randbelow(200)}"
        native = inputs.get("shareProto") == "CEPHFS"
        export = f"{address}:6789:/volumes/{id_}" if native else f"{address}:/volumes/{id_}"
        return {
            "accessKey": secrets.token_urlsafe(30) if inputs.get("accessType") == "cephx" else "",
            "allTags": inputs.get("tags") or [],
            "exportLocations": [{"path": export, "preferred": "True"}],
            "externalFixedIps": [{"ipAddress": ROUTER_ADDRESS, "subnetId": "external"}],
            "projectId": "0" * 32,
            "secret": f"{SECRET_PREFIX}{secrets.token_hex(16)}",
            "state": "active",
        }


def _signed(inputs: Mapping[str, Any]) -> str:
    """A temporary URL, as Swift's middleware checks it; method and digest are the SDK's unless given."""
    path = f"/v1/AUTH_{'0' * 32}/{inputs['container']}/{inputs['object']}"
    expires = int(time.time() + inputs["ttl"])
    signed = f"{inputs.get('method', 'GET')}\n{expires}\n{path}".encode()
    digest = getattr(hashlib, inputs.get("digest", "sha1"))
    signature = hmac.new(str(inputs.get("key")).encode(), signed, digest).hexdigest()
    return f"{ACCOUNT_URL}{path.partition('AUTH_' + '0' * 32)[2]}?temp_url_sig={signature}&temp_url_expires={expires}"


def _texts(value: Any) -> Iterator[str]:
    """Every text in some inputs."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def _at(inputs: Any, path: str) -> Iterator[Any]:
    """What stands at a path of keys; all items of a list."""
    values = [inputs]
    for step in path.split("."):
        values = [value.get(step) for value in values if isinstance(value, dict)]
        values = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return (value for value in values if value is not None)


def _no_faults(inputs: Mapping[str, Any]) -> Iterator[Fault]:
    yield from ()


def _instance_faults(inputs: Mapping[str, Any]) -> Iterator[Fault]:
    sources = [key for key in ("imageId", "imageName", "blockDevices") if inputs.get(key)]
    if len(sources) != 1:
        yield "imageId", f"one of imageId, imageName and blockDevices, got {sources}"
    for disk in inputs.get("blockDevices") or ():
        if not _is_uuid(disk.get("uuid")):
            yield "blockDevices", f"{disk.get('uuid')!r} is no id of an image"
    user_data = inputs.get("userData", "")
    if user_data != UNKNOWN:
        try:
            base64.b64decode(user_data, validate=True)
        except binascii.Error:
            yield "userData", "not base64"
        if len(user_data) > USER_DATA_LIMIT_BYTES:
            yield "userData", f"{len(user_data)} bytes; Nova takes {USER_DATA_LIMIT_BYTES}"
    for key, value in (inputs.get("metadata") or {}).items():
        if not _METADATA_KEY.fullmatch(key) or (value != UNKNOWN and len(value) > 255):
            yield f"metadata.{key}", "no item of metadata"
    if inputs.get("availabilityZone") and inputs.get("availabilityZoneHints"):
        yield "availabilityZone", "conflicts with availabilityZoneHints"


def _port_faults(inputs: Mapping[str, Any]) -> Iterator[Fault]:
    if inputs.get("noSecurityGroups") and inputs.get("securityGroupIds"):
        yield "noSecurityGroups", "beside securityGroupIds"
    if inputs.get("portSecurityEnabled") is False and inputs.get("securityGroupIds"):
        yield "portSecurityEnabled", "Port Security must be enabled in order to have security groups"
    if inputs.get("fixedIps") and inputs.get("noFixedIp"):
        yield "fixedIps", "conflicts with noFixedIp"


def _rule_faults(inputs: Mapping[str, Any]) -> Iterator[Fault]:
    ports = [inputs.get(key) for key in ("portRangeMin", "portRangeMax")]
    if any(port is not None for port in ports) and (None in ports or not inputs.get("protocol")):
        yield "portRangeMin", "all of portRangeMin, portRangeMax and protocol must be specified"
    if inputs.get("remoteGroupId") and inputs.get("remoteIpPrefix"):
        yield "remoteGroupId", "conflicts with remoteIpPrefix"


def _container_faults(inputs: Mapping[str, Any]) -> Iterator[Fault]:
    for key in inputs.get("metadata") or {}:
        if not _HEADER.fullmatch(key):
            yield f"metadata.{key}", "no name of an HTTP header"


def _temp_url_faults(inputs: Mapping[str, Any]) -> Iterator[Fault]:
    if inputs.get("digest", "sha1") not in ("sha1", "sha256", "sha512"):
        yield "digest", f"expected digest to be one of sha1, sha256, sha512, got {inputs['digest']}"
    if str(inputs.get("method", "GET")).upper() not in ("GET", "POST"):
        yield "method", f"{inputs['method']!r} is no method of temporary URLs"


def _credential_faults(inputs: Mapping[str, Any]) -> Iterator[Fault]:
    if not inputs.get("roles"):
        yield "roles", "would inherit all roles of whoever makes it"
    rules = inputs.get("accessRules") or ()
    for index, rule in enumerate(() if rules == UNKNOWN else rules):
        if rule["method"] not in ("POST", "GET", "HEAD", "PATCH", "PUT", "DELETE"):
            yield f"accessRules[{index}].method", f"{rule['method']!r} is no method"
        if rule["path"] != UNKNOWN and not rule["path"].startswith("/"):
            yield f"accessRules[{index}].path", f"{rule['path']!r} is no path"


def _share_faults(inputs: Mapping[str, Any]) -> Iterator[Fault]:
    if int(inputs["size"]) < 1:
        yield "size", "expected size to be at least (1)"
