"""The stand-in for Pulumi's openstack plugin, spoken to as the engine does: what it refuses, and what replaces."""

import base64
import hmac
import re
from collections.abc import Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]  # ships no types
import pytest

P = "openstack:"
INSTANCE, GROUP = f"{P}compute/instance:Instance", f"{P}compute/serverGroup:ServerGroup"
NETWORK, SUBNET, PORT = (f"{P}networking/{kind}" for kind in ("network:Network", "subnet:Subnet", "port:Port"))
ROUTER, LEG = f"{P}networking/router:Router", f"{P}networking/routerInterface:RouterInterface"
RULE, CREDENTIAL = (
    f"{P}networking/secGroupRule:SecGroupRule",
    f"{P}identity/applicationCredential:ApplicationCredential",
)
SHARE, ACCESS = f"{P}sharedfilesystem/share:Share", f"{P}sharedfilesystem/shareAccess:ShareAccess"
CONTAINER, OBJECT, TEMP_URL = (
    f"{P}objectstorage/{kind}" for kind in ("container:Container", "containerObject:ContainerObject", "tempUrl:TempUrl")
)
NOT_THERE = "01234567-57ac-4000-8000-0123456789ab"
PUT = {"service": "object-store", "method": "PUT", "path": "/v1/*/runs/**"}


@pytest.fixture(scope="module")
def shared_plugin(tmp_path_factory: pytest.TempPathFactory, running_plugin: Any) -> Iterator[Any]:
    """One plugin for all tests: each start reads the SDK."""
    with running_plugin("openstack", tmp_path_factory.mktemp("cloud")) as plugin:
        plugin.configure(region="RegionOne")
        yield plugin


@pytest.fixture
def plugin(shared_plugin: Any) -> Any:
    """The plugin over an empty cloud."""
    for file in shared_plugin.cloud.iterdir():
        file.unlink()
    return shared_plugin


@pytest.mark.parametrize(
    ("type_token", "inputs", "path", "reason"),
    [
        (PORT, {}, "networkId", "missing required property 'networkId'"),
        (PORT, {"networkId": "n", "vnicType": "direct"}, "vnicType", "no such input; there are: adminStateUp"),
        (PORT, {"networkId": "n", "noSecurityGroups": True, "securityGroupIds": ["g"]}, "noSecurityGroups", "beside"),
        (PORT, {"networkId": "n", "portSecurityEnabled": False, "securityGroupIds": ["g"]}, "portSecurityEnabled",
         "Port Security must be enabled"),
        (PORT, {"networkId": "n", "tags": ["x" * 61]}, "tags", "is no tag"),
        (GROUP, {"policies": "near"}, "policies", "got near"),
        (RULE, {"securityGroupId": "g", "direction": "in", "ethertype": "IPv4"}, "direction", "got in"),
        (RULE, {"securityGroupId": "g", "direction": "ingress", "ethertype": "IPv4", "portRangeMin": 22},
         "portRangeMin", "must be specified"),
        (RULE, {"securityGroupId": "g", "direction": "ingress", "ethertype": "IPv4", "remoteGroupId": "g",
                "remoteIpPrefix": "0.0.0.0/0"}, "remoteGroupId", "conflicts"),
        (INSTANCE, {"flavorName": "m"}, "imageId", "one of imageId, imageName and blockDevices"),
        (INSTANCE, {"imageName": "u", "userData": "#cloud-config"}, "userData", "not base64"),
        (INSTANCE, {"imageName": "u", "userData": base64.b64encode(b"x" * 60_000).decode()}, "userData", "Nova takes"),
        (INSTANCE, {"imageName": "u", "metadata": {"a/b": "c"}}, "metadata.a/b", "no item"),
        (INSTANCE, {"blockDevices": [{"sourceType": "image", "uuid": "ubuntu"}]}, "blockDevices", "no id of an image"),
        (CREDENTIAL, {"accessRules": [PUT]}, "roles", "would inherit all roles"),
        (CREDENTIAL, {"roles": ["member"], "accessRules": [{**PUT, "method": "put"}]}, "accessRules[0].method",
         "no method"),
        (CREDENTIAL, {"roles": ["member"], "accessRules": [{"service": "s", "method": "PUT"}]}, "accessRules[0].path",
         "missing required property"),
        (SHARE, {"shareProto": "NFSv4", "size": 1}, "shareProto", "got NFSv4"),
        (SHARE, {"shareProto": "NFS", "size": 0}, "size", "at least (1)"),
        (ACCESS, {"shareId": "s", "accessType": "ip", "accessTo": "a", "accessLevel": "w"}, "accessLevel", "got w"),
        (CONTAINER, {"metadata": {"a:b": "c"}}, "metadata.a:b", "no name of an HTTP header"),
        (TEMP_URL, {"container": "c", "object": "o", "ttl": 60, "digest": "md5"}, "digest", "got md5"),
        (f"{P}orchestration/stack:Stack", {}, "", "no resource type"),
    ],
)  # fmt: skip
def test_what_openstack_does_not_take_is_refused(
    plugin: Any, type_token: str, inputs: dict[str, Any], path: str, reason: str
) -> None:
    ((where, said),) = plugin.faults(type_token, inputs)
    assert where == path
    assert reason in said


@pytest.mark.parametrize(
    ("type_token", "inputs"),
    [
        (INSTANCE, {"networks": [{"port": NOT_THERE}]}),
        (INSTANCE, {"schedulerHints": [{"group": NOT_THERE}]}),
        (PORT, {"networkId": NOT_THERE}),
        (LEG, {"routerId": NOT_THERE}),
        (ACCESS, {"shareId": NOT_THERE}),
    ],
)
def test_what_is_named_has_to_be_there(plugin: Any, type_token: str, inputs: dict[str, Any]) -> None:
    with pytest.raises(grpc.RpcError, match=f"{NOT_THERE} could not be found"):
        plugin.create(type_token, inputs)
    assert not list(plugin.cloud.iterdir())


def test_what_was_there_before_is_not_looked_for(plugin: Any) -> None:
    plugin.create(PORT, {"networkId": "22222222-0000-4000-8000-222222222222"})


def test_an_address_lies_in_its_subnet(plugin: Any) -> None:
    network = plugin.create(NETWORK, {"name": "n"})
    subnet = plugin.create(SUBNET, {"networkId": network.id, "cidr": "10.42.0.0/16"})
    own = {"networkId": network.id, "fixedIps": [{"subnetId": subnet.id, "ipAddress": "10.43.0.1"}]}
    with pytest.raises(grpc.RpcError, match=r"10\.43\.0\.1 is not a valid IP"):
        plugin.create(PORT, own)


def test_subnets_are_listed_by_all_their_tags(plugin: Any) -> None:
    network = plugin.create(NETWORK, {"name": "n"})
    inputs = {"networkId": network.id, "cidr": "10.42.0.0/16", "tags": ["gangway:stack=demo", "team=ml"]}
    subnet = plugin.create(SUBNET, inputs)
    listing = "openstack:networking/getSubnetIdsV2:getSubnetIdsV2"
    assert plugin.invoke(listing, {"tags": ["gangway:stack=demo"]})[0]["ids"] == [subnet.id]
    assert plugin.invoke(listing, {"tags": ["gangway:stack=demo", "team=other"]})[0]["ids"] == []
    found, _ = plugin.invoke("openstack:networking/getSubnet:getSubnet", {"subnetId": subnet.id})
    assert found["allTags"] == inputs["tags"]


def test_what_is_in_use_cannot_be_deleted(plugin: Any) -> None:
    network = plugin.create(NETWORK, {"name": "n"})
    port = plugin.create(PORT, {"networkId": network.id})
    with pytest.raises(grpc.RpcError, match=f"{network.id} is still in use"):
        plugin.delete(NETWORK, network)
    plugin.delete(PORT, port)
    plugin.delete(NETWORK, network)
    assert plugin.read(NETWORK, network).id == ""


@pytest.mark.parametrize(
    ("type_token", "old", "new", "replaces"),
    [
        (INSTANCE, {"userData": "YQ=="}, {"userData": "Yg=="}, ["userData"]),
        (INSTANCE, {"flavorName": "a"}, {"flavorName": "b"}, []),
        (INSTANCE, {"metadata": {"a": "b"}}, {"metadata": {"a": "c"}}, []),
        (INSTANCE, {"schedulerHints": [{"group": "a"}]}, {"schedulerHints": [{"group": "b"}]}, ["schedulerHints"]),
        (GROUP, {"policies": "affinity"}, {"policies": "soft-affinity"}, ["policies"]),
        (PORT, {"securityGroupIds": ["a"]}, {"securityGroupIds": ["b"]}, []),
        (SUBNET, {"cidr": "10.0.0.0/16"}, {"cidr": "10.1.0.0/16"}, ["cidr"]),
        (RULE, {"remoteIpPrefix": "a"}, {"remoteIpPrefix": "b"}, ["remoteIpPrefix"]),
        (SHARE, {"size": 1}, {"size": 2}, []),
        (SHARE, {"shareProto": "NFS"}, {"shareProto": "CEPHFS"}, ["shareProto"]),
        (ACCESS, {"accessTo": "a"}, {"accessTo": "b"}, ["accessTo"]),
        (CREDENTIAL, {"roles": ["a"]}, {"roles": ["b"]}, ["roles"]),
        (CONTAINER, {"metadata": {"a": "b"}}, {"metadata": {"a": "c"}}, []),
        (OBJECT, {"content": "a"}, {"content": "b"}, []),
        (OBJECT, {"name": "a"}, {"name": "b"}, ["name"]),
        (TEMP_URL, {"ttl": 1}, {"ttl": 2}, ["ttl"]),
    ],
)
def test_what_replaces(
    plugin: Any, type_token: str, old: dict[str, Any], new: dict[str, Any], replaces: list[str]
) -> None:
    assert list(plugin.diff(type_token, old, new).replaces) == replaces


def test_what_the_services_add(plugin: Any) -> None:
    assert plugin.create(ROUTER, {}).outputs["externalFixedIps"][0]["ipAddress"] == "203.0.113.40"
    credential = plugin.create(CREDENTIAL, {"roles": ["member"]})
    assert credential.outputs["secret"].startswith("credential-secret-")
    share = plugin.create(SHARE, {"shareProto": "NFS", "size": 1})
    assert re.fullmatch(rf"198\.51\.100\.\d+:/volumes/{share.id}", share.outputs["exportLocations"][0]["path"])
    access = {"shareId": share.id, "accessTo": "a", "accessLevel": "rw"}
    assert plugin.create(ACCESS, {**access, "accessType": "ip"}).outputs["accessKey"] == ""
    assert len(plugin.create(ACCESS, {**access, "accessType": "cephx"}).outputs["accessKey"]) > 20
    assert plugin.create(CONTAINER, {"name": "runs-1"}).id == "runs-1"


def test_a_temporary_url_is_signed_by_a_key_that_opens_it(plugin: Any) -> None:
    container = plugin.create(CONTAINER, {"name": "secrets", "metadata": {"Temp-URL-Key": "key"}})
    signed = {"container": container.id, "object": "one.json", "ttl": 60, "digest": "sha256"}
    with pytest.raises(grpc.RpcError, match=r"one\.json could not be found"):
        plugin.create(TEMP_URL, {**signed, "key": "key"})
    plugin.create(OBJECT, {"containerName": container.id, "name": "one.json", "content": "{}"})
    with pytest.raises(grpc.RpcError, match="another key"):
        plugin.create(TEMP_URL, {**signed, "key": "other"})
    url = plugin.create(TEMP_URL, {**signed, "key": "key"}).outputs["url"]
    place, _, query = url.partition("?")
    found = re.fullmatch(r"temp_url_sig=([0-9a-f]{64})&temp_url_expires=(\d+)", query)
    path = place.removeprefix("https://swift.example.com")
    assert path == f"/v1/AUTH_{'0' * 32}/secrets/one.json"
    assert found
    expected = hmac.new(b"key", f"GET\n{found[2]}\n{path}".encode(), "sha256").hexdigest()
    assert found[1] == expected
